"""OverFeat (Sermanet et al., 2014), the accurate network on 221x221: 4096 activations before the classifier.

The weights are the authors' raw file `net_weight_1`, which the user brings: little-endian float32, for each
layer in turn the weights (out, in, rows, columns) and then the biases, nothing else.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fishermix.errors import FishermixError
from fishermix.vision.onnx_builder import Graph

SIZE = 221
FLOOR = 1e-6  # what the authors' rectifier puts in the place of all that is not positive
SIDECAR = {
    "name": "overfeat",
    "size": SIZE,
    "layout": "NCHW",
    "channels": "RGB",
    "mean": [118.380948] * 3,
    "std": [61.896913] * 3,
    "input": Graph.INPUT,
    "output": "features",
}


class Layer(NamedTuple):
    """A convolution, the rectifier, and a max pooling over non-overlapping squares of `pool` pixels."""

    outputs: int
    inputs: int
    side: int
    stride: int = 1
    padding: int = 0
    pool: int = 1

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.outputs, self.inputs, self.side, self.side


# Rows and columns: 221, 108, 36 | 30, 15 | 15 | 15 | 15 | 15, 5 | 1 | 1 | 1
LAYERS = (
    Layer(96, 3, 7, stride=2, pool=3),
    Layer(256, 96, 7, pool=2),
    Layer(512, 256, 3, padding=1),
    Layer(512, 512, 3, padding=1),
    Layer(1024, 512, 3, padding=1),
    Layer(1024, 1024, 3, padding=1, pool=3),
    Layer(4096, 1024, 5),
    Layer(4096, 4096, 1),
    Layer(1000, 4096, 1),
)
LENGTH = sum(prod(layer.shape) + layer.outputs for layer in LAYERS)


def overfeat(weights: Path | None) -> tuple[Any, dict[str, Any]]:
    """The ONNX model and its JSON."""
    if weights is None:
        raise FishermixError("OverFeat is in no package: name the authors' file net_weight_1 with --weights")
    return overfeat_graph(read_weights(weights)), SIDECAR


def read_weights(path: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """(weight, bias) of each layer; a file of another length is another network's."""
    if not path.is_file():
        raise FishermixError(f"there is no file {path}")
    size = path.stat().st_size
    if size != 4 * LENGTH:
        raise FishermixError(
            f"{path} has {size:,} bytes; net_weight_1, the accurate network, has {4 * LENGTH:,}"
        )
    values = np.memmap(path, "<f4", "r")
    found, start = [], 0
    for layer in LAYERS:
        middle, end = start + prod(layer.shape), start + prod(layer.shape) + layer.outputs
        found.append((values[start:middle].reshape(layer.shape), values[middle:end]))
        start = end
    return found


def overfeat_graph(weights: list[tuple[np.ndarray, np.ndarray]]) -> Any:
    graph = Graph("overfeat", SIZE)
    value = features = Graph.INPUT
    for layer, (weight, bias) in zip(LAYERS, weights, strict=True):
        features = value
        floor = None if layer is LAYERS[-1] else FLOOR
        value = graph.convolution(value, weight, bias, layer.stride, layer.padding, floor)
        if layer.pool > 1:
            value = graph.max_pool(value, layer.pool, layer.pool)
    return graph.model({"features": features, "logits": value})
