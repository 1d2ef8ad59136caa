"""The dual problem: inner products of rows instead of features, for fewer samples than features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fishermix.cca.cholesky import SymmetricPanels
from fishermix.cca.problem import (
    ROWS_OF_A_SUM,
    CanonicalProblem,
    FitMethod,
    check_magnitude,
    find_deviation,
    sum_of_squares,
)
from fishermix.progress import progress

COLUMNS_OF_A_SLICE = 2048
ROWS_IN_DOUBLE = 8192
FEATURES_IN_DOUBLE = 2048


@dataclass
class _Side:
    """Features (m, d), of which the pairs take `rows` (n,); means and deviations are over the pairs."""

    features: np.ndarray
    rows: np.ndarray

    def __post_init__(self) -> None:
        self.counts = np.bincount(self.rows, minlength=len(self.features)).astype(np.float64)
        self.shares = self.counts / self.counts.sum()
        self.mean = np.concatenate([self.shares @ self.features[:, part] for part in self._slices()])

    @cached_property
    def deviation(self) -> np.ndarray:
        """The standard deviations (d,), 1 for constant features."""
        differences = (self.features[:, part] - self.mean[part] for part in self._slices())
        variances = np.concatenate([self.shares @ difference**2 for difference in differences])
        return find_deviation(variances, self.mean, self.features.dtype)

    @property
    def largest(self) -> float:
        """The largest deviation of a feature from its mean."""
        above, below = self.features.max(axis=0) - self.mean, self.mean - self.features.min(axis=0)
        return float(max(above.max(), below.max()))

    def _slices(self) -> list[slice]:
        starts = range(0, self.features.shape[1], COLUMNS_OF_A_SLICE)
        return [slice(start, start + COLUMNS_OF_A_SLICE) for start in starts]

    def centered(self, standardize: bool) -> np.ndarray:
        """The centered features (m, d), divided by their deviation if `standardize`."""
        centered = self.features - self.mean
        return centered / self.deviation if standardize else centered

    def centered_slices(self, dtype: np.dtype, standardize: bool) -> Iterator[tuple[slice, np.ndarray]]:
        """Slices of features and their centered columns (n, width): the side is never copied whole."""
        for part in self._slices():
            columns = self.features[:, part].astype(dtype, copy=False) - self.mean[part].astype(dtype)
            if standardize:
                columns /= self.deviation[part].astype(dtype)
            yield part, columns if len(columns) == len(self.rows) else columns[self.rows]


@dataclass
class DualProblem(CanonicalProblem):
    """The dual problem.

    large_side: the side with more features.
    basis (p', p): an orthonormal basis of the space that the rows of the small side span, if it is solved
    there.
    dtype: type of the weights of the large side.
    standardize: whether the features are divided by their deviation.
    """

    large_side: _Side = field(kw_only=True)
    basis: np.ndarray | None = field(kw_only=True)
    dtype: np.dtype = field(kw_only=True)
    standardize: bool = field(kw_only=True)

    def explain(self, solved: np.ndarray, ridge: float) -> np.ndarray:
        """n M = X'X - R W'W."""
        return self.small.dense() - ridge * sum_of_squares(solved)

    def lift_small(self, weights: np.ndarray) -> np.ndarray:
        return weights if self.basis is None else self.basis @ weights

    def lift_large(self, weights: np.ndarray) -> np.ndarray:
        weights = weights.astype(self.dtype, copy=False)
        lifted = np.empty((self.n_large, weights.shape[1]), self.dtype)
        for part, columns in self.large_side.centered_slices(self.dtype, self.standardize):
            np.matmul(columns.T, weights, out=lifted[part])
        return lifted

    @property
    def n_large(self) -> int:
        return len(self.large_side.mean)

    @property
    def cost_of_lifting(self) -> int:
        return 2 * self.large.size * self.n_large


class GramSums:
    """The centered rows of the side with fewer features, and the Gram matrix of the rows of the other side.

    Inner products of the large side are computed in float64 for up to 2,048 features, else in the type of the
    data, and summed in float64 for up to 8,192 rows. If the small side also has many more features than rows,
    it is projected onto the space that its rows span, which does not change the solution.
    """

    method: FitMethod = "dual"

    def __init__(self, X: np.ndarray, Y: np.ndarray, pairs: np.ndarray | None = None, rounded: bool = False):
        self.rounded = rounded
        every = np.arange(len(Y))
        self.x, self.y = _Side(X, every if pairs is None else pairs), _Side(Y, every)
        self.n = len(Y)
        self.dtype = np.result_type(X, Y)
        self.x_mean, self.y_mean = self.x.mean, self.y.mean

    @property
    def x_deviation(self) -> np.ndarray:
        """Standard deviations (p,) of the features of X over the pairs, 1 for constant features."""
        return self.x.deviation

    @property
    def y_deviation(self) -> np.ndarray:
        return self.y.deviation

    def problem(self, standardize: bool = False) -> DualProblem:
        """The canonical problem of these sums; with standardize, of features divided by their deviation."""
        x_is_small = len(self.x_mean) <= len(self.y_mean)
        small, large = (self.x, self.y) if x_is_small else (self.y, self.x)
        n_features = len(large.mean)
        in_double = n_features <= FEATURES_IN_DOUBLE and not self.rounded
        dtype = np.dtype(np.float64) if in_double else large.features.dtype
        for name, side in (("X", self.x), ("Y", self.y)):
            check_magnitude(name, side.largest, self.n * len(side.mean), dtype)

        centered = small.centered(standardize)
        basis = None
        if solve_in_row_space(*centered.shape):
            centered, basis = _in_row_space(centered)
        if self.rounded:
            centered = centered.astype(dtype)
        weighted = centered * np.sqrt(small.counts)[:, None].astype(centered.dtype)
        covariance = SymmetricPanels(centered.shape[1], np.float64)
        step = ROWS_OF_A_SUM if self.rounded else len(weighted)
        for start in range(0, len(weighted), step):
            rows = weighted[start : start + step]
            covariance.add_product(rows, rows)

        gram_in_double = self.n <= ROWS_IN_DOUBLE and not self.rounded
        gram = SymmetricPanels(self.n, np.float64 if gram_in_double else dtype)
        with progress("inner products", total=n_features) as bar:
            for _, columns in large.centered_slices(dtype, standardize):
                gram.add_product(columns.T, columns.T)
                bar.advance(columns.shape[1])

        right = centered[small.rows].astype(gram.dtype, copy=False)
        precision = float(np.finfo(dtype).eps)
        return DualProblem(
            self.n,
            covariance,
            gram,
            right,
            precision,
            self.rounded,
            large_side=large,
            basis=basis,
            dtype=dtype,
            standardize=standardize,
        )


def solve_in_row_space(n_rows: int, n_features: int) -> bool:
    """Whether the rows of the small side span a space so small that solving there takes half the time."""
    return 1.5 * n_rows < n_features


def choose_method(m: int, n: int, p: int, q: int, n_ridges: int = 1, n_components: int | None = None) -> str:
    """ "primal" or "dual", the one with fewer multiplications for n pairs of m rows (p,) and n rows (q,).

    Both form sums of the large side, and for each of its ridges a Cholesky factor, a solution and a product.
    The dual also maps every solution back to features, but if the small side has fewer rows than features
    it solves in the space of these rows. With one ridge it maps only `n_components` columns back.
    """
    small = min(p, q)
    large = max(p, q)
    rows = m if p <= q else n
    in_rows = rows if solve_in_row_space(rows, small) else small

    def cost(size: int, inner: int, columns: int) -> float:
        return size**2 * inner + n_ridges * (size**3 / 3 + 2 * size**2 * columns + size * columns**2)

    lifted = min(in_rows, n_components or in_rows)
    dual = cost(n, large, in_rows) + n_ridges * 2.0 * large * n * lifted
    return "dual" if dual < cost(large, n, small) + 2.0 * m * p * q else "primal"


def _in_row_space(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates (n, r) of the rows (n, p) in an orthonormal basis (p, r) of the space they span."""
    squares, vectors = np.linalg.eigh(rows @ rows.T)
    kept = squares > max(squares[-1], 0) * len(rows) * np.finfo(np.float64).eps
    if not kept.any():
        basis = np.eye(rows.shape[1], 1)
        return rows @ basis, basis
    lengths = np.sqrt(squares[kept])
    return vectors[:, kept] * lengths, rows.T @ (vectors[:, kept] / lengths)
