"""The M step of the Gaussian: mean and standard deviation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fishermix.mixture.m_step.base import ComponentSums, FamilyFit, FitPlan
from fishermix.mixture.posteriors import TilePosteriors
from fishermix.mixture.sums import Sums


@dataclass
class MomentSums(Sums):
    """Sums of weight (x - center) and weight (x - center)² (K, D)."""

    first: np.ndarray
    second: np.ndarray


@dataclass(frozen=True)
class MomentFit(FamilyFit):
    """Gaussian: mean and standard deviation from sums about the last mean, which avoids cancellation."""

    def begin(self, rows: np.ndarray, plan: FitPlan) -> Self:
        # The center of the sums is a number of the rows' type, the same one for every block.
        center = self.location.astype(plan.dtype).astype(float)
        return replace(self, location=center, done=False, loops=plan.loops)

    def summarize(self, tiles: Sequence[np.ndarray], posteriors: Iterable[TilePosteriors]) -> MomentSums:
        center = self.location.astype(tiles[0].dtype)
        sums = MomentSums.of_zeros(center.shape)
        for tile, of_tile in zip(tiles, posteriors):
            self.loops.add_moments(tile, of_tile, center, sums)
        return sums

    def advance(self, sums: MomentSums, components: ComponentSums) -> Self:
        shift = sums.first / components.divisor
        variance = np.maximum(sums.second / components.divisor - shift**2, 0.0)
        scale = np.maximum(np.sqrt(variance), self.floor)
        expected = -0.5 * np.log(2 * np.pi) - np.log(scale) - 0.5 * variance / scale**2
        return replace(
            self,
            location=self.location + shift,
            scale=np.where(components.weight > 0, scale, self.scale),
            expected_log_likelihood=expected,
            done=True,
        )

    def pool(self, later: Self, step: np.ndarray) -> Self:
        """As of any family, but the variance is that of the rows of both."""
        gap = later.location - self.location
        variance = (1 - step) * self.scale**2 + step * later.scale**2 + step * (1 - step) * gap**2
        return replace(super().pool(later, step), scale=np.sqrt(variance))
