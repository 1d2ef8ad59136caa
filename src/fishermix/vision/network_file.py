"""A network file and how to feed it: an ONNX graph and the small JSON beside it.

    {"size": 260, "layout": "NCHW", "channels": "RGB", "mean": [127, 127, 127], "std": [128, 128, 128],
     "input": "image", "output": "features"}

`size` is the side of the square input in pixels. Pixels run from 0 to 255; the network gets (x - mean) / std,
mean and std given in the order of `channels` (RGB or BGR). `layout` is NCHW or NHWC. `output` names the value
that is taken as the feature vector; what has spatial axes left is averaged over them.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.paths import data_folder
from fishermix.storage import sha256_of_file

DEFAULT = "efficientnet-lite2"
SHIPPED = Path(__file__).parent.parent / "pretrained"
GRAPH, SIDECAR = "encoder.onnx", "encoder.json"
HOW_TO_GET = {
    "resnet50": "fishermix encoders add resnet50",
    "vgg19": "fishermix encoders add vgg19 --weights vgg19.pth",
    "overfeat": "fishermix encoders add overfeat --weights net_weight_1",
}
LARGEST_SIDE = 4096
# Counts up when decoding or resampling changes the numbers: it is part of every `features_key`.
PREPARATION = 1
EXAMPLE = json.dumps(
    {
        "size": 224,
        "layout": "NCHW",
        "channels": "RGB",
        "mean": [123.675, 116.28, 103.53],
        "std": [58.395, 57.12, 57.375],
        "input": "image",
        "output": "features",
    }
)


def folder_of(name: str) -> Path:
    """The folder of a network that the user added."""
    return data_folder() / "encoders" / name


def known_names() -> list[str]:
    """Names that `Network.find` takes on this machine."""
    added = data_folder() / "encoders"
    folders = [SHIPPED / DEFAULT, *(sorted(added.iterdir()) if added.is_dir() else ())]
    return [folder.name for folder in folders if (folder / GRAPH).is_file()]


@dataclass(frozen=True)
class Network:
    graph: Path
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    output: str
    input: str
    layout: str = "NCHW"
    channels: str = "RGB"

    @classmethod
    def find(cls, name: str | os.PathLike) -> Network:
        """A network by the name of a shipped or added one, by its .onnx file, or by the folder of one.

        `NAME:OUTPUT` takes another output of a named network: "efficientnet-lite2:depths".
        """
        network, _, output = str(name).partition(":")
        if output and (network in HOW_TO_GET or network in known_names()):
            return replace(cls.find(network), output=output)
        path = Path(name)
        if path.suffix == ".onnx":
            return cls.read(path, path.with_suffix(".json"))
        for folder in (SHIPPED / path.name, folder_of(path.name)) if path.name == str(name) else ():
            if (folder / GRAPH).is_file():
                return cls.read(folder / GRAPH, folder / SIDECAR)
        if (path / GRAPH).is_file():
            return cls.read(path / GRAPH, path / SIDECAR)
        if str(name) in HOW_TO_GET:
            raise FishermixError(
                f"the encoder {name} is not on this machine: add it with `{HOW_TO_GET[str(name)]}`"
            )
        known = ", ".join(known_names())
        raise FishermixError(
            f"there is no encoder '{name}': give one of {known}, or the path of an .onnx file"
        )

    @classmethod
    def read(cls, graph: Path, sidecar: Path) -> Network:
        if not graph.is_file():
            raise FishermixError(f"there is no file {graph}")
        try:
            fields = json.loads(sidecar.read_text("utf8"))
        except FileNotFoundError as error:
            raise FishermixError(
                f"{graph} needs {sidecar.name} beside it, which says how to prepare an image: {EXAMPLE}"
            ) from error
        except (OSError, ValueError) as error:
            raise FishermixError(f"{sidecar} cannot be read: {error}") from error
        return cls(graph=graph, **_checked(fields, sidecar))

    def key(self) -> str:
        """Hash of the graph and of all that is done to an image before it."""
        prepared = [self.size, self.mean, self.std, self.output, self.input, self.layout, self.channels]
        return hashlib.sha256(f"{sha256_of_file(self.graph)} {json.dumps(prepared)}".encode()).hexdigest()

    def prepare(self, crops: np.ndarray) -> np.ndarray:
        """(n, size, size, 3) uint8 RGB crops as the network's float32 input."""
        if self.channels == "BGR":
            crops = crops[..., ::-1]
        if self.layout == "NCHW":
            crops = crops.transpose(0, 3, 1, 2)
            shape: tuple[int, ...] = (3, 1, 1)
        else:
            shape = (3,)
        mean = np.array(self.mean, np.float32).reshape(shape)
        values = np.subtract(crops, mean, dtype=np.float32, order="C")
        if set(self.std) != {1.0}:
            values /= np.array(self.std, np.float32).reshape(shape)
        return values


def features_key(encoder: str | os.PathLike, view: str) -> str:
    """Identifies network and view: vectors under the same key may be compared, and cached."""
    return hashlib.sha256(f"{Network.find(encoder).key()} {view} {PREPARATION}".encode()).hexdigest()


def _checked(fields: Any, sidecar: Path) -> dict[str, Any]:
    def wrong(what: str) -> FishermixError:
        return FishermixError(f"{sidecar}: {what}")

    if not isinstance(fields, dict):
        raise wrong("must hold one JSON object")
    checked: dict[str, Any] = {}
    size = fields.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= LARGEST_SIDE:
        raise wrong(f"'size' must be the side of the input in pixels, 1 to {LARGEST_SIDE}")
    checked["size"] = size
    for name in ("mean", "std"):
        values = fields.get(name)
        if not isinstance(values, list) or len(values) != 3 or not all(_is_finite(v) for v in values):
            raise wrong(f"'{name}' must be three numbers")
        checked[name] = tuple(float(v) for v in values)
    if 0.0 in checked["std"]:
        raise wrong("'std' must not be zero")
    for name in ("input", "output"):
        if not isinstance(fields.get(name), str):
            raise wrong(f"'{name}' must be the name of the network's {name}")
        checked[name] = fields[name]
    for name, choices in (("layout", ("NCHW", "NHWC")), ("channels", ("RGB", "BGR"))):
        checked[name] = fields.get(name, choices[0])
        if checked[name] not in choices:
            raise wrong(f"'{name}' must be one of {', '.join(choices)}")
    return checked


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))
