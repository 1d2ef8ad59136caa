"""The dual: inner products of rows instead of features, for fewer samples than features."""

from __future__ import annotations

import numpy as np

from fishermix.cca.panels import SymmetricPanels
from fishermix.cca.problem import CanonicalProblem
from fishermix.progress import track

COLUMNS_OF_A_SLICE = 2048
ROWS_IN_DOUBLE = 8192
FEATURES_IN_DOUBLE = 2048


class GramSums:
    """The centred rows of the side with fewer features, and the Gram matrix of the rows of the other side.

    The large side is centred a slice of features at a time and is never copied. Its inner products are taken
    in float64 for up to 2,048 features, else in the type of the data; summed in float64 for up to 8,192 rows.
    If the small side too has
    more features than rows, it is turned into the space that its rows span, which changes no solution.
    """

    method = "dual"

    def __init__(self, X: np.ndarray, Y: np.ndarray, pairs: np.ndarray | None = None):
        rows = np.arange(len(Y)) if pairs is None else np.asarray(pairs)
        counts = np.bincount(rows, minlength=len(X)).astype(np.float64)
        self.dtype = np.result_type(X, Y)
        self.n = len(Y)
        self.x_mean: np.ndarray = np.asarray(np.average(X, axis=0, weights=counts))
        self.y_mean: np.ndarray = np.asarray(np.mean(Y, axis=0, dtype=np.float64))
        self.X, self.Y, self.rows = X, Y, rows

    def problem(self) -> CanonicalProblem:
        if self.X.shape[1] <= self.Y.shape[1]:
            small, small_mean, small_rows = self.X, self.x_mean, self.rows
            large, large_mean, large_rows = self.Y, self.y_mean, None
        else:
            small, small_mean, small_rows = self.Y, self.y_mean, np.arange(self.n)
            large, large_mean, large_rows = self.X, self.x_mean, self.rows
        centred = np.asarray(small, np.float64) - small_mean
        basis = None
        if len(centred) < centred.shape[1]:
            centred, basis = _in_row_space(centred)
        centred = centred[small_rows]
        covariance = SymmetricPanels(centred.shape[1], np.float64)
        covariance.add_product(centred, centred)
        few = large.shape[1] <= FEATURES_IN_DOUBLE
        dtype = np.dtype(np.float64) if few else large.dtype

        def slices(description: str):
            starts = range(0, large.shape[1], COLUMNS_OF_A_SLICE)
            for start in track(starts, description):
                part = slice(start, start + COLUMNS_OF_A_SLICE)
                columns = large[:, part] if large_rows is None else large[large_rows, part]
                yield part, columns.astype(dtype, copy=False) - large_mean[part].astype(dtype)

        gram = SymmetricPanels(self.n, np.float64 if self.n <= ROWS_IN_DOUBLE else dtype)
        for _, columns in slices("inner products"):
            gram.add_product(columns.T, columns.T)

        def lift_large(weights: np.ndarray) -> np.ndarray:
            weights = weights.astype(dtype, copy=False)
            lifted = np.empty((large.shape[1], weights.shape[1]), weights.dtype)
            for part, columns in slices("weights"):
                lifted[part] = columns.T @ weights
            return lifted

        def lift_small(weights: np.ndarray) -> np.ndarray:
            return weights if basis is None else basis @ weights

        precision = float(np.finfo(dtype).eps)
        return CanonicalProblem(self.n, covariance, gram, centred, True, precision, lift_small, lift_large)


def _in_row_space(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates (n, r) of the rows (n, p) in an orthonormal basis (p, r) of the space they span."""
    squares, vectors = np.linalg.eigh(rows @ rows.T)
    kept = squares > max(squares[-1], 0) * len(rows) * np.finfo(np.float64).eps
    if not kept.any():
        basis = np.eye(rows.shape[1], 1)
        return rows @ basis, basis
    lengths = np.sqrt(squares[kept])
    return vectors[:, kept] * lengths, rows.T @ (vectors[:, kept] / lengths)
