"""Symmetric matrices of up to 36,000 rows: the lower triangle in panels of rows, and its Cholesky factor.

A panel holds the rows [start, stop) of the matrix up to column stop, an array (stop - start, stop): half the
memory of the square, and every operation is a matrix product on slices of panels. LAPACK's potrf is asked for
nothing wider than a panel: the OpenBLAS in the wheels of numpy and scipy crashes on 18,000 x 18,000.

Everything in the loops is numpy's. numpy and scipy each bring their own OpenBLAS, whose threads spin for a
tenth of a second after a call: calls in turns make both wait for cores that the other one holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import DTypeLike
from scipy.sparse.linalg import LinearOperator, eigsh

from fishermix.progress import track

PANELS = {8192: 256, 10**9: 1024}  # width of a panel by the size up to which it takes the least time
ROWS_IN_CACHE = 256
LANCZOS_VECTORS = 12
PANELS_WITHOUT_A_BAR = 8
DENSE_EIGENVALUE = 64
SMALL_TRIANGLE = 64


class SymmetricPanels:
    """The lower triangle of a symmetric matrix (size, size), at first zero."""

    def __init__(self, size: int, dtype: DTypeLike, width: int | None = None):
        width = width or next(width for up_to, width in PANELS.items() if size <= up_to)
        self.size = size
        self.dtype = np.dtype(dtype)
        self.width = width
        self.panels = [np.zeros((stop - start, stop), self.dtype) for start, stop in _edges(size, width)]

    def __iter__(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """(start, stop, panel) of each panel."""
        for (start, stop), panel in zip(_edges(self.size, self.width), self.panels):
            yield start, stop, panel

    def add_product(self, left: np.ndarray, right: np.ndarray) -> None:
        """Add left' right, which has to be symmetric; left and right are (rows, size).

        The product is taken in the type of left and right and added in that of the panels.
        """
        product = np.empty((min(self.width, self.size), self.size), np.result_type(left, right))
        for start, stop, panel in self:
            out = product[: stop - start, :stop]
            rows = left[:, start:stop].T
            # Apart, because numpy takes half the time for the product of a matrix with its own transpose.
            np.matmul(rows, right[:, :start], out=out[:, :start])
            np.matmul(rows, right[:, start:stop], out=out[:, start:])
            panel += out

    def add_sparse_product(self, rows: np.ndarray, groups: Sequence[Sequence[slice]]) -> None:
        """Add rows' rows for rows (n, size) that are zero in all columns of most groups.

        groups: the columns of each group as slices; together they are all columns. A product of two groups
        takes the rows that are not zero in both.
        """
        blocks = [np.concatenate([rows[:, part] for part in group], axis=1) for group in groups]
        active = [block.any(axis=1) for block in blocks]
        for a, group in enumerate(groups):
            for b in range(a + 1):
                both = np.flatnonzero(active[a] & active[b])
                if len(both):
                    left = blocks[a].take(both, axis=0)
                    right = left if a == b else blocks[b].take(both, axis=0)
                    self._add_tiles(left.T @ right, group, groups[b])

    def _add_tiles(self, product: np.ndarray, left: Sequence[slice], right: Sequence[slice]) -> None:
        """Add the product of two groups of columns, and its transpose if they differ."""
        at = 0
        for rows in left:
            height = rows.stop - rows.start
            across = 0
            for columns in right:
                width = columns.stop - columns.start
                tile = product[at : at + height, across : across + width]
                self._add_tile(rows, columns, tile)
                if left is not right:
                    self._add_tile(columns, rows, tile.T)
                across += width
            at += height

    def _add_tile(self, rows: slice, columns: slice, tile: np.ndarray) -> None:
        """Add the part of a tile of the matrix that the panels hold."""
        for index in range(rows.start // self.width, (rows.stop - 1) // self.width + 1):
            start = index * self.width
            stop = min(start + self.width, self.size)
            first = max(start, rows.start)
            last = min(stop, rows.stop)
            end = min(columns.stop, stop)
            if columns.start < end:
                part = tile[first - rows.start : last - rows.start, : end - columns.start]
                self.panels[index][first - start : last - start, columns.start : end] += part

    def diagonal(self) -> np.ndarray:
        """The numbers (size,) on the diagonal, in float64."""
        parts = [np.diagonal(panel[:, start:]) for start, _, panel in self]
        return np.concatenate(parts).astype(np.float64)

    def scale(self, factors: np.ndarray) -> SymmetricPanels:
        """A new matrix, entry (i, j) of which is multiplied by factors[i] * factors[j]."""
        scaled = SymmetricPanels(self.size, self.dtype, self.width)
        for (start, stop, panel), out in zip(self, scaled.panels):
            np.multiply(panel, factors[start:stop, None].astype(self.dtype), out=out)
            out *= factors[:stop].astype(self.dtype)
        return scaled

    def dense(self) -> np.ndarray:
        """The whole matrix (size, size)."""
        full = np.empty((self.size, self.size), self.dtype)
        for start, stop, panel in self:
            full[start:stop, :stop] = panel
            full[:start, start:stop] = panel[:, :start].T
        return full

    def dot(self, vector: np.ndarray) -> np.ndarray:
        """The matrix times a vector (size,); every number of the matrix is read from memory once."""
        vector = np.asarray(vector, self.dtype).ravel()
        result = np.zeros(self.size, self.dtype)
        for start, stop, panel in self:
            result[start:stop] += panel[:, start:] @ vector[start:stop]
            for row in range(0, stop - start, ROWS_IN_CACHE):
                left = panel[row : row + ROWS_IN_CACHE, :start]
                there = slice(start + row, start + row + len(left))
                result[there] += left @ vector[:start]
                result[:start] += vector[there] @ left
        return result

    def largest_eigenvalue(self) -> float:
        """By Lanczos from a fixed start; the error of the value is the square of the vector's."""
        if self.size <= DENSE_EIGENVALUE:
            return float(np.linalg.eigvalsh(self.dense())[-1])
        if not any(panel.any() for panel in self.panels):
            return 0.0
        matrix = LinearOperator((self.size, self.size), matvec=self.dot, dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(self.size)
        found = eigsh(matrix, k=1, v0=start, ncv=LANCZOS_VECTORS, tol=1e-4, return_eigenvectors=False)
        return float(found[0])

    def cholesky(self, ridge: float, dtype: DTypeLike | None = None) -> CholeskyPanels:
        """L of L L' = matrix + ridge I; numpy.linalg.LinAlgError if that is not positive definite.

        Computed in `dtype`, by default that of the matrix.
        """
        return CholeskyPanels(self, ridge, np.dtype(dtype or self.dtype))


class CholeskyPanels:
    """L of L L' = matrix + ridge I, in the same panels; of the square on the diagonal the inverse is kept.

    Tile (j, i) of L is (A_ji - sum over k < i of L_jk L_ik') L_ii^-T: one product with a long inner side for
    each tile. The squares on the diagonal are factorized and inverted in float64.
    """

    def __init__(self, matrix: SymmetricPanels, ridge: float, dtype: np.dtype):
        self.dtype = dtype
        self.edges = _edges(matrix.size, matrix.width)
        self.panels: list[np.ndarray] = []
        self.inverses: list[np.ndarray] = []
        rows: Iterable[tuple[int, int, np.ndarray]] = matrix
        if len(self.edges) > PANELS_WITHOUT_A_BAR:
            rows = track(matrix, "Cholesky factor", total=len(self.edges))
        for start, stop, symmetric in rows:
            row = symmetric[:, :start].astype(dtype)
            for (first, last), above, inverse in zip(self.edges, self.panels, self.inverses):
                tile = row[:, first:last]
                if first:
                    tile -= row[:, :first] @ above.T
                tile[:] = tile @ inverse.T
            square = symmetric[:, start:].astype(np.float64)
            if start:
                square -= row @ row.T
            square[np.diag_indices(stop - start)] += ridge
            lower = np.linalg.cholesky(square)
            self.panels.append(row)
            self.inverses.append(_invert_lower(lower).astype(dtype))

    def solve(self, right: np.ndarray) -> np.ndarray:
        """L^-1 right, written over right (size, columns)."""
        for (start, stop), panel, inverse in zip(self.edges, self.panels, self.inverses):
            part = right[start:stop]
            if start:
                part -= panel @ right[:start]
            part[:] = inverse @ part
        return right

    def solve_transposed(self, right: np.ndarray) -> np.ndarray:
        """L^-T right, written over right (size, columns)."""
        for (start, stop), panel, inverse in zip(
            reversed(self.edges), reversed(self.panels), reversed(self.inverses)
        ):
            part = right[start:stop]
            part[:] = inverse.T @ part
            if start:
                right[:start] -= panel.T @ part
        return right


def _invert_lower(lower: np.ndarray) -> np.ndarray:
    """The inverse of a lower triangular matrix, as exact as LAPACK's trtri.

    Transposed, so that the elimination of `inv` and `solve` has nothing to do; and solved, not multiplied by
    an inverse, which would enlarge its error.
    """
    if len(lower) <= SMALL_TRIANGLE:
        return np.linalg.inv(lower.T).T
    half = len(lower) // 2
    inverse = np.zeros_like(lower)
    inverse[:half, :half] = _invert_lower(lower[:half, :half])
    inverse[half:, half:] = below = _invert_lower(lower[half:, half:])
    inverse[half:, :half] = -np.linalg.solve(lower[:half, :half].T, (below @ lower[half:, :half]).T).T
    return inverse


def _edges(size: int, width: int) -> list[tuple[int, int]]:
    return [(start, min(start + width, size)) for start in range(0, size, width)]
