"""Sparse posteriors and the sufficient statistics that the M step needs of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fishermix.rows.blocks import Totals


class ActiveRows(NamedTuple):
    """Posteriors of a panel without the negligible ones, component after component.

    Component k has the rows row[start[k]:start[k+1]] of the panel with weights share[start[k]:start[k+1]],
    posterior times the row's own weight.
    """

    start: np.ndarray
    row: np.ndarray
    share: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.row.nbytes + self.share.nbytes

    def totals(self) -> Totals:
        """Count, sum and sum of squares of the weights of each component (K,)."""
        component = np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))
        weight, squared = (
            np.bincount(component, values, len(self.start) - 1) for values in (self.share, self.share**2)
        )
        return Totals(rows=np.diff(self.start), weight=weight, squared=squared)

    def of(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        span = slice(self.start[k], self.start[k + 1])
        return self.row[span], self.share[span]


class Mass(NamedTuple):
    """How much each component (K,) holds: weight, count of active rows, sum of their squared weights."""

    weight: np.ndarray
    rows: np.ndarray
    squared: np.ndarray

    @property
    def column(self) -> np.ndarray:
        """The weight (K, 1), positive for division's sake."""
        return np.maximum(self.weight, np.finfo(float).tiny)[:, None]

    @property
    def rows_per_weight(self) -> np.ndarray:
        """(K, 1)."""
        return self.rows[:, None] / self.column

    @property
    def effective_rows(self) -> np.ndarray:
        """(sum of weights)² / sum of squares (K,), at least 1."""
        return np.maximum(self.weight**2 / np.maximum(self.squared, np.finfo(float).tiny), 1.0)

    @property
    def effective_rows_per_weight(self) -> np.ndarray:
        """(K, 1)."""
        return self.effective_rows[:, None] / self.column


@dataclass(frozen=True)
class Posteriors:
    """Posteriors (n, K) without the small ones: row i has `values[indptr[i]:indptr[i + 1]]`, of as many
    `components`. A CSR matrix, whose own class takes longer to import than a query to answer.
    """

    indptr: np.ndarray
    components: np.ndarray
    values: np.ndarray
    n_components: int

    @classmethod
    def of_dense(cls, dense: np.ndarray, threshold: float) -> Posteriors:
        """The entries of `dense` (n, K) that are positive and at least the threshold."""
        kept = (dense > 0) & (dense >= threshold)
        indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        return cls(indptr, np.nonzero(kept)[1], dense[kept], dense.shape[1])

    @classmethod
    def of_panels(cls, panels: list[tuple[np.ndarray, ...]], n_components: int) -> Posteriors:
        """Join panels of rows, each (entries per row, components, values)."""
        counts, components, values = (np.concatenate(part) for part in zip(*panels))
        return cls(np.concatenate([[0], np.cumsum(counts)]), components, values, n_components)

    def by_component(self) -> np.ndarray:
        """The positions of the entries, component after component, their rows rising."""
        small = self.components.astype(np.uint16) if self.n_components <= 2**16 else self.components
        return np.argsort(small, kind="stable")  # of 16 bits a radix sort

    def toarray(self) -> np.ndarray:
        dense = np.zeros((len(self.indptr) - 1, self.n_components), self.values.dtype)
        dense[np.repeat(np.arange(len(dense)), np.diff(self.indptr)), self.components] = self.values
        return dense
