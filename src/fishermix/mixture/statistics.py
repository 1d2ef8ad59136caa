"""Sparse posteriors, and the sums over them that every family's M step needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class PanelPosteriors(NamedTuple):
    """Sparse posteriors of a panel of rows, component after component.

    Component k has the rows row[start[k]:start[k+1]] of the panel. Their weights, in the same slice of
    `weight`, are the posteriors times the sample weights.
    """

    start: np.ndarray
    row: np.ndarray
    weight: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.row.nbytes + self.weight.nbytes


class ComponentSums(NamedTuple):
    """Sums over the sparse posteriors of all rows, as columns (K, 1)."""

    weight: np.ndarray  # the sum of the weights
    divisor: np.ndarray  # the same, but positive
    rows: np.ndarray  # the number of rows
    effective_rows: np.ndarray  # (sum of weights)² / sum of squared weights, at least 1


class RowSorter:
    """Sorts rows by each column, and remembers the result for the next time the same rows are given.

    The order stays in this process: another one gets a copy that remembers nothing.
    """

    def __init__(self) -> None:
        self._rows = self._columns = np.empty((0, 0))
        self._order = np.empty((0, 0), np.int64)

    def sort(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns of rows (n, D) as float64 (D, n), and the order (D, n) that sorts them."""
        if not np.array_equal(rows, self._rows):
            self._rows = rows.copy()  # whatever happens to these
            self._columns = np.ascontiguousarray(self._rows.T, np.float64)
            self._order = np.argsort(self._columns, axis=1)
        return self._columns, self._order

    def __reduce__(self) -> tuple[type[RowSorter], tuple[()]]:
        return RowSorter, ()


@dataclass(frozen=True)
class Posteriors:
    """Sparse posteriors (n, K): row i has `values[indptr[i]:indptr[i + 1]]`, of as many `components`.

    A CSR matrix without SciPy's class, whose import takes longer than a query.
    """

    indptr: np.ndarray
    components: np.ndarray
    values: np.ndarray
    n_components: int

    @classmethod
    def of_dense(cls, dense: np.ndarray, threshold: float) -> Posteriors:
        """Keep the entries of `dense` (n, K) that are positive and at least the threshold."""
        kept = (dense > 0) & (dense >= threshold)
        indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        return cls(indptr, np.nonzero(kept)[1], dense[kept], dense.shape[1])

    @classmethod
    def of_panels(cls, panels: list[tuple[np.ndarray, ...]], n_components: int) -> Posteriors:
        """Join panels of rows, each given as (entries per row, components, values)."""
        counts, components, values = (np.concatenate(part) for part in zip(*panels))
        return cls(np.concatenate([[0], np.cumsum(counts)]), components, values, n_components)

    def by_component(self) -> np.ndarray:
        """Return the positions of the entries, component after component, with ascending rows."""
        # NumPy sorts 16-bit integers by radix.
        small = self.components.astype(np.uint16) if self.n_components <= 2**16 else self.components
        return np.argsort(small, kind="stable")

    def toarray(self) -> np.ndarray:
        """Return the posteriors as a dense array (n, K)."""
        dense = np.zeros((len(self.indptr) - 1, self.n_components), self.values.dtype)
        dense[np.repeat(np.arange(len(dense)), np.diff(self.indptr)), self.components] = self.values
        return dense
