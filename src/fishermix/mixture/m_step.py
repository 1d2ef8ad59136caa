"""The M step of one family: location and scale of every (component, dimension) from statistics that add up.

A fit asks for sweeps over the rows until it is done:

    fit = fit.begin(...)
    while not fit.done:
        fit = fit.advance(sum over blocks of fit.accumulator(dtype).add(x, active).finish(), mass)

The Gaussian's moments take one sweep, the Laplacian's medians one or two, other families a few. Shapes are
(K, D) unless said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from fishermix.mixture import kernels
from fishermix.mixture.families import Family, Gaussian, Laplace
from fishermix.mixture.statistics import ActiveRows, Mass
from fishermix.mixture.weighted_median import MedianSearch
from fishermix.rows.blocks import Totals

FIRST_REACH = 3.0  # scales that a first median may lie away from the start
STEPS = 2  # of a family without a closed form, in each iteration of EM


class Accumulator(Protocol):
    """Statistics of one block, panel by panel."""

    def add(self, x: np.ndarray, active: ActiveRows) -> None: ...

    def finish(self) -> Totals: ...


@dataclass(frozen=True)
class FamilyFit:
    """Location and scale of one family offered everywhere, whether or not it is chosen.

    `reach` is how far the location may move in the next iteration, as far as the last one tells. `quality` is
    the expected log density per unit of weight: the family chosen is the one where it is highest.
    """

    family: Family
    location: np.ndarray
    scale: np.ndarray
    reach: np.ndarray
    quality: np.ndarray
    floor: float
    done: bool = False

    def begin(self, rows: np.ndarray, dtype: np.dtype) -> FamilyFit:
        """Ready for a new iteration; rows (K,) had an active posterior in the last one."""
        return replace(self, done=False)

    def accumulator(self, dtype: np.dtype) -> Accumulator:
        raise NotImplementedError

    def advance(self, totals: Totals, mass: Mass) -> FamilyFit:
        raise NotImplementedError


def _kept(mass: Mass, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """`new` where a component has any weight, else `old`."""
    return np.where(mass.weight[:, None] > 0, new, old)


@dataclass(frozen=True)
class MomentFit(FamilyFit):
    """Gaussian: mean and deviation from sums about the last mean, so that nothing cancels."""

    def begin(self, rows: np.ndarray, dtype: np.dtype) -> MomentFit:
        # The centre of the sums is a number of the rows' type, the same one for every block.
        return replace(self, location=self.location.astype(dtype).astype(float), done=False)

    def accumulator(self, dtype: np.dtype) -> Accumulator:
        return _Moments(self.location.astype(dtype))

    def advance(self, totals: Totals, mass: Mass) -> MomentFit:
        total = mass.column
        shift = totals["first"] / total
        variance = np.maximum(totals["second"] / total - shift**2, 0.0)
        scale = np.maximum(np.sqrt(variance), self.floor)
        quality = -0.5 * np.log(2 * np.pi) - np.log(scale) - 0.5 * variance / scale**2
        location, scale = self.location + shift, _kept(mass, scale, self.scale)
        return replace(self, location=location, scale=scale, quality=quality, done=True)


class _Moments:
    def __init__(self, centre: np.ndarray):
        self.centre = centre
        self.first, self.second = np.zeros(centre.shape), np.zeros(centre.shape)

    def add(self, x: np.ndarray, active: ActiveRows) -> None:
        kernels.add_moments(x, *active, self.centre, self.first, self.second)

    def finish(self) -> Totals:
        return Totals(first=self.first, second=self.second)


@dataclass(frozen=True)
class MedianFit(FamilyFit):
    """Laplacian: exact weighted median and mean absolute deviation about it."""

    search: MedianSearch | None = None

    def begin(self, rows: np.ndarray, dtype: np.dtype) -> MedianFit:
        search = MedianSearch.around(self.location, self.reach, self.scale, rows, dtype)
        return replace(self, done=False, search=search)

    def accumulator(self, dtype: np.dtype) -> Accumulator:
        assert self.search is not None
        return self.search.accumulator(dtype)

    def advance(self, totals: Totals, mass: Mass) -> MedianFit:
        assert self.search is not None
        search = self.search.advance(totals, mass)
        if not search.done:
            return replace(self, search=search)
        total = mass.column
        deviation = search.deviation / total
        scale = np.maximum(deviation, self.floor)
        moved = np.abs(search.median - self.location)
        return replace(
            self,
            location=search.median,
            scale=_kept(mass, scale, self.scale),
            reach=np.maximum(3 * moved, scale * np.minimum(32 / mass.effective_rows[:, None], 1)),
            quality=-np.log(2 * scale) - deviation / scale,
            search=None,
            done=True,
        )


@dataclass(frozen=True)
class CurvatureFit(FamilyFit):
    """Any other family: steps to the mean and deviation weighted by `Family.curvature`.

    A step that lowers the expected log density somewhere is halved there, and what is kept in the end is the
    best point seen, the start included: the likelihood of EM never falls, whatever the family.
    """

    best_location: np.ndarray | float = np.nan
    best_scale: np.ndarray | float = np.nan
    step: int = 0

    def begin(self, rows: np.ndarray, dtype: np.dtype) -> CurvatureFit:
        return replace(self, done=False, best_location=self.location, best_scale=self.scale, step=0)

    def accumulator(self, dtype: np.dtype) -> Accumulator:
        return _Curvatures(self.family, self.location.astype(dtype), self.scale.astype(dtype))

    def advance(self, totals: Totals, mass: Mass) -> CurvatureFit:
        total = mass.column
        quality = totals["log_density"] / total - np.log(self.scale)
        better = quality >= (self.quality if self.step else -np.inf)
        quality = np.where(better, quality, self.quality)
        best_location = np.where(better, self.location, self.best_location)
        best_scale = np.where(better, self.scale, self.best_scale)
        if self.step == STEPS:
            return replace(self, location=best_location, scale=best_scale, quality=quality, done=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = totals["first"] / totals["curvature"]
            scale = np.sqrt((totals["second"] - shift * totals["first"]) / total)
        usable = better & np.isfinite(shift) & np.isfinite(scale)
        halfway = 0.5 * (best_location + self.location), 0.5 * (best_scale + self.scale)
        return replace(
            self,
            location=np.where(usable, self.location + shift, halfway[0]),
            scale=np.where(usable, np.maximum(scale, self.floor), halfway[1]),
            quality=quality,
            best_location=best_location,
            best_scale=best_scale,
            step=self.step + 1,
        )


class _Curvatures:
    def __init__(self, family: Family, location: np.ndarray, scale: np.ndarray):
        self.family, self.location, self.scale = family, location, scale
        names = ("log_density", "curvature", "first", "second")
        self.totals = Totals({name: np.zeros(location.shape) for name in names})

    def add(self, x: np.ndarray, active: ActiveRows) -> None:
        for k, (location, scale) in enumerate(zip(self.location, self.scale)):
            row, share = active.of(k)
            if not len(row):
                continue
            gap = x[row] - location
            z = gap / scale
            curvature = self.family.curvature(z).astype(np.float64)
            self.totals["log_density"][k] += share @ self.family.log_density(z)
            self.totals["curvature"][k] += share @ curvature
            curvature *= gap
            self.totals["first"][k] += share @ curvature
            curvature *= gap
            self.totals["second"][k] += share @ curvature

    def finish(self) -> Totals:
        return self.totals


_CLOSED_FORM: dict[type[Family], type[FamilyFit]] = {Gaussian: MomentFit, Laplace: MedianFit}


def start_fit(family: Family, location: np.ndarray, scale: np.ndarray, floor: float) -> FamilyFit:
    """The fit of a family from this location and scale on."""
    kind = _CLOSED_FORM.get(type(family), CurvatureFit)
    scale = np.maximum(scale, floor)
    return kind(
        family, location.copy(), scale, reach=FIRST_REACH * scale, quality=np.zeros(scale.shape), floor=floor
    )
