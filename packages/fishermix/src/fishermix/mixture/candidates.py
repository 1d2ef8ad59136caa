"""The candidates of the medians: the values inside their brackets, collected in a bounded number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fishermix.mixture.e_step import PanelPosteriors
from fishermix.rows import Statistics, cut, map_in_threads

GROUPS = 1024  # (k, d) that one thread selects from at once
ENTRIES_PER_DIMENSION, MOST_AT_FIRST = 64, 16  # initial capacity for values, per up to 16 components
FEWEST_ENTRIES = 8  # per dimension, that a block may always collect
FILLED = 0.9  # part of the room that is planned for


class Brackets(NamedTuple):
    """Brackets low <= x < high (K, D), and centers of the deviations; an infinite low skips the (k, d)."""

    low: np.ndarray
    high: np.ndarray
    center: np.ndarray

    def close(self, end: int) -> None:
        """Skip the components after the place `end`, and collect no values from that place on."""
        low, n_features = self.low.reshape(-1), self.low.shape[1]
        low[-(-end // n_features) * n_features :] = np.inf
        self.high.reshape(-1)[end:] = low[end:]


class Found(NamedTuple):
    """What `kernels.collect_values` finds: sums (K, D), the newest entry of each (k, d), and entries (n,)."""

    below: np.ndarray
    deviation: np.ndarray
    newest: np.ndarray
    newest_value: np.ndarray
    where: np.ndarray  # k D + d
    value: np.ndarray
    weight: np.ndarray

    @classmethod
    def make(cls, shape: tuple[int, ...], dtype: np.dtype, capacity: int) -> Found:
        """Return room for this many entries of brackets of this shape."""
        newest, values = np.zeros(shape, np.int64), np.full(shape, np.nan, dtype)
        entries = np.empty(capacity, np.int32), np.empty(capacity, dtype), np.empty(capacity)
        return cls(np.zeros(shape), np.zeros(shape), newest, values, *entries)

    def grow(self, count: int, capacity: int) -> Found:
        """Return more room, with the first `count` entries in it."""
        entries = [np.empty(capacity, part.dtype) for part in self[4:]]
        for old, new in zip(self[4:], entries):
            new[:count] = old[:count]
        return Found(*self[:4], *entries)

    def drop(self, count: int, end: int) -> int:
        """Remove the entries of the brackets from the place `end` on; return how many are left."""
        kept = self.where[:count] < end
        self.newest[:] = (np.cumsum(kept) - 1)[self.newest]
        left = int(kept.sum())
        for part in self[4:]:
            part[:left] = part[:count][kept]
        return left


def collect_candidates(
    panels: Sequence[np.ndarray], posteriors: Iterable[PanelPosteriors], brackets: Brackets, most: int
) -> Statistics:
    """Collect the values of a block that are in the brackets, and the sums outside of these.

    If there are more than `most`, those of the last brackets are dropped: only the brackets before the
    place `ends`, of which there is at least one, are complete. `count` is then an estimate.
    """
    from fishermix.mixture import kernels

    (n_components, n_features), dtype = brackets.low.shape, brackets.low.dtype
    hit = np.zeros((n_features + 7) // 8 * 8, np.uint8)
    sums = np.empty(n_features), np.empty(n_features, dtype)
    work = np.empty(n_features + 1, np.int64), hit, hit.view("<u8"), *sums
    most = max(most, FEWEST_ENTRIES * n_features)
    capacity = min(n_features * ENTRIES_PER_DIMENSION * min(n_components, MOST_AT_FIRST), most)
    found = Found.make(brackets.low.shape, dtype, capacity)
    count, end, dropped = 0, brackets.low.size, np.zeros(brackets.low.size, np.int64)
    for number, (rows, posterior) in enumerate(zip(panels, posteriors), 1):
        panel = rows, *posterior, posterior.weight.astype(dtype, copy=False)
        progress = np.array([0, 0, count])
        while not kernels.collect_values(panel, tuple(brackets), work, tuple(found), progress):
            count, capacity = int(progress[2]), 2 * len(found.where)
            places = np.flatnonzero((brackets.low < brackets.high).ravel())
            if len(found.where) < most or len(places) <= 1:
                found = found.grow(count, min(capacity, most) if len(places) > 1 else capacity)
                continue
            part = number / len(panels)
            held = np.bincount(found.where[:count], minlength=len(dropped))
            kept = np.count_nonzero(np.cumsum(held)[places] <= FILLED * part * most)
            end = int(places[min(max(int(kept), 1), len(places) - 1)])
            dropped[end:] += (held[end:] / part).astype(np.int64)
            progress[2] = found.drop(count, end)
            brackets.close(end)
        count = int(progress[2])
    return Statistics(
        below=found.below,
        deviation=found.deviation,
        entries=[tuple(part[:count] for part in found[4:])],
        count=np.bincount(found.where[:count], minlength=len(dropped)) + dropped,
        ends=[end],
    )


def select_medians(
    statistics: Statistics, wanted: np.ndarray, reference: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Select the medians of the K D groups of collected values; return median, weight, shift (K, D).

    The values of each block are freed once they are grouped.
    """
    from fishermix.mixture import kernels

    entries, count = statistics["entries"], statistics["count"]
    if min(statistics["ends"]) < wanted.size:  # the counts are estimates, since some blocks dropped values
        count = sum(np.bincount(where, minlength=wanted.size) for where, _, _ in entries)
    first = np.concatenate([[0], np.cumsum(count)])
    value = np.empty(first[-1], np.result_type(*(values for _, values, _ in entries)))
    weight = np.empty(first[-1])
    position = first.copy()
    for number, (where, values, weights) in enumerate(entries):
        kernels.group(where, position, values, weights, value, weight)
        entries[number] = where = values = weights = None
    found = np.full(wanted.size, np.nan), np.zeros(wanted.size), np.zeros(wanted.size)
    wanted, shape = wanted.ravel(), wanted.shape

    def select(part: slice) -> None:
        ends = slice(part.start, part.stop + 1)
        outputs = (output[part] for output in found)
        kernels.select_in_groups(first[ends], value, weight, wanted[part], reference.ravel()[part], *outputs)

    for _ in map_in_threads(select, cut(wanted.size, GROUPS)):
        pass
    median, inside, shift = (output.reshape(shape) for output in found)
    return median, inside, shift
