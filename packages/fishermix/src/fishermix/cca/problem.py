"""The canonical ridge problem: the sums that a CCA is solved from.

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

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fishermix.cca.cholesky import SymmetricPanels
from fishermix.errors import FishermixError

FitMethod = Literal["primal", "dual", "streaming"]
ROWS_OF_A_SUM = 2048


@dataclass
class CanonicalProblem:
    """The sums of both sides. This class is the primal problem, `dual.DualProblem` the dual.

    n: number of pairs.
    small: X'X of the small side, (p, p) in float64.
    large: Y'Y of the large side (q, q); in the dual its Gram matrix (n, n).
    right: Y'X (q, p); in the dual the rows X (n, p).
    precision: relative rounding of the large side's sums.
    rounded: factors and eigenvectors are computed in float32, then improved by one step in float64.
    """

    n: float
    small: SymmetricPanels
    large: SymmetricPanels
    right: np.ndarray
    precision: float
    rounded: bool = False

    def explain(self, solved: np.ndarray, ridge: float) -> np.ndarray:
        """M (p, p) in float64, given W: the part of the small side's sums that the large side explains."""
        return sum_of_squares(solved)

    def lift_small(self, weights: np.ndarray) -> np.ndarray:
        """Weights of the small side's features, given the solver's."""
        return weights

    def lift_large(self, weights: np.ndarray) -> np.ndarray:
        """Weights of the large side's features, given L^-T W u / rho."""
        return weights

    @property
    def n_large(self) -> int:
        """Number of features of the large side."""
        return self.large.size

    @property
    def cost_of_lifting(self) -> int:
        """Multiplications of `lift_large` for one direction."""
        return 0


def sum_of_squares(rows: np.ndarray) -> np.ndarray:
    """rows' rows in float64, of rows (n, p)."""
    product = SymmetricPanels(rows.shape[1], np.float64)
    for start in range(0, len(rows), ROWS_OF_A_SUM):
        part = rows[start : start + ROWS_OF_A_SUM]
        product.add_product(part, part)
    return product.dense()


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
            f"{'Divide' if too_large else 'Multiply'} {side} by a constant; the correlations do not change.",
            code="out_of_range",
            side=side,
            too_large=bool(too_large),
        )


def find_deviation(variances: np.ndarray, means: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Standard deviations (d,) of features of this type; 1 for those that only vary by rounding."""
    deviations = np.sqrt(np.maximum(variances, 0))
    rounding = 10 * np.finfo(dtype).eps * np.abs(means)
    return np.where(deviations > rounding, deviations, 1.0)
