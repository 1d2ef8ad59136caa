"""Compiled loops that list the posteriors of rows that are not negligible.

They work on tiles of 64 rows, one dimension per line, and never write the densities of all (row, component)
pairs: of these, a few per row are left after the comparison with the largest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fishermix.mixture.compiling import njit, njit_inner
from fishermix.mixture.kernels import CHUNK, LANES
from fishermix.mixture.parameters import UNROLLED


def list_large(
    x: np.ndarray, constants: Sequence[np.ndarray], negligible: float, threshold: float
) -> tuple[np.ndarray, ...] | None:
    """The posteriors of rows x (n, D) that are positive and at least the threshold, row by row.

    constants: location, square, linear and constant of `kernels.log_densities`; `negligible` is that of
    `kernels.normalize`, whose results these are. Returns the number of entries per row (n,), their components
    and their values; or None if some row is so far out that no density of it is positive.
    """
    n, (k_count, padded) = len(x), constants[0].shape
    hit = np.empty(LANES, np.uint8)
    work = (  # allocated here: an allocation in a kernel takes the compiler a tenth of a second
        np.zeros((padded, LANES), x.dtype),
        np.empty((k_count, LANES)),
        np.empty(LANES),
        hit,
        hit.view(np.uint64),
        np.empty((LANES, k_count + 1), np.int32),
        np.empty((LANES, k_count + 1)),
        np.empty(LANES, np.int64),
    )
    counts, components = np.empty(n, np.int64), np.empty(n * k_count + 1, np.int64)
    values = np.empty(n * k_count + 1)
    found = _list_tiles(x, *constants, negligible, threshold, *work, counts, components, values)
    return None if found < 0 else (counts, components[:found].copy(), values[:found].copy())


@njit()
def _list_tiles(
    x, location, square, linear, constant, negligible, threshold,
    tile, joint, top, hit, eight_hits, near, density, found, counts, components, values,
):  # fmt: skip
    """The number of entries written to `components` and `values`, or -1."""
    k_count, at = location.shape[0], np.int64(0)
    for start in range(0, x.shape[0], LANES):
        rows = LANES if start + LANES < x.shape[0] else x.shape[0] - start
        _fill_tile(x, start, rows, tile)
        _sum_distances(tile, location, square, linear, joint)
        for i in range(LANES):
            top[i] = -np.inf
            found[i] = 0
        for k in range(k_count):
            for i in range(LANES):
                value = constant[k] - joint[k, i]
                joint[k, i] = value
                top[i] = value if value > top[i] else top[i]
        for i in range(rows):
            if not -np.inf < top[i] < np.inf:
                return np.int64(-1)
        # List for each row the components whose joint log density exceeds top + negligible. Appending always
        # and counting only the hits is faster than a branch that cannot be predicted.
        for k in range(k_count):
            for i in range(LANES):
                hit[i] = joint[k, i] - top[i] > negligible
            for word in range(LANES // 8):
                if eight_hits[word] != 0:
                    for i in range(8 * word, 8 * word + 8):
                        last = found[i]
                        near[i, last] = k
                        density[i, last] = joint[k, i]
                        found[i] = last + hit[i]
        for i in range(rows):
            total = 0.0
            for entry in range(found[i]):
                density[i, entry] = math.exp(density[i, entry] - top[i])
                total += density[i, entry]
            before = at
            for entry in range(found[i]):
                components[at] = near[i, entry]
                values[at] = density[i, entry] / total
                at += (values[at] > 0) & (values[at] >= threshold)
            counts[start + i] = at - before
    return at


@njit_inner(inline="always")
def _fill_tile(x, start, rows, tile):
    """tile[d, i] = x[start + i, d]; the lanes from `rows` on keep what they had."""
    d_count = x.shape[1]
    whole = d_count - d_count % 8 if rows == LANES else 0
    for d0 in range(0, whole, 8):
        for i0 in range(0, LANES, 8):
            for d in range(8):
                for i in range(8):
                    tile[d0 + d, i0 + i] = x[start + i0 + i, d0 + d]
    for d in range(whole, d_count):
        for i in range(rows):
            tile[d, i] = x[start + i, d]


@njit_inner(fastmath={"contract"})
def _sum_distances(tile, location, square, linear, total):
    """total[k, i] = sum_d (square |x - location|² + linear |x - location|)[k, d], summed as in `kernels`.

    The components are the outer loop, so that one line of sums stays in registers.
    """
    k_count, padded = location.shape
    part = np.empty(LANES, tile.dtype)
    for first in range(0, padded, CHUNK):
        last = first + CHUNK if first + CHUNK < padded else padded
        for k in range(k_count):
            for i in range(LANES):
                part[i] = 0
            for d in range(first, last, UNROLLED):
                l0, s0, a0 = location[k, d], square[k, d], linear[k, d]
                l1, s1, a1 = location[k, d + 1], square[k, d + 1], linear[k, d + 1]
                l2, s2, a2 = location[k, d + 2], square[k, d + 2], linear[k, d + 2]
                l3, s3, a3 = location[k, d + 3], square[k, d + 3], linear[k, d + 3]
                if a0 + a1 + a2 + a3 == 0:  # none is negative: the general formula with less to do
                    for i in range(LANES):
                        u0 = tile[d, i] - l0
                        u1 = tile[d + 1, i] - l1
                        u2 = tile[d + 2, i] - l2
                        u3 = tile[d + 3, i] - l3
                        part[i] += (s0 * u0 * u0 + s1 * u1 * u1) + (s2 * u2 * u2 + s3 * u3 * u3)
                    continue
                for i in range(LANES):
                    u0 = abs(tile[d, i] - l0)
                    u1 = abs(tile[d + 1, i] - l1)
                    u2 = abs(tile[d + 2, i] - l2)
                    u3 = abs(tile[d + 3, i] - l3)
                    part[i] += ((s0 * u0 + a0) * u0 + (s1 * u1 + a1) * u1) + (
                        (s2 * u2 + a2) * u2 + (s3 * u3 + a3) * u3
                    )
            if first == 0:
                for i in range(LANES):
                    total[k, i] = part[i]
            else:
                for i in range(LANES):
                    total[k, i] += part[i]
