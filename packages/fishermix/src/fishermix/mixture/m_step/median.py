"""The M step of the Laplacian: weighted median and mean absolute deviation from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fishermix.mixture.compiling import HAS_NUMBA
from fishermix.mixture.m_step.base import ComponentSums, FamilyFit, FitPlan
from fishermix.mixture.m_step.median_search import MedianCandidates, MedianSearch
from fishermix.mixture.posteriors import TilePosteriors
from fishermix.mixture.sums import Sums

# Up to here, sorting the rows once per fit is faster than to search for the medians in every iteration.
SORTED = 40_000  # numbers that are sorted, N D
WALKED = 800_000  # numbers in sorted order over which an iteration sums weights, N K D


@dataclass
class SortableRows(Sums):
    """All rows and their weights (K, n), tile by tile: few enough to be sorted."""

    rows: list[np.ndarray]
    weights: list[np.ndarray]


@dataclass(frozen=True)
class MedianFit(FamilyFit):
    """Laplacian: exact weighted median and mean absolute deviation from it.

    Few rows are sorted, the medians of more are searched for.
    """

    search: MedianSearch | None = None
    sorter: RowSorter | None = None

    def begin(self, rows: np.ndarray, plan: FitPlan) -> Self:
        n_components, n_features = self.location.shape
        n_sorted = plan.n_rows * n_features
        is_small = n_sorted <= SORTED and n_sorted * n_components <= WALKED
        search = None
        if HAS_NUMBA and not is_small:  # in NumPy, the search is slower at any size
            search = MedianSearch.around(self.location, self.reach, self.scale, rows, plan)
        return replace(self, done=False, loops=plan.loops, search=search, sorter=plan.sorter)

    def summarize(
        self, tiles: Sequence[np.ndarray], posteriors: Iterable[TilePosteriors]
    ) -> SortableRows | MedianCandidates:
        if self.search is not None:
            return self.search.summarize(tiles, posteriors)
        weights = [of_tile.to_dense(len(tile)) for tile, of_tile in zip(tiles, posteriors)]
        return SortableRows(list(tiles), weights)

    def advance(self, sums: SortableRows | MedianCandidates, components: ComponentSums) -> Self:
        if isinstance(sums, SortableRows):
            assert self.sorter is not None
            columns, order = self.sorter.sort(np.concatenate(sums.rows))
            weights = np.concatenate(sums.weights, axis=1)
            median, deviation = self.loops.find_medians(columns, order, weights)
            return self._finish(np.where(components.weight > 0, median, self.location), deviation, components)
        assert self.search is not None
        search = self.search.advance(sums, components)
        if not search.done:
            return replace(self, search=search)
        return self._finish(search.median, search.deviation, components)

    def _finish(self, median: np.ndarray, deviation: np.ndarray, components: ComponentSums) -> Self:
        deviation = deviation / components.divisor
        scale = np.maximum(deviation, self.floor)
        # The next median is looked for within three times the last move, or within the error of a median.
        moved = np.abs(median - self.location)
        few_rows = 32
        reach = np.maximum(3 * moved, scale * np.minimum(few_rows / components.effective_rows, 1))
        return replace(
            self,
            location=median,
            scale=np.where(components.weight > 0, scale, self.scale),
            reach=reach,
            expected_log_likelihood=-np.log(2 * scale) - deviation / scale,
            search=None,
            sorter=None,
            done=True,
        )


class RowSorter:
    """Sorts rows by each column, and remembers the result for the next time the same rows are given.

    The order stays in this process: another one gets a copy that remembers nothing.
    """

    def __init__(self) -> None:
        self._rows = np.empty((0, 0))
        self._columns = np.empty((0, 0))
        self._order = np.empty((0, 0), np.int64)

    def sort(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns of rows (n, D) as float64 (D, n), and the order (D, n) that sorts them."""
        if not np.array_equal(rows, self._rows):
            self._rows = rows.copy()  # whatever happens to these
            self._columns = np.ascontiguousarray(self._rows.T, np.float64)
            self._order = np.argsort(self._columns, axis=1)
        return self._columns, self._order

    def __reduce__(self) -> tuple[type[RowSorter], tuple[()]]:
        return RowSorter, ()
