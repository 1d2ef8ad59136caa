"""`partial_fit` on streams that begin or run badly, against `fit` on all rows."""

from itertools import pairwise

import numpy as np
import pytest
from fishermix.mixture import GaussianMixture, HybridMixture, LaplacianMixture, partial_fit
from fishermix.mixture.partial_fit import Memory, remember
from fishermix.rows.blocks import ArraySource

NAMES = [GaussianMixture, LaplacianMixture, HybridMixture]
K = 5
CLOSE = 0.05  # nats per row

pytestmark = pytest.mark.filterwarnings("ignore::fishermix.errors.FishermixWarning")


def rows(n=3000, d=2, seed=0):
    rng = np.random.default_rng(seed)
    centers, scales = rng.normal(0, 5, (K, d)), rng.uniform(0.5, 1.5, (K, d))
    labels = rng.integers(K, size=n)
    noise = np.where(rng.random((n, 1)) < 0.5, rng.normal(size=(n, d)), rng.laplace(size=(n, d)))
    return centers[labels] + scales[labels] * noise


def stream(mixture, X, size, first=None, sample_weight=None):
    cuts = np.r_[0, np.arange(first or size, len(X), size), len(X)]
    for start, end in pairwise(cuts):
        weight = None if sample_weight is None else sample_weight[start:end]
        mixture.partial_fit(X[start:end], sample_weight=weight)
    return mixture


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_a_first_batch_of_k_rows_is_recovered_from(name, seed):
    X = rows(seed=seed)
    mixture = stream(name(K, random_state=0), X, 200, first=K)
    assert mixture.score(X) > name(K, random_state=0).fit(X).score(X) - CLOSE


@pytest.mark.parametrize("size", [100, 430])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_a_sorted_stream_is_fitted_as_a_shuffled_one(name, seed, size):
    X = rows(seed=seed)
    X = X[np.argsort(X[:, 0])]
    mixture = stream(name(K, random_state=0), X, size)
    assert mixture.score(X) > name(K, random_state=0).fit(X).score(X) - CLOSE


@pytest.mark.parametrize("name", NAMES)
def test_a_sorted_stream_larger_than_the_memory(name, monkeypatch):
    monkeypatch.setattr(partial_fit, "CAPACITY", 1000)
    X = rows(n=8000)
    X = X[np.argsort(X[:, 0])]
    mixture = stream(name(K, random_state=0), X, 250)
    assert len(mixture._memory.rows) == 1000
    assert mixture.score(X) > name(K, random_state=0).fit(X).score(X) - CLOSE


def test_one_row_at_a_time():
    X = rows(n=400)
    mixture = stream(GaussianMixture(K, random_state=0), X, 1, first=K)
    assert mixture.score(X) > GaussianMixture(K, random_state=0).fit(X).score(X) - CLOSE


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_stream_goes_on_to_the_same_bits(name, tmp_path):
    X = rows(n=1000).astype(np.float32)
    whole = stream(name(K, random_state=0), X, 100)
    part = stream(name(K, random_state=0), X[:500], 100)
    part.save(tmp_path / "mixture")
    resumed = stream(name.load(tmp_path / "mixture"), X[500:], 100)
    for attribute in ("weights_", "locations_", "scales_", "choice_"):
        np.testing.assert_array_equal(getattr(resumed, attribute), getattr(whole, attribute))


def test_fit_keeps_no_rows(tmp_path):
    X = rows(n=300)
    mixture = stream(GaussianMixture(2, random_state=0), X, 100)
    assert any(name.startswith("memory.") for name in mixture.to_tensors()[1])
    assert not any(name.startswith("memory.") for name in mixture.fit(X).to_tensors()[1])


def test_another_number_of_components_is_refused():
    X = rows(n=300)
    mixture = GaussianMixture(2, random_state=0).partial_fit(X[:100]).set_params(n_components=3)
    with pytest.raises(ValueError, match="partial_fit continues with 2 components, but n_components = 3"):
        mixture.partial_fit(X[100:])


def test_work_per_row_is_bounded(monkeypatch):
    """EM on the memory costs VISITS visits per row of the stream, apart from the new starts."""
    visited = []
    run_em = partial_fit.run_em

    def count(progress, source, *args, **options):
        before = progress.state.iteration
        run_em(progress, source, *args, **options)
        visited.append(source.shape[0] * (progress.state.iteration - before))

    monkeypatch.setattr(partial_fit, "run_em", count)
    X = rows(n=2000)
    stream(GaussianMixture(K, random_state=0, tol=0), X, 20)
    allowed = (partial_fit.VISITS + 1) * len(X)
    starts = 4 * sum(2000 / partial_fit.GROWTH**i for i in range(60))  # PASSES with each new start
    assert sum(visited) <= allowed + starts


# The memory


def test_every_row_is_remembered_with_the_same_probability(monkeypatch):
    monkeypatch.setattr(partial_fit, "CAPACITY", 50)
    monkeypatch.setattr(partial_fit, "ROWS_PER_COMPONENT", 1)
    X = np.arange(200.0)[:, None]
    counts = np.zeros(200)
    for seed in range(2000):
        kept = Memory.empty(1, X.dtype)
        for start, end in ((0, 3), (3, 120), (120, 121), (121, 200)):
            kept = remember(kept, ArraySource(X[start:end]), 2, seed, 1.0)
        assert len(kept.rows) == 50
        counts[kept.rows[:, 0].astype(int)] += 1
    expected, deviation = 500, np.sqrt(2000 * 0.25 * 0.75)
    assert np.abs(counts - expected).max() < 4.5 * deviation
    halves = counts.reshape(2, -1).sum(axis=1)
    assert abs(halves[0] - halves[1]) < 6 * deviation * np.sqrt(200)


def test_weights_are_scaled_to_all_rows_seen(monkeypatch):
    monkeypatch.setattr(partial_fit, "CAPACITY", 40)
    X = np.random.default_rng(0).normal(size=(100, 2))
    weight = np.tile([0.0, 2.0], 50)
    few = remember(Memory.empty(2, X.dtype), ArraySource(X[:30], weight[:30]), 2, 0, 64.0)
    assert few.is_complete
    assert few.source(None).total_weight == 30
    many = remember(few, ArraySource(X[30:], weight[30:]), 2, 0, 64.0)
    assert not many.is_complete
    assert many.source(None).total_weight == pytest.approx(100)
    assert many.credit == 6400
