"""One pass of EM over a block of rows: the E step, then the sufficient statistics of the M step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fishermix.mixture.loops import COMPILED, Loops
from fishermix.mixture.m_step import FamilyFit, ShapeSearch
from fishermix.mixture.parameters import MixtureParameters
from fishermix.mixture.posteriors import BlockPosteriors, EStepSums, cut_tiles
from fishermix.mixture.sums import Sums
from fishermix.rows import Block


@dataclass
class PassSums(Sums):
    """The sums of the E step in the first pass of an iteration, and of each fit that is not done."""

    e_step: EStepSums | None
    fits: list[Sums | None]

    def __iadd__(self, other: PassSums) -> PassSums:
        if self.e_step is not None and other.e_step is not None:
            self.e_step += other.e_step
        for mine, more in zip(self.fits, other.fits):
            if mine is not None and more is not None:
                mine += more
        return self

    def are_finite(self) -> bool:
        return all(sums is None or sums.are_finite() for sums in (self.e_step, *self.fits))


@dataclass(frozen=True)
class Pass:
    """What a pass computes on each block; it can be sent to another process.

    `dtype` is the same for all blocks and passes of an iteration, or posteriors would differ between them.
    """

    parameters: MixtureParameters
    fits: tuple[FamilyFit | ShapeSearch, ...]
    dtype: np.dtype
    quantum: float
    again: bool  # in the same iteration: the posteriors are those of the pass before
    cache_bytes: float  # per row, that a block may keep for the next pass
    loops: Loops = COMPILED

    def __call__(self, block: Block) -> PassSums:
        tiles, n_rows = cut_tiles(block.rows.astype(self.dtype, copy=False)), len(block.rows)
        weight = np.ones(n_rows) if block.weight is None else block.weight
        computed = BlockPosteriors(self.parameters, tiles, weight, self.quantum, self.loops)
        posteriors = block.memo.get("posteriors") if self.again else None
        with np.errstate(over="ignore", invalid="ignore"):  # `run_iteration` checks the sums
            if posteriors is None:
                listed, size = computed.list_all()
                block.memo["posteriors"] = listed if size <= self.cache_bytes * n_rows else None
                posteriors = listed or computed
            fits = [None if fit.done else fit.summarize(tiles, posteriors) for fit in self.fits]
        return PassSums(None if self.again else computed.sums, fits)
