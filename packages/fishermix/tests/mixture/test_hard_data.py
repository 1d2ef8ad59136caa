"""Data that fits have stumbled over: ties, numbers near the ends of their type, huge weights."""

import numpy as np
import pytest
from fishermix.mixture import GaussianMixture, HybridMixture, LaplacianMixture, Mixture
from refuses import refuses

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape)


def assert_finite(mixture):
    for name in ("weights_", "locations_", "scales_", "lower_bounds_"):
        assert np.isfinite(getattr(mixture, name)).all(), name


@pytest.mark.slow
@pytest.mark.parametrize("cls", [LaplacianMixture, HybridMixture])
@pytest.mark.parametrize(
    "X",
    [
        np.maximum(normal(5000, 8), 0).astype(np.float32),
        np.maximum(normal(5000, 8), 0) + 1,
        np.round(np.random.default_rng(0).laplace(size=(9000, 5))),
        np.random.default_rng(0).integers(-9, 9, (5000, 8)).astype(np.int8),
        np.maximum(normal(20_000, 16), 0).astype(np.float32),
    ],
    ids=["relu float32", "relu float64 + 1", "rounded", "int8", "more relu"],
)
def test_tied_values(cls, X):
    mixture = cls(4, random_state=0).fit(X)
    assert_finite(mixture)
    laplacian = next(fit for fit in mixture._last.fits if fit.family.name == "laplace")
    assert np.isin(laplacian.location, X).all()


# Numbers near the ends of their type

NAMES = [GaussianMixture, LaplacianMixture, HybridMixture]
FITTED = ("weights_", "locations_", "scales_", "choice_", "lower_bounds_")
no_warnings = pytest.mark.filterwarnings("error::RuntimeWarning")


def clusters(n=1000):
    return normal(n, 4) + 6 * (np.arange(n)[:, None] % 2)


@pytest.mark.slow
@no_warnings
@pytest.mark.parametrize("cls", [*NAMES, Mixture])
@pytest.mark.parametrize("power", [20, 30, 36, -18, -22, -30])
def test_float32_of_any_size_is_fitted_as_float64_is(cls, power):
    X = (clusters() * 10.0**power).astype(np.float32)
    parameters = {"random_state": 0, "min_scale": 10.0 ** (power - 3)}
    narrow, wide = cls(2, **parameters).fit(X), cls(2, **parameters).fit(X.astype(np.float64))
    for name in FITTED:
        np.testing.assert_array_equal(getattr(narrow, name), getattr(wide, name), err_msg=name)
    np.testing.assert_array_equal(narrow.score_samples(X), wide.score_samples(X.astype(np.float64)))
    usual = cls(2, random_state=0).fit(clusters())
    np.testing.assert_allclose(narrow.scales_, usual.scales_ * 10.0**power, rtol=1e-4)


@no_warnings
def test_a_column_of_tiny_numbers_beside_others():
    X = clusters() * [1, 1e-25, 1e12, 1]
    start = {"locations_init": X[:2], "scales_init": np.tile(X.std(axis=0), (2, 1)), "min_scale": 1e-30}
    narrow = HybridMixture(2, **start).fit(X.astype(np.float32))
    wide = HybridMixture(2, **start).fit(X)
    np.testing.assert_allclose(narrow.scales_, wide.scales_, rtol=1e-4)
    np.testing.assert_allclose(narrow.predict_proba(X.astype(np.float32)), wide.predict_proba(X), atol=1e-4)


@no_warnings
@pytest.mark.parametrize("cls", NAMES)
def test_all_passes_of_an_iteration_see_the_same_posteriors(cls):
    """Rows that overflow float32 in one pass and not in another, in one block and not in another."""
    X = clusters(9000).astype(np.float32)
    X[[5, 17, 8000]] = 3e38
    start = {"locations_init": X[:2], "scales_init": np.ones((2, 4)), "tol": 0}
    assert_finite(cls(2, **start, max_iter=8).fit(X))
    narrow, wide = (cls(2, **start, max_iter=1).fit(x) for x in (X, X.astype(np.float64)))
    for name in FITTED:
        np.testing.assert_array_equal(getattr(narrow, name), getattr(wide, name), err_msg=name)


@no_warnings
@pytest.mark.parametrize("cls", [*NAMES, Mixture])
@pytest.mark.parametrize("size", [1e155, 1e200, 1e300])
def test_what_float64_cannot_square_is_refused(cls, size):
    outlier = clusters(20_000)  # more than the start looks at
    outlier[[9, 7777]] = size
    weight = np.ones(len(outlier))
    for X in (clusters() * size, np.r_[clusters(), [[0, 0, size, 0]]], outlier):
        with refuses("too_large"):
            cls(2, random_state=0).fit(X, sample_weight=weight[: len(X)])


@no_warnings
@pytest.mark.parametrize("cls", NAMES)
@pytest.mark.parametrize("power", [149, 100, -100, -140])
def test_what_float64_can_square_is_fitted(cls, power):
    mixture = cls(2, random_state=0, min_scale=10.0 ** (power - 3)).fit(clusters() * 10.0**power)
    usual = cls(2, random_state=0).fit(clusters())
    np.testing.assert_allclose(mixture.scales_ / 10.0**power, usual.scales_, rtol=1e-6)


@no_warnings
@pytest.mark.parametrize("cls", NAMES)
@pytest.mark.parametrize("weight", [1e308, 1e300, 1e98, 1e-104, 1e-300])
def test_weights_out_of_all_proportion_are_refused(cls, weight):
    with pytest.raises(ValueError, match=r"sum to a number between 1e-100 and 1e\+100"):
        cls(2, random_state=0).fit(clusters(), sample_weight=np.full(1000, weight))


@pytest.mark.parametrize("cls", NAMES)
def test_the_unit_of_weights_does_not_matter(cls):
    usual = cls(2, random_state=0).fit(clusters(), sample_weight=np.ones(1000))
    for unit in (2.0**310, 2.0**-320):
        mixture = cls(2, random_state=0).fit(clusters(), sample_weight=np.full(1000, unit))
        np.testing.assert_allclose(mixture.scales_, usual.scales_, rtol=1e-9)
        np.testing.assert_allclose(mixture.lower_bounds_, usual.lower_bounds_, rtol=1e-9)
