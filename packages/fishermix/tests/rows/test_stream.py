"""A fit to rows on disk or in blocks is the fit to the rows in memory."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from fishermix.mixture import Mixture
from fishermix.mixture.sums import Sums
from fishermix.rows import StreamSource, sum_in_tree
from refuses import refuses

FITTED = ("weights_", "locations_", "scales_", "choice_")


@dataclass
class Found(Sums):
    """What a test counts in each block."""

    value: Any


def fit(rows, working_memory=256, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Mixture(3, max_iter=4, random_state=0, working_memory=working_memory).fit(rows, **options)


@pytest.fixture(scope="module")
def in_memory(rows):
    return fit(rows)


@pytest.fixture
def path(rows, tmp_path):
    np.save(tmp_path / "rows.npy", rows)
    return tmp_path / "rows.npy"


def same_bits(first, second):
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in FITTED)


@pytest.mark.slow
def test_a_path_a_map_and_blocks_give_the_same_bits(rows, path, in_memory):
    half = len(rows) // 2
    for source in (
        path,
        str(path),
        np.load(path, mmap_mode="r"),
        [rows[:half], rows[half:]],
        StreamSource([rows], threads=2),
    ):
        assert same_bits(fit(source), in_memory)


def test_parts_in_a_list_of_paths(rows, tmp_path, in_memory):
    for number, part in enumerate(np.array_split(rows, 3)):
        np.save(tmp_path / f"{number}.npy", part)
    assert same_bits(fit([tmp_path / f"{number}.npy" for number in range(3)]), in_memory)


@pytest.mark.parametrize("limit", [1e-9, pytest.param(0.01, marks=pytest.mark.slow), 4096])
def test_the_working_memory_changes_no_bit(limit, rows, path, in_memory):
    for source in (rows, path, [rows[:5000], rows[5000:]]):
        assert same_bits(fit(source, working_memory=limit), in_memory)


def test_sample_weights_belong_to_the_rows_of_a_file(rows, path):
    weight = np.random.default_rng(1).integers(0, 3, len(rows)).astype(float)
    assert same_bits(fit(path, sample_weight=weight), fit(rows, sample_weight=weight))


def test_little_memory_means_small_blocks_and_the_same_medians(rows, path, in_memory):
    source = StreamSource(path, memory=200_000, threads=1)
    sizes = source.total(lambda block: Found([len(block.rows)])).value
    assert max(sizes) == 1024
    streamed = fit(source)
    np.testing.assert_array_equal(streamed.choice_, in_memory.choice_)
    for name in ("weights_", "locations_", "scales_"):
        np.testing.assert_allclose(getattr(streamed, name), getattr(in_memory, name), rtol=1e-5)


def test_what_passes_keep_stays_within_the_memory(path):
    source = StreamSource(path, memory=200_000, threads=1)

    def remembering(block):
        block.memo["of the rows"] = [np.zeros(4000)]
        return Found(len(block.rows))

    for _ in range(2):
        assert source.total(remembering).value == 9000
        assert [len(memo) for memo in source._memos] == [1] * 3 + [0] * 6


def test_bad_rows_and_bad_budgets_are_told(rows, path):
    broken = rows.copy()
    broken[4321, 2] = np.nan
    with refuses("not_finite", row=4321):
        fit([broken])
    with refuses("not_finite", row=4321):
        StreamSource([broken]).total(lambda block: Found(len(block.rows)))
    with refuses("too_little_memory"):
        StreamSource(path, memory=1000)
    with refuses("wrong_shape"):
        fit(path, sample_weight=np.ones(3))
    with pytest.raises(ValueError, match="n_components"):
        fit([rows[:2]])


def test_large_numbers_are_not_taken_for_infinity():
    huge = np.full((600, 2), 3e38, np.float32)
    huge[::2] = -3e38
    StreamSource([huge]).total(lambda block: Found(len(block.rows)))


@pytest.mark.parametrize("n", [1, 7, 8, 9, 64, 65, 100])
def test_sums_are_added_as_a_tree_of_eight(n):
    """The cluster adds eight sums, then eight of these: to the same bits as one process."""
    values = np.random.default_rng(n).standard_normal(n) * 10.0 ** np.arange(n).clip(max=15)
    level = list(values)
    while len(level) > 1:
        level = [float(np.cumsum(level[i : i + 8])[-1]) for i in range(0, len(level), 8)]
    assert sum_in_tree(Found(value) for value in values).value == level[0]
