"""The M step of each family: location and scale of every (component, dimension) from sufficient statistics.

A fit asks for passes over the rows until it is done:

    fit = fit.begin(rows, plan)
    while not fit.done:
        fit = fit.advance(sum over all blocks of fit.summarize(panels, posteriors), sums)

The Gaussian's moments take one pass, the Laplacian's medians one or two, and other families a few. Shapes are
(K, D) unless stated otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fishermix.mixture.e_step import LONGEST, SHORTEST, PanelPosteriors
from fishermix.mixture.families import Family
from fishermix.mixture.weighted_median import MedianSearch
from fishermix.rows import Statistics

if TYPE_CHECKING:
    from fishermix.mixture.em import FitState

MOVES, FEW_ROWS = 3, 32  # reach of the next search: moves of the last one, or scales / (rows / FEW_ROWS)
SORTED, WALKED = 40_000, 800_000  # N D, N K D: up to here sorting all rows once is faster
IRLS_STEPS = 2  # per iteration of EM: more steps would fit posteriors that are about to change


class ComponentSums(NamedTuple):
    """Sums over the sparse posteriors of all rows, as columns (K, 1)."""

    weight: np.ndarray  # the sum of the weights
    divisor: np.ndarray  # the same, but positive
    rows: np.ndarray  # the number of rows
    effective_rows: np.ndarray  # (sum of weights)² / sum of squared weights, at least 1


@dataclass(frozen=True)
class FitPlan:
    """What the fits of an iteration need to know of the data and the machine."""

    n_rows: int  # N
    dtype: np.dtype  # of the rows
    compiled: bool  # whether to use the kernels
    sorter: RowSorter  # the same in all iterations of a fit
    room: float  # bytes for the sufficient statistics of one pass, over all blocks


def are_finite(statistics: Statistics) -> bool:
    """Whether no sum has overflowed the type of the data."""
    return all(
        are_finite(value)
        if isinstance(value, Statistics)
        else isinstance(value, list) or np.isfinite(value).all()
        for value in statistics.values()
    )


def sum_components(statistics: Statistics) -> ComponentSums:
    """Return the sums of an E step as columns (K, 1)."""
    weight, squared = statistics["weight"][:, None], statistics["squared"][:, None]
    tiny = np.finfo(float).tiny
    effective_rows = np.maximum(weight**2 / np.maximum(squared, tiny), 1.0)
    return ComponentSums(weight, np.maximum(weight, tiny), statistics["rows"][:, None], effective_rows)


@dataclass(frozen=True)
class FamilyFit(ABC):
    """Location and scale of one family at every (k, d), whether or not it is chosen there.

    `reach` is how far the location may move in the next iteration, judged by the last one.
    `expected_log_likelihood` is per unit of weight: the family with the highest one is chosen.
    """

    family: Family
    location: np.ndarray
    scale: np.ndarray
    reach: np.ndarray
    expected_log_likelihood: np.ndarray
    floor: float
    done: bool = False
    compiled: bool = True

    def begin(self, rows: np.ndarray, plan: FitPlan) -> FamilyFit:
        """Prepare for a new iteration. rows (K,) is the number of rows per component in the last one."""
        return replace(self, done=False, compiled=plan.compiled)

    @abstractmethod
    def summarize(self, panels: Sequence[np.ndarray], posteriors: Iterable[PanelPosteriors]) -> Statistics:
        """Return the sufficient statistics of a block, given as panels of rows (n, D)."""

    @abstractmethod
    def advance(self, statistics: Statistics, sums: ComponentSums) -> FamilyFit:
        """Return the fit after a pass, given the statistics summed over all blocks."""


def begin_fits(state: FitState, plan: FitPlan) -> tuple[list[FamilyFit], np.dtype]:
    """Prepare an iteration; in float64 if the parameters are out of the range of float32."""
    for fit in state.fits:
        largest = max(np.abs(fit.location).max(), fit.scale.max())
        if plan.dtype == np.float32 and not (largest <= LONGEST and fit.scale.min() >= SHORTEST):
            plan = replace(plan, dtype=np.dtype(np.float64))
    return [fit.begin(state.rows, plan) for fit in state.fits], plan.dtype


@dataclass(frozen=True)
class MomentFit(FamilyFit):
    """Gaussian: mean and standard deviation from sums about the last mean, which avoids cancellation."""

    def begin(self, rows: np.ndarray, plan: FitPlan) -> MomentFit:
        # The center of the sums is a number of the rows' type, the same one for every block.
        center = self.location.astype(plan.dtype).astype(float)
        return replace(self, location=center, done=False, compiled=plan.compiled)

    def summarize(self, panels: Sequence[np.ndarray], posteriors: Iterable[PanelPosteriors]) -> Statistics:
        center = self.location.astype(panels[0].dtype)
        sums = Statistics(first=np.zeros(center.shape), second=np.zeros(center.shape))
        for panel, posterior in zip(panels, posteriors):
            if self.compiled:
                from fishermix.mixture import kernels

                start, row, weight = posterior
                work = np.empty((2, panel.shape[1]), panel.dtype)
                weight = weight.astype(panel.dtype, copy=False)
                kernels.add_moments(panel, start, row, weight, center, *work, *sums.values())
            else:
                dense, gap = _to_dense(posterior, len(panel)), panel - center[:, None].astype(np.float64)
                sums["first"] += np.einsum("kn,knd->kd", dense, gap)
                sums["second"] += np.einsum("kn,knd,knd->kd", dense, gap, gap)
        return sums

    def advance(self, statistics: Statistics, sums: ComponentSums) -> MomentFit:
        shift = statistics["first"] / sums.divisor
        variance = np.maximum(statistics["second"] / sums.divisor - shift**2, 0.0)
        scale = np.maximum(np.sqrt(variance), self.floor)
        expected = -0.5 * np.log(2 * np.pi) - np.log(scale) - 0.5 * variance / scale**2
        return replace(
            self,
            location=self.location + shift,
            scale=np.where(sums.weight > 0, scale, self.scale),
            expected_log_likelihood=expected,
            done=True,
        )


def _to_dense(posteriors: PanelPosteriors, n_rows: int) -> np.ndarray:
    """The weights of a panel as a dense array (K, n)."""
    dense = np.zeros((len(posteriors.start) - 1, n_rows))
    for of_component, first, last in zip(dense, posteriors.start[:-1], posteriors.start[1:]):
        of_component[posteriors.row[first:last]] = posteriors.weight[first:last]
    return dense


@dataclass(frozen=True)
class MedianFit(FamilyFit):
    """Laplacian: exact weighted median and mean absolute deviation from it."""

    search: MedianSearch | None = None
    sorter: RowSorter | None = None

    def begin(self, rows: np.ndarray, plan: FitPlan) -> MedianFit:
        search = None
        if plan.n_rows * self.location.size > min(SORTED * len(self.location), WALKED):
            search = MedianSearch.around(self.location, self.reach, self.scale, rows, plan)
        return replace(self, done=False, compiled=plan.compiled, search=search, sorter=plan.sorter)

    def summarize(self, panels: Sequence[np.ndarray], posteriors: Iterable[PanelPosteriors]) -> Statistics:
        if self.search is not None:
            return self.search.summarize(panels, posteriors)
        weights = [_to_dense(posterior, len(panel)) for panel, posterior in zip(panels, posteriors)]
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


class RowSorter:
    """Sorts rows by each column, and remembers the result for the next time the same rows are given.

    The order stays in this process: another one gets a copy that remembers nothing.
    """

    _rows: np.ndarray = np.empty((0, 0))
    _columns = _order = _rows

    def sort(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns of rows (n, D) as float64 (D, n), and the order (D, n) that sorts them."""
        if not np.array_equal(rows, self._rows):
            self._rows = rows.copy()  # whatever happens to these
            self._columns = np.ascontiguousarray(self._rows.T, np.float64)
            self._order = np.argsort(self._columns, axis=1)
        return self._columns, self._order

    def __reduce__(self) -> tuple[type[RowSorter], tuple[()]]:
        return RowSorter, ()


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
class IRLSFit(FamilyFit):
    """Any other family: iteratively reweighted least squares, with the weights `Family.irls_weight`.

    A step that lowers the expected log likelihood somewhere is halved there, and the best point seen,
    including the start, is kept: the likelihood of EM never falls, whatever the family.
    """

    best_location: np.ndarray | float = np.nan
    best_scale: np.ndarray | float = np.nan
    step: int = 0

    def begin(self, rows: np.ndarray, plan: FitPlan) -> IRLSFit:
        return replace(self, done=False, best_location=self.location, best_scale=self.scale, step=0)

    def summarize(self, panels: Sequence[np.ndarray], posteriors: Iterable[PanelPosteriors]) -> Statistics:
        location, scale = (part.astype(panels[0].dtype) for part in (self.location, self.scale))
        names = ("log_density", "irls_weight", "first", "second")
        sums = Statistics({name: np.zeros(location.shape) for name in names})
        for panel, (start, rows, weights) in zip(panels, posteriors):
            for k, span in enumerate(map(slice, start[:-1], start[1:])):
                if span.start == span.stop:
                    continue
                weight, gap = weights[span], panel[rows[span]] - location[k]
                z = gap / scale[k]
                irls_weight = self.family.irls_weight(z).astype(np.float64)
                sums["log_density"][k] += weight @ self.family.log_density(z)
                sums["irls_weight"][k] += weight @ irls_weight
                irls_weight *= gap
                sums["first"][k] += weight @ irls_weight
                irls_weight *= gap
                sums["second"][k] += weight @ irls_weight
        return sums

    def advance(self, statistics: Statistics, sums: ComponentSums) -> IRLSFit:
        expected = statistics["log_density"] / sums.divisor - np.log(self.scale)
        better = expected >= (self.expected_log_likelihood if self.step else -np.inf)
        expected = np.where(better, expected, self.expected_log_likelihood)
        best_location = np.where(better, self.location, self.best_location)
        best_scale = np.where(better, self.scale, self.best_scale)
        best = replace(self, location=best_location, scale=best_scale, expected_log_likelihood=expected)
        if self.step == IRLS_STEPS:
            return replace(best, done=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = statistics["first"] / statistics["irls_weight"]
            scale = np.sqrt((statistics["second"] - shift * statistics["first"]) / sums.divisor)
        usable = better & np.isfinite(shift) & np.isfinite(scale)
        halfway = 0.5 * (best_location + self.location), 0.5 * (best_scale + self.scale)
        return replace(
            best,
            location=np.where(usable, self.location + shift, halfway[0]),
            scale=np.where(usable, np.maximum(scale, self.floor), halfway[1]),
            best_location=best_location,
            best_scale=best_scale,
            step=self.step + 1,
        )
