"""The candidates of the medians: the values inside their brackets, collected in a bounded number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fishermix.mixture.e_step import PanelPosteriors
from fishermix.rows.blocks import Statistics
from fishermix.runtime import available_threads

GROUPS = 1024  # (k, d) that one thread selects from at once
ENTRIES_PER_DIMENSION, MOST_AT_FIRST = 64, 16  # initial capacity for values, per up to 16 components
FEWEST_ENTRIES = 8  # per dimension, that a block may always collect
FILLED = 0.9  # part of the room that is planned for
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]  # k D + d, value and weight of collected rows, each (n,)


def collect_candidates(
    panels: Sequence[np.ndarray],
    posteriors: Iterable[PanelPosteriors],
    first: np.ndarray,
    last: np.ndarray,
    reference: np.ndarray,
    most: int,
) -> Statistics:
    """Collect the values with first <= x < last of a block, and the sums outside of these brackets (K, D).

    If there are more than `most`, those of the last brackets are dropped: only the brackets before the
    place `ends`, of which there is at least one, are complete. `count` is then an estimate.
    """
    from fishermix.mixture import kernels

    (n_components, n_features), dtype = first.shape, first.dtype
    below, deviation, newest = np.zeros(first.shape), np.zeros(first.shape), np.zeros(first.shape, np.int64)
    sums = below, deviation, newest, np.full(first.shape, np.nan, dtype)
    hit = np.zeros((n_features + 7) // 8 * 8, np.uint8)
    work = (
        np.empty(n_features, np.int64),
        hit,
        hit.view("<u8"),
        np.empty(n_features),
        np.empty(n_features, dtype),
    )
    most = max(most, FEWEST_ENTRIES * n_features)
    capacity, count = min(n_features * ENTRIES_PER_DIMENSION * min(n_components, MOST_AT_FIRST), most), 0
    entries: Entries = np.empty(capacity, np.int32), np.empty(capacity, dtype), np.empty(capacity)
    end, dropped = first.size, np.zeros(first.size, np.int64)
    for number, (panel, posterior) in enumerate(zip(panels, posteriors), 1):
        resume, light = np.zeros(2, np.int64), posterior.weight.astype(dtype, copy=False)
        given = panel, *posterior, light, first, last, reference, *work, *sums
        while True:
            count = kernels.collect(*given, *entries, resume, count)
            if resume[0] == n_components:
                break
            brackets = np.flatnonzero((first < last).ravel())
            if len(entries[0]) < most or len(brackets) <= 1:
                capacity = 2 * len(entries[0])
                entries = _grow(entries, count, min(capacity, most) if len(brackets) > 1 else capacity)
                continue
            part = number / len(panels)
            held = np.bincount(entries[0][:count], minlength=first.size)
            kept = np.count_nonzero(np.cumsum(held)[brackets] <= FILLED * part * most)
            end = int(brackets[min(max(int(kept), 1), len(brackets) - 1)])
            dropped[end:] += (held[end:] / part).astype(np.int64)
            count = _drop(entries, count, newest, end)
            first.reshape(-1)[-(-end // n_features) * n_features :] = np.inf
            last.reshape(-1)[end:] = first.reshape(-1)[end:]
    where, value, weight = entries
    return Statistics(
        below=below,
        deviation=deviation,
        entries=[(where[:count], value[:count], weight[:count])],
        count=np.bincount(where[:count], minlength=first.size) + dropped,
        ends=[end],
    )


def _grow(entries: Entries, count: int, size: int) -> Entries:
    """Return room for `size` entries, with the first `count` of these in it."""
    where, value, weight = (np.empty(size, part.dtype) for part in entries)
    for old, new in zip(entries, (where, value, weight)):
        new[:count] = old[:count]
    return where, value, weight


def _drop(entries: Entries, count: int, newest: np.ndarray, end: int) -> int:
    """Remove the entries of the brackets from the place `end` on; return how many are left.

    newest (K, D), the last entry of each bracket, follows the entries to their new places.
    """
    kept = entries[0][:count] < end
    newest[:] = (np.cumsum(kept) - 1)[newest]
    left = int(kept.sum())
    for part in entries:
        part[:left] = part[:count][kept]
    return left


def select_medians(
    statistics: Statistics, wanted: np.ndarray, reference: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run `kernels.select` on the K D groups of collected values; return median, weight, shift (K, D).

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
        kernels.select(first[ends], value, weight, wanted[part], reference.ravel()[part], *outputs)

    if wanted.size <= GROUPS or available_threads() == 1:
        kernels.select(first, value, weight, wanted, reference.ravel(), *found)
    else:
        with ThreadPoolExecutor(available_threads()) as pool:
            parts = [slice(g, min(g + GROUPS, wanted.size)) for g in range(0, wanted.size, GROUPS)]
            list(pool.map(select, parts))
    median, inside, shift = (output.reshape(shape) for output in found)
    return median, inside, shift
