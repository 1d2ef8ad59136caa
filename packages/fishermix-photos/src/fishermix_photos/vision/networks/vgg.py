"""VGG-19 (Simonyan and Zisserman, 2015), the paper's encoder: 4096 activations of fc7, after the rectifier.

The user supplies the weights, a torchvision-style `.pth` file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from fishermix.errors import FishermixError
from fishermix.runtime import install_command
from fishermix.storage import explain_damage

from fishermix_photos.vision.networks.graph import Graph, describe_input

SIZE, FEATURES = 224, 4096
# Channels of the convolutions, all 3x3; "pool" halves rows and columns.
LAYERS: tuple[int | str, ...] = (
    *(64, 64, "pool"),
    *(128, 128, "pool"),
    *(256, 256, 256, 256, "pool"),
    *(512, 512, 512, 512, "pool"),
    *(512, 512, 512, 512, "pool"),
)
# Weights from torchvision need one normalization, those converted from the authors' Caffe files the other.
PREPROCESSING = {
    "torchvision": ("RGB", (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    "caffe": ("BGR", (103.939, 116.779, 123.68), (1.0, 1.0, 1.0)),
}


def build_vgg19(weights: Path | None, preprocessing: str = "torchvision") -> tuple[Any, dict[str, Any]]:
    """The ONNX model up to fc7 and its JSON."""
    if weights is None:
        raise FishermixError(
            "The weights of VGG-19 are not available in a package. Pass a .pth file with --weights."
        )
    if preprocessing not in PREPROCESSING:
        raise FishermixError(
            f"preprocessing must be one of {', '.join(PREPROCESSING)}, not '{preprocessing}'."
        )
    if not weights.is_file():
        raise FishermixError(f"The file {weights} does not exist.")
    sidecar = describe_input("vgg19", SIZE, *PREPROCESSING[preprocessing])
    return build_graph(read_pth(weights), str(weights)), sidecar


def list_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of torchvision's tensors up to fc7; the numbers in the names count rectifiers too."""
    found: dict[str, tuple[int, ...]] = {}
    before, position = 3, 0
    for layer in LAYERS:
        if isinstance(layer, int):
            found[f"features.{position}.weight"] = (layer, before, 3, 3)
            found[f"features.{position}.bias"] = (layer,)
            before = layer
        position += 2 if isinstance(layer, int) else 1
    found["classifier.0.weight"], found["classifier.0.bias"] = (FEATURES, 512 * 7 * 7), (FEATURES,)
    found["classifier.3.weight"], found["classifier.3.bias"] = (FEATURES, FEATURES), (FEATURES,)
    return found


def read_pth(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a `.pth` file; code in the file is not run."""
    try:
        import torch
    except ImportError as error:
        raise FishermixError(f"Reading a .pth file needs torch. Run: {install_command('torch')}") from error
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever the damaged file makes it raise, and advises to run it
        raise FishermixError(
            f"{path} cannot be read: it is damaged, or it contains more than tensors, and reading it would "
            "run code."
        ) from error
    if not isinstance(state, Mapping):
        raise FishermixError(f"{path} does not contain weights by name.")
    with explain_damage(path):
        return {name: value.numpy() for name, value in state.items() if isinstance(value, torch.Tensor)}


def build_graph(tensors: Mapping[str, np.ndarray], where: str) -> Any:
    for name, shape in list_shapes().items():
        found = tensors[name].shape if name in tensors else None
        if found != shape:
            raise FishermixError(f"{where} is not VGG-19: '{name}' must have the shape {shape}, not {found}.")
    graph = Graph("vgg19", SIZE)
    value, position = Graph.INPUT, 0
    for layer in LAYERS:
        if isinstance(layer, int):
            name = f"features.{position}"
            value = graph.add_convolution(
                value, tensors[f"{name}.weight"], tensors[f"{name}.bias"], padding=1
            )
            position += 2
        else:
            value = graph.add_max_pool(value, 2, 2)
            position += 1
    for name in ("classifier.0", "classifier.3"):
        value = graph.add_dense(value, tensors[f"{name}.weight"], tensors[f"{name}.bias"])
    return graph.build({"features": value})
