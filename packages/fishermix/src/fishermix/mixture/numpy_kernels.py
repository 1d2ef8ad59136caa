"""The kernels of EM in NumPy, for data so small that compiling would take longer than fitting.

They take the arguments of the functions of the same names in `kernels` and differ from these by rounding: all
sums are in float64, whatever the type of the rows. No sum uses BLAS, whose threads would change bits.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

Arrays = Sequence[np.ndarray]
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


def log_densities(x: np.ndarray, constants: Arrays, out: np.ndarray) -> None:
    """out[k, n] = constant[k] - sum_d (square |x - location|² + linear |x - location|)[k, d]."""
    *parts, constant = constants
    location, square, linear = (part[:, None, : x.shape[1]].astype(np.float64) for part in parts)
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
    posterior: np.ndarray, weight: np.ndarray, threshold: float, quantum: float, listed: Arrays, sums: Arrays
) -> None:
    """List the rows of each component whose posterior (K, n) is at least `threshold`."""
    start, row, row_weight = listed
    large = np.where(posterior >= threshold, posterior, 0.0)
    rounded = np.floor(large * weight / quantum + 0.5) * quantum
    kept = rounded > 0
    start[0] = 0
    np.cumsum(kept.sum(axis=1), out=start[1:])
    row[: start[-1]] = np.nonzero(kept)[1]
    row_weight[: start[-1]] = rounded[kept]
    sums[0][:] += rounded.sum(axis=1)
    sums[1][:] += np.einsum("kn,kn->k", rounded, rounded)


def add_moments(x: np.ndarray, listed: Arrays, center: np.ndarray, sums: Arrays) -> None:
    """sums: two arrays (K, D) += row_weight (x - center) and row_weight (x - center)² of the listed rows."""
    weight = spread_weights(listed, len(x))
    gap = x - center[:, None].astype(np.float64)
    sums[0][:] += np.einsum("kn,knd->kd", weight, gap)
    sums[1][:] += np.einsum("kn,knd,knd->kd", weight, gap, gap)


def spread_weights(listed: Arrays, n_rows: int) -> np.ndarray:
    """The weights of listed rows as a dense array (K, n)."""
    start, row, row_weight = listed
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
