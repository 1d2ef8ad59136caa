"""Small data are fitted in NumPy, without a compiler: the same results, but for rounding."""

import pickle
import subprocess
import sys

import numpy as np
import oracles
import pytest
from fishermix.mixture import (
    Gaussian,
    GaussianMixture,
    HybridMixture,
    Laplace,
    LaplacianMixture,
    loops,
)
from fishermix.mixture.em import FitState
from fishermix.mixture.loops import COMPILED, PLAIN
from fishermix.mixture.m_step import ComponentSums, FitPlan, RowSorter, median
from fishermix.mixture.parameters import MixtureParameters
from fishermix.mixture.posteriors import BlockPosteriors

NAMES = [GaussianMixture, LaplacianMixture, HybridMixture]
FITTED = ("weights_", "locations_", "scales_", "lower_bounds_")


def clusters(n=300, d=5, dtype=np.float64):
    rng = np.random.default_rng(0)
    noise = np.where(np.arange(d) % 2, rng.laplace(size=(n, d)), rng.standard_normal((n, d)))
    return (noise + 2 * (np.arange(n)[:, None] % 3)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_steps_agree_with_the_compiled_ones(dtype):
    rng = np.random.default_rng(1)
    x, k, n, d = clusters(dtype=dtype), 4, 300, 5
    x[7] = 1e30 if dtype == np.float32 else 1e200  # its distances overflow
    start = rng.dirichlet(np.ones(k)), rng.normal(size=(k, d)), 0.5 + rng.random((k, d))
    state = FitState.start([Gaussian(), Laplace()], start, 1e-3, n, seed=0)
    choice = np.eye(k, d, dtype=np.int64)  # in each component a Gaussian, whose squares overflow
    mixture = MixtureParameters([Gaussian(), Laplace()], *start, choice)
    weight, others, found = rng.random(n), np.arange(n) != 7, []
    for chosen in (COMPILED, PLAIN):
        with np.errstate(over="ignore", invalid="ignore"):
            posterior, log_likelihood = mixture.e_step(x, chosen)
            posteriors = BlockPosteriors(mixture, [x[others]], weight[others], 2.0**-40, chosen)
            listed, sums = list(posteriors), posteriors.sums
        if dtype == np.float64:
            np.testing.assert_array_equal(posterior[:, 7], start[0])
        plan = FitPlan(n, x.dtype, chosen, RowSorter(), memory=1e9)
        fits = [fit.begin(state.rows, plan) for fit in state.fits]
        fitted = [fit.summarize([x[others]], listed) for fit in fits]
        medians = fits[1].advance(fitted[1], ComponentSums.of_e_step(sums))
        found.append(
            [
                posterior[:, others],
                log_likelihood[others],
                sums.log_likelihood,
                sums.rows,
                sums.weight,
                sums.squared,
                fitted[0].first,
                fitted[0].second,
            ]
            + [medians.location, medians.scale]
        )
        for component, of_component in enumerate(fitted[1].weights[0]):
            median = oracles.weighted_median(x[others], of_component)
            np.testing.assert_array_equal(medians.location[component], median)
    tolerance = 1e-9 if dtype == np.float64 else 1e-4
    for one, other in zip(*found):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def test_rows_are_sorted_once_and_again_if_they_change():
    x, sorter = clusters(dtype=np.float32), RowSorter()
    order = sorter.sort(x)[1]
    np.testing.assert_array_equal(order, np.argsort(x.astype(float).T, axis=1))
    assert sorter.sort(x.copy())[1] is order
    x[3] = -x[3]
    np.testing.assert_array_equal(sorter.sort(x)[0], x.T)
    np.testing.assert_array_equal(sorter.sort(x)[1], np.argsort(x.astype(float).T, axis=1))
    assert sorter.sort(x[:200])[1].shape == (5, 200)
    assert len(pickle.dumps(sorter)) < 200
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(sorter)).sort(x)[0], x.T)


@pytest.mark.parametrize("rows", [300, 2300])
def test_a_fit_sorts_its_rows_once_and_keeps_none(rows, monkeypatch):
    shapes, argsort = [], np.argsort
    monkeypatch.setattr(np, "argsort", lambda a, **named: shapes.append(np.shape(a)) or argsort(a, **named))
    X = clusters(rows)
    mixture = HybridMixture(3, init_params="random", random_state=0, tol=0, max_iter=5).fit(X)
    assert shapes.count(X.T.shape) == 1
    assert all(getattr(fit, "sorter", None) is None for fit in mixture._last.fits)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cls", NAMES)
def test_a_small_fit_agrees_with_the_compiled_one(cls, dtype, monkeypatch):
    X, weight = clusters(dtype=dtype), np.random.default_rng(3).integers(0, 3, 300)
    mixture = cls(3, random_state=0, tol=0, max_iter=8)
    small = mixture.fit(X, sample_weight=weight)
    fitted = [getattr(small, name) for name in FITTED]
    posterior, scores = small.predict_proba(X), small.score_samples(X)
    monkeypatch.setattr(loops, "SMALL", 0)
    tolerance = 1e-9 if dtype == np.float64 else 1e-4
    for sorts in (True, False):
        monkeypatch.setattr(median, "SORTED", median.SORTED * sorts)
        compiled = cls(3, random_state=0, tol=0, max_iter=8).fit(X, sample_weight=weight)
        for name, value in zip(FITTED, fitted):
            np.testing.assert_allclose(value, getattr(compiled, name), rtol=tolerance, atol=tolerance)
        np.testing.assert_array_equal(small.choice_, compiled.choice_)
    np.testing.assert_allclose(posterior, compiled.predict_proba(X), atol=10 * tolerance)
    np.testing.assert_allclose(scores, compiled.score_samples(X), rtol=tolerance)


@pytest.mark.parametrize("cls", NAMES)
def test_small_rows_have_the_same_bits_from_a_file_and_in_blocks(cls, tmp_path):
    X = clusters()
    np.save(tmp_path / "rows.npy", X)
    whole = cls(3, random_state=0).fit(X)
    for rows in (tmp_path / "rows.npy", np.split(X, 3)):
        other = cls(3, random_state=0).fit(rows)
        for name in FITTED:
            np.testing.assert_array_equal(getattr(other, name), getattr(whole, name), err_msg=name)
        np.testing.assert_array_equal(other.predict_proba(rows), whole.predict_proba(X))


@pytest.mark.slow
def test_a_small_fit_does_not_wait_for_numba():
    code = """
import sys
import numpy as np
from fishermix import HybridMixture
X = np.random.default_rng(0).normal(size=(150, 4)) + 4 * (np.arange(150)[:, None] % 3)
mixture = HybridMixture(3, random_state=0).fit(X)
mixture.predict(X), mixture.score(X)
print("numba" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_plain_mixture_needs_numpy_only():
    code = """
import sys
import numpy as np
before = set(sys.modules)
from fishermix.fisher.vectors import FisherVectors, Options
from fishermix.mixture.parameters import MixtureParameters
from fishermix.mixture.families import Gaussian, Laplace
shape = (2, 3)
mixture = MixtureParameters(
    [Gaussian(), Laplace()], np.full(2, 0.5), np.zeros(shape), np.ones(shape), np.eye(2, 3, dtype=int)
)
scores = FisherVectors(mixture)
posteriors = scores.find_posteriors(np.ones((4, 3)), Options())
scores.score_entries(np.ones((4, 3)), posteriors, np.zeros((8, 2, 3)))
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(new - sys.stdlib_module_names - {"fishermix", "numpy"}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow
@pytest.mark.parametrize(("shown", "times"), [("", 1), ("show_progress(False)", 0)])
def test_compiling_is_said_once_to_a_person(shown, times, tmp_path, monkeypatch):
    """Only where nothing is on disk yet, on a terminal, and if nobody asked for silence."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    code = f"""
import sys
import numpy as np
from fishermix.progress import show_progress
sys.stderr.isatty = lambda: True
{shown}
from fishermix.mixture import kernels
for kind in (np.float32, np.float64):
    numbers = np.ones(2, kind)
    where, position = np.zeros(2, np.int32), np.zeros(1, np.int64)
    kernels.group(where, position, numbers, np.ones(2), numbers.copy(), np.ones(2))
"""
    for expected in (times, 0):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stderr.count("compiling for this processor") == expected
