"""The canonical ridge problem and its solution on a grid of ridges.

With S the (co)variances, A = S_xx + r_x I and B = S_yy + r_y I, the k-th canonical pair maximizes

    u' S_xy v   subject to   u' A u = v' B v = 1   and orthogonality to the pairs before it.

Let x be the side with fewer features (small) and y the other (large). With B = L L' and W = L^-1 S_yx the
large side enters only through M = W' W = S_xy B^-1 S_yx, and the pairs are the eigenvectors of the problem

    M u = rho^2 A u,        v = L^-T W u / rho.

With fewer samples n than large features the same M comes from the Gram matrix K = Y Y' of the centered rows:
with K + R I = L L', R = n r_y, and W = L^-1 X,

    n M = X' K (K + R I)^-1 X = X' X - R W' W,        v = Y' L^-T W u / rho.

All matrices here are sums, not means. A ridge that is a share of the largest eigenvalue is the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg

from fishermix.cca.cholesky import CholeskyPanels, SymmetricPanels
from fishermix.errors import FishermixError, warn_user
from fishermix.progress import progress

FitMethod = Literal["primal", "dual", "streaming"]
ROWS_OF_A_SUM = 2048
# From this share on, by the size up to which it holds, all eigenvectors (divide and conquer) take less time.
ALL_EIGENVECTORS = {512: 0.15, 10**9: 0.28}


@dataclass
class CanonicalProblem:
    """The sums of both sides.

    n: number of pairs.
    small: X'X of the small side, (p, p) in float64.
    large: Y'Y of the large side (q, q), or its Gram matrix (n, n) if `dual`.
    right: Y'X (q, p), or the rows X (n, p) if `dual`.
    precision: relative rounding of the large side's sums.
    n_large: number of features of the large side.
    lift_small, lift_large: from the solver's coordinates to weights of the features.
    rounded: factors and eigenvectors are computed in float32, then improved by one step in float64.
    """

    n: float
    small: SymmetricPanels
    large: SymmetricPanels
    right: np.ndarray
    dual: bool
    precision: float
    n_large: int
    lift_small: Callable[[np.ndarray], np.ndarray] = lambda weights: weights
    lift_large: Callable[[np.ndarray], np.ndarray] = lambda weights: weights
    rounded: bool = False


@dataclass
class CanonicalPairs:
    """One solution: correlations (k,), falling, and weights (features, k) with u'(S + ridge I)u = 1.

    Directions beyond those that the rows of the small side span have the correlation 0 and the weights 0.
    """

    reg_small: float
    reg_large: float
    ridge_small: float
    ridge_large: float
    correlations: np.ndarray
    small_weights: np.ndarray
    large_weights: np.ndarray


def solve(
    problem: CanonicalProblem, n_components: int, regs_small: Sequence[float], regs_large: Sequence[float]
) -> Iterator[CanonicalPairs]:
    """Yield the solutions for all pairs of ridges, in the order of `regs_large`, then `regs_small`.

    The large side is factorized once for each of `regs_large`. That is cheaper than to diagonalize it, unless
    there are dozens of ridges.
    """
    eigenvalue_small = problem.small.largest_eigenvalue()
    eigenvalue_large = problem.large.largest_eigenvalue()
    least = least_regularization(problem)
    n_found = min(n_components, problem.small.size)
    lost_in_rounding = np.sqrt(problem.precision)
    dtype = np.float32 if problem.rounded else None
    with progress("canonical correlations", total=len(regs_small) * len(regs_large)) as bar:
        for reg_large in regs_large:
            factor, ridge_large = _factorize(problem.large, reg_large, least, eigenvalue_large, dtype)
            solved = factor.solve(np.array(problem.right, factor.dtype, order="C"))
            explained = _explained(problem, solved, ridge_large)
            lift = _large_side(problem, factor, solved, n_found, len(regs_small))
            for reg_small in regs_small:
                whitener, ridge_small = _factorize(problem.small, reg_small, least, eigenvalue_small, dtype)
                correlations, small = _small_side(explained, whitener, n_found)
                if problem.rounded:
                    correlations, small = _improve(problem.small, ridge_small, explained, small)
                features = problem.lift_small(small)
                # The sign of an eigenvector is arbitrary: the largest weight of the small side is positive.
                largest = np.abs(features).argmax(axis=0)
                signs = np.where(features[largest, np.arange(len(correlations))] < 0, -1.0, 1.0)
                scales = np.divide(
                    signs, correlations, out=np.zeros_like(signs), where=correlations > lost_in_rounding
                )
                unit = np.sqrt(problem.n)
                yield CanonicalPairs(
                    reg_small,
                    reg_large,
                    ridge_small / problem.n,
                    ridge_large / problem.n,
                    _pad(correlations, n_components),
                    _pad(features * (signs * unit), n_components),
                    _pad(lift(small * (scales * unit)), n_components),
                )
                bar.advance(note=f"ridges {reg_small:g} and {reg_large:g}")


def _pad(columns: np.ndarray, n_components: int) -> np.ndarray:
    """Columns (…, k) with zeros up to `n_components`."""
    missing = n_components - columns.shape[-1]
    return np.pad(columns, [(0, 0)] * (columns.ndim - 1) + [(0, missing)]) if missing else columns


def _large_side(
    problem: CanonicalProblem, factor: CholeskyPanels, solved: np.ndarray, n_components: int, n_ridges: int
) -> Callable[[np.ndarray], np.ndarray]:
    """The map from small weights (p, k), divided by the correlations, to large weights: Y' L^-T W.

    With several ridges of the small side it is cheaper to form the map (features, p) once.
    """
    size, n_small = solved.shape
    per_column = size**2 + (2 * size * problem.n_large if problem.dual else 0)
    each = n_components * (per_column + 2 * size * n_small)
    once = n_small * per_column
    if once + n_ridges * 2 * problem.n_large * n_small * n_components < n_ridges * each:
        whole = problem.lift_large(factor.solve_transposed(solved))
        return lambda weights: whole @ weights.astype(whole.dtype)

    return lambda weights: problem.lift_large(factor.solve_transposed(solved @ weights.astype(solved.dtype)))


def check_magnitude(side: str, largest: float, n: float, dtype: np.dtype) -> None:
    """Reject n pairs if the sums of squares would leave the range of their type.

    `largest` is the largest deviation of a number of X or Y from its mean.
    """
    limits = np.finfo(dtype)
    too_large = largest > np.sqrt(limits.max / (4 * n))
    if too_large or 0 < largest < np.sqrt(limits.tiny / limits.eps):
        raise FishermixError(
            f"{side} deviates from its mean by at most {largest:.0e}, and the squares of such numbers are "
            f"too {'large' if too_large else 'small'} for {np.dtype(dtype)}. "
            f"{'Divide' if too_large else 'Multiply'} {side} by a constant; the correlations do not change."
        )


def least_regularization(problem: CanonicalProblem) -> float:
    """The smallest ridge that lifts missing rank above rounding, as a share of the largest eigenvalue."""
    size = max(problem.small.size, problem.large.size)
    return max(1e-10, 4 * float(np.sqrt(size)) * problem.precision)


def _factorize(
    matrix: SymmetricPanels, reg: float, least: float, eigenvalue: float, dtype=None
) -> tuple[CholeskyPanels, float]:
    """The factor of (matrix + ridge I) and the ridge, which grows until the factorization succeeds.

    In a narrower `dtype` it does not grow: the caller starts again in float64.
    """
    if eigenvalue <= 0:
        return matrix.cholesky(1.0, dtype), 1.0
    share = max(reg, least)
    while True:
        try:
            return matrix.cholesky(share * eigenvalue, dtype), share * eigenvalue
        except np.linalg.LinAlgError:
            if share >= 1 or dtype is not None:
                raise
            warn_user(
                f"A ridge of {share:.1e} of the largest eigenvalue is lost in rounding. Using 4 times it.",
                RuntimeWarning,
            )
            share *= 4


def _explained(problem: CanonicalProblem, solved: np.ndarray, ridge: float) -> np.ndarray:
    """M (p, p) in float64: the part of the small side's sums that the large side explains."""
    size = solved.shape[1]
    product = SymmetricPanels(size, np.float64)
    for start in range(0, len(solved), ROWS_OF_A_SUM):
        rows = solved[start : start + ROWS_OF_A_SUM]
        product.add_product(rows, rows)
    if problem.dual:
        return problem.small.dense() - ridge * product.dense()
    return product.dense()


def _small_side(
    explained: np.ndarray, whitener: CholeskyPanels, n_components: int
) -> tuple[np.ndarray, np.ndarray]:
    """Correlations (k,) and weights (p, k) of M u = rho^2 A u, with the whitener A = L L', in its type."""
    half = whitener.solve(explained.astype(whitener.dtype))
    both = whitener.solve(np.ascontiguousarray(half.T))
    size = len(both)
    in_double = both.dtype == np.float64  # numpy widens float32
    share = next(share for up_to, share in ALL_EIGENVECTORS.items() if size <= up_to)
    if in_double and n_components > size * share:
        squares, vectors = np.linalg.eigh(both)
        squares, vectors = squares[-n_components:], vectors[:, -n_components:]
    else:
        squares, vectors = scipy.linalg.eigh(
            both, subset_by_index=(size - n_components, size - 1), overwrite_a=True, check_finite=False
        )
    correlations = np.sqrt(np.clip(squares[::-1], 0, 1))
    return correlations, whitener.solve_transposed(np.ascontiguousarray(vectors[:, ::-1]))


def _improve(
    matrix: SymmetricPanels, ridge: float, explained: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Correlations and weights (p, k) after a Rayleigh-Ritz step in float64: the error of rho^2 is squared.

    Of all combinations of the columns, those that solve M u = rho^2 A u best, where A = matrix + ridge I.
    """
    weights = weights.astype(np.float64)
    norms = weights.T @ (matrix.dense() @ weights + ridge * weights)
    squares, mixed = scipy.linalg.eigh(weights.T @ explained @ weights, norms)
    return np.sqrt(np.clip(squares[::-1], 0, 1)), weights @ mixed[:, ::-1]
