"""Compiled inner loops of EM, each on a panel of a few hundred rows that stays in the cache.

All kernels release the GIL, so threads can work on different panels. They use no fast math except fused
multiply-add, and those that decide where a median is not even that. Sums over a panel run in the type of the
data and are then added to float64 arrays. The sparse posteriors of a panel are `start`, `row` and
`row_weight` as `list_posteriors` writes them.
"""

from __future__ import annotations

import numpy as np

from fishermix.mixture.compiling import njit

LANES = 64  # rows per inner loop of the densities
UNROLLED = 4  # dimensions per inner loop; the parameters are padded to a multiple of it
ROUNDER = 1.5 * 2.0**52  # a float64 of at most 2^51 plus this is rounded to an integer
CHUNK = 64  # dimensions summed in the type of the data before they are added to float64


@njit(inline="always", nogil=True, error_model="numpy")
def fill_tile(x, start, rows, tile):
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


@njit(inline="always", nogil=True, error_model="numpy", fastmath={"contract"})
def add_distances(tile, d, location, square, linear, k, part, line):
    """part[line, i] += (square |x - location|² + linear |x - location|)[k, d:d + UNROLLED] of tile[:, i].

    It becomes part of its callers: a call would cost a tenth of their time. numba's cache does not see that
    `posterior_kernels` depends on it: save that file too after a change here.
    """
    l0, l1, l2, l3 = location[k, d], location[k, d + 1], location[k, d + 2], location[k, d + 3]
    s0, s1, s2, s3 = square[k, d], square[k, d + 1], square[k, d + 2], square[k, d + 3]
    a0, a1, a2, a3 = linear[k, d], linear[k, d + 1], linear[k, d + 2], linear[k, d + 3]
    if a0 == 0 and a1 == 0 and a2 == 0 and a3 == 0:  # the general formula with less to do
        for i in range(LANES):
            u0 = tile[d, i] - l0
            u1 = tile[d + 1, i] - l1
            u2 = tile[d + 2, i] - l2
            u3 = tile[d + 3, i] - l3
            part[line, i] += (s0 * u0 * u0 + s1 * u1 * u1) + (s2 * u2 * u2 + s3 * u3 * u3)
    else:
        for i in range(LANES):
            u0 = abs(tile[d, i] - l0)
            u1 = abs(tile[d + 1, i] - l1)
            u2 = abs(tile[d + 2, i] - l2)
            u3 = abs(tile[d + 3, i] - l3)
            part[line, i] += ((s0 * u0 + a0) * u0 + (s1 * u1 + a1) * u1) + (
                (s2 * u2 + a2) * u2 + (s3 * u3 + a3) * u3
            )


@njit(nogil=True, error_model="numpy", fastmath={"contract"})
def log_densities(x, location, square, linear, constant, out):
    """out[k, n] = constant[k] - sum_d (square |x - location|² + linear |x - location|)[k, d].

    x (n, D); location, square, linear (K, P) with P the padded D, zero beyond D; constant (K,); out (K, n).
    Gaussian dimensions have linear 0, Laplacian ones square 0: one formula, no branch.
    """
    n = x.shape[0]
    k_count, padded = location.shape
    tile = np.zeros((padded, LANES), x.dtype)
    part = np.empty((k_count, LANES), x.dtype)
    total = np.empty((k_count, LANES), np.float64)
    for start in range(0, n, LANES):
        rows = min(LANES, n - start)
        fill_tile(x, start, rows, tile)
        for k in range(k_count):
            for i in range(LANES):
                total[k, i] = 0
        for first in range(0, padded, CHUNK):
            for k in range(k_count):  # numba compiles loops in a tenth of the time of part[:] = 0
                for i in range(LANES):
                    part[k, i] = 0
            for d in range(first, min(padded, first + CHUNK), UNROLLED):
                for k in range(k_count):
                    add_distances(tile, d, location, square, linear, k, part, k)
            for k in range(k_count):
                for i in range(LANES):
                    total[k, i] += part[k, i]
        for k in range(k_count):
            for i in range(rows):
                out[k, start + i] = constant[k] - total[k, i]


@njit(nogil=True, error_model="numpy", fastmath={"contract"})
def normalize(joint, prior, negligible, log_likelihood):
    """Turn joint log densities (K, n) into posteriors in place, and write the log_likelihood (n,).

    A row so far out that every density is 0 or its distances overflow gets the prior (K,). Densities below
    the largest times e^negligible count as 0.
    """
    k_count, n = joint.shape
    top, total = np.empty(n), np.zeros(n)
    for i in range(n):
        top[i] = -np.inf
    for k in range(k_count):
        for i in range(n):
            top[i] = joint[k, i] if joint[k, i] > top[i] else top[i]
    for k in range(k_count):
        for i in range(n):
            gap = joint[k, i] - top[i]
            joint[k, i] = _exp(gap) if gap > negligible else 0.0
            total[i] += joint[k, i]
    for i in range(n):
        if not -np.inf < top[i] < np.inf:
            log_likelihood[i] = -np.inf
            total[i] = 1
            for k in range(k_count):
                joint[k, i] = prior[k]
        else:
            log_likelihood[i] = top[i] + np.log(total[i])
            total[i] = 1 / total[i]
    for k in range(k_count):
        for i in range(n):
            joint[k, i] *= total[i]


@njit(nogil=True, error_model="numpy", fastmath={"contract"})
def _exp(x):
    """e^x for -700 < x <= 0 to the last bit or two, without a branch or a call, so that loops become SIMD.

    x = n log 2 + r with |r| <= log(2) / 2: e^r is its Taylor series, and n is added to the exponent's bits.
    """
    shifted = x * 1.4426950408889634 + ROUNDER  # 1 / log 2; n is now in the lowest bits
    n = shifted - ROUNDER
    r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10  # log 2 in two parts
    term = (1 / 6227020800) * r + 1 / 479001600
    term = term * r + 1 / 39916800
    term = term * r + 1 / 3628800
    term = term * r + 1 / 362880
    term = term * r + 1 / 40320
    term = term * r + 1 / 5040
    term = term * r + 1 / 720
    term = term * r + 1 / 120
    term = term * r + 1 / 24
    term = term * r + 1 / 6
    term = term * r + 1 / 2
    term = (term * r + 1.0) * r + 1.0
    return term * np.int64((np.float64(shifted).view(np.int64) + 1023) << 52).view(np.float64)


@njit(nogil=True, error_model="numpy")
def keep_large(posterior, threshold):
    """Find the entries of `posterior` (K, n) that are positive and at least the threshold, row by row.

    Returns the number of entries per row (n,), their components and their values.
    """
    k_count, n = posterior.shape
    counts = np.zeros(n, np.int64)
    for k in range(k_count):
        for i in range(n):
            counts[i] += posterior[k, i] > 0 and posterior[k, i] >= threshold
    following = np.cumsum(counts)
    total = following[-1]
    components, values = np.empty(total, np.int64), np.empty(total, posterior.dtype)
    following -= counts
    for k in range(k_count):
        for i in range(n):
            if posterior[k, i] > 0 and posterior[k, i] >= threshold:
                components[following[i]], values[following[i]] = k, posterior[k, i]
                following[i] += 1
    return counts, components, values


@njit(nogil=True, error_model="numpy")
def list_posteriors(posterior, weight, threshold, quantum, start, row, row_weight, sums, squares):
    """List the rows of each component whose posterior (K, n) is at least `threshold`.

    start (K + 1,), row and row_weight (n K,): component k has the rows row[start[k]:start[k+1]]. Their
    row_weight is the posterior times the sample weight (n,), rounded to a multiple of the power of two
    `quantum`. Sums of such numbers are exact in float64 in any order, so medians have the same bits in one
    piece, in blocks and on a cluster. sums, squares (K,) += the weights and their squares.
    """
    k_count, n = posterior.shape
    rounded = np.empty(n)
    count = np.uint64(0)  # unsigned: numba need not ask whether it counts from the end
    for k in range(k_count):
        start[k] = count
        for i in range(n):
            large = posterior[k, i] if posterior[k, i] >= threshold else 0.0
            rounded[i] = np.floor(large * weight[i] / quantum + 0.5) * quantum
        for i in range(n):  # no branch: a row that does not count is overwritten by the next
            row[count] = i
            row_weight[count] = rounded[i]
            count += np.uint64(rounded[i] > 0)
        _add_weights(rounded, k, sums, squares)
    start[k_count] = count


@njit(nogil=True, error_model="numpy", fastmath={"reassoc"})
def _add_weights(weight, k, sums, squares):
    """sums[k] and squares[k] += the sums of weight (n,) and of its squares."""
    total, squared = 0.0, 0.0
    for i in range(len(weight)):
        total += weight[i]
        squared += weight[i] * weight[i]
    sums[k] += total
    squares[k] += squared


@njit(nogil=True, error_model="numpy", fastmath={"contract"})
def add_moments(x, start, row, row_weight, center, first, second):
    """first, second (K, D) += row_weight (x - center) and row_weight (x - center)², over the listed rows."""
    k_count, d_count = center.shape
    ones = np.empty(d_count, x.dtype)
    twos = np.empty(d_count, x.dtype)
    for k in range(k_count):
        for d in range(d_count):
            ones[d], twos[d] = 0, 0
        entry, end, middle = start[k], start[k + 1], center[k]
        while entry + 4 <= end:  # four rows at a time, because the sums are written to memory each time
            x0, x1, x2, x3 = x[row[entry]], x[row[entry + 1]], x[row[entry + 2]], x[row[entry + 3]]
            w0, w1 = x.dtype.type(row_weight[entry]), x.dtype.type(row_weight[entry + 1])
            w2, w3 = x.dtype.type(row_weight[entry + 2]), x.dtype.type(row_weight[entry + 3])
            for d in range(d_count):
                g0, g1, g2, g3 = x0[d] - middle[d], x1[d] - middle[d], x2[d] - middle[d], x3[d] - middle[d]
                v0, v1, v2, v3 = w0 * g0, w1 * g1, w2 * g2, w3 * g3
                ones[d] += (v0 + v1) + (v2 + v3)
                twos[d] += (v0 * g0 + v1 * g1) + (v2 * g2 + v3 * g3)
            entry += 4
        for rest in range(entry, end):
            w = x.dtype.type(row_weight[rest])
            for d in range(d_count):
                gap = x[row[rest], d] - middle[d]
                ones[d] += w * gap
                twos[d] += w * gap * gap
        for d in range(d_count):
            first[k, d] += ones[d]
            second[k, d] += twos[d]


@njit(nogil=True, error_model="numpy")
def add_histogram(x, start, row, row_weight, seen, wanted, low, per_bin, histogram):
    """histogram (K, D, B) += the weights of the listed rows by bin, for the components wanted (K,).

    Rows that weigh less than seen (K,) times the largest weight of their component are ignored. low and
    per_bin are (K, D). The bin of a value is the integer part of (x - low) per_bin + 1; values outside go to
    the first or the last bin.
    """
    k_count, d_count, bins = histogram.shape
    last = x.dtype.type(bins - 1)
    one = x.dtype.type(1)
    zero = x.dtype.type(0)
    place = np.empty(d_count, np.int32)
    for k in range(k_count):
        if not wanted[k]:
            continue
        flat = histogram[k].reshape(-1)
        largest = 0.0
        for entry in range(start[k], start[k + 1]):
            largest = max(largest, row_weight[entry])
        for entry in range(start[k], start[k + 1]):
            if row_weight[entry] < seen[k] * largest:
                continue
            i = row[entry]
            # Two loops: the compiler turns the first into SIMD, the second is a scatter.
            for d in range(d_count):
                p = (x[i, d] - low[k, d]) * per_bin[k, d] + one
                p = p if p > zero else zero
                p = p if p < last else last
                place[d] = np.int32(p) + np.int32(d * bins)
            for d in range(d_count):
                flat[place[d]] += row_weight[entry]


@njit(nogil=True, error_model="numpy")
def collect(
    x,
    start,
    row,
    row_weight,
    low,
    high,
    center,
    below,
    deviation,
    newest,
    where,
    value,
    weight,
    resume,
    count,
):
    """Append the values with low <= x < high.

    below += the weight of the values under low, and deviation += row_weight |x - center|. low, high, center,
    below and deviation are (K, D); an infinite low skips the (k, d). where (capacity,) is k D + d; value and
    weight have the same shape. newest (K, D) is the last entry of each (k, d): a value equal to it is merged
    into it, so that ties take little room. Returns the number of entries; if there is no room for one more
    row, resume (2,) says where to continue, else it is (K, 0).
    """
    k_count, d_count = low.shape
    wanted = np.empty(d_count, np.int64)
    hit = np.zeros((d_count + 7) // 8 * 8, np.uint8)
    eight_hits, hits = hit.view(np.uint64), np.empty(len(hit) + 1, np.int64)
    under = np.empty(d_count, np.float64)
    away = np.empty(d_count, x.dtype)
    nothing = 0.0
    for k in range(resume[0], k_count):
        wanted_count = 0
        for d in range(d_count):
            if low[k, d] < np.inf:
                wanted[wanted_count] = d
                wanted_count += 1
        entry = max(start[k], resume[1])
        resume[1] = 0
        if wanted_count == 0:
            continue
        for d in range(d_count):
            under[d], away[d] = 0, 0
        while entry < start[k + 1] and count + d_count <= len(where):
            i = row[entry]
            w = row_weight[entry]
            light = x.dtype.type(w)
            if wanted_count * 8 < d_count:
                for place in range(wanted_count):
                    d = wanted[place]
                    away[d] += light * abs(x[i, d] - center[k, d])
                    under[d] += w if x[i, d] < low[k, d] else nothing
                    if (x[i, d] >= low[k, d]) & (x[i, d] < high[k, d]):
                        count = _append(k, d, d_count, x[i, d], w, newest, where, value, weight, count)
            else:
                # Loops that the compiler turns into SIMD, then a search for the few hits, eight at a time.
                for d in range(d_count):
                    away[d] += light * abs(x[i, d] - center[k, d])
                for d in range(d_count):
                    hit[d] = (x[i, d] >= low[k, d]) & (x[i, d] < high[k, d])
                for d in range(d_count):
                    under[d] += w if x[i, d] < low[k, d] else nothing
                found = np.uint64(0)
                for word in range(len(eight_hits)):
                    if eight_hits[word] != 0:
                        for d in range(8 * word, 8 * word + 8):  # no branch: the next may overwrite it
                            hits[found] = d
                            found += np.uint64(hit[d])
                for place in range(found):
                    d = hits[place]
                    count = _append(k, d, d_count, x[i, d], w, newest, where, value, weight, count)
            entry += 1
        for d in range(d_count):
            below[k, d] += under[d]
            deviation[k, d] += away[d]
        if entry < start[k + 1]:
            resume[0] = k
            resume[1] = entry
            return count
    resume[0] = k_count
    return count


@njit(nogil=True, error_model="numpy", inline="always")
def _append(k, d, d_count, v, w, newest, where, value, weight, count):
    before = newest[k, d]
    if before >= 0 and value[before] == v:
        weight[before] += w
        return count
    where[count] = k * d_count + d
    value[count] = v
    weight[count] = w
    newest[k, d] = count
    return count + 1


@njit(nogil=True, error_model="numpy")
def group(where, position, value, weight, grouped_value, grouped_weight):
    """Sort entries (n,) by `where`; position (G,) is the place of the next entry of each group."""
    for entry in range(len(where)):
        target = position[where[entry]]
        grouped_value[target] = value[entry]
        grouped_weight[target] = weight[entry]
        position[where[entry]] += 1


@njit(nogil=True, error_model="numpy")
def select(first, value, weight, wanted, reference, selected, inside, shift):
    """Select (G,) the smallest value of each group up to which the weights sum to at least wanted (G,).

    Quickselect: the part that holds the answer is divided again until all its values are equal. Groups whose
    weights do not reach what is wanted are skipped. inside (G,) is the weight of the group, shift (G,) the
    sum of weight (|value - selected| - |value - reference|). value and weight (n,) are reordered.
    """
    for g in range(len(wanted)):
        left, right = first[g], first[g + 1] - 1
        total = 0.0
        for entry in range(left, right + 1):
            total += weight[entry]
        inside[g] = total
        if not 0.0 < wanted[g] <= total:
            continue
        need = wanted[g]
        while True:
            a, b, c = value[left], value[(left + right) // 2], value[right]
            pivot = max(min(a, b), min(max(a, b), c))
            lower, entry, upper = left, left, right
            less = 0.0
            equal = 0.0
            while entry <= upper:
                v, w = value[entry], weight[entry]
                if v < pivot:
                    value[entry], weight[entry] = value[lower], weight[lower]
                    value[lower], weight[lower] = v, w
                    less += w
                    lower += 1
                    entry += 1
                elif v > pivot:
                    value[entry], weight[entry] = value[upper], weight[upper]
                    value[upper], weight[upper] = v, w
                    upper -= 1
                else:
                    equal += w
                    entry += 1
            if need <= less:
                right = lower - 1
            elif need <= less + equal:
                selected[g] = pivot
                break
            else:
                need -= less + equal
                left = upper + 1
        moved = 0.0
        for entry in range(first[g], first[g + 1]):
            v = np.float64(value[entry])
            moved += weight[entry] * (abs(v - selected[g]) - abs(v - reference[g]))
        shift[g] = moved
