"""A network small enough to run hundreds of images in a second."""

import json
from pathlib import Path

import numpy as np
import onnx
from fishermix_photos.vision.resnet import Graph

SIZE = 32
SIDECAR = {
    "size": SIZE,
    "layout": "NCHW",
    "channels": "RGB",
    "mean": [120, 115, 100],
    "std": [60, 58, 57],
    "input": Graph.INPUT,
    "output": "features",
}


def write_tiny_network(folder: Path, seed: int = 0, **sidecar: object) -> Path:
    """An ONNX file of one convolution and a dense layer with random weights, 12 features, and its JSON."""
    rng = np.random.default_rng(seed)
    graph = Graph("tiny", SIZE)
    value = graph.add_convolution(
        Graph.INPUT, rng.standard_normal((8, 3, 5, 5)), rng.standard_normal(8), stride=2
    )
    value = graph.add_dense(value, rng.standard_normal((12, 8 * 14 * 14)) / 40, rng.standard_normal(12))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny.onnx"
    onnx.save(graph.build({"features": value}), path)
    path.with_suffix(".json").write_text(json.dumps({**SIDECAR, **sidecar}))
    return path
