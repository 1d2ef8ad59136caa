"""Laws of EM: the likelihood never falls, scikit-learn agrees, weights count rows, threads change nothing."""

import warnings

import numpy as np
import pytest
from fishermix.errors import FishermixWarning
from fishermix.mixture import (
    Gaussian,
    GaussianMixture,
    HybridMixture,
    Laplace,
    LaplacianMixture,
    Logistic,
    Mixture,
    StudentT,
    posteriors,
)
from fishermix.mixture.em import FitState, find_quantum
from fishermix.mixture.loops import COMPILED
from fishermix.mixture.m_step import FitPlan, RowSorter
from fishermix.mixture.parameters import MixtureParameters
from fishermix.mixture.passes import Pass
from fishermix.rows import ArraySource, Block
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import fit_family, run_iteration
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as SklearnGaussianMixture

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
FAMILIES = {
    "gaussian": [Gaussian()],
    "laplace": [Laplace()],
    "hybrid": [Gaussian(), Laplace()],
    "all": [Gaussian(), Laplace(), Logistic(), StudentT(3)],
}


def clusters(rng, n, d, k, dtype=np.float64):
    """Rows from k well or badly separated clusters, half of the columns with heavy tails."""
    centres = rng.normal(scale=rng.uniform(0.5, 4), size=(k, d))
    noise = np.where(np.arange(d) % 2, rng.laplace(size=(n, d)), rng.standard_normal((n, d)))
    return (centres[rng.integers(k, size=n)] + noise * rng.uniform(0.2, 3, size=d)).astype(dtype)


def start(families, X, k, rng, floor=1e-3):
    locations = X[rng.choice(len(X), k, replace=False)].astype(float)
    scales = np.maximum(np.tile(X.std(axis=0, dtype=float), (k, 1)), floor)
    return FitState.start(families, (np.full(k, 1 / k), locations, scales), floor, len(X), seed=0)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(10, 400),
    d=st.integers(1, 12),
    k=st.integers(1, 5),
    families=st.sampled_from(sorted(FAMILIES)),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_the_likelihood_never_falls(seed, n, d, k, families, dtype):
    rng = np.random.default_rng(seed)
    X = clusters(rng, n, d, k, dtype)
    state = start(FAMILIES[families], X, k, rng)
    source = ArraySource(X, threads=1)
    for _ in range(12):
        state = run_iteration(state, source)
        if state.reseeds.any():
            return
    gains = np.diff(state.lower_bounds)
    assert gains.min() >= -(1e-9 if dtype == np.float64 else 2e-5) * (1 + np.abs(state.lower_bounds).max())


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 10), k=st.integers(1, 5))
def test_agrees_with_scikit_learn(seed, d, k):
    rng = np.random.default_rng(seed)
    X = clusters(rng, 300, d, k)
    means, scales = X[:k], np.tile(X.std(axis=0), (k, 1))
    weights = rng.dirichlet(np.full(k, 5.0))
    ours = GaussianMixture(
        k, weights_init=weights, locations_init=means, scales_init=scales, tol=0, max_iter=8, min_scale=1e-12
    )
    theirs = SklearnGaussianMixture(
        k,
        covariance_type="diag",
        weights_init=weights,
        means_init=means,
        precisions_init=1 / scales**2,
        tol=0,
        max_iter=8,
        reg_covar=0,
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ours.fit(X), theirs.fit(X)
    assume(
        not any("The fit continued" in str(warning.message) for warning in told)
    )  # their components collapse
    bounds = getattr(theirs, "lower_bounds_", [theirs.lower_bound_])  # scikit-learn before 1.7 keeps the last
    np.testing.assert_allclose(ours.lower_bounds_[-len(bounds) :], bounds, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.weights_, theirs.weights_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours.locations_, theirs.means_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ours.scales_**2, theirs.covariances_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-7)
    assert ours.bic(X) == pytest.approx(theirs.bic(X))
    assert ours.aic(X) == pytest.approx(theirs.aic(X))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_second_family_never_lowers_the_expected_likelihood_of_a_step(seed):
    rng = np.random.default_rng(seed)
    X = clusters(rng, 200, 6, 3)
    source = ArraySource(X, threads=1)
    for one, more in (("gaussian", "hybrid"), ("hybrid", "all")):
        few, many = (
            run_iteration(start(FAMILIES[f], X, 3, np.random.default_rng(seed)), source) for f in (one, more)
        )
        expected = [
            np.max([fit.expected_log_likelihood for fit in state.fits], axis=0) for state in (few, many)
        ]
        assert (expected[1] >= expected[0] - 1e-12).all()


def test_the_m_step_fits_what_the_families_fit_by_themselves():
    rng = np.random.default_rng(0)
    X = clusters(rng, 500, 7, 3)
    before = start(FAMILIES["hybrid"], X, 3, rng)
    posterior, _ = before.parameters.posteriors(X)
    for fit in run_iteration(before, ArraySource(X, threads=1)).fits:
        for k in range(3):
            location, scale = fit_family(fit.family, X, posterior[k])
            np.testing.assert_allclose(fit.location[k], location, rtol=1e-9, atol=1e-10)
            np.testing.assert_allclose(fit.scale[k], scale, rtol=1e-9)
            expected = posterior[k] @ (fit.family.log_density((X - location) / scale) - np.log(scale))
            np.testing.assert_allclose(
                fit.expected_log_likelihood[k], expected / posterior[k].sum(), rtol=1e-7
            )


@pytest.mark.parametrize("families", sorted(FAMILIES))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_e_step_is_the_formula(families, dtype):
    rng = np.random.default_rng(1)
    offered = FAMILIES[families]
    k, d = 5, 70
    choice = rng.integers(len(offered), size=(k, d))
    weights, locations = rng.dirichlet(np.ones(k)), rng.normal(size=(k, d))
    scales = rng.uniform(0.3, 2, size=(k, d))
    X = rng.normal(size=(131, d)).astype(dtype)
    joint = np.log(weights) + np.zeros((len(X), k))
    for j in range(k):
        for i in range(d):
            z = (X[:, i].astype(float) - locations[j, i]) / scales[j, i]
            joint[:, j] += offered[choice[j, i]].log_density(z) - np.log(scales[j, i])
    posterior, log_likelihood = MixtureParameters(offered, weights, locations, scales, choice).posteriors(X)
    tolerance = 1e-12 if dtype == np.float64 else 2e-6
    np.testing.assert_allclose(log_likelihood, logsumexp(joint, axis=1), rtol=tolerance)
    log_posterior = joint - logsumexp(joint, axis=1, keepdims=True)
    np.testing.assert_allclose(posterior.T, np.exp(log_posterior), atol=300 * tolerance)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_weight_two_is_the_row_twice(name):
    rng = np.random.default_rng(2)
    X = clusters(rng, 120, 4, 2)
    weight = rng.integers(0, 4, len(X))
    given_start = {"locations_init": X[:2], "scales_init": np.ones((2, 4)), "tol": 0, "max_iter": 6}
    weighted = Mixture(2, families=FAMILIES[name], **given_start).fit(X, sample_weight=weight)
    repeated = Mixture(2, families=FAMILIES[name], **given_start).fit(np.repeat(X, weight, axis=0))
    np.testing.assert_allclose(weighted.lower_bounds_, repeated.lower_bounds_, rtol=1e-9)
    np.testing.assert_allclose(weighted.locations_, repeated.locations_, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(weighted.scales_, repeated.scales_, rtol=1e-7)
    np.testing.assert_array_equal(weighted.choice_, repeated.choice_)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_no_bit_depends_on_the_number_of_threads(name):
    X = clusters(np.random.default_rng(3), 9000, 5, 3, np.float32)
    fits = [
        Mixture(3, families=FAMILIES[name], random_state=0, max_iter=4, n_jobs=threads).fit(X)
        for threads in (1, 2, 5)
    ]
    for other in fits[1:]:
        assert other.lower_bounds_ == fits[0].lower_bounds_
        for attribute in ("weights_", "locations_", "scales_", "choice_"):
            np.testing.assert_array_equal(getattr(other, attribute), getattr(fits[0], attribute))


@pytest.mark.slow
def test_what_a_pass_keeps_for_the_next_may_be_lost():
    X = clusters(np.random.default_rng(4), 3000, 5, 3)
    state = start(FAMILIES["hybrid"], X, 3, np.random.default_rng(0))

    class Forgetful(ArraySource):
        def total(self, step):
            for block in self.blocks:
                block.memo.clear()
            return super().total(step)

    kept, lost = state, state
    for _ in range(4):
        kept, lost = run_iteration(kept, ArraySource(X)), run_iteration(lost, Forgetful(X))
    np.testing.assert_array_equal(kept.parameters.locations, lost.parameters.locations)
    assert kept.lower_bounds == lost.lower_bounds


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_blocks_with_many_posteriors_list_them_tile_by_tile(name, monkeypatch):
    X = clusters(np.random.default_rng(6), 5000, 5, 3)
    given = {"families": FAMILIES[name], "random_state": 0, "max_iter": 4}
    listed = Mixture(3, **given).fit(X)
    monkeypatch.setattr(posteriors, "MOST_LISTED", 0)
    by_tiles = Mixture(3, **given).fit(X)
    assert by_tiles.lower_bounds_ == listed.lower_bounds_
    for attribute in ("weights_", "locations_", "scales_", "choice_"):
        np.testing.assert_array_equal(getattr(by_tiles, attribute), getattr(listed, attribute))


def test_steps_travel():
    """A pass can be sent to another process, and its statistics back."""
    import pickle

    X = clusters(np.random.default_rng(5), 600, 5, 3)
    state = start(FAMILIES["all"], X, 3, np.random.default_rng(0))
    n_rows = 10**9  # enough for the search of medians
    plan = FitPlan(n_rows, np.dtype(float), COMPILED, RowSorter(), memory=1e9)
    fits = tuple(fit.begin(state.rows, plan) for fit in state.fits)
    step = Pass(state.parameters, fits, X.dtype, find_quantum(600), again=False, cache_bytes=0)
    here, there = step(Block(X)), pickle.loads(pickle.dumps(step))(Block(X))
    again = pickle.loads(pickle.dumps(there))
    np.testing.assert_array_equal(here.fits[0].first, again.fits[0].first)
    np.testing.assert_array_equal(here.fits[1].histogram, again.fits[1].histogram)
    assert here.e_step.log_likelihood == again.e_step.log_likelihood


def test_known_choices_are_recovered():
    """Must show: 95 % of the choices at 2,000 points a component."""
    rng = np.random.default_rng(6)
    k, d = 5, 40
    laplacian = rng.random((k, d)) < 0.5
    centres, scales = rng.normal(scale=3, size=(k, d)), rng.uniform(0.5, 2, size=(k, d))
    labels = np.repeat(np.arange(k), 2000)
    noise = np.where(laplacian[labels], rng.laplace(size=(2000 * k, d)), rng.standard_normal((2000 * k, d)))
    X = (centres[labels] + scales[labels] * noise).astype(np.float32)
    mixture = HybridMixture(k, random_state=0).fit(X)
    order = [mixture.predict(X[labels == j]).max() for j in range(k)]
    assert sorted(order) == list(range(k))
    assert (mixture.choice_[order] == laplacian).mean() >= 0.95


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_dimensions_neither_overflow_nor_underflow(dtype):
    rng = np.random.default_rng(7)
    X = (rng.normal(size=(300, 3000)) * 10 + np.repeat([[0], [100], [-1000]], 100, axis=0)).astype(dtype)
    mixture = HybridMixture(3, random_state=0).fit(X)
    labels = mixture.predict(X).reshape(3, 100)
    assert (labels == labels[:, :1]).all()
    assert len(set(labels[:, 0])) == 3
    np.testing.assert_allclose(mixture.predict_proba(X).max(axis=1), 1)
    # Per dimension, the entropy of a normal of deviation 10 is 1.42 + log 10.
    np.testing.assert_allclose(mixture.score_samples(X), -3000 * (1.42 + np.log(10)), rtol=0.02)
    assert -1e290 < mixture.score_samples(X[:1] * 1e6)[0] < -1e9


def test_far_outliers_in_float32_are_taken_in_float64():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(500, 3)).astype(np.float32)
    X[0] = 1e30
    with pytest.warns(UserWarning, match="min_scale"):
        mixture = HybridMixture(2, random_state=0).fit(np.r_[X, np.zeros((3, 3), np.float32)])
    assert np.flatnonzero(mixture.predict(X) == mixture.predict(X[:1])).tolist() == [0]
    np.testing.assert_array_equal(mixture.locations_.max(axis=0), X[0])
    np.testing.assert_allclose(mixture.weights_.max(), 502 / 503, atol=1e-3)
    assert mixture.score_samples(X).min() > -100
    assert mixture.score_samples(np.full((1, 3), 1e300)) == [-1e290]


def test_an_offset_costs_no_precision():
    """The variance of data far from zero: the sums run about the last mean."""
    rng = np.random.default_rng(9)
    X = rng.normal(size=(2000, 3))
    near = GaussianMixture(1, random_state=0).fit(X)
    far = GaussianMixture(1, random_state=0).fit(X + 1e6)
    np.testing.assert_allclose(far.scales_, near.scales_, rtol=1e-7)
    far = GaussianMixture(1, random_state=0).fit((X + 1000).astype(np.float32))
    np.testing.assert_allclose(far.scales_, near.scales_, rtol=1e-4)


def test_a_lost_component_starts_again():
    rng = np.random.default_rng(10)
    X = clusters(rng, 400, 3, 3)
    far = np.vstack([X[:2], np.full((1, 3), 1e6)])
    with pytest.warns(UserWarning, match="1 components lost all their rows and were re-seeded"):
        mixture = HybridMixture(3, locations_init=far, scales_init=np.ones((3, 3)), random_state=0).fit(X)
    assert mixture.weights_.min() > 0.01
    assert np.abs(mixture.locations_).max() < 1e3


@pytest.mark.parametrize("cls", [GaussianMixture, LaplacianMixture, HybridMixture])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", ["constant column", "duplicates", "as many components as rows", "ties"])
def test_degenerate_data_go_on_with_a_warning(cls, dtype, case):
    rng = np.random.default_rng(11)
    X = rng.normal(size=(40, 3))
    k = 3
    if case == "constant column":
        X[:, 1] = 0.1
    elif case == "duplicates":
        X = np.repeat(X[:4], 10, axis=0)
        k = 6
    elif case == "as many components as rows":
        k = len(X)
    else:
        X = np.round(X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mixture = cls(k, random_state=0).fit(X.astype(dtype))
    told = [w for w in caught if w.category is FishermixWarning]
    assert len(told) == 1
    assert "scales are at min_scale" in str(told[0].message)
    assert all(issubclass(w.category, UserWarning | ConvergenceWarning) for w in caught)
    assert np.isfinite(mixture.locations_).all()
    assert (mixture.scales_ >= mixture.min_scale * (1 - 1e-9)).all()
    assert mixture.weights_.sum() == pytest.approx(1)
    assert np.isfinite(mixture.score_samples(X)).all()
