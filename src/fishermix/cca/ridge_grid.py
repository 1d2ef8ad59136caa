"""The solutions of a CCA for every pair of ridges of a grid: which sums to form, and which pair is best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from fishermix.cca.covariances import CovarianceSums, choose_block_rows
from fishermix.cca.grams import GramSums, solve_in_row_space
from fishermix.cca.problem import solve
from fishermix.cca.projections import CanonicalProjections
from fishermix.errors import FishermixError

T = TypeVar("T")


def form_statistics(
    X: np.ndarray, Y: np.ndarray, pairs: np.ndarray | None, method: str, n_ridges: int
) -> CovarianceSums | GramSums:
    """The covariances ("primal") or the inner products of rows ("dual") of pairs of rows."""
    if method == "auto":
        method = choose_method(len(X), len(Y), X.shape[1], Y.shape[1], n_ridges)
    if method == "dual":
        return GramSums(X, Y, pairs)
    step = choose_block_rows(Y.shape[1])
    parts = [slice(start, start + step) for start in range(0, len(Y), step)]
    if pairs is None:
        sums = CovarianceSums.from_blocks(X, (Y[part] for part in parts))
    else:
        # Sentences of one image come together, so that they meet it in one product.
        order = np.argsort(pairs, kind="stable")
        sums = CovarianceSums.from_blocks(X, (Y[order[part]] for part in parts), pairs[order])
    sums.method = "primal"
    return sums


def choose_method(m: int, n: int, p: int, q: int, n_ridges: int = 1) -> str:
    """ "primal" or "dual", the one with fewer multiplications for n pairs of m rows (p,) and n rows (q,).

    Both form sums of the large side, and for each of its ridges a Cholesky factor, a solution and a product.
    The dual also maps every solution back to features, but if the small side has fewer rows than features
    it solves in the space of these rows.
    """
    small, large = min(p, q), max(p, q)
    rows = m if p <= q else n
    in_rows = rows if solve_in_row_space(rows, small) else small

    def cost(size: int, inner: int, columns: int) -> float:
        return size**2 * inner + n_ridges * (size**3 / 3 + 2 * size**2 * columns + size * columns**2)

    dual = cost(n, large, in_rows) + n_ridges * 2.0 * large * n * in_rows
    return "dual" if dual < cost(large, n, small) + 2.0 * m * p * q else "primal"


def solve_grid(
    statistics: CovarianceSums | GramSums,
    n_components: int | None,
    reg_x: float | Sequence[float],
    reg_y: float | Sequence[float],
) -> Iterator[tuple[tuple[float, float], CanonicalProjections, tuple[float, float]]]:
    """(reg_x, reg_y), the projections and (x_ridge_, y_ridge_) for each pair of ridges."""
    p, q = len(statistics.x_mean), len(statistics.y_mean)
    at_most = min(p, q)
    if n_components is not None and n_components > at_most:
        raise FishermixError(f"n_components is {n_components}, but the smaller side has {at_most} features.")
    n_components = n_components or max(1, min(at_most, statistics.n - 1))
    x_is_small = p <= q
    regs_x, regs_y = parse_ridges("reg_x", reg_x), parse_ridges("reg_y", reg_y)
    regs = (regs_x, regs_y) if x_is_small else (regs_y, regs_x)
    for pair in solve(statistics.problem(), n_components, *regs):
        small = pair.reg_small, pair.ridge_small, pair.small_weights.astype(statistics.dtype, copy=False)
        large = pair.reg_large, pair.ridge_large, pair.large_weights.astype(statistics.dtype, copy=False)
        x, y = (small, large) if x_is_small else (large, small)
        projections = CanonicalProjections(
            pair.correlations, x[2], y[2], statistics.x_mean, statistics.y_mean
        )
        yield (x[0], y[0]), projections, (x[1], y[1])


def parse_ridges(name: str, given: float | Sequence[float]) -> list[float]:
    """The ridges of one side, checked."""
    ridges = np.atleast_1d(np.asarray(given, np.float64))
    if ridges.ndim != 1 or not np.isfinite(ridges).all() or (ridges < 0).any():
        raise FishermixError(f"{name} must be one ridge or a list of ridges, each at least 0, not {given!r}.")
    return ridges.tolist()


def choose_best(candidates: Iterable[T], score: Callable[[T], float]) -> T:
    """The candidate of a grid with the highest score, the first of equal ones; a NaN is never the highest.

    `candidates` may be a generator: only the best so far is held.
    """
    best, best_score, n_scored = None, np.nan, 0
    for candidate in candidates:
        value = float(score(candidate))
        n_scored += 1
        if not np.isnan(value) and (best is None or value > best_score):
            best, best_score = candidate, value
    if not n_scored:
        raise FishermixError("The grid of ridges is empty. Give at least one reg_x and one reg_y.")
    if best is None:
        raise FishermixError(f"The score is NaN for all {n_scored} pairs of ridges.")
    return best
