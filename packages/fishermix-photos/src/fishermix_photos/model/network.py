"""Network files: an ONNX graph, the small JSON next to it, and how to run them.

    {"size": 260, "layout": "NCHW", "channels": "RGB", "mean": [127, 127, 127], "std": [128, 128, 128],
     "input": "image", "output": "features"}

`size` is the side of the square input in pixels. Pixels run from 0 to 255; the network gets (x - mean) / std,
with mean and std in the order of `channels` (RGB or BGR). `layout` is NCHW or NHWC. `output` is the name of
the output that is used as the feature vector; spatial axes are averaged. `batch`, if it is there, is the most
images per run.

This is the only module that imports onnxruntime: sentence transformers are opened here too. onnxruntime from
1.29 on reports its use to its makers: it writes a device id and a queue of events below the user's cache
folder, and looks up a host. Only an environment variable that is set before the import stops all of it
(`disable_telemetry_events` comes too late).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import numpy as np
from fishermix.errors import FishermixError
from fishermix.saved import Name, Number, Struct, explain_damage, load_json, sha256_of_file
from msgspec import Meta, structs

from fishermix_photos.disk import data_folder

DEFAULT_NETWORK = "efficientnet-lite2"
TUNED_NETWORK = "efficientnet-lite2-captions"  # of the model in the package
SHIPPED_NETWORKS = Path(__file__).parents[1] / "pretrained"
GRAPH, SIDECAR = "encoder.onnx", "encoder.json"
LARGEST_SIDE = 4096  # more would take gigabytes per image
# Increase it when decoding or resampling changes the numbers: it is part of every `features_key`.
PREPARATION = 1
EXAMPLE = (
    '{"size": 224, "layout": "NCHW", "channels": "RGB", "mean": [123.675, 116.28, 103.53], '
    '"std": [58.395, 57.12, 57.375], "input": "image", "output": "features"}'
)
ERRORS_ONLY = 3  # onnxruntime's log level: its warnings about graphs are of no use here
TELEMETRY_FOLDER = Path("Microsoft", "DeveloperTools", ".onnxruntime")  # below the user's cache folder


def added_networks() -> Path:
    """The folder of the networks that the user added, one folder per network."""
    return data_folder() / "encoders"


def list_networks(added: Path) -> list[str]:
    """The names of the shipped networks and of those in the folder `added`."""
    shipped = [SHIPPED_NETWORKS / name for name in (DEFAULT_NETWORK, TUNED_NETWORK)]
    folders = [*shipped, *(sorted(added.iterdir()) if added.is_dir() else ())]
    return [folder.name for folder in folders if (folder / GRAPH).is_file()]


class Sidecar(Struct, kw_only=True, frozen=True):
    """The JSON next to a graph."""

    size: Annotated[int, Meta(ge=1, le=LARGEST_SIDE)]
    mean: tuple[Number, Number, Number]
    std: tuple[Number, Number, Number]
    input: Name
    output: Name
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    channels: Literal["RGB", "BGR"] = "RGB"
    batch: Annotated[int, Meta(ge=0)] = 0  # the most images per run; 0: any number

    def __post_init__(self) -> None:
        if 0.0 in self.std:
            raise ValueError("'std' must not be zero")


class Network(Sidecar, kw_only=True, frozen=True):
    """An ONNX file and how to prepare its input."""

    graph: Path

    @classmethod
    def find(cls, name: str | os.PathLike) -> Network:
        """Find a network by the name of a shipped or added one, by its .onnx file, or by its folder.

        `NAME:OUTPUT` selects another output of a named network: "efficientnet-lite2:depths".
        """
        added, output = added_networks(), ""
        base, _, suffix = str(name).partition(":")
        if suffix and base in list_networks(added):
            name, output = base, suffix
        path = Path(name)
        if path.suffix == ".onnx":
            return cls.read(path, path.with_suffix(".json"))
        named = [SHIPPED_NETWORKS / path, added / path] if path.name == str(name) else []
        for folder in (*named, path):
            if os.path.isfile(folder / GRAPH):  # False for names that no file can have
                network = cls.read(folder / GRAPH, folder / SIDECAR)
                return structs.replace(network, output=output) if output else network
        raise FishermixError(
            f"There is no encoder '{name}'. Use one of {', '.join(list_networks(added))}, or the path of an "
            ".onnx file.",
            code="not_found",
        )

    @classmethod
    def read(cls, graph: Path, sidecar: Path) -> Network:
        if not os.path.isfile(graph):
            raise FishermixError(f"The network file {graph} does not exist.", code="not_found")
        if not sidecar.is_file():
            reason = f"{graph} needs {sidecar.name} next to it, which says how to prepare an image."
            raise FishermixError(f"{reason} Example: {EXAMPLE}", code="wrong_network")
        advice = f"Example: {EXAMPLE}"
        return cls(graph=graph, **structs.asdict(load_json(sidecar, Sidecar, advice)))

    def features_key(self, view: str) -> str:
        """The hash of the graph, the preparation of its input, and the view."""
        prepared = [self.size, self.mean, self.std, self.output, self.input, self.layout, self.channels]
        key = hashlib.sha256(f"{sha256_of_file(self.graph)} {json.dumps(prepared)}".encode()).hexdigest()
        return hashlib.sha256(f"{key} {view} {PREPARATION}".encode()).hexdigest()

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


def describe_network(network: Network) -> str:
    """The JSON that says how to prepare the input of a network and which output to use."""
    return json.dumps({name: getattr(network, name) for name in Sidecar.__struct_fields__}, indent=1) + "\n"


class NetworkSession:
    """A network opened in onnxruntime; threads may call `run` at the same time."""

    def __init__(self, network: Network, batch_size: int):
        if batch_size < 1:
            raise FishermixError(f"batch_size must be at least 1, not {batch_size}.", code="wrong_parameter")
        self.network = network
        self.session = _open_session(network)
        with explain_damage(network.graph):
            rows = self.session.get_inputs()[0].shape[0]
        self.fixed_rows = rows if isinstance(rows, int) else 0  # some files accept one batch size only
        self.batch_size = self.fixed_rows or network.batch or batch_size
        try:
            blank = self._run_batch(np.zeros((1, network.size, network.size, 3), np.uint8))
        except Exception as error:  # onnxruntime raises its own classes
            raise FishermixError(
                f"{network.graph} does not run on an image prepared as the JSON next to it says: {error}",
                code="wrong_network",
            ) from error
        self.n_features = blank.shape[1]

    def run(self, crops: np.ndarray) -> np.ndarray:
        """The features (n, n_features) float32 of (n, size, size, 3) uint8 crops, computed in batches."""
        starts = range(0, len(crops), self.batch_size)
        return np.concatenate([self._run_batch(crops[i : i + self.batch_size]) for i in starts])

    def _run_batch(self, crops: np.ndarray) -> np.ndarray:
        image = self.network.prepare(crops)
        if self.fixed_rows:
            padding = np.zeros((self.fixed_rows - len(crops), *image.shape[1:]), np.float32)
            image = np.concatenate([image, padding])
        (values,) = self.session.run([self.network.output], {self.network.input: image})
        values = values[: len(crops)]
        if values.ndim == 4:
            values = values.mean(axis=(2, 3) if self.network.layout == "NCHW" else (1, 2))
        return values.reshape(len(crops), -1).astype(np.float32, copy=False)


def _open_session(network: Network) -> Any:
    # One thread per run and as many runs at a time as there are threads: faster than threads that share a
    # run, and decoding is never starved.
    with explain_damage(network.graph):  # onnxruntime raises its own classes for every kind of damage
        session = open_session(network.graph)
        inputs = [value.name for value in session.get_inputs()]
        outputs = [value.name for value in session.get_outputs()]
    if network.input not in inputs or network.output not in outputs:
        raise FishermixError(
            f"{network.graph} has the inputs {inputs} and the outputs {outputs}, "
            f"but the JSON next to it names '{network.input}' and '{network.output}'.",
            code="wrong_network",
        )
    return session


@cache
def import_onnxruntime() -> ModuleType:
    """onnxruntime with its telemetry disabled. Removes the device id and the events it wrote before."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    with suppress(RuntimeError):  # no home folder
        cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        shutil.rmtree(cache_folder / TELEMETRY_FOLDER, ignore_errors=True)
    return onnxruntime


def open_session(graph: str | os.PathLike | bytes, threads: int = 1) -> Any:
    """An `InferenceSession` of a file, or of its bytes, on the CPU."""
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = ERRORS_ONLY
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"], enable_fallback=0)
