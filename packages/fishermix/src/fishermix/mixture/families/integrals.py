"""Expectations under a family, and its distribution function, by the trapezoidal rule in log |z|.

Substituting z = ±e^u suits thin and heavy tails alike, and kinks at 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fishermix.mixture.families.base import Family

GRID = np.linspace(-40, 80, 16_001)  # of u: no density of finite information has mass outside
Z = np.concatenate([-np.exp(GRID[::-1]), np.exp(GRID)])


def expect(family: Family, of: Callable[[Family, np.ndarray], np.ndarray]) -> Any:
    """The mean of of(family, z) under the family, a number; of a family with an array of shapes, an array.

    A coarse grid finds where the integrand is, a fine one sums it.
    """
    parameter = family.shape_parameter
    shapes: Any = None if parameter is None else getattr(family, parameter.name)
    if np.ndim(shapes):
        values, which = np.unique(shapes, return_inverse=True)
        means = [expect(family.with_shape(float(value)), of) for value in values]
        return np.array(means)[which].reshape(np.shape(shapes))
    negligible, fine = 1e-18, 40_001

    def integrand(u: np.ndarray, sign: float) -> np.ndarray:
        z = sign * np.exp(u)
        return np.nan_to_num(np.exp(family.log_density(z) + u) * of(family, z), posinf=0.0, neginf=0.0)

    total = 0.0
    with np.errstate(all="ignore"):
        for sign in (-1.0, 1.0):
            size = np.abs(integrand(GRID, sign))
            there = np.flatnonzero(size > negligible * size.max())
            if len(there):
                first, last = max(there[0] - 1, 0), min(there[-1] + 1, len(GRID) - 1)
                u = np.linspace(GRID[first], GRID[last], fine)
                total += float(np.trapezoid(integrand(u, sign), u))
    return total


def cumulate(family: Family, values: np.ndarray | float = 1.0) -> np.ndarray:
    """The integral of density * values, an array over the points Z, up to each of these."""
    mass = np.nan_to_num(np.exp(family.log_density(Z) + np.log(np.abs(Z))) * values)
    parts = 0.5 * (GRID[1] - GRID[0]) * (mass[1:] + mass[:-1])
    parts[len(GRID) - 1] = 0.0  # between the two innermost points, e^-40 apart
    return np.concatenate([[0.0], np.cumsum(parts)])
