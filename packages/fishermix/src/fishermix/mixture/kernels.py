"""Compiled inner loops of EM, each on a tile of a few hundred rows that stays in the cache.

All kernels release the GIL, so threads can work on different tiles. Of fast math they use fused multiply-add
and, in two of them, sums in any order. What decides where a median is are sums of weights, which are exact in
any order, so neither moves a median. Sums over a tile run in the type of the data and are then added to
float64 arrays. The sparse posteriors of a tile are `start`, `row` and `row_weight` of `list_posteriors`.

An allocation or a view takes the compiler up to a tenth of a second, as does the first call of min or max,
and every operation two milliseconds. So most kernels are given their work space. `log_densities` allocates
for itself: its loops are slower on arrays that might overlap.
"""

from __future__ import annotations

import math

import numpy as np

from fishermix.mixture.compiling import njit, njit_inner

TILE = 128  # rows per inner loop of the densities
UNROLLED = 4  # dimensions per inner loop of the densities: their arguments are padded to a multiple of it
ROUNDER = 1.5 * 2.0**52  # a float64 of at most 2^51 plus this is rounded to an integer
DIMENSIONS_PER_SUM = 64  # dimensions summed in the type of the data before they are added to float64


@njit(fastmath={"contract"})
def log_densities(x, location, square, linear, constant, out):
    """out[k, n] = constant[k] - sum_d (square |x - location|² + linear |x - location|)[k, d].

    x (n, D); location, square, linear (K, P) with P the padded D, zero beyond D; constant (K,).
    Gaussian dimensions have linear 0, Laplacian ones square 0: one formula, no branch.
    """
    n = x.shape[0]
    k_count, padded = location.shape
    tile = np.empty((padded, TILE), x.dtype)
    part = np.empty((k_count, TILE), x.dtype)
    total = np.empty((k_count, TILE), np.float64)
    _clear(tile)
    for start in range(0, n, TILE):
        rows = TILE if start + TILE < n else n - start
        _fill_tile(x, start, rows, tile)
        _clear(total)
        for first in range(0, padded, DIMENSIONS_PER_SUM):
            last = first + DIMENSIONS_PER_SUM if first + DIMENSIONS_PER_SUM < padded else padded
            _clear(part)
            for d in range(first, last, UNROLLED):
                for k in range(k_count):
                    l0, s0, a0 = location[k, d], square[k, d], linear[k, d]
                    l1, s1, a1 = location[k, d + 1], square[k, d + 1], linear[k, d + 1]
                    l2, s2, a2 = location[k, d + 2], square[k, d + 2], linear[k, d + 2]
                    l3, s3, a3 = location[k, d + 3], square[k, d + 3], linear[k, d + 3]
                    if a0 + a1 + a2 + a3 == 0:  # none is negative: the general formula with less to do
                        for i in range(TILE):
                            u0 = tile[d, i] - l0
                            u1 = tile[d + 1, i] - l1
                            u2 = tile[d + 2, i] - l2
                            u3 = tile[d + 3, i] - l3
                            rest = s2 * u2 * u2 + (s3 * u3 * u3 + part[k, i])
                            part[k, i] = s0 * u0 * u0 + (s1 * u1 * u1 + rest)
                        continue
                    for i in range(TILE):
                        u0 = abs(tile[d, i] - l0)
                        u1 = abs(tile[d + 1, i] - l1)
                        u2 = abs(tile[d + 2, i] - l2)
                        u3 = abs(tile[d + 3, i] - l3)
                        rest = (s2 * u2 + a2) * u2 + ((s3 * u3 + a3) * u3 + part[k, i])
                        part[k, i] = (s0 * u0 + a0) * u0 + ((s1 * u1 + a1) * u1 + rest)
            for k in range(k_count):
                for i in range(TILE):
                    total[k, i] += part[k, i]
        for k in range(k_count):
            for i in range(rows):
                out[k, start + i] = constant[k] - total[k, i]


@njit_inner()
def _clear(array):
    """Fill a 2-D array with 0: numba compiles loops in a tenth of the time of np.zeros or array[:] = 0."""
    for i in range(array.shape[0]):
        for j in range(array.shape[1]):
            array[i, j] = 0


@njit_inner(inline="always")
def _fill_tile(x, start, rows, tile):
    """tile[d, i] = x[start + i, d] for i < rows, in squares that stay in registers where the tile is full."""
    d_count = x.shape[1]
    whole = d_count - d_count % 8 if rows == TILE else 0
    for d0 in range(0, whole, 8):
        for i0 in range(0, TILE, 8):
            for d in range(8):
                for i in range(8):
                    tile[d0 + d, i0 + i] = x[start + i0 + i, d0 + d]
    for d in range(whole, d_count):
        for i in range(rows):
            tile[d, i] = x[start + i, d]


@njit(fastmath={"contract"})
def normalize(joint, prior, negligible, top, total, log_likelihood):
    """Turn joint log densities (K, n) into posteriors in place, and write the log_likelihood (n,).

    A row so far out that every density is 0 or its distances overflow gets the prior (K,). Densities below
    the largest times e^negligible count as 0. top and total (n,) are work space.
    """
    k_count, n = joint.shape
    for i in range(n):
        top[i], total[i] = -np.inf, 0.0
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
            log_likelihood[i] = top[i] + math.log(total[i])
            total[i] = 1 / total[i]
    for k in range(k_count):
        for i in range(n):
            joint[k, i] *= total[i]


@njit_inner(inline="always")
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


@njit()
def list_posteriors(posterior, weight, threshold, quantum, rounded, start, row, row_weight, sums, squares):
    """List the rows of each component whose posterior (K, n) is at least `threshold`.

    start (K + 1,), row and row_weight (n K,): component k has the rows row[start[k]:start[k+1]]. Their
    row_weight is the posterior times the sample weight (n,), rounded to a multiple of the power of two
    `quantum`. Sums of such numbers are exact in float64 in any order, so medians have the same bits in one
    piece, in blocks and on a cluster. sums and squares (K,) += the weights and their squares. rounded (n,) is
    work space.
    """
    k_count, n = posterior.shape
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


@njit_inner(fastmath={"reassoc"})
def _add_weights(weight, k, sums, squares):
    """sums[k] and squares[k] += the sums of weight (n,), which are exact in any order, and of its squares."""
    total, squared = 0.0, 0.0
    for i in range(len(weight)):
        total += weight[i]
        squared += weight[i] * weight[i]
    sums[k] += total
    squares[k] += squared


@njit(fastmath={"contract"})
def add_moments(x, start, row, weight, center, ones, twos, first, second):
    """first and second (K, D) += weight (x - center) and weight (x - center)² of the listed rows.

    weight has the type of x; ones and twos (D,) are work space of that type.
    """
    k_count, d_count = center.shape
    for k in range(k_count):
        for d in range(d_count):
            ones[d] = twos[d] = 0
        entry, end, middle = start[k], start[k + 1], center[k]
        while entry + 4 <= end:  # four rows at a time, because the sums are written to memory each time
            x0, w0 = x[row[entry]], weight[entry]
            x1, w1 = x[row[entry + 1]], weight[entry + 1]
            x2, w2 = x[row[entry + 2]], weight[entry + 2]
            x3, w3 = x[row[entry + 3]], weight[entry + 3]
            for d in range(d_count):
                g0, g1 = x0[d] - middle[d], x1[d] - middle[d]
                g2, g3 = x2[d] - middle[d], x3[d] - middle[d]
                v0, v1 = w0 * g0, w1 * g1
                v2, v3 = w2 * g2, w3 * g3
                ones[d] += (v0 + v1) + (v2 + v3)
                twos[d] += (v0 * g0 + v1 * g1) + (v2 * g2 + v3 * g3)
            entry += 4
        for rest in range(entry, end):
            x0, w0 = x[row[rest]], weight[rest]
            for d in range(d_count):
                gap = x0[d] - middle[d]
                ones[d] += w0 * gap
                twos[d] += w0 * gap * gap
        for d in range(d_count):
            first[k, d] += ones[d]
            second[k, d] += twos[d]


@njit(fastmath={"reassoc", "contract"})
def find_medians(columns, order, weight, median, deviation):
    """Medians (K, D) of columns (D, n) weighted by weight (K, n), and the sums of weight |x - median|.

    order (D, n) sorts the columns. The sums of the weights have to be exact.
    """
    n = weight.shape[1]
    for k in range(weight.shape[0]):
        total = 0.0
        for i in range(n):
            total += weight[k, i]
        for d in range(columns.shape[0]):
            place, reached = 0, weight[k, order[d, 0]]
            while reached < 0.5 * total:
                place += 1
                reached += weight[k, order[d, place]]
            middle = columns[d, order[d, place]] + 0.0  # never -0.0, whichever zero came first
            median[k, d], away = middle, 0.0
            for i in range(n):
                away += weight[k, i] * abs(columns[d, i] - middle)
            deviation[k, d] = away


@njit()
def add_histogram(x, start, row, row_weight, seen, wanted, low, per_bin, place, bins, histogram):
    """histogram (W, D bins) += the weights of the listed rows by bin, for the components `wanted` (W,).

    Rows that weigh less than seen (K,) times the largest weight of their component are ignored. The bin of a
    value is the integer part of (x - low) per_bin + 1, with low and per_bin (K, D); values outside go to the
    first or the last bin. place (D,) is work space.
    """
    d_count = low.shape[1]
    last = x.dtype.type(bins - 1)
    one = x.dtype.type(1)
    zero = x.dtype.type(0)
    for slot in range(len(wanted)):
        k, largest = wanted[slot], 0.0
        for entry in range(start[k], start[k + 1]):
            if row_weight[entry] > largest:
                largest = row_weight[entry]
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
                histogram[slot, place[d]] += row_weight[entry]


# Fused multiply-add only changes the deviation: weights are not multiplied.


@njit(fastmath={"contract"})
def collect_values(tile, brackets, work, found, progress):
    """Append the values of the listed rows of a tile that are in their brackets to the entries found.

    tile: x (n, D), its sparse posteriors, and their weights in the type of x. work, each (D,): dimensions
    with a bracket (D + 1,), hits as bytes and as words of eight, and two sums. The other tuples are those of
    `weighted_median`, as plain ones: compiled code on disk would depend on the names of others. below += the
    weight of the values under a bracket; deviation += weight |x - center|. progress (3,) is the component
    and the listed row to begin with, and the number of entries in use. Returns False if there is no room for
    four more rows; progress then says where to continue, and the work space keeps the sums, so that their
    bits do not depend on the room.
    """
    _, start, _, _, _ = tile
    low, _, _ = brackets
    _, _, _, under, away = work
    below, deviation, _, _, where, _, _ = found
    k_count, d_count = low.shape
    for k in range(progress[0], k_count):
        entry, end, count = start[k], start[k + 1], progress[2]
        if progress[1] > entry:
            entry = progress[1]
        else:
            for d in range(d_count):
                under[d] = away[d] = 0
        progress[1] = 0
        wanted_count = _list_wanted(low[k], work)
        if wanted_count == 0:
            continue
        while entry < end and count + 4 * d_count <= len(where):
            if wanted_count * 8 < d_count:
                _add_wanted(tile, brackets, work, k, entry, end)
            else:
                _add_four_rows(tile, brackets, work, k, entry, end)
            count = _append_hits(tile, work, found, k, entry, count)
            entry += 4
        progress[2] = count
        if entry < end:
            progress[0], progress[1] = k, entry
            return False
        for d in range(d_count):
            below[k, d] += under[d]
            deviation[k, d] += away[d]
    return True


@njit_inner()
def _list_wanted(low, work):
    """List the dimensions that have a bracket in `wanted`, then -1; return their number."""
    wanted, hit, _, _, _ = work
    count = 0
    for d in range(len(low)):
        hit[d] = 0
        if low[d] < np.inf:
            wanted[count] = d
            count += 1
    wanted[count] = -1
    return count


@njit_inner(fastmath={"contract"})
def _add_wanted(tile, brackets, work, k, entry, end):
    """Do what `_add_four_rows` does, for a few dimensions."""
    x, _, row, weight, light = tile
    lows, highs, centers = brackets
    wanted, hit, _, under, away = work
    last = entry + 4 if entry + 4 < end else end
    place = 0
    while wanted[place] >= 0:
        d = wanted[place]
        low, high, center = lows[k, d], highs[k, d], centers[k, d]
        hit[d] = 0
        for e in range(entry, last):
            value = x[row[e], d]
            away[d] += light[e] * abs(value - center)
            under[d] += weight[e] if value < low else 0.0
            hit[d] |= ((value >= low) & (value < high)) << (e - entry)
        place += 1


@njit_inner(inline="always")
def _add_four_rows(tile, brackets, work, k, entry, end):
    """Add up to four rows to the sums: four at a time, because these are written to memory each time.

    Bit r of hit[d] says whether row r is in the bracket. At the end of the list missing rows weigh nothing.
    """
    zero = 0.0
    none = np.uint8(0)
    one = np.uint8(1)
    two = np.uint8(2)
    four = np.uint8(4)
    eight = np.uint8(8)
    rows = end - entry
    e1 = entry + (rows > 1)
    e2 = entry + 2 * (rows > 2)
    e3 = entry + 3 * (rows > 3)
    x, _, row, weight, light = tile
    x0, w0, v0 = x[row[entry]], weight[entry], light[entry]
    x1, w1, v1 = x[row[e1]], weight[e1], light[e1]
    x2, w2, v2 = x[row[e2]], weight[e2], light[e2]
    x3, w3, v3 = x[row[e3]], weight[e3], light[e3]
    if rows < 2:
        w1, v1, two = zero, v1 * 0, none
    if rows < 3:
        w2, v2, four = zero, v2 * 0, none
    if rows < 4:
        w3, v3, eight = zero, v3 * 0, none
    low, high, center = brackets[0][k], brackets[1][k], brackets[2][k]
    _, hit, _, under, away = work
    for d in range(len(low)):
        l, h, m = low[d], high[d], center[d]
        a0, a1, a2, a3 = x0[d], x1[d], x2[d], x3[d]
        away[d] += (v0 * abs(a0 - m) + v1 * abs(a1 - m)) + (v2 * abs(a2 - m) + v3 * abs(a3 - m))
        under0 = (w0 if a0 < l else zero) + (w1 if a1 < l else zero)
        under[d] += under0 + ((w2 if a2 < l else zero) + (w3 if a3 < l else zero))
        hit0 = (one if (a0 >= l) & (a0 < h) else none) | (two if (a1 >= l) & (a1 < h) else none)
        hit2 = (four if (a2 >= l) & (a2 < h) else none) | (eight if (a3 >= l) & (a3 < h) else none)
        hit[d] = hit0 | hit2


@njit_inner(inline="always")
def _append_hits(tile, work, found, k, entry, count):
    """Append the values in the brackets of up to four rows; return the number of entries.

    A value equal to the newest of its bracket is merged into that, so that ties take little room.
    """
    x, _, row, weights, _ = tile
    _, _, eight_hits, under, _ = work
    _, _, newest, newest_value, where, value, weight = found
    for word in range(len(eight_hits)):
        bits = np.int64(eight_hits[word])
        while bits != 0:
            lowest = (np.float64(bits & -bits).view(np.int64) >> 52) - 1023  # its exponent
            bits &= bits - 1
            column, e = 8 * word + (lowest >> 3), entry + (lowest & 7)
            number = x[row[e], column]
            if number == newest_value[k, column]:
                weight[newest[k, column]] += weights[e]
            else:
                where[count] = k * len(under) + column
                value[count] = newest_value[k, column] = number
                weight[count] = weights[e]
                newest[k, column] = count
                count += 1
    return count


@njit()
def group(where, position, value, weight, grouped_value, grouped_weight):
    """Sort entries (n,) by `where`; position (G,) is the place of the next entry of each group."""
    for entry in range(len(where)):
        target = position[where[entry]]
        grouped_value[target] = value[entry]
        grouped_weight[target] = weight[entry]
        position[where[entry]] += 1


@njit_inner()
def _select_in_group(value, weight, left, right, need):
    """Quickselect: the part that holds the answer is divided again until all its values are equal."""
    while True:
        a, b, c = value[left], value[(left + right) // 2], value[right]
        if a > b:
            a, b = b, a
        pivot = a if c < a else (b if c > b else c)
        lower = entry = left
        upper = right
        less = equal = 0.0
        while entry <= upper:
            v, w = value[entry], weight[entry]
            if v < pivot:
                value[entry] = value[lower]
                weight[entry] = weight[lower]
                value[lower] = v
                weight[lower] = w
                less += w
                lower += 1
                entry += 1
            elif v > pivot:
                value[entry] = value[upper]
                weight[entry] = weight[upper]
                value[upper] = v
                weight[upper] = w
                upper -= 1
            else:
                equal += w
                entry += 1
        if need <= less:
            right = lower - 1
        elif need <= less + equal:
            return pivot
        else:
            need -= less + equal
            left = upper + 1


@njit()
def select_in_groups(first, value, weight, wanted, reference, selected, inside, shift):
    """Select (G,) the smallest value of each group up to which the weights sum to at least wanted (G,).

    Groups whose weights do not reach what is wanted are skipped. inside (G,) is the weight of the group,
    shift (G,) the sum of weight (|value - selected| - |value - reference|). value and weight (n,) are
    reordered.
    """
    for g in range(len(wanted)):
        left, right = first[g], first[g + 1] - 1
        total = 0.0
        for entry in range(left, right + 1):
            total += weight[entry]
        inside[g] = total
        if not 0.0 < wanted[g] <= total:
            continue
        selected[g] = _select_in_group(value, weight, left, right, wanted[g])
        moved = 0.0
        for entry in range(first[g], first[g + 1]):
            v = np.float64(value[entry])
            moved += weight[entry] * (abs(v - selected[g]) - abs(v - reference[g]))
        shift[g] = moved
