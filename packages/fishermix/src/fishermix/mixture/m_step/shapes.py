"""The M step of a family with a free shape: location and scale are fitted for three shapes; the best wins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from fishermix.mixture.m_step.base import ComponentSums, FamilyFit, FitPlan
from fishermix.mixture.posteriors import TilePosteriors
from fishermix.mixture.sums import Sums

LARGEST_STRIDE = 1 / 8  # of the number of values


@dataclass
class SearchSums(Sums):
    """The sums of the fits that are not done."""

    fits: list[Any]

    def __iadd__(self, other: Self) -> Self:
        for mine, more in zip(self.fits, other.fits):
            if mine is not None:
                mine += more
        return self

    def are_finite(self) -> bool:
        return all(sums is None or sums.are_finite() for sums in self.fits)


@dataclass(frozen=True)
class ShapeSearch:
    """Fits of a family with the present shape, and with those one stride below and above it.

    In each cell the best of the three is kept, so the expected log likelihood never falls. The stride doubles
    after a move, and is halved else.
    """

    fits: tuple[FamilyFit, ...]

    @classmethod
    def begin(cls, fit: FamilyFit, rows: np.ndarray, plan: FitPlan) -> Self:
        """Prepare for a new iteration, as `FamilyFit.begin` does."""
        values = fit.family.shape_values
        place = np.searchsorted(values, fit.shape)
        steps = (place - fit.stride, place + fit.stride)
        neighbors = [values[step.clip(0, len(values) - 1)] for step in steps]
        return cls(tuple(replace(fit, shape=shape).begin(rows, plan) for shape in (fit.shape, *neighbors)))

    @property
    def done(self) -> bool:
        return all(fit.done for fit in self.fits)

    def summarize(self, tiles: Sequence[np.ndarray], posteriors: Iterable[TilePosteriors]) -> SearchSums:
        return SearchSums([None if fit.done else fit.summarize(tiles, posteriors) for fit in self.fits])

    def advance(self, sums: SearchSums, components: ComponentSums) -> Self:
        found = [fit if fit.done else fit.advance(of, components) for fit, of in zip(self.fits, sums.fits)]
        return replace(self, fits=tuple(found))

    def find_best(self) -> FamilyFit:
        """The fit with the best shape in each cell, and the stride of the next search."""
        present = self.fits[0]
        expected = np.nan_to_num([fit.expected_log_likelihood for fit in self.fits], nan=-np.inf)
        best = np.argmax(expected, axis=0)  # the present shape wins ties

        def pick(name: str) -> np.ndarray:
            of_fits = [np.broadcast_to(getattr(fit, name), best.shape) for fit in self.fits]
            return np.take_along_axis(np.stack(of_fits), best[None], 0)[0]

        longest = max(int(LARGEST_STRIDE * len(present.family.shape_values)), 1)
        stride = np.where(
            best > 0, np.minimum(2 * present.stride, longest), np.maximum(present.stride // 2, 1)
        )
        stuck = pick("stuck")
        # Nothing is known of the gain of a long stride, but that EM must not end before it.
        promised_gain = np.where((stride > 2) & ~stuck, np.inf, pick("promised_gain"))
        return replace(
            present,
            location=pick("location"),
            scale=pick("scale"),
            shape=pick("shape"),
            reach=pick("reach"),
            expected_log_likelihood=pick("expected_log_likelihood"),
            promised_gain=promised_gain,
            stuck=stuck,
            stride=stride,
        )
