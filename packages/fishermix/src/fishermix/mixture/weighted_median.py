"""The M step of the Laplacian: exact weighted medians and mean absolute deviations.

The weighted median is the first value in ascending order at which half of the weight is reached. The rows of
small data are sorted (`_find_medians`). For others `MedianSearch` finds it without sorting, for
all (component, dimension) at once, from sufficient statistics that add up over blocks, in one or two passes
over the rows:

1. *histogram*: the weights over a bracket, in bins, tell the bin in which half of the weight is reached;
2. *collect*: the weight below the bracket and the few values inside it, among which the median is selected.

A bracket is only a guess: the collected weights prove the answer, or on which side of the bracket it is, and
the search continues there. All weights are multiples of one power of two, so their sums are exact and the
answer does not depend on blocks or threads. From the second iteration on the old median brackets the new one,
soon so tightly that the histogram is skipped.

The search ends for any values: it keeps the proved bounds `least <= median < most`, and after PATIENCE passes
it collects only the number in the middle of these. That finds the median or halves the count of numbers
between the bounds, of which there are less than 2⁶⁴.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from fishermix.mixture.e_step import PanelPosteriors
from fishermix.mixture.m_step import ComponentSums, FamilyFit, RowSorter
from fishermix.rows.blocks import Statistics
from fishermix.runtime import available_threads

BINS = 32  # of a histogram, including the two outer ones for all values below and above the bracket
FEWEST_COLLECTED, CROWD, PART = (
    16,
    512,
    0.1,
)  # values per bracket that may be collected: PART of the rows, within these limits
LIGHT, MARGIN = 0.4, 0.01  # of the ignored weight, and of a bin, that a bracket allows for at both ends
SEEN = 0.003  # a first histogram ignores rows below this part of the largest weight of their panel
HISTOGRAMS = 4  # at most; a bin that is still crowded then holds ties, which are collected as one value
HISTOGRAMS_WITH_TIES = 2  # the same, once interpolation has failed
NUMBERS = 4 * BINS  # floats in a bracket that is too narrow for a histogram: bins would blur it
PATIENCE = 16  # passes before the search continues by bisection
WIDENING = 16.0  # width of the next bracket if the last one was empty, in widths of the last one
MOVES, FEW_ROWS = 3, 32  # reach of the next search: moves of the last one, or scales / (rows / FEW_ROWS)

SORTED, WALKED = 40_000, 800_000  # N D, N K D: up to here sorting all rows once is faster
HISTOGRAM, COLLECT, DONE = 0, 1, 2
GROUPS = 1024  # (k, d) that one thread selects from at once
ENTRIES_PER_DIMENSION, MOST_AT_FIRST = 64, 16  # initial capacity for values, per up to 16 components
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]  # k D + d, value and weight of collected rows, each (n,)


@dataclass(frozen=True)
class MedianFit(FamilyFit):
    """Laplacian: exact weighted median and mean absolute deviation from it."""

    search: MedianSearch | None = None
    sorter: RowSorter | None = None

    def begin(
        self, rows: np.ndarray, dtype: np.dtype, size: float, compiled: bool, sorter: RowSorter
    ) -> MedianFit:
        search = None
        if size > min(SORTED * len(self.location), WALKED):
            search = MedianSearch.around(self.location, self.reach, self.scale, rows, dtype)
        return replace(self, done=False, compiled=compiled, search=search, sorter=sorter)

    def summarize(self, panels: Sequence[np.ndarray], posteriors: Sequence[PanelPosteriors]) -> Statistics:
        if self.search is not None:
            return self.search.summarize(panels, posteriors)
        weights = [posterior.to_dense(len(panel)) for panel, posterior in zip(panels, posteriors)]
        return Statistics(rows=list(panels), weights=weights)  # few enough to be sorted

    def advance(self, statistics: Statistics, sums: ComponentSums) -> MedianFit:
        if self.search is None:
            assert self.sorter is not None
            rows, weights = np.concatenate(statistics["rows"]), np.concatenate(statistics["weights"], axis=1)
            median, deviation = _find_medians(*self.sorter.sort(rows), weights, self.compiled)
            return self._finish(np.where(sums.weight > 0, median, self.location), deviation, sums)
        search = self.search.advance(statistics, sums)
        if not search.done:
            return replace(self, search=search)
        return self._finish(search.median, search.deviation, sums)

    def _finish(self, median: np.ndarray, deviation: np.ndarray, sums: ComponentSums) -> MedianFit:
        deviation = deviation / sums.divisor
        scale = np.maximum(deviation, self.floor)
        moved = np.abs(median - self.location)
        return replace(
            self,
            location=median,
            scale=np.where(sums.weight > 0, scale, self.scale),
            reach=np.maximum(MOVES * moved, scale * np.minimum(FEW_ROWS / sums.effective_rows, 1)),
            expected_log_likelihood=-np.log(2 * scale) - deviation / scale,
            search=None,
            sorter=None,
            done=True,
        )


def _find_medians(
    columns: np.ndarray, order: np.ndarray, weight: np.ndarray, compiled: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Medians (K, D) of columns (D, n) weighted by weight (K, n), and the sums of weight |x - median|."""
    if compiled:
        from fishermix.mixture import kernels

        median, deviation = np.empty((2, len(weight), len(columns)))
        kernels.find_medians(columns, order, weight, median, deviation)
        return median, deviation
    reached = np.cumsum(weight[:, order], axis=2)
    place = np.count_nonzero(reached < 0.5 * reached[:, :, -1:], axis=2)
    d = np.arange(len(columns))
    median = columns[d, order[d, place]] + 0.0  # never -0.0, whichever came first
    return median, np.einsum("kn,kdn->kd", weight, np.abs(columns - median[:, :, None]))


@dataclass(frozen=True)
class MedianSearch:
    """Brackets of the medians (K, D); `status` says what each needs next."""

    low: np.ndarray
    high: np.ndarray
    status: np.ndarray
    median: np.ndarray
    deviation: np.ndarray  # sum of weight |x - median|
    histograms: np.ndarray  # number of histograms that narrowed the bracket
    misled: np.ndarray  # whether interpolation has failed, because ties are not where it expects them
    least: np.ndarray  # proved: least <= median < most
    most: np.ndarray
    seen: np.ndarray  # (K,) histograms ignore rows below this part of the largest weight of their panel
    passes: int = 0

    @classmethod
    def around(
        cls, guess: np.ndarray, reach: np.ndarray, scale: np.ndarray, rows: np.ndarray, dtype: np.dtype
    ) -> MedianSearch:
        """Start between guess - reach and guess + reach, all (K, D); rows (K,) had posteriors before."""
        low, high = _round_outwards(guess - reach, guess + reach, dtype)
        few = _are_few(rows[:, None] * np.minimum(reach / scale, 1), rows[:, None])
        status = np.where(few, COLLECT, HISTOGRAM).astype(np.int8) + np.zeros(low.shape, np.int8)
        return cls(
            low,
            high,
            status,
            median=np.array(guess, float),
            deviation=np.zeros(low.shape),
            histograms=np.zeros(low.shape, np.int8),
            misled=np.zeros(low.shape, bool),
            least=np.full_like(low, -np.inf),
            most=np.full_like(low, np.inf),
            seen=np.full(len(low), SEEN),
        )

    @property
    def done(self) -> bool:
        return bool((self.status == DONE).all())

    @property
    def reference(self) -> np.ndarray:
        """The point of each bracket nearest to the last median, from which deviations are summed."""
        return np.clip(self.median.astype(self.low.dtype), self.low, self.high)

    @property
    def _in_histogram(self) -> np.ndarray:
        """The components that need a histogram of some dimension."""
        return np.flatnonzero((self.status == HISTOGRAM).any(axis=1))

    def summarize(self, panels: Sequence[np.ndarray], posteriors: Sequence[PanelPosteriors]) -> Statistics:
        """Return the histograms and collected values of a block."""
        dtype = panels[0].dtype
        low, high, reference = (part.astype(dtype) for part in (self.low, self.high, self.reference))
        statistics = Statistics()
        if len(wanted := self._in_histogram):
            statistics["histogram"] = histogram = np.zeros((len(wanted), low.shape[1], BINS))
            with np.errstate(over="ignore"):
                per_bin = (BINS - 2) / (high - low)
            per_bin = np.clip(per_bin, np.finfo(dtype).tiny, np.finfo(dtype).max)
            from fishermix.mixture import kernels

            flat, place = histogram.reshape(len(wanted), -1), np.empty(low.shape[1], np.int32)
            for panel, posterior in zip(panels, posteriors):
                kernels.add_histogram(panel, *posterior, self.seen, wanted, low, per_bin, place, BINS, flat)
        if (collecting := self.status == COLLECT).any():
            limit, nowhere = _limit(self.low.dtype), np.array(np.inf, dtype)
            first = np.where(collecting, np.where(low > -limit, low, -nowhere), nowhere)
            last = np.where(collecting & (high < limit), high, nowhere)
            statistics |= _collect(panels, posteriors, first, last, reference)
        return statistics

    def advance(self, statistics: Statistics, sums: ComponentSums) -> MedianSearch:
        """Return the search after one more pass."""
        search = self._after_collecting(statistics, sums) if "entries" in statistics else self
        if "histogram" in statistics:
            histogram = np.zeros((*self.low.shape, BINS))
            histogram[self._in_histogram] = statistics["histogram"]
            search = search._after_histogram(self.status == HISTOGRAM, histogram, sums)
        status = np.where(sums.weight <= 0, DONE, search.status).astype(np.int8)
        return replace(search, status=status, passes=self.passes + 1)._within_proved_bounds()

    def _after_collecting(self, statistics: Statistics, sums: ComponentSums) -> MedianSearch:
        below, half = statistics["below"], 0.5 * sums.weight
        reference = self.reference
        median, inside, shift = _select(statistics["entries"], statistics["count"], half - below, reference)
        collected = self.status == COLLECT
        found = collected & np.isfinite(median)
        above = 2 * half - below - inside
        with np.errstate(invalid="ignore"):
            moved = (median - reference) * (below - above)
            deviation = np.maximum(statistics["deviation"] + moved + shift, 0)
        search = replace(
            self,
            status=np.where(found, DONE, self.status).astype(np.int8),
            median=np.where(found, median + 0.0, self.median),  # never -0.0, whichever zero came first
            deviation=np.where(found, deviation, self.deviation),
        )
        if not (lost := collected & ~found).any():
            return search
        before = lost & (half <= below)
        search = replace(
            search,
            seen=np.where(lost.any(axis=1), 0.0, self.seen),
            least=np.where(lost & ~before, np.maximum(self.least, self.high), self.least),
            most=np.where(before, np.minimum(self.most, self.low), self.most),
        )
        return search._continue_beside(lost, half - below, inside, sums)

    def _after_histogram(self, seen: np.ndarray, histogram: np.ndarray, sums: ComponentSums) -> MedianSearch:
        # Light rows were ignored: nearly always, between a tenth and nine tenths of their weight is below the
        # median. So the bracket starts and ends where the histogram reaches half of its weight, less or more.
        from fishermix.mixture import kernels

        found = np.zeros((8, *seen.shape))
        kernels.find_bins(histogram, seen, sums.weight[:, 0], LIGHT, *found)
        half, slack, place, low_bin, low_place, high_bin, high_place, inside = found
        located = seen & (place > 0) & (place < BINS - 1)
        crowd = inside * (sums.rows / sums.divisor)
        # Of crowded bins only the part around the interpolated places is kept, four standard deviations of
        # the error of interpolation. Of other bins all is kept, and a little more: rounding may move edges.
        interpolated = (crowd > CROWD) & ~self.misled
        inside = np.maximum(inside, 1e-100)
        spread = np.where(interpolated, 2 / np.sqrt(inside * (sums.effective_rows / sums.divisor)), 2.0)
        width = (self.high.astype(float) - self.low) / (BINS - 2)
        low = self.low + width * (low_bin - 1 + np.maximum(low_place - spread, 0) - MARGIN)
        high = self.low + width * (high_bin - 1 + np.minimum(high_place + spread, 1) + MARGIN)
        crowd = crowd * np.minimum(np.where(interpolated, 2 * spread + 2 * slack / inside, 1), 1)
        # Halves, because the distance of a negative to a positive float64 exceeds an int64.
        narrow = located & ((_rank(self.high) >> 1) - (_rank(self.low) >> 1) <= NUMBERS >> 1)
        last = self.histograms + 1 >= np.where(self.misled, HISTOGRAMS_WITH_TIES, HISTOGRAMS)
        ready = located & (_are_few(crowd * located, sums.rows) | last | (4 * slack > inside))
        ready |= narrow
        located &= ~narrow
        low, high = _round_outwards(low, high, self.low.dtype)
        search = replace(
            self,
            low=np.where(located, low, self.low),
            high=np.where(located, high, self.high),
            status=np.where(ready, COLLECT, self.status).astype(np.int8),
            histograms=self.histograms + located,
        )
        if not (lost := seen & ~located & ~narrow).any():
            return search
        under, inner = histogram[:, :, 0], histogram[:, :, 1:-1].sum(axis=2)
        return search._continue_beside(lost, half - under, inner, sums)

    def _continue_beside(
        self, lost: np.ndarray, missing: np.ndarray, inside: np.ndarray, sums: ComponentSums
    ) -> MedianSearch:
        """Continue below or above the brackets that do not contain the median.

        missing (K, D) is the weight from the low end of the bracket to the median, negative if that is below.
        inside (K, D) is the weight of the bracket: at its density the median is `missing / inside` widths
        away.
        """
        below = missing <= 0
        beyond = np.where(below, -missing, missing - inside)
        width = self.high.astype(float) - self.low
        with np.errstate(divide="ignore", invalid="ignore"):
            empty = WIDENING * 4.0 ** min(
                self.passes, PATIENCE
            )  # faster each time: the start may be far too narrow
            widening = np.where(inside > 0, np.clip(3 * beyond / inside, 2, 1e6), empty)
        low, high = _round_outwards(
            np.where(below, self.low - width * widening, self.high),
            np.where(below, self.low, self.high + width * widening),
            self.low.dtype,
        )
        crowd = np.minimum(np.maximum(3 * beyond, 2 * inside) * (sums.rows / sums.divisor), sums.rows)
        at_limit = np.maximum(-low, high) >= _limit(low.dtype)
        again = np.where((_are_few(crowd * lost, sums.rows) & (inside > 0)) | at_limit, COLLECT, HISTOGRAM)
        return replace(
            self,
            low=np.where(lost, low, self.low),
            high=np.where(lost, high, self.high),
            status=np.where(lost, again, self.status).astype(np.int8),
            misled=self.misled | (lost & (self.histograms > 0)),
        )

    def _within_proved_bounds(self) -> MedianSearch:
        """Cut the brackets to the bounds; bisect where one is empty, and everywhere after PATIENCE passes."""
        low, high = np.maximum(self.low, self.least), np.minimum(self.high, self.most)
        halve = (self.status != DONE) & ((low >= high) | (self.passes >= PATIENCE))
        if halve.any():
            first, last = _rank(self.least), _rank(self.most)
            middle = (first >> 1) + (last >> 1) + (first & last & 1)
            low = np.where(halve, _from_rank(middle, low.dtype), low)
            high = np.where(halve, _from_rank(middle + 1, low.dtype), high)
        status = np.where(halve, COLLECT, self.status).astype(np.int8)
        return replace(self, low=low, high=high, status=status)


def _select(
    entries: list[Entries], count: np.ndarray, wanted: np.ndarray, reference: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run `kernels.select` on the K D groups of collected values; return median, weight, shift (K, D)."""
    from fishermix.mixture import kernels

    first = np.concatenate([[0], np.cumsum(count)])
    value = np.empty(first[-1], np.result_type(*(values for _, values, _ in entries)))
    weight = np.empty(first[-1])
    position = first.copy()
    for where, values, weights in entries:
        kernels.group(where, position, values, weights, value, weight)
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


def _are_few(crowd: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return which components (K, 1) have, on average, few enough of their rows (K, 1) in brackets (K, D)."""
    return crowd.mean(axis=1, keepdims=True) <= np.clip(PART * rows, FEWEST_COLLECTED, CROWD)


def _round_outwards(low: np.ndarray, high: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Round the bracket outwards to the type of the rows; where it ends at the limit it is open."""
    limit, up = _limit(dtype), np.array(np.inf, dtype)
    low, high = (np.clip(end, -limit, limit).astype(dtype) for end in (low, high))
    return np.maximum(np.nextafter(low, -up), -limit), np.nextafter(np.maximum(low, high), up)


def _rank(number: np.ndarray) -> np.ndarray:
    """Return the rank of floats among all floats of their type."""
    bits = number.view(np.int32 if number.dtype == np.float32 else np.int64).astype(np.int64)
    return np.where(bits >= 0, bits, np.int64(-1) - (bits & (2 ** (8 * number.itemsize - 1) - 1)))


def _from_rank(rank: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the floats of these ranks."""
    bits = np.where(rank >= 0, rank, -1 - rank)
    if dtype == np.float32:
        size = bits.astype(np.int32).view(np.float32)
    else:
        size = bits.view(np.float64)
    return np.where(rank >= 0, size, -size)


def _limit(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).max) / 4


def _grow(entries: np.ndarray, count: int) -> np.ndarray:
    """Return room for twice as many entries, with the first `count` of these in it."""
    grown = np.empty(2 * len(entries), entries.dtype)
    grown[:count] = entries[:count]
    return grown


def _collect(
    panels: Sequence[np.ndarray],
    posteriors: Sequence[PanelPosteriors],
    first: np.ndarray,
    last: np.ndarray,
    reference: np.ndarray,
) -> Statistics:
    """Collect the values with first <= x < last of a block, and the sums outside of these brackets (K, D)."""
    from fishermix.mixture import kernels

    (n_components, n_features), dtype = first.shape, first.dtype
    below, deviation, newest = np.zeros(first.shape), np.zeros(first.shape), np.empty(first.shape, np.int64)
    sums = below, deviation, newest, np.full(first.shape, np.nan, dtype)
    hit = np.zeros((n_features + 7) // 8 * 8, np.uint8)
    work = (
        np.empty(n_features, np.int64),
        hit,
        hit.view("<u8"),
        np.empty(n_features),
        np.empty(n_features, dtype),
    )
    capacity, count = n_features * ENTRIES_PER_DIMENSION * min(n_components, MOST_AT_FIRST), 0
    entries: Entries = np.empty(capacity, np.int32), np.empty(capacity, dtype), np.empty(capacity)
    for panel, posterior in zip(panels, posteriors):
        resume, light = np.zeros(2, np.int64), posterior.weight.astype(dtype, copy=False)
        given = panel, *posterior, light, first, last, reference, *work, *sums
        while True:
            count = kernels.collect(*given, *entries, resume, count)
            if resume[0] == n_components:
                break
            where, value, weight = entries
            entries = _grow(where, count), _grow(value, count), _grow(weight, count)
    where, value, weight = entries
    return Statistics(
        below=below,
        deviation=deviation,
        entries=[(where[:count], value[:count], weight[:count])],
        count=np.bincount(where[:count], minlength=first.size),
    )
