"""Posteriors T_k(x): sparse, of a tile or of a block of rows, with the sums of the E step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fishermix.mixture.sums import Sums
from fishermix.rows import PANEL

if TYPE_CHECKING:
    from fishermix.mixture.loops import Loops
    from fishermix.mixture.parameters import MixtureParameters

# Posteriors that rounding of the densities would hide, by the type of the rows
NEGLIGIBLE = {"f": 1e-6, "d": 1e-15}
MOST_LISTED = 2**25  # bytes of posteriors of a block; if there are more, each fit computes them by tiles


class TilePosteriors(NamedTuple):
    """Sparse posteriors of a tile of rows, component after component.

    Component k has the rows row[start[k]:start[k+1]] of the tile. Their weights, in the same slice of
    `weight`, are the posteriors times the sample weights.
    """

    start: np.ndarray
    row: np.ndarray
    weight: np.ndarray

    @classmethod
    def make_buffers(cls, n_components: int, n_rows: int) -> TilePosteriors:
        """Arrays into which `Loops.list_posteriors` can write dense posteriors (K, n)."""
        size = n_components * n_rows
        return cls(np.empty(n_components + 1, np.int64), np.empty(size, np.int32), np.empty(size))

    @property
    def used(self) -> TilePosteriors:
        """The part of the buffers that was written to."""
        end = self.start[-1]
        return TilePosteriors(self.start, self.row[:end], self.weight[:end])

    @property
    def nbytes(self) -> int:
        return self.row.nbytes + self.weight.nbytes

    def to_dense(self, n_rows: int) -> np.ndarray:
        """The weights as a dense array (K, n)."""
        dense = np.zeros((len(self.start) - 1, n_rows))
        for of_component, first, last in zip(dense, self.start[:-1], self.start[1:]):
            of_component[self.row[first:last]] = self.weight[first:last]
        return dense


@dataclass(frozen=True)
class Posteriors:
    """Sparse posteriors (n, K): row i has `values[indptr[i]:indptr[i + 1]]`, of as many `components`.

    A CSR matrix without SciPy's class, whose import takes longer than a query.
    """

    indptr: np.ndarray
    components: np.ndarray
    values: np.ndarray

    @classmethod
    def of_dense(cls, dense: np.ndarray, threshold: float) -> Posteriors:
        """Keep the entries of `dense` (K, n) that are positive and at least the threshold."""
        by_row = np.ascontiguousarray(dense.T)
        kept = (by_row > 0) & (by_row >= threshold)
        indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        return cls(indptr, np.nonzero(kept)[1], by_row[kept])

    @classmethod
    def join(cls, tiles: Sequence[Posteriors]) -> Posteriors:
        """The posteriors of all rows, given those of consecutive tiles."""
        counts = np.concatenate([np.diff(tile.indptr) for tile in tiles])
        return cls(
            np.concatenate([[0], np.cumsum(counts)]),
            np.concatenate([tile.components for tile in tiles]),
            np.concatenate([tile.values for tile in tiles]),
        )


@dataclass
class EStepSums(Sums):
    """The log likelihood, which is -inf where the type of the rows overflows, and sums per component (K,)."""

    log_likelihood: float
    rows: np.ndarray  # the number of rows with a posterior
    weight: np.ndarray  # the sum of their posteriors times sample weights
    squared: np.ndarray  # the sum of the squares of these

    @classmethod
    def zeros(cls, n_components: int) -> EStepSums:
        counts = np.zeros(n_components, np.int64)
        return cls(0.0, counts, np.zeros(n_components), np.zeros(n_components))


class BlockPosteriors:
    """The E step on a block: iterating gives the posteriors of its tiles, which are computed each time.

    weight (n,) are the sample weights of the block; see `kernels.list_posteriors` for `quantum`. `sums` are
    those of the last iteration.
    """

    def __init__(
        self,
        parameters: MixtureParameters,
        tiles: Sequence[np.ndarray],
        weight: np.ndarray,
        quantum: float,
        loops: Loops,
    ):
        self.parameters, self.tiles, self.weight = parameters, tiles, weight
        self.quantum, self.loops = quantum, loops
        self.sums = EStepSums.zeros(len(parameters.weights))

    def __iter__(self) -> Iterator[TilePosteriors]:
        threshold = NEGLIGIBLE[self.tiles[0].dtype.char]
        n_components = len(self.parameters.weights)
        first = 0
        # Buffers for one dense tile, used for all: new ones each time would cost page faults.
        joint = np.empty(n_components * len(self.tiles[0]))
        buffers = TilePosteriors.make_buffers(n_components, len(self.tiles[0]))
        self.sums = EStepSums.zeros(n_components)
        for tile in self.tiles:
            sample_weight = self.weight[first : first + len(tile)]
            first += len(tile)
            posterior, log_likelihood = self.parameters.e_step(tile, self.loops, joint)
            self.loops.list_posteriors(posterior, sample_weight, threshold, self.quantum, buffers, self.sums)
            self.sums.log_likelihood += float(np.dot(sample_weight, log_likelihood))
            listed = buffers.used
            yield TilePosteriors(listed.start.copy(), listed.row.copy(), listed.weight.copy())

    def list_all(self) -> tuple[list[TilePosteriors] | None, float]:
        """All posteriors and their bytes, or None if the first tile says that there are too many to list."""
        bytes_per_posterior = 12  # an int32 row and a float64 weight
        size = bytes_per_posterior * len(self.weight) * len(self.parameters.weights)
        if size > MOST_LISTED and next(iter(self)).nbytes * len(self.tiles) > MOST_LISTED:
            return None, np.inf
        listed = list(self)
        return listed, sum(tile.nbytes for tile in listed)


def cut_tiles(rows: np.ndarray) -> list[np.ndarray]:
    """The rows of a block in tiles."""
    return [rows[first : first + PANEL] for first in range(0, len(rows), PANEL)]
