"""Writing a plain feed-forward network as ONNX: the few layers that the classic networks are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fishermix.errors import FishermixError

OPSET, IR_VERSION = 17, 8  # read by every onnxruntime that fishermix allows


def import_onnx():
    """The `onnx` package, which only adding a network needs."""
    try:
        import onnx
    except ImportError as error:
        raise FishermixError(
            "adding an encoder needs the package onnx: pip install 'fishermix[export]'"
        ) from error
    return onnx


class Graph:
    """Layers are added in turn; each takes and returns the name of a value (n, channels, rows, columns)."""

    INPUT = "image"

    def __init__(self, name: str, size: int):
        self.onnx = import_onnx()
        self.name, self.size = name, size
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def convolution(
        self,
        value: str,
        weight: np.ndarray,
        bias: np.ndarray,
        stride: int = 1,
        padding: int = 0,
        floor: float | None = 0.0,
    ) -> str:
        """`weight` is (out, in, rows, columns); results below `floor` are raised to it (None: left alone)."""
        inputs = [value, self._constant(weight), self._constant(bias)]
        return self._floored(self._node("Conv", inputs, strides=[stride, stride], pads=[padding] * 4), floor)

    def dense(self, value: str, weight: np.ndarray, bias: np.ndarray, floor: float | None = 0.0) -> str:
        """`weight` is (out, in); `value` is (n, in) or is flattened to it."""
        flat = self._node("Flatten", [value])
        inputs = [flat, self._constant(weight), self._constant(bias)]
        return self._floored(self._node("Gemm", inputs, transB=1), floor)

    def max_pool(self, value: str, size: int, stride: int, padding: int = 0) -> str:
        shape = {"kernel_shape": [size, size], "strides": [stride, stride], "pads": [padding] * 4}
        return self._node("MaxPool", [value], **shape)

    def rectified_sum(self, first: str, second: str) -> str:
        return self._floored(self._node("Add", [first, second]), 0.0)

    def mean_over_space(self, value: str) -> str:
        return self._node("Flatten", [self._node("GlobalAveragePool", [value])])

    def side_by_side(self, values: Mapping[str, float]) -> str:
        """Vectors one after the other, each multiplied by its number."""
        scaled = [
            self._node("Mul", [value, self._constant(np.array(by))]) if by != 1 else value
            for value, by in values.items()
        ]
        return self._node("Concat", scaled, axis=1)

    def _floored(self, value: str, floor: float | None) -> str:
        if floor is None:
            return value
        if floor == 0:
            return self._node("Relu", [value])
        return self._node("Clip", [value, self._constant(np.array(floor))])

    def _constant(self, values: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(values, np.float32), name))
        return name

    def _node(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        output = f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [output], **attributes))
        return output

    def model(self, outputs: Mapping[str, str]):
        """The whole ONNX model; `outputs` maps the names that the model shows to values."""
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
