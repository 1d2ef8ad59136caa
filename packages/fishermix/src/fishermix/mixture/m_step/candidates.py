"""The candidates of weighted medians: the values inside their brackets, collected in a bounded number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fishermix.mixture.posteriors import TilePosteriors
from fishermix.mixture.sums import Sums
from fishermix.rows import cut, map_in_threads

ENTRIES_PER_DIMENSION, MOST_AT_FIRST = 64, 16  # initial capacity for values, per up to 16 components
FILLED = 0.9  # part of the memory that is planned for


@dataclass
class CollectedValues(Sums):
    """The values of blocks that are in the brackets, and sums (K, D) of what is outside.

    If there were more than fit, those of the last brackets were dropped: only the brackets before the place
    min(ends), at least one, are complete. `count` (K D,) is then an estimate.
    """

    below: np.ndarray  # weight of the values below the bracket
    deviation: np.ndarray  # weight |x - center|
    entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]]  # of each block: places k D + d, values, weights
    count: np.ndarray
    ends: list[int]


class Brackets(NamedTuple):
    """Brackets low <= x < high (K, D), and centers of the deviations; an infinite low skips the (k, d)."""

    low: np.ndarray
    high: np.ndarray
    center: np.ndarray

    def close(self, end: int) -> None:
        """Skip the components after the place `end`, and collect no values from that place on."""
        low = self.low.reshape(-1)
        n_features = self.low.shape[1]
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
        return cls(
            below=np.zeros(shape),
            deviation=np.zeros(shape),
            newest=np.zeros(shape, np.int64),
            newest_value=np.full(shape, np.nan, dtype),
            where=np.empty(capacity, np.int32),
            value=np.empty(capacity, dtype),
            weight=np.empty(capacity),
        )

    def grow(self, count: int, capacity: int) -> Found:
        """Return more room, with the first `count` entries in it."""

        def lengthen(old: np.ndarray) -> np.ndarray:
            new = np.empty(capacity, old.dtype)
            new[:count] = old[:count]
            return new

        return self._replace(
            where=lengthen(self.where), value=lengthen(self.value), weight=lengthen(self.weight)
        )

    def drop(self, count: int, end: int) -> int:
        """Remove the entries of the brackets from the place `end` on; return how many are left."""
        kept = self.where[:count] < end
        self.newest[:] = (np.cumsum(kept) - 1)[self.newest]
        left = int(kept.sum())
        for part in (self.where, self.value, self.weight):
            part[:left] = part[:count][kept]
        return left


def collect_candidates(
    tiles: Sequence[np.ndarray], posteriors: Iterable[TilePosteriors], brackets: Brackets, most: int
) -> CollectedValues:
    """Collect the values of a block that are in the brackets, `most` of them or a few per dimension."""
    from fishermix.mixture import kernels

    n_components, n_features = brackets.low.shape
    dtype = brackets.low.dtype
    wanted = np.empty(n_features + 1, np.int64)
    hit = np.zeros((n_features + 7) // 8 * 8, np.uint8)
    under = np.empty(n_features)
    away = np.empty(n_features, dtype)
    work = wanted, hit, hit.view("<u8"), under, away
    fewest_per_dimension = 8
    most = max(most, fewest_per_dimension * n_features)
    capacity = min(n_features * ENTRIES_PER_DIMENSION * min(n_components, MOST_AT_FIRST), most)
    found = Found.make(brackets.low.shape, dtype, capacity)
    count = 0
    end = brackets.low.size
    dropped = np.zeros(brackets.low.size, np.int64)
    for number, (rows, listed) in enumerate(zip(tiles, posteriors), 1):
        light = listed.weight.astype(dtype, copy=False)
        tile = rows, listed.start, listed.row, listed.weight, light
        progress = np.array([0, 0, count])
        while not kernels.collect_values(tile, tuple(brackets), work, tuple(found), progress):
            count = int(progress[2])
            capacity = 2 * len(found.where)
            places = np.flatnonzero((brackets.low < brackets.high).ravel())
            if len(found.where) < most or len(places) <= 1:
                found = found.grow(count, min(capacity, most) if len(places) > 1 else capacity)
                continue
            part = number / len(tiles)
            held = np.bincount(found.where[:count], minlength=len(dropped))
            kept = np.count_nonzero(np.cumsum(held)[places] <= FILLED * part * most)
            end = int(places[min(max(int(kept), 1), len(places) - 1)])
            dropped[end:] += (held[end:] / part).astype(np.int64)
            progress[2] = found.drop(count, end)
            brackets.close(end)
        count = int(progress[2])
    return CollectedValues(
        below=found.below,
        deviation=found.deviation,
        entries=[(found.where[:count], found.value[:count], found.weight[:count])],
        count=np.bincount(found.where[:count], minlength=len(dropped)) + dropped,
        ends=[end],
    )


def select_medians(
    values: CollectedValues, wanted: np.ndarray, reference: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Select the medians of the K D groups of collected values; return median, weight, shift (K, D).

    The values of each block are freed once they are grouped.
    """
    from fishermix.mixture import kernels

    entries = values.entries
    count = values.count
    if min(values.ends) < wanted.size:  # the counts are estimates, since some blocks dropped values
        counts = (np.bincount(where, minlength=wanted.size) for where, _, _ in entries)
        count = sum(counts, start=np.zeros(wanted.size, np.int64))
    first = np.concatenate([[0], np.cumsum(count)])
    value = np.empty(first[-1], np.result_type(*(of_block for _, of_block, _ in entries)))
    weight = np.empty(first[-1])
    position = first.copy()
    entries.reverse()
    while entries:
        where, of_block, weights = entries.pop()
        kernels.group(where, position, of_block, weights, value, weight)
        del where, of_block, weights
    median = np.full(wanted.size, np.nan)
    inside = np.zeros(wanted.size)
    shift = np.zeros(wanted.size)

    def select(part: slice) -> None:
        kernels.select_in_groups(
            first=first[part.start : part.stop + 1],
            value=value,
            weight=weight,
            wanted=wanted.ravel()[part],
            reference=reference.ravel()[part],
            selected=median[part],
            inside=inside[part],
            shift=shift[part],
        )

    groups_per_thread = 1024
    for _ in map_in_threads(select, cut(wanted.size, groups_per_thread)):
        pass
    return median.reshape(wanted.shape), inside.reshape(wanted.shape), shift.reshape(wanted.shape)
