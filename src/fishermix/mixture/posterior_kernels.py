"""Compiled loops that list the posteriors of rows that are not negligible.

They work on tiles of 256 rows, one dimension per line, and never write the densities of all (row, component)
pairs: of these, a few per row are left after the comparison with the largest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fishermix.mixture.compiling import njit, njit_inner
from fishermix.mixture.kernels import CHUNK, _exp
from fishermix.mixture.parameters import UNROLLED

TILE = 256  # rows of a tile: long inner loops, while the densities of a tile stay in the L2 cache
BITS, LANE = 8, TILE - 1  # (component << BITS) + row of the tile is a pair as one number
STEP = 64  # the number of rows is made a multiple of it, so that the loops are all SIMD
LINE = 16  # rows that are transposed together
GROUP = 16  # components whose sums stay in the L1 cache
CACHE_LINE = 64  # bytes


def list_large(
    x: np.ndarray, constants: Sequence[np.ndarray], negligible: float, threshold: float
) -> tuple[np.ndarray, ...] | None:
    """The posteriors of rows x (n, D) that are positive and at least the threshold, row by row.

    constants: location, square, linear and constant of `kernels.log_densities`; `negligible` is that of
    `kernels.normalize`, whose results these are. Returns the number of entries per row (n,), their components
    and their values; or None if some row is so far out that no density of it is positive.
    """
    k_count, padded = constants[0].shape
    rows, n = len(x), len(x) + -len(x) % STEP
    if n > rows:  # the last row once more, so that the loops need not care for remainders
        x = np.concatenate([x, x[-1:].repeat(n - rows, axis=0)])
    hit, most = np.empty(TILE, np.uint8), TILE * k_count + 1
    work = (  # allocated here: an allocation in a kernel takes the compiler a tenth of a second
        _allocate((padded, TILE), x.dtype),
        _allocate((GROUP, TILE), x.dtype),
        _allocate((k_count, TILE), np.float64),
        np.empty(TILE),
        np.empty(TILE),
        np.empty(TILE, np.int64),
        hit,
        hit.view(np.uint64),
        np.empty(most, np.int64),
        np.empty(most),
    )
    work[0][:] = 0
    counts, components = np.empty(n, np.int64), np.empty(n * k_count + 1, np.int64)
    values = np.empty(n * k_count + 1)
    found = _list_tiles(x, *constants, negligible, threshold, *work, counts, components, values)
    if found < 0:
        return None
    found = int(counts[:rows].sum())
    return counts[:rows], components[:found].copy(), values[:found].copy()


def _allocate(shape: tuple[int, int], dtype: np.dtype | type) -> np.ndarray:
    """An array that begins at a cache line: SIMD loads across two lines take twice the time."""
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    memory = np.empty(size + CACHE_LINE, np.uint8)
    first = -memory.ctypes.data % CACHE_LINE
    return memory[first : first + size].view(dtype).reshape(shape)


@njit()
def _list_tiles(
    x, location, square, linear, constant, negligible, threshold,
    tile, part, joint, top, total, found, hit, eight_hits, pair, density, counts, components, values,
):  # fmt: skip
    """The number of entries written to `components` and `values`, or -1."""
    k_count, at = location.shape[0], np.int64(0)
    for start in range(0, x.shape[0], TILE):
        lanes = TILE if start + TILE < x.shape[0] else x.shape[0] - start
        _fill_tile(x, start, lanes, tile)
        _sum_distances(tile, lanes, location, square, linear, part, joint)
        for i in range(lanes):
            top[i] = -np.inf
            total[i] = 0
            found[i] = 0
        for k in range(k_count):
            for i in range(lanes):
                value = constant[k] - joint[k, i]
                joint[k, i] = value
                top[i] = value if value > top[i] else top[i]
        for i in range(lanes):
            if not -np.inf < top[i] < np.inf:
                return np.int64(-1)
        # List the components whose joint log density exceeds top + negligible. Appending always and counting
        # only the hits is faster than a branch that cannot be predicted.
        listed = 0
        for k in range(k_count):
            for i in range(lanes):
                joint[k, i] -= top[i]
                hit[i] = joint[k, i] > negligible
            for word in range(lanes // 8):
                if eight_hits[word] != 0:
                    for i in range(8 * word, 8 * word + 8):
                        pair[listed], density[listed] = (k << BITS) + i, joint[k, i]
                        listed += hit[i]
        for entry in range(listed):
            density[entry] = _exp(density[entry])
        for entry in range(listed):
            total[pair[entry] & LANE] += density[entry]
        for i in range(lanes):
            total[i] = 1 / total[i]
        kept = 0
        for entry in range(listed):
            i = pair[entry] & LANE
            value = density[entry] * total[i]
            pair[kept], density[kept] = pair[entry], value
            large = (value > 0) & (value >= threshold)
            found[i] += large
            kept += large
        for i in range(lanes):
            counts[start + i] = found[i]
            found[i], at = at, at + found[i]
        for entry in range(kept):  # from component after component to row after row
            i = pair[entry] & LANE
            components[found[i]], values[found[i]] = pair[entry] >> BITS, density[entry]
            found[i] += 1
    return at


@njit_inner(inline="always")
def _fill_tile(x, start, lanes, tile):
    """tile[d, i] = x[start + i, d], for a few rows at a time, so that they are read from the cache."""
    for i0 in range(0, lanes, LINE):
        for d in range(x.shape[1]):
            for i in range(i0, i0 + LINE):
                tile[d, i] = x[start + i, d]


@njit_inner(fastmath={"contract"})
def _sum_distances(tile, lanes, location, square, linear, part, total):
    """total[k, i] = sum_d (square |x - location|² + linear |x - location|)[k, d], summed as in `kernels`."""
    k_count, padded = location.shape
    for k0 in range(0, k_count, GROUP):
        size = GROUP if k0 + GROUP < k_count else k_count - k0
        for first in range(0, padded, CHUNK):
            last = first + CHUNK if first + CHUNK < padded else padded
            for g in range(size):
                for i in range(lanes):
                    part[g, i] = 0
            for d in range(first, last, UNROLLED):
                for g in range(size):
                    k = k0 + g
                    l0, s0, a0 = location[k, d], square[k, d], linear[k, d]
                    l1, s1, a1 = location[k, d + 1], square[k, d + 1], linear[k, d + 1]
                    l2, s2, a2 = location[k, d + 2], square[k, d + 2], linear[k, d + 2]
                    l3, s3, a3 = location[k, d + 3], square[k, d + 3], linear[k, d + 3]
                    if a0 + a1 + a2 + a3 == 0:  # none is negative: the general formula with less to do
                        for i in range(lanes):
                            u0 = tile[d, i] - l0
                            u1 = tile[d + 1, i] - l1
                            u2 = tile[d + 2, i] - l2
                            u3 = tile[d + 3, i] - l3
                            rest = s2 * u2 * u2 + (s3 * u3 * u3 + part[g, i])
                            part[g, i] = s0 * u0 * u0 + (s1 * u1 * u1 + rest)
                        continue
                    for i in range(lanes):
                        u0 = abs(tile[d, i] - l0)
                        u1 = abs(tile[d + 1, i] - l1)
                        u2 = abs(tile[d + 2, i] - l2)
                        u3 = abs(tile[d + 3, i] - l3)
                        rest = (s2 * u2 + a2) * u2 + ((s3 * u3 + a3) * u3 + part[g, i])
                        part[g, i] = (s0 * u0 + a0) * u0 + ((s1 * u1 + a1) * u1 + rest)
            for g in range(size):
                if first == 0:
                    for i in range(lanes):
                        total[k0 + g, i] = part[g, i]
                else:
                    for i in range(lanes):
                        total[k0 + g, i] += part[g, i]
