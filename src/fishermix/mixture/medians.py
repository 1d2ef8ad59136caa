"""Exact weighted medians: the first sorted value at which half of the weight is reached.

`weighted_median` sorts. `MedianSearch` finds the same values for all (component, dimension) at once from
statistics that add up over blocks, in one or two sweeps over the rows:

1. *look*: a histogram of the weights over a bracket tells the bin in which half is reached;
2. *collect*: the weight below the bracket and the few values inside it, among which the median is selected.

A bracket only guides: the collected weights prove the answer, or the search goes on beside the bracket. All
weights are multiples of one power of two: their sums are exact, and the answer depends on no cut, no thread.
From the second iteration on the old median brackets the new one, soon so tightly that the look is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fishermix.mixture import kernels
from fishermix.mixture.blocks import ActiveRows, Totals

BINS = 32  # of a histogram, the two outer ones for all that lies below and above
CROWD = 256  # values inside a bracket that may be collected without another look
LOOKS = 4  # at most, then ties are to blame for the crowd, and these are collected as one
WIDENING = 16.0  # the next bracket beside one that does not hold the median is so many times as wide

LOOK, COLLECT, DONE = 0, 1, 2


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

    @classmethod
    def around(cls, guess: np.ndarray, reach: np.ndarray, crowd: np.ndarray, dtype: np.dtype) -> MedianSearch:
        """Start between guess - reach and guess + reach, where about `crowd` values lie; all (K, D)."""
        low, high = _rounded(guess - reach, guess + reach, dtype)
        status = np.where(crowd <= CROWD, COLLECT, LOOK).astype(np.int8)
        return cls(
            low, high, status, np.array(guess, float), np.zeros(low.shape), np.zeros(low.shape, np.int8)
        )

    @property
    def done(self) -> bool:
        return bool((self.status == DONE).all())

    def accumulator(self, dtype: np.dtype) -> _Accumulator:
        return _Accumulator(self, dtype)

    def advance(self, totals: Totals, weight: np.ndarray, rows: np.ndarray) -> MedianSearch:
        """The search after one more sweep; weight and count of the active rows of each component (K,)."""
        search = self._after_collecting(totals, weight) if "entries" in totals else self
        if "histogram" in totals:
            search = search._after_looking(self, totals["histogram"], weight, rows)
        empty = (weight <= 0)[:, None]
        return replace(search, status=np.where(empty, DONE, search.status).astype(np.int8))

    def _after_collecting(self, totals: Totals, weight: np.ndarray) -> MedianSearch:
        shape, size = self.low.shape, self.low.size
        where, value, share = (np.concatenate(part) for part in zip(*totals["entries"]))
        first = np.concatenate([[0], np.cumsum(np.bincount(where, minlength=size))])
        grouped_value, grouped_share = np.empty_like(value), np.empty_like(share)
        kernels.group(where, first, value, share, grouped_value, grouped_share)
        below = totals["below"].ravel()
        half = np.repeat(0.5 * weight, shape[1])
        median = np.full(size, np.nan)
        inside, shift = np.zeros(size), np.zeros(size)
        reference = self.low.ravel()
        kernels.select(first, grouped_value, grouped_share, half - below, reference, median, inside, shift)
        collected = (self.status == COLLECT).ravel()
        found = collected & np.isfinite(median)
        above = 2 * half - below - inside
        with np.errstate(invalid="ignore"):
            deviation = totals["deviation"].ravel() + (median - reference) * (below - above) + shift
        search = replace(
            self,
            status=np.where(found, DONE, self.status.ravel()).astype(np.int8).reshape(shape),
            median=np.where(found, median, self.median.ravel()).reshape(shape),
            deviation=np.where(found, np.maximum(deviation, 0), self.deviation.ravel()).reshape(shape),
        )
        lost = (collected & ~found).reshape(shape)
        return search._beside(lost, (half <= below).reshape(shape))

    def _after_looking(
        self, before: MedianSearch, histogram: np.ndarray, weight: np.ndarray, rows: np.ndarray
    ) -> MedianSearch:
        looked = before.status == LOOK
        reached = np.cumsum(histogram, axis=2)
        bin_ = (reached >= 0.5 * weight[:, None, None]).argmax(axis=2)
        inside = np.take_along_axis(histogram, bin_[:, :, None], 2)[:, :, 0]
        crowd = inside * (rows / np.maximum(weight, 1e-300))[:, None]
        located = looked & (bin_ > 0) & (bin_ < BINS - 1)
        width = (self.high - self.low) / (BINS - 2)
        # A little wider than the bin: the kernel's rounding may have put a value at its edge on either side.
        low = self.low + (bin_ - 1.01) * width
        high = self.low + (bin_ + 0.01) * width
        low, high = _rounded(low, high, self.low.dtype)
        ready = located & ((crowd <= CROWD) | (self.looks + 1 >= LOOKS))
        search = replace(
            self,
            low=np.where(located, low, self.low),
            high=np.where(located, high, self.high),
            status=np.where(ready, COLLECT, self.status).astype(np.int8),
            looks=self.looks + located,
        )
        return search._beside(looked & ~located, bin_ == 0)

    def _beside(self, lost: np.ndarray, below: np.ndarray) -> MedianSearch:
        """Look next below or above the bracket where the median is not inside it."""
        width = WIDENING * (self.high - self.low)
        low, high = _rounded(
            np.where(below, self.low - width, self.high),
            np.where(below, self.low, self.high + width),
            self.low.dtype,
        )
        return replace(
            self,
            low=np.where(lost, low, self.low),
            high=np.where(lost, high, self.high),
            status=np.where(lost, LOOK, self.status).astype(np.int8),
        )


def _rounded(low: np.ndarray, high: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The bracket in the type of the rows, never empty and never infinite."""
    limit = np.finfo(dtype).max / 4
    low = np.clip(low, -limit, limit).astype(dtype)
    high = np.clip(high, -limit, limit).astype(dtype)
    narrowest = np.nextafter(np.nextafter(low, np.array(np.inf, dtype)), np.array(np.inf, dtype))
    return low, np.maximum(high, narrowest)


class _Accumulator:
    """Statistics of one block for a `MedianSearch`."""

    def __init__(self, search: MedianSearch, dtype: np.dtype):
        self.low = search.low.astype(dtype)
        self.high = search.high.astype(dtype)
        shape = self.low.shape
        looking, collecting = (search.status == LOOK), (search.status == COLLECT)
        self.looking, self.collecting = looking.any(axis=1), collecting.any(axis=1)
        self.totals = Totals()
        if self.looking.any():
            self.totals["histogram"] = np.zeros((*shape, BINS))
            with np.errstate(over="ignore"):
                self.per_bin = np.minimum((BINS - 2) / (self.high - self.low), np.finfo(dtype).max / 4)
        if self.collecting.any():
            nowhere = np.array(np.inf, dtype)
            self.first = np.where(collecting, self.low, nowhere)
            self.last = np.where(collecting, self.high, nowhere)
            self.totals["below"] = np.zeros(shape)
            self.totals["deviation"] = np.zeros(shape)
            self.newest = np.full(shape, -1)
            self.count = 0
            capacity = shape[1] * 64
            self.entries = (np.empty(capacity, np.int32), np.empty(capacity, dtype), np.empty(capacity))

    def add(self, x: np.ndarray, active: ActiveRows) -> None:
        if "histogram" in self.totals:
            kernels.add_histogram(x, *active, self.looking, self.low, self.per_bin, self.totals["histogram"])
        if "below" in self.totals:
            kernels.add_deviations(x, *active, self.collecting, self.low, self.totals["deviation"])
            resume = np.zeros(2, np.int64)
            while resume[0] < len(self.low):
                self.count = kernels.collect(
                    x,
                    *active,
                    self.collecting,
                    self.first,
                    self.last,
                    self.totals["below"],
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
            self.totals["entries"] = [tuple(part[: self.count].copy() for part in self.entries)]
        return self.totals
