"""Compiled loops of the Fisher vectors: each row of the output is finished while it is in the cache.

A row of the output is 2 * K * D numbers: the location blocks of all components, then the scale blocks. It is
zero at first; only the blocks of components that some member of the set belongs to are ever touched.
"""

from __future__ import annotations

import math

import numpy as np

from fishermix.fisher.vectors import SMALLEST_NORM
from fishermix.mixture.compiling import njit, njit_inner


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
def _add_four(sums, k, posterior, x, row, e, location, inverse_scale, linear, signed):
    """`_add_scores` of the rows row[e], ..., row[e + 3] of x, all in component k."""
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
def _power_block(row, begin, factor, at, dimension, shrink, power):
    """v -> sign(v * factor * shrink) |v * factor * shrink|^power for `dimension` numbers of a row.

    They begin at `begin`, and their factors at `at`. Returns the sum of the squares.
    """
    squares = shrink - shrink
    if power == 0.5:
        for d in range(dimension):
            value = row[begin + d] * factor[at + d] * shrink
            root = math.sqrt(abs(value))
            row[begin + d] = root if value >= 0 else -root
            squares += abs(value)
    else:
        for d in range(dimension):
            value = row[begin + d] * factor[at + d] * shrink
            root = abs(value) ** power
            row[begin + d] = root if value >= 0 else -root
            squares += root * root
    return squares


@njit_inner()
def _scale_block(row, begin, dimension, length):
    """Divide `dimension` numbers of a row by a length; zeros stay zeros."""
    to_unit = row.dtype.type(1 / (length if length > SMALLEST_NORM else SMALLEST_NORM))
    for d in range(dimension):
        row[begin + d] *= to_unit


@njit_inner()
def _finish(row, start, active, size, factor, options):
    """factor / sqrt(size), sign(v) |v|^power, then unit length, as `options` say.

    The Fisher vector begins at `start` of the row; factor (2 K D,). Positions are unsigned, so numba need not
    ask whether they count from the end.
    """
    power, unit_length = options
    n_components = np.uint64(len(active))
    dimension, first = np.uint64(len(factor) // (2 * len(active))), np.uint64(start)
    scales = n_components * dimension
    shrink = row.dtype.type(1 / math.sqrt(size))
    total = 0.0
    for k in range(n_components):
        if active[k]:
            at = k * dimension
            squares = _power_block(row, first + at, factor, at, dimension, shrink, power)
            squares += _power_block(row, first + scales + at, factor, scales + at, dimension, shrink, power)
            total += squares
    if unit_length:
        for k in range(n_components):
            if active[k]:
                _scale_block(row, first + k * dimension, dimension, math.sqrt(total))
                _scale_block(row, first + scales + k * dimension, dimension, math.sqrt(total))


@njit_inner(fastmath={"contract"})
def _add_set(end, x, entry, start, row, posterior, location, inverse_scale, linear, signed, active, sums):
    """Add the scores of the next set, which ends before row `end` of x, to sums (2, K, D).

    start (K + 1,), row and posterior (E,) are the sparse posteriors of x, component after component. entry
    (K,) is the next entry of each component, and active (K,) becomes whether it has any in the set.
    """
    for k in range(location.shape[0]):
        e = stop = entry[k]
        while stop < start[k + 1] and row[stop] < end:
            stop += 1
        active[k] = stop > e
        entry[k] = stop
        while e + 4 <= stop:
            _add_four(sums, k, posterior, x, row, e, location, inverse_scale, linear, signed)
            e += 4
        while e < stop:
            _add_scores(sums, k, posterior[e], x, row[e], k, location, inverse_scale, linear, signed)
            e += 1


@njit(fastmath={"contract"})
def add_scores(x, entry, start, row, posterior, location, inverse_scale, linear, signed, active, sums):
    """Add the scores of all rows of x to sums (2, K, D)."""
    end = x.shape[0]
    _add_set(end, x, entry, start, row, posterior, location, inverse_scale, linear, signed, active, sums)


@njit(fastmath={"contract"})
def encode_sets(
    x, entry, start, row, posterior, location, inverse_scale, linear, signed, active, offsets, factor,
    options, sums, out,
):  # fmt: skip
    """The Fisher vectors of the sets x[offsets[s]:offsets[s + 1]], into zeros.

    out (n_sets, 2 K D) and sums (n_sets, 2, K, D) are the same memory: to reshape here takes long to compile.
    """
    for s in range(len(offsets) - 1):
        end, size = offsets[s + 1], offsets[s + 1] - offsets[s]
        if size > 0:
            _add_set(
                end, x, entry, start, row, posterior, location, inverse_scale, linear, signed, active, sums[s]
            )
            _finish(out[s], 0, active, size, factor, options)


@njit(fastmath={"contract"})
def score_entries(x, indptr, components, posteriors, location, inverse_scale, linear, signed, out):
    """The scores of each (row, component) for themselves, into the zeros `out` (E, 2, D)."""
    for i in range(x.shape[0]):
        for e in range(indptr[i], indptr[i + 1]):
            sums = out[e].reshape(2, 1, x.shape[1])
            _add_scores(sums, 0, posteriors[e], x, i, components[e], location, inverse_scale, linear, signed)


@njit_inner()
def _add_block(block, added):
    for d in range(block.shape[0]):
        block[d] += added[d]


@njit()
def sum_entries(words, offsets, indptr, components, blocks, factor, options, start, active, out):
    """Fisher vectors of sets of words whose blocks are known, into the zeros `out[:, start:]`.

    words (n,): members of all sets, one after the other; entries indptr[w]:indptr[w + 1] of `components` (E,)
    and `blocks` (E, 2, D) are those of word w. active (K,) is work space.
    """
    n_components, dimension = len(active), blocks.shape[2]
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
            _finish(row, start, active, offsets[s + 1] - offsets[s], factor, options)
