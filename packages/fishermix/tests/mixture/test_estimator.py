"""The estimators against oracles: starts, bounds, kills, batches, draws, criteria, a family of one's own."""

import signal
import subprocess
import sys

import numpy as np
import pytest
from fishermix import FisherEncoder
from fishermix.mixture import (
    Family,
    Gaussian,
    GaussianMixture,
    HybridMixture,
    LaplacianMixture,
    Mixture,
    StudentT,
    em,
    register_family,
)
from oracles import interrupt_em
from refuses import refuses
from scipy import stats
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as SklearnGaussianMixture
from sklearn.utils import check_random_state
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
NAMES = [Mixture, GaussianMixture, LaplacianMixture, HybridMixture]
FITTED = ("weights_", "locations_", "scales_", "choice_", "lower_bounds_", "n_iter_", "converged_")
CENTRES = np.array([[0, 0, 0], [9, 0, -9], [0, 9, 9]])


def rows(seed=0, n=300, spread=1.0):
    """Three clusters in three dimensions, the last dimension with heavy tails."""
    rng = np.random.default_rng(seed)
    noise = np.column_stack([rng.standard_normal((n, 2)), rng.laplace(size=n)])
    return CENTRES[rng.integers(3, size=n)] + spread * noise


def assert_same_bits(one, other):
    for name in FITTED:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name, strict=True)


def interrupting_at(iteration):
    """Interrupts the iteration of this number, counted over all starts."""
    calls = 0

    def act(state):
        nonlocal calls
        calls += 1
        if calls == iteration:
            interrupt()

    return act


def interrupt():
    raise KeyboardInterrupt


class UserSecant(Family):
    """The hyperbolic secant, f(z) = 1 / (pi cosh z), as a user would write it."""

    name = "hyperbolic-secant"

    def log_density(self, z):
        return np.log(2 / np.pi) - np.logaddexp(z, -z)

    def location_score(self, z):
        return np.tanh(z)

    def sample(self, rng, size):
        return np.log(np.tan(np.pi / 2 * rng.uniform(size=size)))


@pytest.mark.parametrize("name", NAMES)
def test_sample_weights_are_repetitions_from_the_same_start(name):
    start = np.random.RandomState(1).rand(2, 30)
    estimator = name(2, locations_init=start, tol=0, max_iter=5, n_jobs=1)
    check_sample_weight_equivalence_on_dense_data(name.__name__, estimator)


@pytest.mark.parametrize("name", NAMES)
def test_bounds_iterations_and_convergence_agree(name):
    X = rows(spread=4)
    mixture = name(3, tol=1e-3, random_state=0).fit(X)
    gains = np.diff(mixture.lower_bounds_)
    assert mixture.converged_
    assert mixture.n_iter_ == len(mixture.lower_bounds_) > 2
    assert gains[-1] < 1e-3 <= gains[:-1].min()
    assert mixture.score(X) >= mixture.lower_bounds_[-1] - 1e-9
    short = name(3, tol=1e-3, max_iter=2, random_state=0)
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 iterations"):
        short.fit(X)
    assert not short.converged_
    assert short.lower_bounds_ == mixture.lower_bounds_[:2]


def test_the_given_start_is_used():
    X = rows()
    weights = np.array([0.2, 0.5, 0.3])
    locations, scales = CENTRES + 0.7, np.array([[1.0, 2, 3], [2, 2, 2], [3, 1, 2]])
    mixture = GaussianMixture(
        3, weights_init=weights, locations_init=locations, scales_init=scales, max_iter=1, tol=0
    ).fit(X)
    joint = np.log(weights) + stats.norm.logpdf(X[:, None], locations, scales).sum(axis=2)
    posterior = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    assert mixture.lower_bounds_ == pytest.approx([logsumexp(joint, axis=1).mean()])
    np.testing.assert_allclose(mixture.weights_, posterior.mean(axis=0))
    np.testing.assert_allclose(mixture.locations_, posterior.T @ X / posterior.sum(axis=0)[:, None])


def test_random_states_are_scikit_learns():
    X, global_one = rows(spread=4), check_random_state(None)
    before = global_one.get_state()[1].copy()
    by_number = HybridMixture(4, random_state=3, max_iter=5).fit(X)
    by_object = HybridMixture(4, random_state=np.random.RandomState(3), max_iter=5).fit(X)
    assert_same_bits(by_number, by_object)
    np.testing.assert_array_equal(by_number.sample(9)[0], by_number.sample(9)[0])
    np.testing.assert_array_equal(global_one.get_state()[1], before)


def test_the_best_of_several_starts_is_kept(monkeypatch):
    X, finals = rows(spread=3), {}

    keep_better = em.FitProgress.keep_better

    def record(progress):
        finals[progress.state.seed] = progress.state.lower_bounds[-1]
        keep_better(progress)

    monkeypatch.setattr(em.FitProgress, "keep_better", record)
    best_is_last = []
    for seed in range(4):
        finals.clear()
        mixture = HybridMixture(5, n_init=4, init_params="random", random_state=seed, tol=0, max_iter=15).fit(
            X
        )
        assert len(set(finals.values())) == 4
        assert mixture.lower_bounds_[-1] == max(finals.values())
        assert mixture.score(X) == pytest.approx(max(finals.values()), abs=0.02)
        best_is_last.append(mixture.lower_bounds_[-1] == list(finals.values())[-1])
    assert not all(best_is_last)


def test_a_warm_start_goes_on_from_what_the_user_has_set():
    X = rows()
    mixture = GaussianMixture(3, tol=0, max_iter=1, random_state=0, warm_start=True).fit(X)
    mixture.locations_ = CENTRES + 0.5
    expected = mixture.score(X)
    assert mixture.fit(X).lower_bounds_[-1] == pytest.approx(expected)


def test_a_warm_start_with_a_checkpoint_is_refused_and_the_fit_stays(tmp_path):
    X = rows()
    mixture = GaussianMixture(3, random_state=0, warm_start=True, checkpoint=tmp_path / "c").fit(X)
    bounds = mixture.lower_bounds_
    with refuses("wrong_parameter"):
        mixture.fit(X)
    assert mixture.lower_bounds_ == bounds
    assert_same_bits(mixture.set_params(warm_start=False).fit(X), clone(mixture).fit(X))


@pytest.mark.parametrize("families", [["gaussian"], ["laplace", "gaussian"], ["gaussian", StudentT(4)]])
def test_a_warm_start_with_other_families_is_refused(families):
    X = rows()
    mixture = Mixture(3, families=["gaussian", "laplace"], random_state=0, warm_start=True).fit(X)
    mixture.set_params(families=families)
    for continue_with in (mixture.fit, mixture.partial_fit):
        with refuses("wrong_parameter"):
            continue_with(X)
    mixture.set_params(families=[Gaussian(), "laplace"]).fit(X).partial_fit(X)


def test_a_warm_start_with_a_family_that_has_no_equality_goes_on():
    mixture = Mixture(2, families=[UserSecant(), "gaussian"], random_state=0, warm_start=True).fit(rows())
    assert mixture.set_params(families=[UserSecant(), "gaussian"]).fit(rows()).n_iter_ > 0


@pytest.mark.parametrize(("before", "after"), [(1e-3, 3.0), (3.0, 1e-3)])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.filterwarnings("ignore::fishermix.errors.FishermixWarning")
def test_a_warm_start_takes_another_limit_of_the_scales(method, before, after):
    X = rows()
    mixture = HybridMixture(3, random_state=0, min_scale=before, warm_start=True).fit(X)
    getattr(mixture.set_params(min_scale=after), method)(X)
    assert (mixture.scales_.min() >= 3) == (after == 3)


# Interruption


def test_ctrl_c_in_a_later_start_keeps_the_best_so_far(monkeypatch):
    X = rows(spread=4)
    first = HybridMixture(3, tol=0, max_iter=6, random_state=np.random.RandomState(0)).fit(X)
    interrupt_em(monkeypatch, interrupting_at(8))
    interrupted = HybridMixture(3, tol=0, max_iter=6, n_init=3, random_state=np.random.RandomState(0))
    with pytest.raises(KeyboardInterrupt):
        interrupted.fit(X)
    assert_same_bits(interrupted, first)


CASES = [
    (HybridMixture, {"max_iter": 13}, 9),
    (LaplacianMixture, {"max_iter": 13}, 3),
    (GaussianMixture, {"max_iter": 7, "n_init": 3}, 13),
    (Mixture, {"max_iter": 9, "families": ["gaussian", StudentT(3)]}, 8),
]


@pytest.mark.parametrize(("name", "parameters", "at"), CASES)
def test_an_interrupted_fit_ends_with_the_same_bits(monkeypatch, tmp_path, name, parameters, at):
    X = rows(spread=4).astype(np.float32)
    weight = np.random.default_rng(1).uniform(0.5, 2, len(X))
    mixture = name(3, tol=0, random_state=0, **parameters)
    whole = clone(mixture).fit(X, sample_weight=weight)
    mixture.set_params(checkpoint=tmp_path / "checkpoint")
    with monkeypatch.context() as patch:
        interrupt_em(patch, interrupting_at(at))
        with pytest.raises(KeyboardInterrupt):
            clone(mixture).fit(X, sample_weight=weight)
    assert_same_bits(clone(mixture).fit(X, sample_weight=weight), whole)
    interrupt_em(monkeypatch, interrupting_at(1))
    assert_same_bits(clone(mixture).fit(X, sample_weight=weight), whole)  # finished: nothing is done again


KILLED = """
import os, signal, sys
import numpy as np
from fishermix.mixture import HybridMixture, em

def begin(state, *others, original=em.run_iteration):
    if state.iteration == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(state, *others)

em.run_iteration = begin
HybridMixture(3, tol=0, random_state=0, max_iter=12, checkpoint=sys.argv[2]).fit(np.load(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_killed_fit_ends_with_the_same_bits(monkeypatch, tmp_path):
    X = rows(spread=4)
    np.save(tmp_path / "rows.npy", X)
    command = [sys.executable, "-c", KILLED, str(tmp_path / "rows.npy"), str(tmp_path / "checkpoint")]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    mixture = HybridMixture(3, tol=0, random_state=0, max_iter=12)
    whole = clone(mixture).fit(X)
    interrupt_em(monkeypatch, interrupting_at(8))  # 7 of the 12 are left to do
    assert_same_bits(mixture.set_params(checkpoint=tmp_path / "checkpoint").fit(X), whole)


def test_a_kill_while_the_first_checkpoint_is_written_costs_only_that(monkeypatch, tmp_path):
    X = rows(spread=4)
    mixture = HybridMixture(3, tol=0, random_state=0, max_iter=6)
    whole = clone(mixture).fit(X)
    mixture.set_params(checkpoint=tmp_path / "checkpoint").fit(X)
    for path in (tmp_path / "checkpoint").iterdir():
        path.unlink()
    half = tmp_path / "checkpoint" / ".saving-0123456789abcdef"  # as a killed first save leaves it
    half.mkdir()
    (half / "tensors").write_bytes(b"half a file")
    assert_same_bits(clone(mixture).fit(X), whole)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("not a checkpoint")
    with refuses("damaged"):
        mixture.set_params(checkpoint=tmp_path / "mine").fit(X)
    assert (tmp_path / "mine" / "notes.txt").exists()


def test_a_checkpoint_of_several_starts_takes_no_other_max_iter(tmp_path):
    X = rows(spread=4)
    mixture = GaussianMixture(3, tol=0, random_state=0, n_init=2, max_iter=2, checkpoint=tmp_path / "c").fit(
        X
    )
    with refuses("other_data"):
        clone(mixture).set_params(max_iter=8).fit(X)


# Saving


def test_what_the_user_has_set_is_what_is_saved(tmp_path):
    mixture = GaussianMixture(3, random_state=0).fit(rows())
    mixture.locations_ = mixture.locations_ + 1
    mixture.scales_[0] *= 2
    mixture.save(tmp_path / "mixture")
    loaded = GaussianMixture.load(tmp_path / "mixture")
    np.testing.assert_array_equal(loaded.locations_, mixture.locations_)
    np.testing.assert_array_equal(loaded.scales_, mixture.scales_)


# Batches


@pytest.mark.parametrize("name", NAMES)
def test_the_first_batch_is_a_fit(name):
    X = rows()
    assert_same_bits(name(3, random_state=0).partial_fit(X), name(3, random_state=0).fit(X))


@pytest.mark.parametrize("weight", [1.0, 3.0])
@pytest.mark.parametrize("first", ["fit", "partial_fit"])
def test_batches_of_one_gaussian_are_pooled_exactly(first, weight, tmp_path):
    X = rows()
    mixture = getattr(GaussianMixture(1), first)(X[:100], sample_weight=np.full(100, weight))
    mixture.partial_fit(X[100:250])
    mixture.save(tmp_path / "mixture")
    mixture = GaussianMixture.load(tmp_path / "mixture").partial_fit(X[250:])
    whole = GaussianMixture(1).fit(X, sample_weight=np.r_[np.full(100, weight), np.ones(200)])
    np.testing.assert_allclose(mixture.locations_, whole.locations_)
    np.testing.assert_allclose(mixture.scales_, whole.scales_)


def test_a_new_fit_forgets_the_batches():
    X = rows()
    used = HybridMixture(3, random_state=0).partial_fit(X).partial_fit(X).fit(X[:90]).partial_fit(X[90:180])
    assert_same_bits(used, HybridMixture(3, random_state=0).fit(X[:90]).partial_fit(X[90:180]))


@pytest.mark.parametrize("name", NAMES)
def test_many_batches_come_near_the_fit_of_the_whole(name):
    X = rows(n=4000)
    mixture = name(3, random_state=0)
    for batch in np.split(X, 20):
        mixture.partial_fit(batch)
    assert mixture.score(X) > name(3, random_state=0).fit(X).score(X) - 0.02
    with pytest.raises(ValueError, match="X has 2 features"):
        mixture.partial_fit(X[:, :2])


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_one_row_leaves_the_other_components_alone(name):
    X = rows()
    mixture = name(3, random_state=0).fit(X)
    others = np.arange(3) != mixture.predict(X[:1])
    before = {part: getattr(mixture, part)[others] for part in ("locations_", "scales_", "choice_")}
    for _ in range(3):
        mixture.partial_fit(X[:1])
    for part, value in before.items():
        np.testing.assert_allclose(getattr(mixture, part)[others], value, err_msg=part)


# Draws and criteria


def test_draws_have_the_moments_of_their_components():
    X = rows(n=3000)
    mixture = HybridMixture(3, random_state=0).fit(X)
    drawn, labels = mixture.sample(40_000)
    assert drawn.shape == (40_000, 3)
    assert (np.diff(labels) >= 0).all()
    np.testing.assert_allclose(np.bincount(labels) / 40_000, mixture.weights_, atol=0.015)
    for k in range(3):
        of_k = drawn[labels == k]
        deviation = mixture.scales_[k] * np.where(mixture.choice_[k] == 1, np.sqrt(2), 1)
        np.testing.assert_allclose(of_k.mean(axis=0), mixture.locations_[k], atol=0.08)
        np.testing.assert_allclose(of_k.std(axis=0), deviation, rtol=0.05)
        for d in range(3):
            family = [stats.norm, stats.laplace][mixture.choice_[k, d]]
            expected = family(mixture.locations_[k, d], mixture.scales_[k, d])
            assert stats.kstest(of_k[:, d], expected.cdf).pvalue > 1e-4
    assert set(mixture.choice_.ravel()) == {0, 1}
    with pytest.raises(ValueError, match="at least one"):
        mixture.sample(0)


def test_the_criteria_are_those_of_scikit_learn():
    X = rows()
    ours = GaussianMixture(3, random_state=0).fit(X)
    theirs = SklearnGaussianMixture(3, covariance_type="diag")
    theirs.weights_, theirs.means_, theirs.covariances_ = ours.weights_, ours.locations_, ours.scales_**2
    theirs.precisions_cholesky_ = 1 / ours.scales_
    assert ours.bic(X) == pytest.approx(theirs.bic(X))
    assert ours.aic(X) == pytest.approx(theirs.aic(X))
    hybrid = HybridMixture(3, random_state=0).fit(X)
    assert hybrid.aic(X) == pytest.approx(2 * (3 - 1 + 2 * 9) - 2 * 300 * hybrid.score(X))


# A family of one's own


def test_a_family_of_ones_own_is_a_family_like_any_other(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    X = np.concatenate([5 + 2 * UserSecant().sample(rng, (1500, 2)), -9 + UserSecant().sample(rng, (500, 2))])
    mixture = Mixture(2, families=[UserSecant()], tol=1e-6, random_state=0).fit(X)
    assert np.diff(mixture.lower_bounds_).min() > -1e-9
    order = np.argsort(-mixture.weights_)
    np.testing.assert_allclose(mixture.weights_[order], [0.75, 0.25], atol=0.02)
    np.testing.assert_allclose(mixture.locations_[order], [[5, 5], [-9, -9]], atol=0.3)
    np.testing.assert_allclose(mixture.scales_[order], [[2, 2], [1, 1]], rtol=0.1)

    density = stats.hypsecant.logpdf(X[:, None], mixture.locations_, mixture.scales_).sum(axis=2)
    joint = np.log(mixture.weights_) + density
    np.testing.assert_allclose(mixture.score_samples(X), logsumexp(joint, axis=1))
    np.testing.assert_array_equal(mixture.predict(X), joint.argmax(axis=1))

    posterior = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    z = (X[:, None] - mixture.locations_) / mixture.scales_
    root = np.sqrt(len(X) * mixture.weights_)[:, None]
    # Under 1 / (pi cosh z), E[tanh² z] = 1/2 and E[(z tanh z - 1)²] = pi²/8.
    location = np.einsum("nk,nkd->kd", posterior, np.tanh(z)) / (root * np.sqrt(0.5))
    scale = np.einsum("nk,nkd->kd", posterior, z * np.tanh(z) - 1) / (
        root * np.sqrt(UserSecant().scale_information)
    )
    expected = np.concatenate([location.ravel(), scale.ravel()])
    vector = FisherEncoder.from_fitted(mixture, power=1, norm=None).transform([X])[0]
    np.testing.assert_allclose(vector, expected, atol=2e-4 * np.abs(expected).max() + 1e-4)

    with refuses("not_registered"):
        mixture.save(tmp_path / "mixture")
    register_family(UserSecant)
    mixture.save(tmp_path / "mixture")
    assert_same_bits(Mixture.load(tmp_path / "mixture"), mixture)


def test_a_family_of_ones_own_competes_with_the_others():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal(4000), UserSecant().sample(rng, 4000)])
    mixture = Mixture(1, families=[Gaussian(), UserSecant()], tol=1e-6, random_state=0).fit(X)
    assert mixture.choice_.tolist() == [[0, 1]]
