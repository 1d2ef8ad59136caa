"""Compiled loops of the Fisher vectors: each row of the output is finished while it is in the cache.

A row of the output is 2 * K * D numbers: the location blocks of all components, then the scale blocks. It is
zero at first; only the blocks of components that some member of the set belongs to are ever touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from fishermix.mixture.compiling import njit, njit_inner
from fishermix.threads import available_threads

SMALLEST_NORM = 1e-12
BLOCK = 1024  # rows whose entries are sorted by component: they stay in the L2 cache
CHUNKS_PER_THREAD = 8  # so that a thread with longer sets is not waited for


def in_threads(use: Callable[[int, int], None], n: int, per_thread: int = CHUNKS_PER_THREAD) -> None:
    """`use_runs` on runs of about the same length that together are 0, ..., n - 1."""
    runs = min(n, per_thread * available_threads()) if available_threads() > 1 else 1
    use_runs(use, np.linspace(0, n, runs + 1).astype(int).tolist())


def use_runs(use: Callable[[int, int], None], cuts: list[int]) -> None:
    """Call use(first, last) on the runs between the cuts, in as many threads as there are cores.

    The runs must be independent of each other: threads may change the time, and not a bit of the result.
    """
    threads = min(available_threads(), len(cuts) - 1)
    if threads <= 1:
        for first, last in pairwise(cuts):
            use(first, last)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(use, cuts[:-1], cuts[1:]))


@njit_inner(fastmath={"contract"}, inline="always")
def _add_scores(sums, at, posterior, x, i, k, location, inverse_scale, linear, signed):
    """Add posterior * scores of row i of x in component k to sums[0, at] and sums[1, at].

    location_score(z) = linear * z + signed * sgn(z) and sgn(0) = -1; scale_score(z) = z * location_score(z)
    - 1. Whole arrays and indices, because a slice costs as much as four SIMD steps.
    """
    for d in range(x.shape[1]):
        z = (x[i, d] - location[k, d]) * inverse_scale[k, d]
        score = posterior * (linear[k, d] * z + (signed[k, d] if z > 0 else -signed[k, d]))
        sums[0, at, d] += score
        sums[1, at, d] += score * z - posterior


@njit_inner(fastmath={"contract"}, inline="always")
def _add_four(sums, posterior, x, row, e, k, location, inverse_scale, linear, signed):
    """`_add_scores` of the entries e to e + 3, all of component k, which are rows row[e], ... of x."""
    # In pairs: numba takes 0.15 s to compile three tuples of four, and Python makes none of two.
    i0, i1 = row[e], row[e + 1]
    i2, i3 = row[e + 2], row[e + 3]
    t0, t1 = posterior[e], posterior[e + 1]
    t2, t3 = posterior[e + 2], posterior[e + 3]
    for d in range(x.shape[1]):
        center, inverse = location[k, d], inverse_scale[k, d]
        a, b = linear[k, d], signed[k, d]
        z0 = (x[i0, d] - center) * inverse
        z1 = (x[i1, d] - center) * inverse
        z2 = (x[i2, d] - center) * inverse
        z3 = (x[i3, d] - center) * inverse
        score0 = t0 * (a * z0 + (b if z0 > 0 else -b))
        score1 = t1 * (a * z1 + (b if z1 > 0 else -b))
        score2 = t2 * (a * z2 + (b if z2 > 0 else -b))
        score3 = t3 * (a * z3 + (b if z3 > 0 else -b))
        sums[0, k, d] += (score0 + score1) + (score2 + score3)
        sums[1, k, d] += ((score0 * z0 - t0) + (score1 * z1 - t1)) + ((score2 * z2 - t2) + (score3 * z3 - t3))


@njit_inner(fastmath={"reassoc", "contract", "nsz"})
def _power_block(block, factor, shrink, power):
    """v -> sign(v * factor * shrink) |v * factor * shrink|^power in place; returns the sum of the squares."""
    squares = shrink - shrink
    if power == 0.5:
        for d in range(block.shape[0]):
            value = block[d] * factor[d] * shrink
            root = math.sqrt(abs(value))
            block[d] = root if value >= 0 else -root
            squares += abs(value)
    elif power == 1.0:
        for d in range(block.shape[0]):
            block[d] = block[d] * factor[d] * shrink
            squares += block[d] * block[d]
    else:
        for d in range(block.shape[0]):
            value = block[d] * factor[d] * shrink
            root = abs(value) ** power
            block[d] = root if value >= 0 else -root
            squares += block[d] * block[d]
    return squares


@njit_inner()
def _add_block(block, added):
    for d in range(block.shape[0]):
        block[d] += added[d]


@njit_inner()
def _scale_block(block, factor):
    for d in range(block.shape[0]):
        block[d] *= factor


@njit_inner()
def _finish(row, start, active, size, factor, power, per_component, unit_length):
    """factor / sqrt(size), sign(v) |v|^power, then unit length per component and in all."""
    n_components, dimension = factor.shape[1:]
    shrink = row.dtype.type(1 / math.sqrt(size))
    scale_half = n_components * dimension
    total = 0.0
    for k in range(n_components):
        if not active[k]:
            continue
        begin = start + k * dimension
        locations = row[begin : begin + dimension]
        scales = row[begin + scale_half : begin + scale_half + dimension]
        squares = _power_block(locations, factor[0, k], shrink, power)
        squares += _power_block(scales, factor[1, k], shrink, power)
        if per_component:
            length = math.sqrt(squares)
            to_unit = row.dtype.type(1 / (length if length > SMALLEST_NORM else SMALLEST_NORM))
            _scale_block(locations, to_unit)
            _scale_block(scales, to_unit)
            squares = squares * to_unit * to_unit
        total += squares
    if unit_length:
        length = math.sqrt(total)
        to_unit = row.dtype.type(1 / (length if length > SMALLEST_NORM else SMALLEST_NORM))
        for k in range(n_components):
            if active[k]:
                begin = start + k * dimension
                _scale_block(row[begin : begin + dimension], to_unit)
                _scale_block(row[begin + scale_half : begin + scale_half + dimension], to_unit)


@njit(fastmath={"contract"})
def encode_sets(
    x, offsets, indptr, components, posteriors, location, inverse_scale, linear, signed, factor,
    power, per_component, unit_length, first, last, row, posterior, end, active, out,
):  # fmt: skip
    """Add the scores of x[offsets[s]:offsets[s + 1]] in the components first, ..., last - 1 to the zeros
    `out`, and turn them into Fisher vectors if there is a `factor`.

    Without one, numba compiles this in half of the time. row and posterior (entries of BLOCK rows,), end (K,)
    and active (K,) are work space: the entries of a block, component after component, where those of each
    end, and whether there are any in the set.
    """
    n_components, dimension = location.shape
    for s in range(len(offsets) - 1):
        sums = out[s].reshape(2, n_components, dimension)
        for k in range(first, last):
            active[k] = False
        for start in range(offsets[s], offsets[s + 1], BLOCK):
            stop = start + BLOCK if start + BLOCK < offsets[s + 1] else offsets[s + 1]
            for k in range(n_components):
                end[k] = 0
            for e in range(indptr[start], indptr[stop]):
                end[components[e]] += 1
            at = 0
            for k in range(first, last):
                active[k] |= end[k] > 0
                end[k], at = at, at + end[k]
            for i in range(start, stop):
                for e in range(indptr[i], indptr[i + 1]):
                    k = components[e]
                    if first <= k < last:
                        row[end[k]], posterior[end[k]] = i, posteriors[e]
                        end[k] += 1
            e = 0
            for k in range(first, last):
                while e + 4 <= end[k]:
                    _add_four(sums, posterior, x, row, e, k, location, inverse_scale, linear, signed)
                    e += 4
                while e < end[k]:
                    _add_scores(sums, k, posterior[e], x, row[e], k, location, inverse_scale, linear, signed)
                    e += 1
        if factor is not None:
            size = offsets[s + 1] - offsets[s]
            _finish(out[s], 0, active, size, factor, power, per_component, unit_length)


@njit(fastmath={"contract"})
def word_blocks(x, indptr, components, posteriors, location, inverse_scale, linear, signed, out):
    """The scores of each (row, component) for themselves, into the zeros `out` (E, 2, D)."""
    for i in range(x.shape[0]):
        for e in range(indptr[i], indptr[i + 1]):
            sums = out[e].reshape(2, 1, x.shape[1])
            _add_scores(sums, 0, posteriors[e], x, i, components[e], location, inverse_scale, linear, signed)


@njit()
def sum_blocks(
    words, offsets, indptr, components, blocks, factor, power, per_component, unit_length, start, active, out,
):  # fmt: skip
    """Fisher vectors of sets of words whose blocks are known, into the zeros `out[:, start:]`.

    words (n,): members of all sets, one after the other; entries indptr[w]:indptr[w + 1] of `components` (E,)
    and `blocks` (E, 2, D) are those of word w. active (K,) is work space.
    """
    n_components, dimension = factor.shape[1:]
    for s in range(len(offsets) - 1):
        row = out[s]
        for k in range(n_components):
            active[k] = False
        for i in range(offsets[s], offsets[s + 1]):
            for e in range(indptr[words[i]], indptr[words[i] + 1]):
                k = components[e]
                active[k] = True
                for half in range(2):
                    begin = start + (half * n_components + k) * dimension
                    _add_block(row[begin : begin + dimension], blocks[e, half])
        if offsets[s + 1] > offsets[s]:
            _finish(
                row, start, active, offsets[s + 1] - offsets[s], factor, power, per_component, unit_length
            )
