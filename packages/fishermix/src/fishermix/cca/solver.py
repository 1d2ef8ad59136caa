"""Solves the canonical ridge problem on a grid of ridges; `problem` has the derivation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import DTypeLike

from fishermix.cca.cholesky import CholeskyPanels, SymmetricPanels
from fishermix.cca.problem import CanonicalProblem
from fishermix.errors import warn_user
from fishermix.progress import progress

# From this share on, by the size up to which it holds, all eigenvectors (divide and conquer) take less time.
ALL_EIGENVECTORS = {512: 0.15, 10**9: 0.28}


@dataclass
class CanonicalPairs:
    """One solution: weights (features, k) with u'(S + ridge I)u = 1 of each side, and their correlations.

    Directions beyond those that the rows of the small side span have the correlation 0 and the weights 0.

    reg_small, reg_large: the ridges as shares of the largest eigenvalue. ridge_small, ridge_large: the same
    in units of the covariance.
    ridged_correlations (k,): the maxima u' S_xy v of the problem, falling.
    """

    reg_small: float
    reg_large: float
    ridge_small: float
    ridge_large: float
    ridged_correlations: np.ndarray
    small_weights: np.ndarray
    large_weights: np.ndarray

    @property
    def correlations(self) -> np.ndarray:
        """The correlations (k,) of the projections of the pairs, in which the ridges do not count."""
        return remove_ridges(
            self.ridged_correlations,
            (self.small_weights, self.ridge_small),
            (self.large_weights, self.ridge_large),
        )


def remove_ridges(ridged_correlations: np.ndarray, *sides: tuple[np.ndarray, float]) -> np.ndarray:
    """The correlations (k,) of projections, given those with ridges, and the weights and ridge of each side.

    u'(S + r I)u = 1, so the variance u' S u of a projection is 1 - r u'u.
    """
    variance = np.ones(len(ridged_correlations))
    for weights, ridge in sides:
        lengths = np.einsum("pk,pk->k", weights, weights, dtype=np.float64)
        variance *= np.where(lengths > 0, np.maximum(1 - ridge * lengths, 0), 0)
    correlations = np.zeros(len(variance))
    np.divide(ridged_correlations, np.sqrt(variance), out=correlations, where=variance > 0)
    return np.minimum(correlations, 1)


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
    dtype = np.float32 if problem.rounded else None
    with progress("canonical correlations", total=len(regs_small) * len(regs_large)) as bar:
        for reg_large in regs_large:
            factor, ridge_large = _factorize(problem.large, reg_large, least, eigenvalue_large, dtype)
            solved = factor.solve(np.array(problem.right, factor.dtype, order="C"))
            explained = problem.explain(solved, ridge_large)
            large_side = _LargeSide(
                problem=problem, factor=factor, solved=solved, n_components=n_found, n_ridges=len(regs_small)
            )
            for reg_small in regs_small:
                whitener, ridge_small = _factorize(problem.small, reg_small, least, eigenvalue_small, dtype)
                correlations, small = _small_side(explained, whitener, n_found)
                if problem.rounded:
                    correlations, small = _improve(problem.small, ridge_small, explained, small)
                features = problem.lift_small(small)
                signs = _find_signs(features)
                lost_in_rounding = correlations <= np.sqrt(problem.precision)
                inverse = np.divide(signs, correlations, out=np.zeros_like(signs), where=~lost_in_rounding)
                unit = np.sqrt(problem.n)
                yield CanonicalPairs(
                    reg_small=reg_small,
                    reg_large=reg_large,
                    ridge_small=ridge_small / problem.n,
                    ridge_large=ridge_large / problem.n,
                    ridged_correlations=_pad(correlations, n_components),
                    small_weights=_pad(features * (signs * unit), n_components),
                    large_weights=_pad(large_side.find_weights(small * (inverse * unit)), n_components),
                )
                bar.advance(note=f"ridges {reg_small:g} and {reg_large:g}")


def _find_signs(weights: np.ndarray) -> np.ndarray:
    """Signs (k,) that make the largest weight of each column positive. Eigenvectors have any sign."""
    largest = np.abs(weights).argmax(axis=0)
    return np.where(weights[largest, np.arange(weights.shape[1])] < 0, -1.0, 1.0)


def _pad(columns: np.ndarray, n_components: int) -> np.ndarray:
    """Columns (…, k) with zeros up to `n_components`."""
    missing = n_components - columns.shape[-1]
    return np.pad(columns, [(0, 0)] * (columns.ndim - 1) + [(0, missing)]) if missing else columns


class _LargeSide:
    """The weights of the large side, Y' L^-T W u / rho, for one of its ridges.

    With several ridges of the small side it is cheaper to form the map Y' L^-T W (features, p) once.
    """

    def __init__(
        self,
        problem: CanonicalProblem,
        factor: CholeskyPanels,
        solved: np.ndarray,
        n_components: int,
        n_ridges: int,
    ):
        self.problem, self.factor, self.solved = problem, factor, solved
        size, n_small = solved.shape
        per_column = size**2 + problem.cost_of_lifting
        each = n_components * (per_column + 2 * size * n_small)
        once = n_small * per_column
        self.map: np.ndarray | None = None
        if once + n_ridges * 2 * problem.n_large * n_small * n_components < n_ridges * each:
            self.map = problem.lift_large(factor.solve_transposed(solved))

    def find_weights(self, small: np.ndarray) -> np.ndarray:
        """Weights (features, k) of the weights u / rho (p, k) of the small side."""
        if self.map is not None:
            return self.map @ small.astype(self.map.dtype)
        solved = self.solved @ small.astype(self.solved.dtype)
        return self.problem.lift_large(self.factor.solve_transposed(solved))


def least_regularization(problem: CanonicalProblem) -> float:
    """The smallest ridge that lifts missing rank above rounding, as a share of the largest eigenvalue."""
    size = max(problem.small.size, problem.large.size)
    return max(1e-10, 4 * float(np.sqrt(size)) * problem.precision)


def _factorize(
    matrix: SymmetricPanels, reg: float, least: float, eigenvalue: float, dtype: DTypeLike | None = None
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
