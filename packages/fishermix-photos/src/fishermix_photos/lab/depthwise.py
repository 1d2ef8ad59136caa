"""Depthwise convolutions between two clips, in bfloat16: y = clip(w * clip(z) + b), forward and backward.

torch takes most of the time of a training step for the gradient of such weights. These kernels take sixteen
channels of a photo at a time. A row of them is one long vector, the weights are repeated to its length, and
sums over the places of a row are taken at the end. They compute in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from fishermix.errors import FishermixError
from fishermix.rows.blocks import cut, map_in_threads
from numba import njit

TAPS = 5  # kernels of 5 x 5; smaller ones are surrounded by zeros
HALF = TAPS // 2
LANES = 16  # channels at a time
ROW = 32 * LANES  # numbers of a row, with its border. Constant distances let the compiler use wide registers.
TOP = 6.0  # clip is ReLU6
GROUP = 8  # photos that share the repeated weights
MOST_PLACES = ROW // LANES - 2 * HALF


@njit(fastmath=True, cache=True, inline="always")
def _load(source, n, c0, step, bits):
    """Sixteen channels of a photo as float32, `step` places apart, inside a border of zeros."""
    for i in range(source.shape[1]):
        for j in range(source.shape[2]):
            at = bits[(i * step + HALF) * ROW + (j * step + HALF) * LANES :]
            place = source[n, i, j, c0 : c0 + LANES]
            for c in range(LANES):
                at[c] = np.uint32(place[c]) << np.uint32(16)


@njit(fastmath=True, cache=True, inline="always")
def _store(bits, target):
    """Round float32 to bfloat16, to the nearest even."""
    for c in range(LANES):
        even = (bits[c] >> np.uint32(16)) & np.uint32(1)
        target[c] = np.uint16((bits[c] + np.uint32(0x7FFF) + even) >> np.uint32(16))


@njit(fastmath=True, cache=True, inline="always")
def _get_row(plane, i, length):
    start = (i + HALF) * ROW + HALF * LANES
    return plane[start : start + length]


@njit(fastmath=True, cache=True, inline="always")
def _clip(values):
    for x in range(len(values)):
        values[x] = min(max(values[x], np.float32(0)), np.float32(TOP))


@njit(fastmath=True, cache=True, inline="always")
def _repeat(weights, c0, width, flipped, repeated):
    """The weights of sixteen channels, once for every place of a row."""
    for k in range(TAPS):
        for l in range(TAPS):
            a, b = (TAPS - 1 - k, TAPS - 1 - l) if flipped else (k, l)
            for j in range(width):
                at, taps = repeated[(k * TAPS + l) * ROW + j * LANES :], weights[a, b, c0 : c0 + LANES]
                for c in range(LANES):
                    at[c] = taps[c]


@njit(fastmath=True, cache=True, inline="always")
def _add_places(row, width, total):
    for j in range(width):
        at = row[j * LANES :]
        for c in range(LANES):
            total[c] += at[c]


@njit(fastmath=True, cache=True, inline="always")
def _sum_row(plane, repeated, i, length, total):
    """total[x] += the weighted neighbors of place x of row i."""
    for k in range(TAPS):
        at, w = plane[(i + k) * ROW :], repeated[k * TAPS * ROW :]
        for x in range(length):
            total[x] += (
                at[x] * w[x]
                + at[LANES + x] * w[ROW + x]
                + at[2 * LANES + x] * w[2 * ROW + x]
                + at[3 * LANES + x] * w[3 * ROW + x]
                + at[4 * LANES + x] * w[4 * ROW + x]
            )


@njit(fastmath=True, cache=True, inline="always")
def _sum_products(plane, slopes, i, length, sums):
    """sums[k, l, x] += slope of place x of row i times its neighbor (k, l)."""
    of_row = slopes[(i + HALF) * ROW + HALF * LANES :]
    for k in range(TAPS):
        at, of_taps = plane[(i + k) * ROW :], sums[k * TAPS * ROW :]
        for x in range(length):
            slope = of_row[x]
            of_taps[x] += slope * at[x]
            of_taps[ROW + x] += slope * at[LANES + x]
            of_taps[2 * ROW + x] += slope * at[2 * LANES + x]
            of_taps[3 * ROW + x] += slope * at[3 * LANES + x]
            of_taps[4 * ROW + x] += slope * at[4 * LANES + x]


@njit(nogil=True, fastmath=True, cache=True)
def convolve(z, weights, bias, stride, y):
    """z (n, h, w, c) and y, uint16 views of bfloat16; weights (5, 5, c), bias (c,) float32."""
    photos, height, width, channels = z.shape
    length = width * LANES
    plane = np.zeros((height + 2 * HALF) * ROW, np.float32)
    bits = plane.view(np.uint32)
    total, biases = np.empty(ROW, np.float32), np.empty(ROW, np.float32)
    total_bits = total.view(np.uint32)
    repeated = np.empty(TAPS * TAPS * ROW, np.float32)
    for first in range(0, photos, GROUP):
        for c0 in range(0, channels, LANES):
            _repeat(weights, c0, width, False, repeated)
            of_bias = bias[c0 : c0 + LANES]
            for j in range(width):
                start = biases[j * LANES :]
                for c in range(LANES):
                    start[c] = of_bias[c]
            for n in range(first, min(first + GROUP, photos)):
                _load(z, n, c0, 1, bits)
                for i in range(height):
                    _clip(_get_row(plane, i, length))
                for i in range(y.shape[1]):
                    total[:length] = biases[:length]
                    _sum_row(plane, repeated, i * stride, length, total)
                    _clip(total[:length])
                    for j in range(y.shape[2]):
                        _store(total_bits[j * stride * LANES :], y[n, i, j, c0 : c0 + LANES])


@njit(nogil=True, fastmath=True, cache=True)
def convolve_backward(z, y, of_y, weights, stride, of_z, of_weights, of_bias):
    """The gradients of z (uint16 view), of the weights (5, 5, c) and of the bias (c,)."""
    photos, height, width, channels = z.shape
    length = width * LANES
    plane = np.zeros((height + 2 * HALF) * ROW, np.float32)
    bits = plane.view(np.uint32)
    out = np.zeros((height + 2 * HALF) * ROW, np.float32)
    out_bits = out.view(np.uint32)
    slopes = np.zeros((height + 2 * HALF) * ROW, np.float32)
    slope_bits = slopes.view(np.uint32)
    total = np.empty(ROW, np.float32)
    total_bits = total.view(np.uint32)
    repeated = np.empty(TAPS * TAPS * ROW, np.float32)
    sums = np.empty(TAPS * TAPS * ROW, np.float32)
    sum_of_slopes = np.empty(ROW, np.float32)
    for first in range(0, photos, GROUP):
        for c0 in range(0, channels, LANES):
            _repeat(weights, c0, width, True, repeated)
            sums[:] = 0
            sum_of_slopes[:] = 0
            for n in range(first, min(first + GROUP, photos)):
                _load(z, n, c0, 1, bits)
                _load(y, n, c0, stride, out_bits)
                _load(of_y, n, c0, stride, slope_bits)
                for i in range(height):
                    _clip(_get_row(plane, i, length))
                for i in range(0, height, stride):
                    made, of_row = _get_row(out, i, length), _get_row(slopes, i, length)
                    for x in range(length):
                        of_row[x] = of_row[x] if (made[x] > 0) & (made[x] < TOP) else np.float32(0)
                        sum_of_slopes[x] += of_row[x]
                    _sum_products(plane, slopes, i, length, sums)
                for i in range(height):
                    total[:length] = 0
                    _sum_row(slopes, repeated, i, length, total)
                    given = _get_row(plane, i, length)
                    for x in range(length):
                        total[x] = total[x] if (given[x] > 0) & (given[x] < TOP) else np.float32(0)
                    for j in range(width):
                        _store(total_bits[j * LANES :], of_z[n, i, j, c0 : c0 + LANES])
            _add_places(sum_of_slopes, width, of_bias[c0 : c0 + LANES])
            for k in range(TAPS):
                for l in range(TAPS):
                    _add_places(sums[(k * TAPS + l) * ROW :], width, of_weights[k, l, c0 : c0 + LANES])


def as_bits(tensor: torch.Tensor) -> np.ndarray:
    """A bfloat16 tensor as a uint16 array of the same memory."""
    return tensor.view(torch.int16).numpy().view(np.uint16)


class DepthwiseFunction(torch.autograd.Function):
    """Clip, depthwise convolution, clip of z (n, h, w, c) bfloat16; weights (k, k, c), bias (c,) float32."""

    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor, stride: int):
        z = z.contiguous()
        if z.shape[2] > MOST_PLACES:
            raise FishermixError(f"Activations of {z.shape[2]} places are too wide. Cut the network later.")
        border = (TAPS - len(weights)) // 2
        wide = torch.nn.functional.pad(weights.detach(), (0, 0, border, border, border, border)).numpy()
        n, height, width, channels = z.shape
        y = torch.empty(n, -(-height // stride), -(-width // stride), channels, dtype=torch.bfloat16)
        given, made = as_bits(z.detach()), as_bits(y)

        def run(part: slice) -> None:
            convolve(given[part], wide, bias.detach().numpy(), stride, made[part])

        _run_in_threads(run, n)
        ctx.save_for_backward(z, y)
        ctx.wide, ctx.border, ctx.stride = wide, border, stride
        return y

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor):
        z, y = ctx.saved_tensors
        of_z = torch.empty_like(z)
        given, made, slopes, result = map(as_bits, (z, y, grads[0].to(torch.bfloat16).contiguous(), of_z))

        def run(part: slice) -> tuple[np.ndarray, np.ndarray]:
            sums = np.zeros_like(ctx.wide), np.zeros(z.shape[-1], np.float32)
            convolve_backward(
                given[part], made[part], slopes[part], ctx.wide, ctx.stride, result[part], *sums
            )
            return sums

        of_weights, of_bias = (sum(parts) for parts in zip(*_run_in_threads(run, len(z))))
        inner = slice(ctx.border, TAPS - ctx.border)
        return of_z, torch.from_numpy(of_weights[inner, inner].copy()), torch.from_numpy(of_bias), None


def _run_in_threads(run: Callable[[slice], Any], n: int) -> list[Any]:
    """`run` on as many parts of n photos as torch uses threads."""
    return list(map_in_threads(run, cut(n, -(-n // torch.get_num_threads()))))
