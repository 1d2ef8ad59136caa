"""Compiled loops of the Fisher vectors: each row of the output is finished while it is in the cache.

A row of the output is 2 * K * D numbers: the location blocks of all components, then the scale blocks. It is
zero at first; only the blocks of components that some member of the set belongs to are ever touched.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import njit

from fishermix.mixture.blocks import available_threads

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


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _add_scores(row, start, component, n_components, posterior, x, location, inverse_scale, linear, signed):
    """Add posterior * scores, where location_score(z) = linear * z + signed * sgn(z) and sgn(0) = -1."""
    dimension = x.shape[0]
    locations = row[start + component * dimension : start + (component + 1) * dimension]
    half = start + n_components * dimension
    scales = row[half + component * dimension : half + (component + 1) * dimension]
    one = posterior / posterior
    for d in range(dimension):
        z = (x[d] - location[d]) * inverse_scale[d]
        score = linear[d] * z + (signed[d] if z > 0 else -signed[d])
        locations[d] += posterior * score
        scales[d] += posterior * (z * score - one)


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _finish(row, start, active, size, factor, power, per_component, unit_length):
    """factor / sqrt(size), sign(v) |v|^power, then unit length per component and in all."""
    n_components, dimension = factor.shape[1:]
    one = row.dtype.type(1)
    shrink = one / row.dtype.type(np.sqrt(size))
    exponent = row.dtype.type(power)
    total = 0.0
    for k in range(n_components):
        if not active[k]:
            continue
        squares = one - one
        for half in range(2):
            begin = start + (half * n_components + k) * dimension
            block = row[begin : begin + dimension]
            scaled = factor[half, k]
            if power == 0.5:
                for d in range(dimension):
                    value = block[d] * scaled[d] * shrink
                    root = np.sqrt(abs(value))
                    block[d] = root if value >= 0 else -root
                    squares += abs(value)
            elif power == 1.0:
                for d in range(dimension):
                    value = block[d] * scaled[d] * shrink
                    block[d] = value
                    squares += value * value
            else:
                for d in range(dimension):
                    value = block[d] * scaled[d] * shrink
                    root = abs(value) ** exponent
                    block[d] = root if value >= 0 else -root
                    squares += root * root
        if per_component:
            _scale(
                row,
                start,
                k,
                n_components,
                dimension,
                one / row.dtype.type(max(np.sqrt(squares), SMALLEST_NORM)),
            )
            total += 1.0 if squares > 0 else 0.0
        else:
            total += squares
    if unit_length:
        shrink = row.dtype.type(1 / max(np.sqrt(total), SMALLEST_NORM))
        for k in range(n_components):
            if active[k]:
                _scale(row, start, k, n_components, dimension, shrink)


@njit(cache=True, error_model="numpy")
def _scale(row, start, component, n_components, dimension, factor):
    for half in range(2):
        begin = start + (half * n_components + component) * dimension
        for d in range(dimension):
            row[begin + d] *= factor


@njit(cache=True, nogil=True, error_model="numpy")
def encode_sets(
    x, offsets, indptr, components, posteriors, location, inverse_scale, linear, signed,
    factor, power, per_component, unit_length, finished, out,
):  # fmt: skip
    """Fisher vectors of x[offsets[s]:offsets[s + 1]] into the zeros `out`; bare sums unless `finished`."""
    n_components = location.shape[0]
    for s in range(len(offsets) - 1):
        row = out[s]
        active = np.zeros(n_components, np.bool_)
        for i in range(offsets[s], offsets[s + 1]):
            for e in range(indptr[i], indptr[i + 1]):
                k = components[e]
                active[k] = True
                _add_scores(
                    row,
                    0,
                    k,
                    n_components,
                    posteriors[e],
                    x[i],
                    location[k],
                    inverse_scale[k],
                    linear[k],
                    signed[k],
                )
        if finished:
            _finish(row, 0, active, offsets[s + 1] - offsets[s], factor, power, per_component, unit_length)


@njit(cache=True, nogil=True, error_model="numpy")
def sum_blocks(
    words, offsets, indptr, components, blocks, factor, power, per_component, unit_length, start, out,
):  # fmt: skip
    """Fisher vectors of sets of words whose blocks are known, into the zeros `out[:, start:]`.

    words (n,): members of all sets, one after the other; entries indptr[w]:indptr[w + 1] of `components` (E,)
    and `blocks` (E, 2, D) are those of word w.
    """
    n_components, dimension = factor.shape[1:]
    for s in range(len(offsets) - 1):
        row = out[s]
        active = np.zeros(n_components, np.bool_)
        for i in range(offsets[s], offsets[s + 1]):
            for e in range(indptr[words[i]], indptr[words[i] + 1]):
                k = components[e]
                active[k] = True
                for half in range(2):
                    begin = start + (half * n_components + k) * dimension
                    for d in range(dimension):
                        row[begin + d] += blocks[e, half, d]
        if offsets[s + 1] > offsets[s]:
            _finish(
                row, start, active, offsets[s + 1] - offsets[s], factor, power, per_component, unit_length
            )
