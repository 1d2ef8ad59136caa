"""The M step of any other family: Newton's method and Fisher scoring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from fishermix.mixture.m_step.base import ComponentSums, FamilyFit, FitPlan
from fishermix.mixture.posteriors import TilePosteriors
from fishermix.mixture.sums import Sums

DERIVATIVE_STEP = 1e-4  # of the finite differences of scores, relative to max(|z|, 1)
FLATTEST = 1e-6  # share of its diagonal that the determinant of a negative definite Hessian has at least


@dataclass
class ScoringSums(Sums):
    """Weighted sums (K, D) of log f(z), of the score s = -d log f / dz and its derivative, and times z, z².

    They are of float64, and infinite where the density is 0, whatever the type of the rows.
    """

    log_density: np.ndarray
    s: np.ndarray
    zs: np.ndarray
    ds: np.ndarray
    zds: np.ndarray
    zzds: np.ndarray

    def are_finite(self) -> bool:
        return True


class Steps(NamedTuple):
    """Steps of a and b, in units in which they are 1 and 0, and the gain they promise (K, D)."""

    a: np.ndarray
    b: np.ndarray
    gain: np.ndarray


@dataclass(frozen=True)
class ScoringFit(FamilyFit):
    """Any family: Newton's method for location and scale, with backtracking on the expected log likelihood.

    Steps are in a = 1 / scale and b = location / scale, because log f(a x - b) + log a is concave in them
    wherever log f is. Where the Hessian of a cell is not negative definite its expectation takes its place:
    Fisher scoring. A step that lowers the expected log likelihood of its cell is halved until it does not.
    """

    best_location: np.ndarray | float = np.nan
    best_scale: np.ndarray | float = np.nan
    passes: int = 0
    accepted: np.ndarray | int = 0  # points that were better than all before, the first one included
    halvings: np.ndarray | int = 0  # of the step that is tried
    finished: np.ndarray | bool = True

    def begin(self, rows: np.ndarray, plan: FitPlan) -> Self:
        none = np.zeros(self.location.shape, np.int64)
        return replace(
            self,
            done=False,
            best_location=self.location,
            best_scale=self.scale,
            passes=0,
            accepted=none,
            halvings=none,
            finished=none > 0,
            promised_gain=np.zeros(none.shape),
            stuck=none > 0,
        )

    def summarize(self, tiles: Sequence[np.ndarray], posteriors: Iterable[TilePosteriors]) -> ScoringSums:
        sums = ScoringSums.of_zeros(self.location.shape)
        unfinished = np.flatnonzero(~np.asarray(self.finished).all(axis=1))
        for tile, (start, rows, weights) in zip(tiles, posteriors):
            for k in unfinished:
                family, weight = self.family_of(int(k)), weights[start[k] : start[k + 1]]
                if not len(weight):
                    continue
                chosen = tile[rows[start[k] : start[k + 1]]].astype(np.float64)
                z = (chosen - self.location[k]) / self.scale[k]
                step = DERIVATIVE_STEP * np.maximum(np.abs(z), 1)
                score = family.location_score(z)
                rise = family.location_score(z + step) - family.location_score(z - step)
                slope = rise / (2 * step)
                # A cusp has no derivative, and one row on it must not end the search.
                score = np.where(np.isfinite(score), score, 0.0)
                slope = np.where(np.isfinite(slope), slope, 0.0)
                sums.log_density[k] += weight @ family.log_density(z)
                sums.s[k] += weight @ score
                sums.zs[k] += weight @ (z * score)
                sums.ds[k] += weight @ slope
                sums.zds[k] += weight @ (z * slope)
                sums.zzds[k] += weight @ (z * z * slope)
        return sums

    def advance(self, sums: ScoringSums, components: ComponentSums) -> Self:
        steps_per_iteration = 2  # of EM: more would fit posteriors that are about to change
        most_halvings = 40  # of a step, which is then as short as rounding
        no_gain = 1e-13  # the gradient is zero
        best = self.expected_log_likelihood
        with np.errstate(all="ignore"):
            expected = sums.log_density / components.divisor - np.log(self.scale)
            rounding = 1e-13 * (1 + np.abs(best))
            tried = ~np.asarray(self.finished) & (components.weight > 0)
            better = tried & ((self.passes == 0) | ~np.isfinite(best) | (expected > best + rounding))
            worse = tried & ~better & ~(expected >= best - rounding)
            step = self._find_steps(sums, components)

        accepted = self.accepted + better
        halvings = np.where(better, 0, self.halvings + worse)
        stuck = self.stuck | (halvings > most_halvings)
        satisfied = better & ((accepted > steps_per_iteration) | (step.gain < no_gain))
        finished = stuck | satisfied | ~(better | worse)
        best_location = np.where(better, self.location, self.best_location)
        best_scale = np.where(better, self.scale, self.best_scale)
        # The next point to try is a step further, or halfway back from one that failed.
        ahead = self.location + self.scale * step.b / (1 + step.a), self.scale / (1 + step.a)
        halfway = 0.5 * (best_location + self.location), 0.5 * (best_scale + self.scale)
        location, scale = np.where(better, ahead, halfway)
        return replace(
            self,
            location=np.where(finished, best_location, location),
            scale=np.where(finished, best_scale, np.maximum(scale, self.floor)),
            expected_log_likelihood=np.where(better, expected, best),
            promised_gain=np.where(better, step.gain, self.promised_gain),
            best_location=best_location,
            best_scale=best_scale,
            passes=self.passes + 1,
            accepted=accepted,
            halvings=halvings,
            finished=finished,
            stuck=stuck,
            done=bool(finished.all()),
        )

    def _find_steps(self, sums: ScoringSums, components: ComponentSums) -> Steps:
        gradient_a = 1 - sums.zs / components.divisor
        gradient_b = sums.s / components.divisor
        # Minus the Hessian, or its expectation.
        aa = 1 + sums.zzds / components.divisor
        ab = -sums.zds / components.divisor
        bb = sums.ds / components.divisor
        concave = (aa > 0) & (bb > 0) & (aa * bb - ab * ab > FLATTEST * aa * bb)
        expected_aa, expected_ab, expected_bb = self._find_information()
        aa, ab = np.where(concave, aa, expected_aa), np.where(concave, ab, expected_ab)
        bb = np.where(concave, bb, expected_bb)
        determinant = aa * bb - ab * ab
        step_a = (bb * gradient_a - ab * gradient_b) / determinant
        step_b = (aa * gradient_b - ab * gradient_a) / determinant
        gain = 0.5 * (gradient_a * step_a + gradient_b * step_b)
        gain = np.where((self.scale <= self.floor) & (step_a > 0), 0.0, gain)
        # The scale changes by a factor of four at most, also where the density is 0 and no step is known.
        known = np.isfinite(step_a) & np.isfinite(step_b) & np.isfinite(sums.log_density)
        shorter = np.minimum(1, np.where(step_a < 0, 0.75 / -step_a, 3 / step_a))
        return Steps(
            np.where(known, shorter * step_a, -0.75),
            np.where(known, shorter * step_b, 0.0),
            np.where(known, gain, np.inf),
        )

    def _find_information(self) -> tuple[float, float, float]:
        """The Fisher information of a and b; the identity with a free shape and at a cusp."""
        if self.family.has_free_shape:
            return 1.0, 0.0, 1.0
        found = (
            self.family.scale_information,
            -self.family.shared_information,
            self.family.location_information,
        )
        if not np.isfinite(found).all() or found[1] ** 2 >= (1 - FLATTEST) * found[0] * found[2]:
            return 1.0, 0.0, 1.0
        return found
