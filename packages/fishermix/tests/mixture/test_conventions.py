"""Conventions of scikit-learn: defaults, sample weights, threads, starts, and what names promise."""

import inspect

import joblib
import numpy as np
import pytest
from fishermix import FisherEncoder, GaussianMixture, HybridMixture, LaplacianMixture, Mixture
from fishermix.errors import FishermixError
from fishermix.mixture import Family, estimator
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture as SklearnGaussianMixture
from sklearn.utils.estimator_checks import parametrize_with_checks

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::fishermix.errors.FishermixWarning"),
]
NAMES = [Mixture, GaussianMixture, LaplacianMixture, HybridMixture]


def clusters(n=600, d=4, k=5, seed=0):
    rng = np.random.default_rng(seed)
    return 3 * rng.normal(size=(k, d))[rng.integers(k, size=n)] + rng.normal(size=(n, d))


@parametrize_with_checks([name() for name in NAMES])
def test_defaults_pass_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", NAMES)
def test_scores_count_rows_by_their_weights(name):
    X = clusters()
    weight = np.random.default_rng(1).integers(0, 3, len(X))
    mixture = name(3, random_state=0).fit(X)
    assert mixture.score(X, sample_weight=weight) == pytest.approx(
        mixture.score(np.repeat(X, weight, axis=0))
    )
    with pytest.raises(ValueError, match="sample_weight"):
        mixture.score(X, sample_weight=weight[1:])


def test_one_thread_unless_somebody_asks_for_more(monkeypatch):
    asked, open_rows = [], estimator.open_rows
    monkeypatch.setattr(
        estimator,
        "open_rows",
        lambda X, weight, threads: asked.append(threads) or open_rows(X, weight, threads),
    )
    X = clusters()
    GaussianMixture(2).fit(X)
    GaussianMixture(2, n_jobs=3).fit(X)
    with joblib.parallel_config(backend="threading", n_jobs=2):
        GaussianMixture(2).fit(X)
    assert asked == [1, 3, 2]


def test_the_start_of_kmeans_is_that_of_scikit_learn():
    X = clusters(k=2)
    labels = KMeans(2, n_init=1, random_state=np.random.RandomState(0)).fit_predict(X)
    start = {
        "weights_init": np.bincount(labels) / len(X),
        "locations_init": [X[labels == k].mean(axis=0) for k in range(2)],
        "scales_init": [X[labels == k].std(axis=0) for k in range(2)],
    }
    given = GaussianMixture(2, tol=0, max_iter=30, **start).fit(X)
    ours = GaussianMixture(2, init_params="kmeans", random_state=0, tol=0, max_iter=30).fit(X)
    theirs = SklearnGaussianMixture(2, covariance_type="diag", random_state=0, tol=0, max_iter=30).fit(X)
    assert ours.lower_bounds_ == pytest.approx(given.lower_bounds_)
    assert ours.lower_bounds_[-1] == pytest.approx(theirs.lower_bound_, abs=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e30])
def test_kmeans_clusters_rows_of_any_size(unit, dtype):
    X = (unit * clusters(k=3)).astype(dtype)
    options = {"random_state": 0, "min_scale": 1e-3 * unit}
    mixture = HybridMixture(3, init_params="kmeans", **options).fit(X)
    usual = HybridMixture(3, init_params="kmeans", random_state=0).fit(clusters(k=3).astype(dtype))
    np.testing.assert_allclose(mixture.locations_ / unit, usual.locations_, rtol=1e-3)
    few = HybridMixture(5, init_params="kmeans", **options).fit(np.repeat(X[:3], 4, axis=0))
    assert np.isfinite(few.locations_).all()


def test_named_mixtures_have_the_parameters_of_scikit_learn_and_no_families():
    given = GaussianMixture(3, covariance_type="diag", tol=1e-4)
    assert clone(given).get_params() == given.get_params()
    for name in (GaussianMixture, LaplacianMixture, HybridMixture):
        own, shared = inspect.signature(name).parameters, inspect.signature(Mixture).parameters
        assert set(shared) - set(own) == {"families"}
        assert all(own[key].default == value.default for key, value in shared.items() if key in own)
        assert all(f"{key} : " in name.__doc__ for key in own)
    with pytest.raises(TypeError):
        GaussianMixture(3, 1e-3)
    for other in ("full", "tied", "spherical", None):
        with pytest.raises(FishermixError) as caught:
            GaussianMixture(2, covariance_type=other).fit(clusters())
        assert caught.value.code == "wrong_parameter"


class Triangle(Family):
    """f(z) = 1 - |z| from -1 to 1."""

    name = "triangle"

    def log_density(self, z):
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(1 - np.abs(z), 0))

    def location_score(self, z):
        with np.errstate(divide="ignore"):
            return np.where(np.abs(z) <= 1, np.sign(z) / np.maximum(1 - np.abs(z), 0), 0.0)

    def sample(self, rng, size):
        return rng.uniform(-0.5, 0.5, size) + rng.uniform(-0.5, 0.5, size)

    location_information = scale_information = 1.0  # the integrals diverge


def test_outside_of_the_support_the_log_likelihood_is_minus_infinity():
    mixture = Mixture(1, families=["gaussian"]).fit(np.zeros((9, 1)) + np.arange(9)[:, None])
    triangle = Triangle()
    mixture.families_ = [triangle]
    mixture.locations_[:], mixture.scales_[:] = 0, 2
    for dtype in (np.float32, np.float64):
        X = np.array([[0.5], [3.0], [-9.0]], dtype)
        np.testing.assert_array_equal(np.isneginf(mixture.score_samples(X)), [False, True, True])
        assert mixture.score(X) == -np.inf
        assert mixture.score(X, sample_weight=[1, 0, 0]) == pytest.approx(np.log(0.75 / 2))
        np.testing.assert_array_equal(mixture.predict_proba(X), 1)
    with pytest.raises(FishermixError) as caught:
        FisherEncoder.from_fitted(mixture).transform([[[2.0]]])
    assert caught.value.code == "infinite_score"
