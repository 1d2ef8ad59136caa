"""OverFeat (Sermanet et al., 2014), the accurate network on 221x221: 4096 activations before the classifier.

The user supplies the weights, the authors' raw file `net_weight_1`: little-endian float32, for each layer the
weights (out, in, rows, columns) and then the biases, with nothing else.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fishermix.errors import FishermixError

from fishermix_photos.vision.networks.graph import Graph, describe_input

SIZE = 221
FLOOR = 1e-6  # the authors' rectifier replaces everything that is not positive by this value
SIDECAR = describe_input("overfeat", SIZE, "RGB", mean=[118.380948] * 3, std=[61.896913] * 3)


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


def build_overfeat(weights: Path | None) -> tuple[Any, dict[str, Any]]:
    """The ONNX model and its JSON."""
    if weights is None:
        raise FishermixError(
            "The weights of OverFeat are not available in a package. Pass the authors' file net_weight_1 "
            "with --weights."
        )
    return build_graph(read_weights(weights)), SIDECAR


def read_weights(path: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """(weight, bias) of each layer; a file of another length belongs to another network."""
    if not path.is_file():
        raise FishermixError(f"The file {path} does not exist.")
    size = path.stat().st_size
    if size != 4 * LENGTH:
        raise FishermixError(
            f"{path} has {size:,} bytes; net_weight_1, the accurate network, has {4 * LENGTH:,}."
        )
    values = np.memmap(path, "<f4", "r")
    found, start = [], 0
    for layer in LAYERS:
        middle, end = start + prod(layer.shape), start + prod(layer.shape) + layer.outputs
        found.append((values[start:middle].reshape(layer.shape), values[middle:end]))
        start = end
    return found


def build_graph(weights: list[tuple[np.ndarray, np.ndarray]]) -> Any:
    graph = Graph("overfeat", SIZE)
    value = features = Graph.INPUT
    for layer, (weight, bias) in zip(LAYERS, weights, strict=True):
        features = value
        floor = None if layer is LAYERS[-1] else FLOOR
        value = graph.add_convolution(value, weight, bias, layer.stride, layer.padding, floor)
        if layer.pool > 1:
            value = graph.add_max_pool(value, layer.pool, layer.pool)
    return graph.build({"features": features, "logits": value})
