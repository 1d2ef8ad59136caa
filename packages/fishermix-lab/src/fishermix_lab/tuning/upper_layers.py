"""The layers of an ONNX network after a cut, as a torch module whose weights can learn and be written back.

It reads what ResNet, EfficientNet-lite and MobileNet-like networks consist of: convolutions, rectifiers,
sums, means over the places, and a last linear layer. Activations are (photos, height, width, channels) in
bfloat16; weights are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
import onnx
import torch
from fishermix.errors import FishermixError
from onnx import numpy_helper
from torch.nn import functional

Values = dict[str, torch.Tensor]
Step = Callable[[Values], torch.Tensor]
HALF = ".half"  # weights in half precision have this suffix, and a Cast node that restores the name


class UpperLayers(torch.nn.Module):
    """What follows the activations `cut`: `forward` returns the wanted outputs of the graph by name."""

    def __init__(self, model: onnx.ModelProto, cut: str, outputs: Sequence[str]):
        super().__init__()
        self.cut, self.outputs = cut, list(outputs)
        stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self._constants = {name.removesuffix(HALF): value for name, value in stored.items()}
        self._nodes = {name: node for node in model.graph.node for name in node.output}
        self.names: list[str] = []  # of the weights, in the order of `weights`
        self.weights = torch.nn.ParameterList()
        self._steps: dict[str, Step] = {cut: lambda values: values[cut]}
        for output in self.outputs:
            self._add(output)

    def forward(self, activations: torch.Tensor) -> Values:
        values = {self.cut: activations}
        for name, step in self._steps.items():
            values[name] = step(values)
        return {name: values[name].float() for name in self.outputs}

    def _add(self, name: str) -> str:
        """Add the steps that compute this tensor; returns its name."""
        if name in self._steps:
            return name
        if name not in self._nodes:
            raise FishermixError(f"The network's output does not depend on {self.cut} alone.")
        node = self._nodes[name]
        reader = getattr(self, f"_read_{node.op_type.lower()}", None)
        if reader is None:
            raise FishermixError(f"Tuning cannot read the operation {node.op_type} after {self.cut}.")
        self._steps[name] = reader(node)
        return name

    def _learn(self, name: str) -> int:
        self.names.append(name)
        array = self._get_constant(name).astype(np.float32)
        self.weights.append(torch.nn.Parameter(torch.from_numpy(array)))
        return len(self.weights) - 1

    def _get_constant(self, name: str) -> np.ndarray:
        if name in self._constants:
            return self._constants[name]
        node = self._nodes.get(name)
        if node is None or node.op_type != "Constant":
            raise FishermixError(f"Tuning needs a constant in place of {name}.")
        return numpy_helper.to_array(next(a.t for a in node.attribute if a.name == "value"))

    def _read_conv(self, node: Any) -> Step:
        source = self._add(node.input[0])
        weight, bias = map(self._learn, node.input[1:])
        options = {a.name: list(a.ints) or a.i for a in node.attribute}
        stride, group = options["strides"][0], options.get("group", 1)
        outputs, inputs, height, width = self.weights[weight].shape
        is_depthwise = inputs == 1 and group == outputs
        if options["pads"] != [height // 2] * 4 or height != width or (group != 1 and not is_depthwise):
            raise FishermixError(f"{node.name}: tuning cannot read this kind of convolution.")

        def convolve(values: Values) -> torch.Tensor:
            x, kernel, offset = values[source], self.weights[weight], self.weights[bias]
            if is_depthwise:
                return DepthwiseFunction.apply(x, kernel, offset, stride)
            kernel, offset = kernel.to(x.dtype), offset.to(x.dtype)
            if height == 1:  # a product with a matrix (out, in)
                return functional.linear(x[:, ::stride, ::stride].contiguous(), kernel[:, :, 0, 0], offset)
            # Channels last, and so no copy on either side.
            made = functional.conv2d(x.permute(0, 3, 1, 2), kernel, offset, stride, height // 2)
            return made.permute(0, 2, 3, 1)

        return convolve

    def _read_clip(self, node: Any) -> Step:
        source = self._add(node.input[0])
        low, high = (float(self._get_constant(name)) for name in node.input[1:3])
        if low != 0:
            return lambda values: values[source].clamp(low, high)
        return lambda values: ClipFunction.apply(values[source], high)

    def _read_relu(self, node: Any) -> Step:
        source = self._add(node.input[0])
        return lambda values: values[source].relu()

    def _read_add(self, node: Any) -> Step:
        one, other = map(self._add, node.input)
        return lambda values: values[one] + values[other]

    def _read_reducemean(self, node: Any) -> Step:
        source = self._add(node.input[0])
        return lambda values: values[source].float().mean((1, 2))

    _read_globalaveragepool = _read_reducemean

    def _read_identity(self, node: Any) -> Step:
        source = self._add(node.input[0])
        return lambda values: values[source]

    def _read_flatten(self, node: Any) -> Step:
        if self._nodes[node.input[0]].op_type not in ("GlobalAveragePool", "Flatten"):
            raise FishermixError(f"{node.name}: tuning flattens means over the places only.")
        return self._read_identity(node)

    def _read_mul(self, node: Any) -> Step:
        source = self._add(node.input[0])
        factor = float(self._get_constant(node.input[1]))
        return lambda values: factor * values[source]

    def _read_concat(self, node: Any) -> Step:
        sources = [self._add(name) for name in node.input]
        return lambda values: torch.cat([values[name] for name in sources], 1)

    def _read_gemm(self, node: Any) -> Step:
        """The classifier. It keeps its weights: what it says is what the network knew."""
        source = self._add(node.input[0])
        matrix, bias = (
            torch.from_numpy(self._get_constant(name).astype(np.float32)) for name in node.input[1:]
        )
        return lambda values: functional.linear(values[source], matrix, bias)

    def write_into(self, model: onnx.ModelProto) -> None:
        """Put the weights into the graph, in the precision that it stores them in."""
        tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        for name, weight in zip(self.names, self.weights, strict=True):
            tensor = tensors.get(name) or tensors[name + HALF]
            kind = numpy_helper.to_array(tensor).dtype
            tensor.CopyFrom(numpy_helper.from_array(weight.detach().numpy().astype(kind), tensor.name))


class ClipFunction(torch.autograd.Function):
    """Numbers of bfloat16, cut at 0 and at a positive bound."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, high: float):
        made = x.clamp(0.0, high)
        ctx.save_for_backward(made)
        ctx.high = high
        return made

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor):
        (made,) = ctx.saved_tensors
        slopes = grads[0].contiguous()
        kept = torch.empty_like(slopes)
        stop_slopes(
            _bits_of(made.contiguous()).reshape(-1),
            _bits_of(slopes).reshape(-1),
            _bits_of(kept).reshape(-1),
            int(_bits_of(torch.tensor(ctx.high).bfloat16())),
        )
        return kept, None


class DepthwiseFunction(torch.autograd.Function):
    """A depthwise convolution of x (n, h, w, c) bfloat16; weights (c, 1, k, k) and bias (c,) are float32.

    torch takes most of the time of a training step for the gradients of such a convolution. Here both are
    summed in one go over the places, while a photo is in the processor's cache.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor, stride: int):
        ctx.save_for_backward(x, weights)
        ctx.stride = stride
        given = x.permute(0, 3, 1, 2), weights.to(x.dtype), bias.to(x.dtype)
        made = functional.conv2d(*given, stride, weights.shape[-1] // 2, groups=len(weights))
        return made.permute(0, 2, 3, 1)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor):
        x, weights = ctx.saved_tensors
        slopes, border = grads[0].contiguous(), weights.shape[-1] // 2
        spread = slopes
        if ctx.stride > 1:  # zeros between the places that have results
            spread = slopes.new_zeros(x.shape)
            spread[:, :: ctx.stride, :: ctx.stride] = slopes
        turned = weights.flip(2, 3).to(x.dtype)
        given = spread.permute(0, 3, 1, 2), turned, None, 1, border
        of_x = functional.conv2d(*given, groups=len(weights)).permute(0, 2, 3, 1)
        of_taps, of_bias = sum_slopes(
            _bits_of(x.contiguous()), _bits_of(slopes), weights.shape[-1], ctx.stride
        )
        return of_x, torch.from_numpy(of_taps).permute(2, 0, 1)[:, None], torch.from_numpy(of_bias), None


def _bits_of(x: torch.Tensor) -> np.ndarray:
    """The numbers of a bfloat16 tensor as uint16, in the same memory: numpy has no such type."""
    return x.view(torch.int16).numpy().view(np.uint16)


@numba.njit(cache=True, nogil=True)
def stop_slopes(made: np.ndarray, slopes: np.ndarray, kept: np.ndarray, high: int) -> None:
    """Write the slopes where 0 < made < high, and 0 elsewhere. All are the bits of bfloat16 numbers (n,)."""
    for i in range(len(made)):
        # The bits of positive numbers have their order; those of 0 become the largest.
        is_inside = np.uint16(made[i] - np.uint16(1)) < np.uint16(high - 1)
        kept[i] = slopes[i] if is_inside else np.uint16(0)


@numba.njit(cache=True, nogil=True)
def sum_slopes(x: np.ndarray, slopes: np.ndarray, size: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
    """The gradients (size, size, c) of the taps and (c,) of the bias.

    x (n, h, w, c), slopes (n, i, j, c) : bits of bfloat16 numbers, slopes are the gradients of the results
    """
    of_taps, of_bias = np.zeros((size, size, x.shape[3]), np.float32), np.zeros(x.shape[3], np.float32)
    border = size // 2
    # Of one photo, as float32: the upper half of its bits are those of a bfloat16.
    x_bits, slope_bits = np.empty(x.shape[1:], np.uint32), np.empty(slopes.shape[1:], np.uint32)
    values, slope_values = x_bits.view(np.float32), slope_bits.view(np.float32)
    for photo in range(len(x)):
        x_bits[:] = x[photo].astype(np.uint32) << np.uint32(16)
        slope_bits[:] = slopes[photo].astype(np.uint32) << np.uint32(16)
        for i, j in np.ndindex(slopes.shape[1:3]):
            slope = slope_values[i, j]
            for channel in range(len(slope)):
                of_bias[channel] += slope[channel]
            for k in range(max(0, border - stride * i), min(size, x.shape[1] + border - stride * i)):
                for l in range(max(0, border - stride * j), min(size, x.shape[2] + border - stride * j)):
                    value = values[stride * i + k - border, stride * j + l - border]
                    to_tap = of_taps[k, l]
                    for channel in range(len(slope)):
                        to_tap[channel] += slope[channel] * value[channel]
    return of_taps, of_bias
