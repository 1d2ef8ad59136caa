"""The M step of families whose -log f is a concave function of z²: iteratively reweighted least squares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from fishermix.mixture.m_step.base import ComponentSums, FamilyFit, FitPlan
from fishermix.mixture.posteriors import TilePosteriors
from fishermix.mixture.sums import Sums


@dataclass
class IRLSSums(Sums):
    """Sums (K, D) of weight log f(z), w = weight irls_weight(z), w gap and w gap², gap = x - location."""

    log_density: np.ndarray
    irls_weight: np.ndarray
    first: np.ndarray
    second: np.ndarray


@dataclass(frozen=True)
class IRLSFit(FamilyFit):
    """Iteratively reweighted least squares, with the weights `Family.irls_weight`.

    A step that lowers the expected log likelihood somewhere, by rounding or at the floor of the scales, is
    halved there, and the best point seen, including the start, is kept.
    """

    best_location: np.ndarray = field(default_factory=lambda: np.empty(0))
    best_scale: np.ndarray = field(default_factory=lambda: np.empty(0))
    step: int = 0

    def begin(self, rows: np.ndarray, plan: FitPlan) -> Self:
        return replace(
            self,
            done=False,
            best_location=self.location,
            best_scale=self.scale,
            step=0,
            promised_gain=0.0,
        )

    def summarize(self, tiles: Sequence[np.ndarray], posteriors: Iterable[TilePosteriors]) -> IRLSSums:
        location, scale = self.location.astype(tiles[0].dtype), self.scale.astype(tiles[0].dtype)
        sums = IRLSSums.of_zeros(location.shape)
        for tile, (start, rows, weights) in zip(tiles, posteriors):
            for k, span in enumerate(map(slice, start[:-1], start[1:])):
                if span.start == span.stop:
                    continue
                family, weight, gap = self.family_of(k), weights[span], tile[rows[span]] - location[k]
                z = gap / scale[k]
                irls_weight = family.irls_weight(z).astype(np.float64)
                sums.log_density[k] += weight @ family.log_density(z)
                sums.irls_weight[k] += weight @ irls_weight
                irls_weight *= gap
                sums.first[k] += weight @ irls_weight
                irls_weight *= gap
                sums.second[k] += weight @ irls_weight
        return sums

    def advance(self, sums: IRLSSums, components: ComponentSums) -> Self:
        steps_per_iteration = 2  # of EM: more would fit posteriors that are about to change
        expected = sums.log_density / components.divisor - np.log(self.scale)
        better = expected >= (self.expected_log_likelihood if self.step else -np.inf)
        best = replace(
            self,
            best_location=np.where(better, self.location, self.best_location),
            best_scale=np.where(better, self.scale, self.best_scale),
            expected_log_likelihood=np.where(better, expected, self.expected_log_likelihood),
        )
        if self.step == steps_per_iteration:
            return replace(best, location=best.best_location, scale=best.best_scale, done=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = sums.first / sums.irls_weight
            scale = np.sqrt((sums.second - shift * sums.first) / components.divisor)
        usable = better & np.isfinite(shift) & np.isfinite(scale)
        return replace(
            best,
            location=np.where(usable, self.location + shift, 0.5 * (best.best_location + self.location)),
            scale=np.where(usable, np.maximum(scale, self.floor), 0.5 * (best.best_scale + self.scale)),
            step=self.step + 1,
        )
