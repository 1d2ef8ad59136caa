"""Weighted medians from statistics that add up equal those of sorting, whatever the cuts and guesses."""

import numpy as np
import pytest
from fishermix.mixture.em import find_quantum
from fishermix.mixture.loops import COMPILED
from fishermix.mixture.m_step import ComponentSums, FitPlan, RowSorter, candidates
from fishermix.mixture.m_step import median_search as medians_module
from fishermix.mixture.m_step.median_search import MedianSearch
from fishermix.mixture.posteriors import EStepSums, TilePosteriors
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import weighted_median


def list_posteriors(posterior, weight, quantum):
    n, k = posterior.shape
    by_component, buffers = np.ascontiguousarray(posterior.T), TilePosteriors.make_buffers(k, n)
    COMPILED.list_posteriors(by_component, weight, 1e-12, quantum, buffers, EStepSums.zeros(k))
    return buffers.used


def add_components(posteriors):
    """The sums of an E step over these tiles."""
    n_components = len(posteriors[0].start) - 1
    total = EStepSums.zeros(n_components)
    for start, _, weight in posteriors:
        component = np.repeat(np.arange(n_components), np.diff(start))
        total.rows += np.diff(start)
        total.weight += np.bincount(component, weight, n_components)
        total.squared += np.bincount(component, weight**2, n_components)
    return ComponentSums.of_e_step(total)


def search(x, posterior, weight, cuts, guess, reach, scale, room=1e9):
    """Medians (K, D) and sums of deviations (K, D), with the rows cut at `cuts`; and the number of passes."""
    quantum = find_quantum(weight.sum())
    pieces = list(zip(np.split(x, cuts), np.split(posterior, cuts), np.split(weight, cuts)))
    blocks = [(piece, list_posteriors(p, w, quantum)) for piece, p, w in pieces if len(piece)]
    sums = add_components([posteriors for _, posteriors in blocks])
    plan = FitPlan(len(x), x.dtype, COMPILED, RowSorter(), room)
    state, passes = MedianSearch.around(guess, reach, scale, sums.rows[:, 0], plan), 0
    while not state.done:
        total = None
        for piece, posteriors in blocks:
            of_block = state.summarize([piece], [posteriors])
            total = of_block if total is None else total.__iadd__(of_block)
        state = state.advance(total, sums)
        passes += 1
        assert passes < 100 * (1 if room == 1e9 else guess.size)
    return state.median, state.deviation, passes, quantum


def oracle(x, posterior, weight, quantum):
    weights = np.floor(posterior * weight[:, None] / quantum + 0.5) * quantum
    medians = np.stack([weighted_median(x, of_component) for of_component in weights.T])
    return medians, np.stack([s @ np.abs(x - m.astype(float)) for s, m in zip(weights.T, medians)])


def test_the_first_value_that_reaches_half():
    x = np.array([[3.0], [1.0], [2.0], [4.0]])
    assert weighted_median(x, np.array([1.0, 1.0, 1.0, 1.0])) == 2
    assert weighted_median(x, np.array([1.0, 1.0, 0.5, 1.0])) == 3
    assert weighted_median(x, np.array([0.0, 0.0, 0.0, 1.0])) == 4


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_equal_to_sorting_in_any_blocks_from_any_guess(data):
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    n, d, k = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 20)), data.draw(st.integers(1, 4))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    x = rng.standard_normal((n, d))
    kinds = {
        "normal": x,
        "ties": np.round(x),
        "heavy": np.sinh(8 * x),
        "constant": np.full_like(x, 0.1),
        "offset": 1e4 + x,
        "tiny": 1e-30 * x,
        "mostly zero": np.where(rng.random((n, d)) < 0.9, 0.0, x),
    }
    x = kinds[data.draw(st.sampled_from(sorted(kinds)))].astype(dtype)
    posterior = rng.dirichlet(np.full(k, 0.3), n)
    weight = rng.integers(0, 3, n).astype(float) if data.draw(st.booleans()) else np.ones(n)
    weight[0] += 1
    cuts = np.sort(rng.integers(0, n + 1, data.draw(st.integers(0, 4))))
    guess = np.zeros((k, d)) if data.draw(st.booleans()) else 100 * rng.standard_normal((k, d))
    reach = np.full((k, d), data.draw(st.sampled_from([1e-20, 1e-3, 1.0, 1e3])))
    scale = np.full((k, d), data.draw(st.sampled_from([1e-30, 1.0, 1e30])))
    medians, deviations, _, quantum = search(x, posterior, weight, cuts, guess, reach, scale)
    expected, expected_deviations = oracle(x, posterior, weight, quantum)
    alive = (np.floor(posterior * weight[:, None] / quantum + 0.5) > 0).any(axis=0)
    np.testing.assert_array_equal(medians[alive], expected[alive])
    size = (np.abs(x).max() + np.abs(guess).max() + reach.max()) * weight.sum()
    np.testing.assert_allclose(
        deviations[alive], expected_deviations[alive], rtol=1e-3, atol=20 * np.finfo(dtype).eps * size
    )


TIED = {
    "relu": lambda x: np.maximum(x, 0),
    "relu and one": lambda x: np.maximum(x, 0) + 1,
    "rounded": np.round,
    "rounded to tenths": lambda x: np.round(x, 1),
    "int8": lambda x: np.clip(40 * x, -128, 127).astype(np.int8),
    "two values": lambda x: np.where(x > 0, 1e-3, np.pi),
    "ties among neighbours": lambda x: np.where(x > 0.2, 1 + x * 1e-15, 1),
    "subnormal steps": lambda x: np.round(x) * 1e-45,
    "clipped": lambda x: np.clip(x, -0.3, 0.1),
    "far apart": lambda x: np.where(np.abs(x) > 1, np.sinh(30 * x), 0),
}


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(sorted(TIED)),
    n=st.integers(1000, 9000),
    k=st.integers(1, 4),
    dtype=st.sampled_from([np.float32, np.float64]),
    reach=st.sampled_from([1e-12, 0.01, 3.0]),
)
def test_ties_of_thousands_of_rows_are_equal_to_sorting(seed, kind, n, k, dtype, reach):
    rng = np.random.default_rng(seed)
    x = TIED[kind](rng.laplace(size=(n, 4)))
    x = np.clip(x, -1e38, 1e38).astype(dtype)
    posterior, weight = rng.dirichlet(np.full(k, 0.3), n), np.ones(n)
    guess, ones = x[rng.integers(n, size=k)].astype(float), np.ones((k, 4))
    medians, _, passes, quantum = search(x, posterior, weight, [n // 2], guess, reach * ones, ones)
    np.testing.assert_array_equal(medians, oracle(x, posterior, weight, quantum)[0])
    assert passes <= 16


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    power=st.integers(-40, 37),
    kind=st.sampled_from(sorted(TIED)),
    dtype=st.sampled_from([np.float32, np.float64]),
    patience=st.integers(0, 2),
)
def test_by_halves_alone_it_ends_too(seed, power, kind, dtype, patience):
    rng = np.random.default_rng(seed)
    x = TIED[kind](rng.standard_normal((500, 3))) * 10.0**power
    x = np.clip(x, -1e38, 1e38).astype(dtype)
    posterior, weight, ones = rng.dirichlet([0.3, 0.3], 500), np.ones(500), np.ones((2, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(medians_module, "PATIENCE", patience)
        medians, _, passes, quantum = search(x, posterior, weight, [], 7 * ones, 0.1 * ones, ones)
    np.testing.assert_array_equal(medians, oracle(x, posterior, weight, quantum)[0])
    assert passes <= patience + 1 + 8 * np.dtype(dtype).itemsize


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_keys_number_the_floats_in_their_order(dtype):
    tiny, largest = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    numbers = np.array([-np.inf, -largest, -1, -tiny, -0.0, 0.0, tiny, 1, largest, np.inf], dtype)
    keys = medians_module._rank(numbers)
    assert (np.diff(keys) > 0).all()
    np.testing.assert_array_equal(medians_module._from_rank(keys, np.dtype(dtype)), numbers)
    ones = medians_module._from_rank(medians_module._rank(np.ones(1, dtype)) + 1, np.dtype(dtype))
    assert ones == np.nextafter(dtype(1), dtype(2))


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 40),
    d=st.integers(1, 40),
    part=st.sampled_from([0.05, 0.5, 1.0]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_collected_values_and_sums_are_those_of_a_loop(seed, n, d, part, dtype):
    """Also with few (k, d), rows that are no multiple of four, ties, and no room at first."""
    rng = np.random.default_rng(seed)
    x = np.round(2 * rng.standard_normal((n, d)), rng.integers(0, 4)).astype(dtype)
    posterior = rng.dirichlet(np.full(3, 0.3), n)
    posteriors = list_posteriors(posterior, np.ones(n), find_quantum(n))
    low = np.where(rng.random((3, d)) < part, rng.uniform(-3, 3, (3, d)), np.inf).astype(dtype)
    brackets = candidates.Brackets(low, high := low + dtype(1), np.zeros((3, d), dtype))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "ENTRIES_PER_DIMENSION", 5)
        patch.setattr(candidates, "MOST_AT_FIRST", 1)
        found = candidates.collect_candidates([x], [posteriors], brackets, most=10**9)
    (where, value, weight), *_ = found.entries
    for k, span in enumerate(map(slice, posteriors.start[:-1], posteriors.start[1:])):
        rows, weights = x[posteriors.row[span]], posteriors.weight[span]
        for j in np.flatnonzero(np.isfinite(low[k])):
            inside = (rows[:, j] >= low[k, j]) & (rows[:, j] < high[k, j])
            mine = where == k * d + j
            assert mine.sum() == found.count[k * d + j] <= inside.sum()
            for number in {*rows[inside, j], *value[mine]}:
                expected = weights[inside & (rows[:, j] == number)].sum()
                assert weight[mine & (value == number)].sum() == expected
            assert found.below[k, j] == weights[rows[:, j] < low[k, j]].sum()
            np.testing.assert_allclose(found.deviation[k, j], weights @ np.abs(rows[:, j]), 1e-5, 1e-12)


def test_cuts_change_no_bit_of_the_medians():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((5000, 7)).astype(np.float32)
    posterior, weight = rng.dirichlet(np.full(5, 0.2), 5000), rng.uniform(0, 3, 5000)
    start = np.zeros((5, 7)), np.ones((5, 7)), np.ones((5, 7))
    whole = search(x, posterior, weight, [], *start)[0]
    for cuts in ([1], [17, 18, 4000], list(range(100, 5000, 100))):
        np.testing.assert_array_equal(search(x, posterior, weight, cuts, *start)[0], whole)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["normal", *sorted(TIED)]),
    k=st.integers(1, 6),
    d=st.integers(1, 20),
    dtype=st.sampled_from([np.float32, np.float64]),
    room=st.sampled_from([1, 3_000, 20_000]),
)
def test_little_room_takes_more_passes_and_gives_the_same_bits(seed, kind, k, d, dtype, room):
    rng = np.random.default_rng(seed)
    x = rng.laplace(size=(900, d))
    x = np.clip(TIED[kind](x) if kind in TIED else x, -1e38, 1e38).astype(dtype)
    posterior, weight = rng.dirichlet(np.full(k, 0.3), 900), rng.uniform(0, 2, 900)
    given = x, posterior, weight, [100, 500], rng.normal(size=(k, d)), np.full((k, d), 0.5), np.ones((k, d))
    medians, deviations, passes, _ = search(*given)
    others, other_deviations, other_passes, _ = search(*given, room=room)
    np.testing.assert_array_equal(others, medians)
    np.testing.assert_array_equal(other_deviations, deviations)
    assert other_passes >= passes


def test_little_room_is_kept():
    """With room for 400 of 28,000 values, three blocks never collect more, and a pass has one histogram."""
    rng = np.random.default_rng(6)
    x = rng.standard_normal((3000, 8)).astype(np.float32)
    posterior, weight = np.full((3000, 4), 0.25), np.ones(3000)
    quantum, ones = find_quantum(3000), np.ones((4, 8))
    blocks = [(part, list_posteriors(posterior[:1000], weight[:1000], quantum)) for part in np.split(x, 3)]
    sums = add_components([listed for _, listed in blocks])
    plan = FitPlan(3000, x.dtype, COMPILED, RowSorter(), memory=16 * 400)
    state = MedianSearch.around(0 * ones, ones, ones, sums.rows[:, 0], plan)
    seen = []
    while not state.done:
        total = None
        for part, listed in blocks:
            found = state.summarize([part], [listed])
            total = found if total is None else total.__iadd__(found)
        histograms = 0 if total.histogram is None else len(total.histogram)
        entries = [] if total.collected is None else total.collected.entries
        seen.append((histograms, sum(len(value) for _, value, _ in entries)))
        state = state.advance(total, sums)
    histograms, values = np.array(seen).T
    assert histograms.max() == 1
    assert 200 < values.max() <= 400
    np.testing.assert_array_equal(state.median, oracle(x, posterior, weight, quantum)[0])


def test_few_passes():
    rng = np.random.default_rng(4)
    x = rng.laplace(size=(20_000, 8)).astype(np.float32)
    posterior, weight = rng.dirichlet(np.full(3, 0.2), 20_000), np.ones(20_000)
    shape = (3, 8)
    cold = search(x, posterior, weight, [], np.ones(shape), np.full(shape, 3.0), np.ones(shape))
    assert cold[2] <= 3
    warm = search(x, posterior, weight, [], cold[0], np.full(shape, 1e-3), np.ones(shape))
    assert warm[2] == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_few_values_are_collected_also_around_zero(dtype, monkeypatch):
    collected, collect = [], medians_module.collect_candidates
    monkeypatch.setattr(
        medians_module,
        "collect_candidates",
        lambda *given: collected.append(collect(*given)) or collected[-1],
    )
    rng = np.random.default_rng(5)
    x = rng.laplace(size=(20_000, 8)).astype(dtype)
    shape = (1, 8)
    search(x, np.ones((20_000, 1)), np.ones(20_000), [], np.zeros(shape), np.full(shape, 3.0), np.ones(shape))
    assert 0 < sum(values.count.sum() for values in collected) < 0.1 * x.size


@pytest.mark.parametrize("value", [np.finfo(np.float32).max, np.finfo(np.float32).min, 1e-45])
def test_the_ends_of_the_number_line(value):
    x = np.full((9, 2), value, np.float32)
    x[:4] = 0
    shape = (1, 2)
    medians = search(x, np.ones((9, 1)), np.ones(9), [], np.zeros(shape), np.ones(shape), np.ones(shape))[0]
    np.testing.assert_array_equal(medians, np.full(shape, np.float32(value)))
