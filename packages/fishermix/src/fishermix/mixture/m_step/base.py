"""What the M steps have in common: a fit of one family, and what it needs to know.

A fit asks for passes over the rows until it is done:

    fit = fit.begin(rows, plan)
    while not fit.done:
        fit = fit.advance(sum over all blocks of fit.summarize(tiles, posteriors), components)

Moments take one pass, medians one or two, other families a few. Shapes are (K, D) unless stated otherwise.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from fishermix.mixture.loops import COMPILED, Loops
from fishermix.mixture.posteriors import EStepSums, TilePosteriors
from fishermix.mixture.sums import Sums

if TYPE_CHECKING:
    from fishermix.mixture.families import Family
    from fishermix.mixture.m_step.median import RowSorter


class ComponentSums(NamedTuple):
    """Sums over the posteriors of all rows, as columns (K, 1)."""

    weight: np.ndarray  # the sum of the weights
    divisor: np.ndarray  # the same, but positive
    rows: np.ndarray  # the number of rows
    effective_rows: np.ndarray  # (sum of weights)² / sum of squared weights, at least 1

    @classmethod
    def of_e_step(cls, sums: EStepSums) -> ComponentSums:
        weight, squared = sums.weight[:, None], sums.squared[:, None]
        tiny = sys.float_info.min
        effective_rows = np.maximum(weight**2 / np.maximum(squared, tiny), 1.0)
        return cls(weight, np.maximum(weight, tiny), sums.rows[:, None], effective_rows)


@dataclass(frozen=True)
class FitPlan:
    """What the fits of an iteration need to know of the data and the machine."""

    n_rows: int  # N
    dtype: np.dtype  # of the rows
    loops: Loops
    sorter: RowSorter  # the same in all iterations of a fit
    memory: float  # bytes for the sufficient statistics of one pass, over all blocks


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
    loops: Loops = COMPILED
    promised_gain: np.ndarray | float = 0.0  # of expected log likelihood, by another iteration
    stuck: np.ndarray | bool = False  # where the search for a maximum failed
    shape: np.ndarray | float = np.nan  # of families with a free one, as is the next
    stride: np.ndarray | int = 0  # between the shapes that are compared next

    def begin(self, rows: np.ndarray, plan: FitPlan) -> Self:
        """Prepare for a new iteration. rows (K,) is the number of rows per component in the last one."""
        return replace(self, done=False, loops=plan.loops)

    def family_of(self, k: int) -> Family:
        """The family of component k, with the shapes of its dimensions if these are free."""
        return (
            self.family.with_shape(np.asarray(self.shape)[k]) if self.family.has_free_shape else self.family
        )

    @abstractmethod
    def summarize(self, tiles: Sequence[np.ndarray], posteriors: Iterable[TilePosteriors]) -> Sums:
        """Return the sufficient statistics of a block, given as tiles of rows (n, D)."""

    @abstractmethod
    def advance(self, sums: Any, components: ComponentSums) -> Self:
        """Return the fit after a pass, given what `summarize` returned, added up over all blocks."""

    def pool(self, later: Self, step: np.ndarray) -> Self:
        """Return `later`, the fit to a batch, averaged with this one; step (K, 1) is the weight of `later`.

        Locations, scales, shapes and expected log likelihoods are averaged.
        """
        expected = (1 - step) * self.expected_log_likelihood + step * later.expected_log_likelihood
        return replace(
            later,
            location=self.location + step * (later.location - self.location),
            scale=(1 - step) * self.scale + step * later.scale,
            expected_log_likelihood=expected,
            reach=later.scale,
            shape=self.shape + step * (later.shape - self.shape),
        )
