"""The layers of an ONNX network after a cut, as a torch module whose weights can learn and be written back.

It reads the operations that EfficientNet-lite and MobileNet-like networks consist of: 1 x 1 convolutions,
depthwise convolutions between clips, sums, means over the places, and a last linear layer. Activations are
(photos, height, width, channels) in bfloat16; weights are float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import torch
from fishermix.errors import FishermixError
from onnx import numpy_helper
from torch.nn import functional

from fishermix_photos.lab.depthwise import LANES, TAPS, TOP, DepthwiseFunction

Values = dict[str, torch.Tensor]
HALF = ".half"  # weights in half precision have this suffix, and a Cast node that restores the name


class UpperLayers(torch.nn.Module):
    """What follows the activations `cut`: `forward` returns all outputs of the graph by name."""

    def __init__(self, model: onnx.ModelProto, cut: str):
        super().__init__()
        self.cut, self.outputs = cut, [output.name for output in model.graph.output]
        stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self._constants = {name.removesuffix(HALF): value for name, value in stored.items()}
        self._nodes = {name: node for node in model.graph.node for name in node.output}
        self.names: list[str] = []  # of the weights, in the order of `weights`
        self.weights = torch.nn.ParameterList()
        self._steps: list[tuple[str, Callable[[Values], torch.Tensor]]] = []
        self._made = {cut}
        for output in self.outputs:
            self._add(output)

    def forward(self, activations: torch.Tensor) -> Values:
        values = {self.cut: activations}
        for name, step in self._steps:
            values[name] = step(values)
        return {name: values[name].float() for name in self.outputs}

    def _add(self, name: str) -> str:
        """Add the steps that compute this tensor; returns its name."""
        if name in self._made:
            return name
        if name not in self._nodes:
            raise FishermixError(f"The network's output does not depend on {self.cut} alone.")
        node = self._nodes[name]
        reader = getattr(self, f"_read_{node.op_type.lower()}", None)
        if reader is None:
            raise FishermixError(f"Tuning cannot read the operation {node.op_type} after {self.cut}.")
        step = reader(node)
        self._steps.append((name, step))
        self._made.add(name)
        return name

    def _learn(self, name: str, array: np.ndarray) -> int:
        self.names.append(name)
        self.weights.append(torch.nn.Parameter(torch.from_numpy(array.astype(np.float32))))
        return len(self.weights) - 1

    def _get_constant(self, name: str) -> np.ndarray:
        if name in self._constants:
            return self._constants[name]
        node = self._nodes[name]
        if node.op_type != "Constant":
            raise FishermixError(f"Tuning needs a constant in place of {name}.")
        return numpy_helper.to_array(next(a.t for a in node.attribute if a.name == "value"))

    def _read_conv(self, node: Any) -> Callable[[Values], torch.Tensor]:
        """A 1 x 1 convolution is a product with a matrix (out, in)."""
        kernel = self._get_constant(node.input[1])
        source = self._add(node.input[0])
        if kernel.shape[2:] != (1, 1):
            raise FishermixError(f"{node.name}: tuning reads depthwise convolutions between clips only.")
        matrix = self._learn(node.input[1], kernel[:, :, 0, 0])
        bias = self._learn(node.input[2], self._get_constant(node.input[2]))

        def multiply(values: Values) -> torch.Tensor:
            x = values[source]
            return functional.linear(x, self.weights[matrix].to(x.dtype), self.weights[bias].to(x.dtype))

        return multiply

    def _read_clip(self, node: Any) -> Callable[[Values], torch.Tensor]:
        """Clips; with a depthwise convolution before it, and the clip before that, one step."""
        low, high = (float(self._get_constant(name)) for name in node.input[1:3])
        if (low, high) != (0.0, TOP):
            raise FishermixError(f"{node.name} clips to {low}..{high}. Tuning reads 0..{TOP:g} only.")
        before = self._nodes.get(node.input[0])
        if before is None or before.op_type != "Conv" or self._get_constant(before.input[1]).shape[1] != 1:
            source = self._add(node.input[0])
            return lambda values: values[source].clamp(0, TOP)
        kernel = self._get_constant(before.input[1])
        options = {a.name: list(a.ints) or a.i for a in before.attribute}
        size, stride = len(kernel[0, 0]), options["strides"][0]
        first = self._nodes[before.input[0]]
        regular = options["pads"] == [size // 2] * 4 and size in (3, TAPS) and len(kernel) % LANES == 0
        if first.op_type != "Clip" or not regular:
            raise FishermixError(
                f"{before.name}: tuning reads depthwise convolutions of 3 x 3 or 5 x 5 between clips, of a "
                f"multiple of {LANES} channels."
            )
        source = self._add(first.input[0])
        taps = self._learn(before.input[1], np.ascontiguousarray(kernel[:, 0].transpose(1, 2, 0)))
        bias = self._learn(before.input[2], self._get_constant(before.input[2]))
        return lambda values: DepthwiseFunction.apply(
            values[source], self.weights[taps], self.weights[bias], stride
        )

    def _read_add(self, node: Any) -> Callable[[Values], torch.Tensor]:
        one, other = map(self._add, node.input)
        return lambda values: values[one] + values[other]

    def _read_reducemean(self, node: Any) -> Callable[[Values], torch.Tensor]:
        source = self._add(node.input[0])
        return lambda values: values[source].float().mean((1, 2))

    def _read_mul(self, node: Any) -> Callable[[Values], torch.Tensor]:
        source = self._add(node.input[0])
        factor = float(self._get_constant(node.input[1]))
        return lambda values: factor * values[source]

    def _read_concat(self, node: Any) -> Callable[[Values], torch.Tensor]:
        sources = [self._add(name) for name in node.input]
        return lambda values: torch.cat([values[name] for name in sources], 1)

    def _read_gemm(self, node: Any) -> Callable[[Values], torch.Tensor]:
        """The classifier. It keeps its weights: what it says is what the network knew."""
        source = self._add(node.input[0])
        matrix, bias = (
            torch.from_numpy(self._get_constant(name).astype(np.float32)) for name in node.input[1:]
        )
        return lambda values: functional.linear(values[source], matrix, bias)

    def write_into(self, model: onnx.ModelProto) -> None:
        """Put the weights into the graph, in the precision and the order of axes that it stores them in."""
        tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        for name, weight in zip(self.names, self.weights, strict=True):
            tensor = tensors.get(name) or tensors[name + HALF]
            old = numpy_helper.to_array(tensor)
            values = weight.detach().numpy()
            if old.ndim == 4 and old.shape[1] == 1 and values.ndim == 3:
                values = values.transpose(2, 0, 1)
            values = values.reshape(old.shape).astype(old.dtype)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
