"""The layers of an ONNX network after a cut, as a torch module whose weights can learn and be written back.

It reads what ResNet, EfficientNet-lite and MobileNet-like networks consist of: convolutions, rectifiers,
sums, means over the places, and a last linear layer. Activations are (photos, height, width, channels) in
bfloat16; weights are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import onnx
import torch
from fishermix.errors import FishermixError
from onnx import numpy_helper
from torch.nn import functional
from torch.nn.grad import conv2d_input

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
        return lambda values: values[source].clamp(low, high)

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


class DepthwiseFunction(torch.autograd.Function):
    """A depthwise convolution of x (n, h, w, c) bfloat16; weights (c, 1, k, k) and bias (c,) are float32.

    torch takes most of the time of a training step for the gradient of such weights. Here a photo is
    multiplied with the slopes once per tap, while both are in the processor's cache.
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
        slopes = grads[0].to(x.dtype)
        of_x = conv2d_input(
            x.permute(0, 3, 1, 2).shape,
            weights.to(x.dtype),
            slopes.permute(0, 3, 1, 2),
            ctx.stride,
            weights.shape[-1] // 2,
            groups=len(weights),
        )
        of_weights = sum_products(x, slopes, weights.shape[-1], ctx.stride).permute(2, 0, 1)[:, None]
        return of_x.permute(0, 2, 3, 1), of_weights, slopes.sum((0, 1, 2), dtype=torch.float32), None


def sum_products(x: torch.Tensor, slopes: torch.Tensor, size: int, stride: int) -> torch.Tensor:
    """Sums (k, l, c) of slopes[n, i, j, c] * x[n, stride i + k, stride j + l, c], with a border around x."""
    border, height, width = size // 2, stride * slopes.shape[1], stride * slopes.shape[2]
    sums = torch.zeros(size, size, x.shape[3])
    products = torch.empty(slopes.shape[1:])
    for photo, slope in zip(x, slopes.float(), strict=True):
        wide = functional.pad(photo.float(), (0, 0, border, border, border, border))
        for k, l in product(range(size), repeat=2):
            torch.mul(wide[k : k + height : stride, l : l + width : stride], slope, out=products)
            sums[k, l] += products.sum((0, 1))
    return sums
