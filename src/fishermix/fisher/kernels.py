"""Compiled loops of the Fisher vectors: each row of the output is finished while it is in the cache.

A row of the output is 2 * K * D numbers: the location blocks of all components, then the scale blocks. It is
zero at first; only the blocks of components that some member of the set belongs to are ever touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fishermix.mixture.compiling import njit, njit_inner
from fishermix.threads import available_threads

SMALLEST_NORM = 1e-12
CHUNKS_PER_THREAD = 8  # so that a thread with longer sets is not waited for


def in_threads(encode: Callable[[int, int], None], n_sets: int) -> None:
    """Call encode(first, last) on runs that together are all the sets, in as many threads as there are cores.

    Sets are independent of each other, so the runs change the time and not a bit of the result.
    """
    threads = available_threads()
    cuts = np.linspace(0, n_sets, min(n_sets, CHUNKS_PER_THREAD * threads) + 1).astype(int).tolist()
    if threads == 1:
        encode(0, n_sets)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(encode, cuts[:-1], cuts[1:]))


@njit_inner(fastmath={"contract"}, inline="always")
def _add_scores(sums, at, posterior, x, i, k, location, inverse_scale, linear, signed):
    """Add posterior * scores of row i of x in component k to sums[0, at] and sums[1, at].

    location_score(z) = linear * z + signed * sgn(z) and sgn(0) = -1. Whole arrays and indices, because a
    slice costs as much as four SIMD steps.
    """
    one = posterior / posterior
    for d in range(x.shape[1]):
        z = (x[i, d] - location[k, d]) * inverse_scale[k, d]
        score = linear[k, d] * z + (signed[k, d] if z > 0 else -signed[k, d])
        sums[0, at, d] += posterior * score
        sums[1, at, d] += posterior * (z * score - one)


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
    x, offsets, indptr, components, posteriors, location, inverse_scale, linear, signed,
    factor, power, per_component, unit_length, finished, active, out,
):  # fmt: skip
    """Fisher vectors of x[offsets[s]:offsets[s + 1]] into the zeros `out`; bare sums unless `finished`.

    active (K,) is work space.
    """
    n_components, dimension = location.shape
    for s in range(len(offsets) - 1):
        row = out[s]
        for k in range(n_components):
            active[k] = False
        sums = row.reshape(2, n_components, dimension)
        for i in range(offsets[s], offsets[s + 1]):
            for e in range(indptr[i], indptr[i + 1]):
                k = components[e]
                active[k] = True
                _add_scores(sums, k, posteriors[e], x, i, k, location, inverse_scale, linear, signed)
        if finished:
            _finish(row, 0, active, offsets[s + 1] - offsets[s], factor, power, per_component, unit_length)


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
