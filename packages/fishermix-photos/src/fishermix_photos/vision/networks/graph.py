"""Build a feed-forward network as ONNX from the few kinds of layers of the classic networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from fishermix.errors import FishermixError
from fishermix.runtime import install_command

OPSET, IR_VERSION = 17, 8  # read by every onnxruntime that fishermix allows


def import_onnx():
    """Import the `onnx` package, which is needed only to add a network."""
    try:
        import onnx
    except ImportError as error:
        raise FishermixError(
            f"Adding an encoder needs the package onnx. Run: {install_command('onnx')}"
        ) from error
    return onnx


def describe_input(
    name: str, size: int, channels: str, mean: Sequence[float], std: Sequence[float]
) -> dict[str, Any]:
    """The JSON next to a graph (see `fishermix_photos.vision.network`)."""
    pixels = {"layout": "NCHW", "channels": channels, "mean": list(mean), "std": list(std)}
    return {"name": name, "size": size, **pixels, "input": Graph.INPUT, "output": "features"}


class Graph:
    """Each method adds a layer; it takes and returns the name of a value (n, channels, rows, columns)."""

    INPUT = "image"

    def __init__(self, name: str, size: int):
        self.onnx = import_onnx()
        self.name, self.size = name, size
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def add_convolution(
        self,
        value: str,
        weight: np.ndarray,
        bias: np.ndarray,
        stride: int = 1,
        padding: int = 0,
        rectify: bool = True,
    ) -> str:
        """`weight` is (out, in, rows, columns)."""
        inputs = [value, self._add_constant(weight), self._add_constant(bias)]
        result = self._add_node("Conv", inputs, strides=[stride, stride], pads=[padding] * 4)
        return self._add_node("Relu", [result]) if rectify else result

    def add_dense(self, value: str, weight: np.ndarray, bias: np.ndarray, rectify: bool = True) -> str:
        """`weight` is (out, in); `value` is flattened to (n, in)."""
        flat = self._add_node("Flatten", [value])
        inputs = [flat, self._add_constant(weight), self._add_constant(bias)]
        result = self._add_node("Gemm", inputs, transB=1)
        return self._add_node("Relu", [result]) if rectify else result

    def add_max_pool(self, value: str, size: int, stride: int, padding: int = 0) -> str:
        shape = {"kernel_shape": [size, size], "strides": [stride, stride], "pads": [padding] * 4}
        return self._add_node("MaxPool", [value], **shape)

    def add_rectified_sum(self, first: str, second: str) -> str:
        return self._add_node("Relu", [self._add_node("Add", [first, second])])

    def add_mean_over_space(self, value: str) -> str:
        return self._add_node("Flatten", [self._add_node("GlobalAveragePool", [value])])

    def add_concatenation(self, values: Mapping[str, float]) -> str:
        """Concatenate vectors, each multiplied by its number."""
        scaled = [
            self._add_node("Mul", [value, self._add_constant(np.array(by))]) if by != 1 else value
            for value, by in values.items()
        ]
        return self._add_node("Concat", scaled, axis=1)

    def _add_constant(self, values: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(values, np.float32), name))
        return name

    def _add_node(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        output = f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [output], **attributes))
        return output

    def build(self, outputs: Mapping[str, str]):
        """The ONNX model; `outputs` maps the names of its outputs to values."""
        helper, real = self.onnx.helper, self.onnx.TensorProto.FLOAT
        named = [helper.make_node("Identity", [value], [name]) for name, value in outputs.items()]
        graph = helper.make_graph(
            [*self.nodes, *named],
            self.name,
            [helper.make_tensor_value_info(self.INPUT, real, ["n", 3, self.size, self.size])],
            [helper.make_tensor_value_info(name, real, None) for name in outputs],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version, model.producer_name = IR_VERSION, "fishermix"
        return model
