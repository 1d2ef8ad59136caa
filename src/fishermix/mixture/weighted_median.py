"""Exact weighted medians: the first sorted value at which half of the weight is reached.

`weighted_median` sorts. `MedianSearch` finds the same values for all (component, dimension) at once from
statistics that add up over blocks, in one or two sweeps over the rows:

1. *look*: a histogram of the weights over a bracket tells the bin in which half is reached;
2. *collect*: the weight below the bracket and the few values inside it, among which the median is selected.

A bracket only guides: the collected weights prove the answer, or on which side of the bracket it lies, where
the search goes on. All weights are multiples of one power of two: their sums are exact, the answer depends
on no cut, no thread. From the second iteration on the old median brackets the new one, soon so tightly that
the look is left out.

The search ends whatever the values: what is proved is kept as `least <= median < most`, and after PATIENCE
sweeps only the number in the middle of these is collected. That finds it or halves the count of numbers
between them, of which there are less than 2⁶⁴.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from fishermix.mixture import kernels
from fishermix.mixture.statistics import ActiveRows, Mass
from fishermix.rows.blocks import Totals
from fishermix.threads import available_threads

BINS = 32  # of a histogram, the two outer ones for all that lies below and above
CROWD, PART = 512, 0.1  # values, and part of all, that may be collected without another look
SEEN = 0.01  # part of a panel's largest weight below which a first look overlooks a row
LOOKS = 4  # at most, then ties are to blame for the crowd, and these are collected as one
LOOKS_AT_TIES = 2  # likewise, once a look has led astray
NUMBERS = 4 * BINS  # in a bracket that is so narrow that a look would only blur it
PATIENCE = 16  # sweeps before the search goes on by halves
WIDENING = 16.0  # the next bracket beside one that does not hold the median is so many times as wide

LOOK, COLLECT, DONE = 0, 1, 2
GROUPS = 1024  # that a thread selects from at once
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]  # k D + d, value and weight of collected rows, each (n,)


def weighted_median(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """First sorted value (D,) at which half of the weight (n,) is reached, of the columns of x (n, D)."""
    order = np.argsort(x, axis=0, kind="stable")
    reached = np.cumsum(weight[order], axis=0)
    first = (reached >= 0.5 * reached[-1:]).argmax(axis=0)
    return np.take_along_axis(x, np.take_along_axis(order, first[None], 0), 0)[0]


@dataclass(frozen=True)
class MedianSearch:
    """Where the medians (K, D) may lie; `status` says what each needs next."""

    low: np.ndarray
    high: np.ndarray
    status: np.ndarray
    median: np.ndarray
    deviation: np.ndarray  # sum of weight |x - median|
    looks: np.ndarray  # that have narrowed the bracket
    misled: np.ndarray  # whether such a look has led astray: ties are not where interpolation expects them
    least: np.ndarray  # proved: least <= median < most
    most: np.ndarray
    seen: float = SEEN
    sweeps: int = 0

    @classmethod
    def around(
        cls, guess: np.ndarray, reach: np.ndarray, scale: np.ndarray, rows: np.ndarray, dtype: np.dtype
    ) -> MedianSearch:
        """Start between guess - reach and guess + reach; (K, D), as is the scale of the (K,) rows."""
        low, high = _rounded(guess - reach, guess + reach, dtype)
        few = _few(rows[:, None] * np.minimum(reach / scale, 1), rows)
        status = np.where(few, COLLECT, LOOK).astype(np.int8) + np.zeros(low.shape, np.int8)
        return cls(
            low,
            high,
            status,
            median=np.array(guess, float),
            deviation=np.zeros(low.shape),
            looks=np.zeros(low.shape, np.int8),
            misled=np.zeros(low.shape, bool),
            least=np.full_like(low, -np.inf),
            most=np.full_like(low, np.inf),
        )

    @property
    def done(self) -> bool:
        return bool((self.status == DONE).all())

    @property
    def reference(self) -> np.ndarray:
        """A point of each bracket, as near to the median as is known, to sum deviations from."""
        return np.clip(self.median.astype(self.low.dtype), self.low, self.high)

    def accumulator(self, dtype: np.dtype) -> _Accumulator:
        return _Accumulator(self, dtype)

    def advance(self, totals: Totals, mass: Mass) -> MedianSearch:
        """The search after one more sweep."""
        search = self._after_collecting(totals, mass) if "entries" in totals else self
        if "histogram" in totals:
            search = search._after_looking(self.status == LOOK, totals["histogram"], mass)
        empty = (mass.weight <= 0)[:, None]
        status = np.where(empty, DONE, search.status).astype(np.int8)
        return replace(search, status=status, sweeps=self.sweeps + 1)._between_what_is_proved()

    def _after_collecting(self, totals: Totals, mass: Mass) -> MedianSearch:
        below, half = totals["below"], 0.5 * mass.weight[:, None]
        reference = self.reference
        median, inside, shift = _selected(totals["entries"], totals["count"], half - below, reference)
        collected = self.status == COLLECT
        found = collected & np.isfinite(median)
        above = 2 * half - below - inside
        with np.errstate(invalid="ignore"):
            deviation = np.maximum(totals["deviation"] + (median - reference) * (below - above) + shift, 0)
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
            seen=0.0,
            least=np.where(lost & ~before, np.maximum(self.least, self.high), self.least),
            most=np.where(before, np.minimum(self.most, self.low), self.most),
        )
        return search._beside(lost, half - below, inside, mass)

    def _after_looking(self, looked: np.ndarray, histogram: np.ndarray, mass: Mass) -> MedianSearch:
        reached = np.cumsum(histogram, axis=2)
        half = 0.5 * reached[:, :, -1]
        place = (reached >= half[:, :, None]).argmax(axis=2)
        inside = np.take_along_axis(histogram, place[:, :, None], 2)[:, :, 0]
        before = np.take_along_axis(reached, place[:, :, None], 2)[:, :, 0] - inside
        crowd = inside * mass.rows_per_weight
        located = looked & (place > 0) & (place < BINS - 1)
        # Of a crowded bin only the part around the interpolated place is taken, four standard deviations of
        # what interpolation misses; else all of it and a little more, as rounding may move its edges, and as
        # what was overlooked may shift the median by up to half its weight, mostly by much less.
        inside = np.maximum(inside, 1e-100)
        share = np.clip((half - before) / inside, 0, 1)
        margin = 0.01 + 0.3 * np.maximum(0.5 * mass.weight[:, None] - half, 0) / inside
        interpolated = (crowd > CROWD) & ~self.misled
        spread = np.where(interpolated, 2 / np.sqrt(inside * mass.effective_rows_per_weight), 2.0)
        width = (self.high.astype(float) - self.low) / (BINS - 2)
        edge = self.low + (place - 1) * width
        low = edge + width * (np.maximum(share - spread, 0) - margin)
        high = edge + width * (np.minimum(share + spread, 1) + margin)
        crowd = crowd * (np.minimum(2 * spread, 1) + 2 * margin)
        narrow = located & (_key(self.high) - _key(self.low) <= NUMBERS)
        last_look = self.looks + 1 >= np.where(self.misled, LOOKS_AT_TIES, LOOKS)
        ready = located & (_few(crowd * located, mass.rows) | last_look | (margin > 1))
        ready |= narrow
        located &= ~narrow
        low, high = _rounded(low, high, self.low.dtype)
        search = replace(
            self,
            low=np.where(located, low, self.low),
            high=np.where(located, high, self.high),
            status=np.where(ready, COLLECT, self.status).astype(np.int8),
            looks=self.looks + located,
        )
        under, inner = histogram[:, :, 0], histogram[:, :, 1:-1].sum(axis=2)
        return search._beside(looked & ~located & ~narrow, half - under, inner, mass)

    def _beside(self, lost: np.ndarray, missing: np.ndarray, inside: np.ndarray, mass: Mass) -> MedianSearch:
        """Go on below or above the bracket where the median is not in it.

        missing (K, D) is the weight from the low end of the bracket to the median (negative: it lies below),
        inside (K, D) that of the bracket: at its density the median is `missing / inside` widths away.
        """
        if not lost.any():
            return self
        below = missing <= 0
        beyond = np.where(below, -missing, missing - inside)
        width = self.high.astype(float) - self.low
        with np.errstate(divide="ignore", invalid="ignore"):
            widening = np.where(inside > 0, np.clip(3 * beyond / inside, 2, 1e6), WIDENING)
        low, high = _rounded(
            np.where(below, self.low - width * widening, self.high),
            np.where(below, self.low, self.high + width * widening),
            self.low.dtype,
        )
        crowd = np.minimum(np.maximum(3 * beyond, 2 * inside) * mass.rows_per_weight, mass.rows[:, None])
        at_limit = np.maximum(-low, high) >= _limit(low.dtype)
        again = np.where((_few(crowd * lost, mass.rows) & (inside > 0)) | at_limit, COLLECT, LOOK)
        return replace(
            self,
            low=np.where(lost, low, self.low),
            high=np.where(lost, high, self.high),
            status=np.where(lost, again, self.status).astype(np.int8),
            misled=self.misled | (lost & (self.looks > 0)),
        )

    def _between_what_is_proved(self) -> MedianSearch:
        """Keep the brackets there; where nothing is left of one, or of patience, take the middle number."""
        low, high = np.maximum(self.low, self.least), np.minimum(self.high, self.most)
        halve = (self.status != DONE) & ((low >= high) | (self.sweeps >= PATIENCE))
        if halve.any():
            first, last = _key(self.least), _key(self.most)
            middle = (first >> 1) + (last >> 1) + (first & last & 1)
            low = np.where(halve, _number(middle, low.dtype), low)
            high = np.where(halve, _number(middle + 1, low.dtype), high)
        status = np.where(halve, COLLECT, self.status).astype(np.int8)
        return replace(self, low=low, high=high, status=status)


def _selected(
    entries: list[Entries], count: np.ndarray, wanted: np.ndarray, reference: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`kernels.select` for each of the K D groups of collected values: median, weight, shift, each (K, D)."""
    first = np.concatenate([[0], np.cumsum(count)])
    value = np.empty(first[-1], np.result_type(*(values for _, values, _ in entries)))
    weight = np.empty(first[-1])
    position = first.copy()
    for where, values, weights in entries:
        kernels.group(where, position, values, weights, value, weight)
    found = np.full(wanted.size, np.nan), np.zeros(wanted.size), np.zeros(wanted.size)

    def select(part: slice) -> None:
        ends = slice(part.start, part.stop + 1)
        of_part = (whole.ravel()[part] for whole in (wanted, reference))
        kernels.select(first[ends], value, weight, *of_part, *(out[part] for out in found))

    with ThreadPoolExecutor(available_threads()) as pool:
        parts = [slice(g, min(g + GROUPS, wanted.size)) for g in range(0, wanted.size, GROUPS)]
        list(pool.map(select, parts))
    median, inside, shift = (out.reshape(wanted.shape) for out in found)
    return median, inside, shift


def _few(crowd: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Components (K, 1) whose brackets (K, D) hold, on average, few enough of their rows (K,) to collect."""
    limit = np.clip(PART * rows, 16, CROWD)
    return crowd.mean(axis=1, keepdims=True) <= limit[:, None]


def _rounded(low: np.ndarray, high: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The bracket in the type of the rows, rounded outwards; where it ends at the limit it is open."""
    limit, up = _limit(dtype), np.array(np.inf, dtype)
    low, high = (np.clip(end, -limit, limit).astype(dtype) for end in (low, high))
    return np.maximum(np.nextafter(low, -up), -limit), np.nextafter(np.maximum(low, high), up)


def _key(number: np.ndarray) -> np.ndarray:
    """The place of floats among all floats of their type, from the smallest to the largest."""
    bits = number.view(np.int32 if number.dtype == np.float32 else np.int64).astype(np.int64)
    return np.where(bits >= 0, bits, np.int64(-1) - (bits & (2 ** (8 * number.itemsize - 1) - 1)))


def _number(key: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The opposite of `_key`."""
    bits = np.where(key >= 0, key, -1 - key)
    if dtype == np.float32:
        size = bits.astype(np.int32).view(np.float32)
    else:
        size = bits.view(np.float64)
    return np.where(key >= 0, size, -size)


def _limit(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).max) / 4


class _Accumulator:
    """Statistics of one block for a `MedianSearch`."""

    def __init__(self, search: MedianSearch, dtype: np.dtype):
        self.low = search.low.astype(dtype)
        self.high = search.high.astype(dtype)
        self.reference = search.reference.astype(dtype)
        self.seen = search.seen
        shape = self.low.shape
        self.looking = (search.status == LOOK).any(axis=1)
        collecting = search.status == COLLECT
        self.totals = Totals()
        if self.looking.any():
            self.totals["histogram"] = np.zeros((*shape, BINS))
            with np.errstate(over="ignore"):
                per_bin = (BINS - 2) / (self.high - self.low)
            self.per_bin = np.clip(per_bin, np.finfo(dtype).tiny, np.finfo(dtype).max)
        if collecting.any():
            limit, nowhere = _limit(search.low.dtype), np.array(np.inf, dtype)
            self.first = np.where(collecting, np.where(self.low > -limit, self.low, -nowhere), nowhere)
            self.last = np.where(collecting & (self.high < limit), self.high, nowhere)
            self.totals["below"] = np.zeros(shape)
            self.totals["deviation"] = np.zeros(shape)
            self.newest = np.full(shape, -1)
            self.count = 0
            capacity = shape[1] * 64
            self.entries = (np.empty(capacity, np.int32), np.empty(capacity, dtype), np.empty(capacity))

    def add(self, x: np.ndarray, active: ActiveRows) -> None:
        if "histogram" in self.totals:
            kernels.add_histogram(
                x, *active, self.seen, self.looking, self.low, self.per_bin, self.totals["histogram"]
            )
        if "below" in self.totals:
            resume = np.zeros(2, np.int64)
            while resume[0] < len(self.low):
                self.count = kernels.collect(
                    x,
                    *active,
                    self.first,
                    self.last,
                    self.reference,
                    self.totals["below"],
                    self.totals["deviation"],
                    self.newest,
                    *self.entries,
                    resume,
                    self.count,
                )
                if resume[0] < len(self.low):
                    where, value, weight = (
                        np.concatenate([part, np.empty_like(part)]) for part in self.entries
                    )
                    self.entries = (where, value, weight)

    def finish(self) -> Totals:
        if "below" in self.totals:
            where, value, weight = (part[: self.count].copy() for part in self.entries)
            self.totals["entries"] = [(where, value, weight)]
            self.totals["count"] = np.bincount(where, minlength=self.low.size)
        return self.totals
