"""Exact weighted medians, and sums of deviations from them, of rows that are not sorted.

The weighted median is the first value in ascending order at which half of the weight is reached.
`MedianSearch` finds it for all (component, dimension) at once, from sufficient statistics that add up over
blocks, in one or two passes over the rows:

1. *histogram*: the weights over a bracket, in bins, tell the bin in which half of the weight is reached;
2. *collect*: the weight below the bracket and the few values inside it, among which the median is selected.

A bracket is only a guess: the collected weights prove the answer, or on which side of the bracket it is, and
the search continues there. All weights are multiples of one power of two, so their sums are exact and the
answer does not depend on blocks or threads. From the second iteration on the old median brackets the new one,
soon so tightly that the histogram is skipped.

The search ends for any values: it keeps the proved bounds `least <= median < most`, and after PATIENCE rounds
it collects only the number in the middle of these. That finds the median or halves the count of numbers
between the bounds, of which there are less than 2⁶⁴.

A *round* gives every bracket its histogram or its values. It is one pass, or several if these need more than
the memory budget: brackets whose values do not fit wait for the next pass. No bracket, and so no bit of the
result, depends on the number of passes of a round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fishermix.mixture.m_step.candidates import (
    FILLED,
    Brackets,
    CollectedValues,
    collect_candidates,
    select_medians,
)
from fishermix.mixture.posteriors import TilePosteriors
from fishermix.mixture.sums import Sums

if TYPE_CHECKING:
    from fishermix.mixture.m_step.base import ComponentSums, FitPlan

BINS = 32  # of a histogram, including the two outer ones for all values below and above the bracket
# Values per bracket that may be collected: PART of the rows, within these limits.
FEWEST_COLLECTED, CROWD, PART = 16, 512, 0.1
LIGHT, MARGIN = 0.4, 0.01  # of the ignored weight, and of a bin, that a bracket allows for at both ends
SEEN = 0.003  # a first histogram ignores rows below this part of the largest weight of their tile
HISTOGRAMS = 4  # at most; a bin that is still crowded then holds ties, which are collected as one value
HISTOGRAMS_WITH_TIES = 2  # the same, once interpolation has failed
NARROW = 4 * BINS  # floats in a bracket that is too narrow for a histogram: bins would blur it
PATIENCE = 16  # rounds before the search continues by bisection
WIDENING = 16.0  # width of the next bracket if the last one was empty, in widths of the last one

HISTOGRAM, COLLECT, DONE = 0, 1, 2
COPIES = 8  # of a histogram at the same time: one per thread, and the sums


class Collected(NamedTuple):
    """What the collected values of a bracket tell, each (K, D)."""

    median: np.ndarray  # NaN if it is outside of the bracket
    inside: np.ndarray  # weight of the values in the bracket
    shift: np.ndarray  # of the sum of deviations, from that about the reference to that about the median
    below: np.ndarray  # weight of the values below the bracket
    deviation: np.ndarray  # sum of weight |x - reference|


class Binned(NamedTuple):
    """What the histogram of a bracket tells, each (K, D)."""

    half: np.ndarray  # of the weight in the histogram
    slack: np.ndarray  # LIGHT of the weight that is not in it
    place: np.ndarray  # the bin in which half is reached
    low_bin: np.ndarray  # that of half - slack, within the inner bins
    low_place: np.ndarray  # the part of that bin that is below, 0 to 1
    high_bin: np.ndarray  # that of half + slack
    high_place: np.ndarray
    inside: np.ndarray  # weight from low_bin to high_bin
    under: np.ndarray  # weight of the first bin: all values below the bracket
    inner: np.ndarray  # weight of the inner bins


@dataclass
class MedianCandidates(Sums):
    """What a pass finds: a histogram (k, D, BINS) of some components, and the values in some brackets."""

    histogram: np.ndarray | None
    collected: CollectedValues | None


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
    seen: np.ndarray  # (K,) histograms ignore rows below this part of the largest weight of their tile
    plan: FitPlan
    waiting: np.ndarray  # brackets that need another pass of this round
    expected: np.ndarray | None = None  # the number of values in each, if it is known that not all fit
    collected: Collected | None = None  # of the brackets that had their pass in this round
    binned: Binned | None = None
    rounds: int = 0

    @classmethod
    def around(
        cls, guess: np.ndarray, reach: np.ndarray, scale: np.ndarray, rows: np.ndarray, plan: FitPlan
    ) -> MedianSearch:
        """Start between guess - reach and guess + reach, all (K, D); rows (K,) had posteriors before."""
        low, high = _round_outwards(guess - reach, guess + reach, plan.dtype)
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
            plan=plan,
            waiting=np.ones(low.shape, bool),
        )

    @property
    def done(self) -> bool:
        return bool((self.status == DONE).all())

    @property
    def reference(self) -> np.ndarray:
        """The point of each bracket nearest to the last median, from which deviations are summed."""
        return np.clip(self.median.astype(self.low.dtype), self.low, self.high)

    @cached_property
    def _in_histogram(self) -> np.ndarray:
        """The components of the next pass that need a histogram of some dimension."""
        needed = np.flatnonzero((self.waiting & (self.status == HISTOGRAM)).any(axis=1))
        bytes_of_component = COPIES * self.low.shape[1] * BINS * 8
        return needed[: max(int(self.plan.memory // bytes_of_component), 1)]

    @cached_property
    def _in_collection(self) -> np.ndarray:
        """The brackets (K, D) of the next pass whose values are collected: as many as fit, at least one."""
        needed = self.waiting & (self.status == COLLECT)
        if self.expected is not None:
            total = np.cumsum(np.where(needed, self.expected, 0)).reshape(needed.shape)
            fits = total <= FILLED * self.plan.memory / self._entry_bytes
            fits.flat[np.argmax(needed)] = True
            needed &= fits
        return needed

    @property
    def _entry_bytes(self) -> int:
        return 12 + self.low.itemsize  # an int32 place, a value and a float64 weight

    def summarize(
        self, tiles: Sequence[np.ndarray], posteriors: Iterable[TilePosteriors]
    ) -> MedianCandidates:
        """Return the histograms and collected values of a block."""
        sums = MedianCandidates(None, None)
        if len(self._in_histogram):
            sums.histogram = self._count_in_bins(tiles, posteriors)
        if self._in_collection.any():
            sums.collected = self._collect(tiles, posteriors)
        return sums

    def _count_in_bins(self, tiles: Sequence[np.ndarray], posteriors: Iterable[TilePosteriors]) -> np.ndarray:
        from fishermix.mixture import kernels

        dtype = tiles[0].dtype
        wanted = self._in_histogram
        low = self.low.astype(dtype)
        high = self.high.astype(dtype)
        with np.errstate(over="ignore"):
            per_bin = (BINS - 2) / (high - low)
        per_bin = np.clip(per_bin, np.finfo(dtype).tiny, np.finfo(dtype).max)
        histogram = np.zeros((len(wanted), low.shape[1], BINS))
        for tile, listed in zip(tiles, posteriors):
            kernels.add_histogram(
                x=tile,
                start=listed.start,
                row=listed.row,
                row_weight=listed.weight,
                seen=self.seen,
                wanted=wanted,
                low=low,
                per_bin=per_bin,
                place=np.empty(low.shape[1], np.int32),
                bins=BINS,
                histogram=histogram.reshape(len(wanted), -1),
            )
        return histogram

    def _collect(self, tiles: Sequence[np.ndarray], posteriors: Iterable[TilePosteriors]) -> CollectedValues:
        dtype = tiles[0].dtype
        collecting = self._in_collection
        low = self.low.astype(dtype)
        high = self.high.astype(dtype)
        center = self.reference.astype(dtype)
        limit = _find_limit(self.low.dtype)
        nowhere = np.array(np.inf, dtype)
        # The sums of a component are those of all its brackets, whichever of them wait: the same bits.
        summed = (self.status == COLLECT) & collecting.any(axis=1, keepdims=True)
        first = np.where(summed, np.where(low > -limit, low, -nowhere), nowhere)
        last = np.where(collecting, np.where(high < limit, high, nowhere), first)
        part = sum(map(len, tiles)) / self.plan.n_rows
        most = int(part * self.plan.memory / self._entry_bytes)
        return collect_candidates(tiles, posteriors, Brackets(first, last, center), most)

    def advance(self, sums: MedianCandidates, components: ComponentSums) -> MedianSearch:
        """Return the search after one more pass."""
        search = self
        if sums.collected is not None:
            search = search._add_collected(sums.collected, components)
        if sums.histogram is not None:
            search = search._add_histogram(sums.histogram, components)
        if (search.waiting & (self.status != DONE)).any():
            return search
        return search._end_round(components)

    def _add_collected(self, values: CollectedValues, sums: ComponentSums) -> MedianSearch:
        """Note the median, or the side, of the brackets whose values were collected from every block."""
        chosen = self._in_collection
        counts = values.count.reshape(chosen.shape)
        complete = chosen & (np.arange(chosen.size).reshape(chosen.shape) < min(values.ends))
        median, inside, shift = select_medians(values, 0.5 * sums.weight - values.below, self.reference)
        found = Collected(
            median=median, inside=inside, shift=shift, below=values.below, deviation=values.deviation
        )
        if self.collected is not None:
            found = Collected(*(np.where(complete, *parts) for parts in zip(found, self.collected)))
        expected = np.where(chosen, counts, counts if self.expected is None else self.expected)
        return replace(self, waiting=self.waiting & ~complete, collected=found, expected=expected)

    def _add_histogram(self, histogram: np.ndarray, sums: ComponentSums) -> MedianSearch:
        """Note the bins of the medians of the components that had a histogram."""
        components = self._in_histogram
        in_histogram = self.status == HISTOGRAM
        shape = len(Binned._fields), *self.low.shape
        found = np.zeros(shape) if self.binned is None else np.array(self.binned)
        bins = _find_bins(histogram, sums.weight[components])
        found[:, components] = np.where(in_histogram[components], bins, 0.0)
        waiting = self.waiting.copy()
        waiting[components] &= ~in_histogram[components]
        return replace(self, waiting=waiting, binned=Binned(*found))

    def _end_round(self, sums: ComponentSums) -> MedianSearch:
        """Return the search with new brackets, after all of them had their pass."""
        search = self
        if self.collected is not None:
            search = search._after_collecting(self.collected, sums)
        if self.binned is not None:
            search = search._after_histogram(self.status == HISTOGRAM, self.binned, sums)
        search = replace(
            search,
            status=np.where(sums.weight <= 0, DONE, search.status).astype(np.int8),
            waiting=np.ones(self.low.shape, bool),
            expected=None,
            collected=None,
            binned=None,
            rounds=self.rounds + 1,
        )
        return search._within_proved_bounds()

    def _after_collecting(self, values: Collected, sums: ComponentSums) -> MedianSearch:
        median, inside, shift, below, deviation = values
        half = 0.5 * sums.weight
        reference = self.reference
        collected = self.status == COLLECT
        found = collected & np.isfinite(median)
        above = 2 * half - below - inside
        with np.errstate(invalid="ignore"):
            moved = (median - reference) * (below - above)
            deviation = np.maximum(deviation + moved + shift, 0)
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

    def _after_histogram(self, seen: np.ndarray, bins: Binned, sums: ComponentSums) -> MedianSearch:
        # Light rows were ignored: nearly always, between a tenth and nine tenths of their weight is below the
        # median. So the bracket starts and ends where the histogram reaches half of its weight, less or more.
        half, slack, place, low_bin, low_place, high_bin, high_place, inside, under, inner = bins
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
        narrow = located & ((_rank(self.high) >> 1) - (_rank(self.low) >> 1) <= NARROW >> 1)
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
            # Faster each time: the start may be far too narrow.
            empty = WIDENING * 4.0 ** min(self.rounds, PATIENCE)
            widening = np.where(inside > 0, np.clip(3 * beyond / inside, 2, 1e6), empty)
        low, high = _round_outwards(
            np.where(below, self.low - width * widening, self.high),
            np.where(below, self.low, self.high + width * widening),
            self.low.dtype,
        )
        crowd = np.minimum(np.maximum(3 * beyond, 2 * inside) * (sums.rows / sums.divisor), sums.rows)
        at_limit = np.maximum(-low, high) >= _find_limit(low.dtype)
        again = np.where((_are_few(crowd * lost, sums.rows) & (inside > 0)) | at_limit, COLLECT, HISTOGRAM)
        return replace(
            self,
            low=np.where(lost, low, self.low),
            high=np.where(lost, high, self.high),
            status=np.where(lost, again, self.status).astype(np.int8),
            misled=self.misled | (lost & (self.histograms > 0)),
        )

    def _within_proved_bounds(self) -> MedianSearch:
        """Cut the brackets to the bounds; bisect where one is empty, and everywhere after PATIENCE rounds."""
        low = np.maximum(self.low, self.least)
        high = np.minimum(self.high, self.most)
        halve = (self.status != DONE) & ((low >= high) | (self.rounds >= PATIENCE))
        if halve.any():
            first, last = _rank(self.least), _rank(self.most)
            middle = (first >> 1) + (last >> 1) + (first & last & 1)
            low = np.where(halve, _from_rank(middle, low.dtype), low)
            high = np.where(halve, _from_rank(middle + 1, low.dtype), high)
        status = np.where(halve, COLLECT, self.status).astype(np.int8)
        return replace(self, low=low, high=high, status=status)


def _find_bins(histogram: np.ndarray, weight: np.ndarray) -> Binned:
    """Find the bins around half of the weight of a histogram (K, D, BINS); weight (K, 1) is of all rows."""
    reached = np.cumsum(histogram, axis=2)  # exact, as all sums of weights
    half = 0.5 * reached[:, :, -1]
    slack = LIGHT * np.maximum(weight - reached[:, :, -1], 0.0)

    def locate(target: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        place = np.count_nonzero(reached < target[:, :, None], axis=2).clip(max=BINS - 1)
        counted = _pick(histogram, place)
        before = _pick(reached, place) - counted
        return place, counted, (target - before) / np.where(counted > 0, counted, 1.0)

    low_bin, counted, low_place = locate(half - slack)
    low_place = np.where((counted > 0) & (low_bin >= 1), low_place, 0.0)
    high_bin, counted, high_place = locate(half + slack)
    high_place = np.where((counted > 0) & (high_bin <= BINS - 2), high_place, 1.0)
    low_bin, high_bin = np.maximum(low_bin, 1), np.minimum(high_bin, BINS - 2)
    inside = _pick(reached, high_bin) - _pick(reached, low_bin - 1)
    under = histogram[:, :, 0]
    inner = histogram[:, :, 1:-1].sum(axis=2)
    place = np.count_nonzero(reached < half[:, :, None], axis=2)
    return Binned(
        half=half,
        slack=slack,
        place=place,
        low_bin=low_bin,
        low_place=low_place,
        high_bin=high_bin,
        high_place=high_place,
        inside=inside,
        under=under,
        inner=inner,
    )


def _pick(values: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Return values (K, D, n) at the places (K, D)."""
    return np.take_along_axis(values, place[:, :, None], axis=2)[:, :, 0]


def _are_few(crowd: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return which components (K, 1) have, on average, few enough of their rows (K, 1) in brackets (K, D)."""
    return crowd.mean(axis=1, keepdims=True) <= np.clip(PART * rows, FEWEST_COLLECTED, CROWD)


def _round_outwards(low: np.ndarray, high: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Round the bracket outwards to the type of the rows; where it ends at the limit it is open."""
    limit = _find_limit(dtype)
    up = np.array(np.inf, dtype)
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


def _find_limit(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).max) / 4
