"""The kernels of EM in NumPy, for data so small that compiling would take longer than fitting.

They take the arguments of the functions of the same names in `kernels` and differ from these by rounding: all
sums are in float64, whatever the type of the rows. No sum uses BLAS, whose threads would change bits.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

# N K D: up to here an iteration takes less than a millisecond in NumPy, about twice as long as compiled.
SMALL = 16_384


def choose_kernels(size: float) -> Any:
    """This module for small data, else `kernels`: numba is imported only to compile.

    `size` is N K D of all rows, in memory or anywhere else, so that the bits do not depend on where they are.
    """
    if size <= SMALL:
        return sys.modules[__name__]
    from fishermix.mixture import kernels

    return kernels


def log_densities(
    x: np.ndarray,
    location: np.ndarray,
    square: np.ndarray,
    linear: np.ndarray,
    constant: np.ndarray,
    out: np.ndarray,
) -> None:
    """out[k, n] = constant[k] - sum_d (square |x - location|² + linear |x - location|)[k, d]."""
    d = x.shape[1]
    location, square, linear = (part[:, None, :d].astype(np.float64) for part in (location, square, linear))
    gap = np.abs(x - location)
    slope = square * gap
    slope += linear
    np.subtract(constant[:, None], np.einsum("knd,knd->kn", slope, gap), out=out)


def normalize(joint: np.ndarray, prior: np.ndarray, negligible: float, log_likelihood: np.ndarray) -> None:
    """Turn joint log densities (K, n) into posteriors in place, and write the log_likelihood (n,)."""
    top = np.fmax.reduce(joint, axis=0)
    far = ~np.isfinite(top)
    joint -= np.where(far, 0.0, top)
    np.copyto(joint, -np.inf, where=~(joint > negligible))
    np.exp(joint, out=joint)
    joint[:, far] = prior[:, None]
    total = joint.sum(axis=0)
    log_likelihood[:] = np.where(far, -np.inf, top + np.log(total))
    joint[:, ~far] /= total[~far]


def list_posteriors(
    posterior: np.ndarray,
    weight: np.ndarray,
    threshold: float,
    quantum: float,
    start: np.ndarray,
    row: np.ndarray,
    row_weight: np.ndarray,
    sums: np.ndarray,
    squares: np.ndarray,
) -> None:
    """List the rows of each component whose posterior (K, n) is at least `threshold`."""
    large = np.where(posterior >= threshold, posterior, 0.0)
    rounded = np.floor(large * weight / quantum + 0.5) * quantum
    kept = rounded > 0
    start[0] = 0
    np.cumsum(kept.sum(axis=1), out=start[1:])
    row[: start[-1]] = np.nonzero(kept)[1]
    row_weight[: start[-1]] = rounded[kept]
    sums += rounded.sum(axis=1)
    squares += np.einsum("kn,kn->k", rounded, rounded)


def add_moments(
    x: np.ndarray,
    start: np.ndarray,
    row: np.ndarray,
    row_weight: np.ndarray,
    center: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
) -> None:
    """first, second (K, D) += row_weight (x - center) and row_weight (x - center)², over the listed rows."""
    weight = spread_weights(start, row, row_weight, len(x))
    gap = x - center[:, None].astype(np.float64)
    first += np.einsum("kn,knd->kd", weight, gap)
    second += np.einsum("kn,knd,knd->kd", weight, gap, gap)


def spread_weights(start: np.ndarray, row: np.ndarray, row_weight: np.ndarray, n_rows: int) -> np.ndarray:
    """The weights of listed rows as a dense array (K, n)."""
    dense = np.zeros((len(start) - 1, n_rows))
    for of_component, first, last in zip(dense, start[:-1], start[1:]):
        of_component[row[first:last]] = row_weight[first:last]
    return dense


def find_medians(columns: np.ndarray, order: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Medians (K, D) of columns (D, n) weighted by weight (K, n), and the sums of weight |x - median|.

    order (D, n) sorts the columns. The sums of the weights have to be exact.
    """
    reached = np.cumsum(weight[:, order], axis=2)
    place = np.count_nonzero(reached < 0.5 * reached[:, :, -1:], axis=2)
    d = np.arange(len(columns))
    median = columns[d, order[d, place]] + 0.0  # never -0.0, whichever came first
    return median, np.einsum("kn,kdn->kd", weight, np.abs(columns - median[:, :, None]))
