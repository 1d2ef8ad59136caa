"""Compiled loops of the Fisher vectors: each row of the output is finished while it is in the cache.

A row of the output is 2 * K * D numbers: the location blocks of all components, then the scale blocks. It is
zero at first; only the blocks of components that some member of the set belongs to are ever touched.

The compiled functions take whole arrays and indices: a slice costs as much as four SIMD steps, and the
compiler a tenth of a second. So do allocations, which are the caller's.
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


def encode_sets(
    x: np.ndarray,
    offsets: np.ndarray,
    indptr: np.ndarray,
    components: np.ndarray,
    posteriors: np.ndarray,
    location: np.ndarray,
    inverse_scale: np.ndarray,
    linear: np.ndarray,
    signed: np.ndarray,
    factor: np.ndarray,
    power: float,
    per_component: bool,
    unit_length: bool,
    finished: bool,
    out: np.ndarray,
) -> None:
    """Fisher vectors of x[offsets[s]:offsets[s + 1]] into the zeros `out`; bare sums unless `finished`."""
    mixture = location, inverse_scale, linear, signed, factor
    options = power, per_component, unit_length, finished
    active = np.empty(len(location), np.bool_)
    _encode_sets(x, offsets, indptr, components, posteriors, *mixture, *options, active, out)


def word_blocks(
    x: np.ndarray,
    indptr: np.ndarray,
    components: np.ndarray,
    posteriors: np.ndarray,
    location: np.ndarray,
    inverse_scale: np.ndarray,
    linear: np.ndarray,
    signed: np.ndarray,
    out: np.ndarray,
) -> None:
    """The scores of each (row, component) for themselves, into the zeros `out` (E, 2, D)."""
    mixture = location, inverse_scale, linear, signed
    _word_blocks(x, indptr, components, posteriors, *mixture, out.reshape(len(out), 2 * x.shape[1]))


def sum_blocks(
    words: np.ndarray,
    offsets: np.ndarray,
    indptr: np.ndarray,
    components: np.ndarray,
    blocks: np.ndarray,
    factor: np.ndarray,
    power: float,
    per_component: bool,
    unit_length: bool,
    start: int,
    out: np.ndarray,
) -> None:
    """Fisher vectors of sets of words whose blocks are known, into the zeros `out[:, start:]`.

    words (n,): members of all sets, one after the other; entries indptr[w]:indptr[w + 1] of `components` (E,)
    and `blocks` (E, 2, D) are those of word w.
    """
    options = power, per_component, unit_length
    active = np.empty(factor.shape[1], np.bool_)
    _sum_blocks(words, offsets, indptr, components, blocks, factor, *options, start, active, out)


@njit(fastmath={"contract"})
def _encode_sets(
    x, offsets, indptr, components, posteriors, location, inverse_scale, linear, signed,
    factor, power, per_component, unit_length, finished, active, out,
):  # fmt: skip
    n_components, dimension = location.shape
    for s in range(len(offsets) - 1):
        for k in range(n_components):
            active[k] = False
        for i in range(offsets[s], offsets[s + 1]):
            for e in range(indptr[i], indptr[i + 1]):
                k = components[e]
                active[k] = True
                first = k * dimension
                second = first + n_components * dimension
                mean, T = location, posteriors[e]
                _add_scores(x, i, T, k, mean, inverse_scale, linear, signed, s, first, second, out)
        if finished:
            size = offsets[s + 1] - offsets[s]
            _finish(active, size, factor, power, per_component, unit_length, s, 0, out)


@njit(fastmath={"contract"})
def _word_blocks(x, indptr, components, posteriors, location, inverse_scale, linear, signed, out):
    for i in range(x.shape[0]):
        for e in range(indptr[i], indptr[i + 1]):
            k, T = components[e], posteriors[e]
            _add_scores(x, i, T, k, location, inverse_scale, linear, signed, e, 0, x.shape[1], out)


@njit()
def _sum_blocks(
    words, offsets, indptr, components, blocks, factor, power, per_component, unit_length, start, active, out,
):  # fmt: skip
    n_components, dimension = factor.shape[1:]
    for s in range(len(offsets) - 1):
        for k in range(n_components):
            active[k] = False
        for i in range(offsets[s], offsets[s + 1]):
            for e in range(indptr[words[i]], indptr[words[i] + 1]):
                k = components[e]
                active[k] = True
                for half in range(2):
                    begin = start + (half * n_components + k) * dimension
                    for d in range(dimension):
                        out[s, begin + d] += blocks[e, half, d]
        if offsets[s + 1] > offsets[s]:
            size = offsets[s + 1] - offsets[s]
            _finish(active, size, factor, power, per_component, unit_length, s, start, out)


@njit_inner(inline="always")
def _add_scores(x, i, posterior, k, location, inverse_scale, linear, signed, s, first, second, out):
    """Add posterior * scores of row i of x in component k to out[s, first:] and out[s, second:].

    location_score(z) = linear * z + signed * sgn(z) and sgn(0) = -1.
    """
    one = posterior / posterior
    for d in range(x.shape[1]):
        z = (x[i, d] - location[k, d]) * inverse_scale[k, d]
        score = linear[k, d] * z + (signed[k, d] if z > 0 else -signed[k, d])
        out[s, first + d] += posterior * score
        out[s, second + d] += posterior * (z * score - one)


@njit_inner(fastmath={"reassoc", "contract", "nsz"})
def _finish(active, size, factor, power, per_component, unit_length, s, start, out):
    """factor / sqrt(size), sign(v) |v|^power, unit length per component and in all, in out[s, start:]."""
    n_components, dimension = factor.shape[1:]
    shrink = out.dtype.type(1 / math.sqrt(size))
    total = 0.0
    for k in range(n_components):
        if not active[k]:
            continue
        first = start + k * dimension
        second = first + n_components * dimension
        squares = _power_block(factor, 0, k, shrink, power, s, first, out)
        squares += _power_block(factor, 1, k, shrink, power, s, second, out)
        if per_component:
            length = math.sqrt(squares)
            to_unit = out.dtype.type(1 / (length if length > SMALLEST_NORM else SMALLEST_NORM))
            _scale_blocks(to_unit, dimension, s, first, second, out)
            squares = squares * to_unit * to_unit
        total += squares
    if unit_length:
        length = math.sqrt(total)
        to_unit = out.dtype.type(1 / (length if length > SMALLEST_NORM else SMALLEST_NORM))
        for k in range(n_components):
            if active[k]:
                first = start + k * dimension
                _scale_blocks(to_unit, dimension, s, first, first + n_components * dimension, out)


@njit_inner(inline="always")
def _power_block(factor, half, k, shrink, power, s, begin, out):
    """v -> sign(v * factor * shrink) |v * factor * shrink|^power in place; returns the sum of the squares."""
    squares = shrink - shrink
    for d in range(factor.shape[2]):
        value = out[s, begin + d] * factor[half, k, d] * shrink
        root = abs(value)
        if power == 0.5:
            root = math.sqrt(root)
        elif power != 1.0:
            root = root**power
        out[s, begin + d] = root if value >= 0 else -root
        squares += root * root
    return squares


@njit_inner(inline="always")
def _scale_blocks(factor, dimension, s, first, second, out):
    for d in range(dimension):
        out[s, first + d] *= factor
        out[s, second + d] *= factor
