"""Networks that are not in the package: added once, and kept in the data folder.

The ONNX file of any image network is copied, and with it the text side of a pair that was trained together,
as CLIP was: it becomes a sentence transformer.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from fishermix.errors import FishermixError
from fishermix.saved import explain_damage

from fishermix_photos.model import transformer
from fishermix_photos.model.image_encoder import ImageEncoder
from fishermix_photos.model.network import (
    GRAPH,
    LARGEST_SIDE,
    SHIPPED_NETWORKS,
    SIDECAR,
    Network,
    added_networks,
    describe_network,
    open_session,
)
from fishermix_photos.model.transformer import SentenceTransformer, added_transformers

IMAGE_EMBEDDING = "image_embeds"  # the output of the image graphs of CLIP
CLIP_SIZE = 224  # if the graph takes any size
CLIP_MEAN, CLIP_STD = (122.7709383, 116.7460125, 104.09373615), (68.5005327, 66.6321579, 70.32316305)


def add_files(
    graph: Path, name: str, text: Path | None = None, tokenizer: Path | None = None
) -> ImageEncoder:
    """Copy the ONNX file of an image network, and return its encoder.

    name : what the copies are found by
    text, tokenizer : the ONNX file and the `tokenizer.json` of the sentence transformer that goes with it
    """
    if graph.suffix != ".onnx":
        raise FishermixError(f"'{graph}' is not the name of an .onnx file.", code="wrong_parameter")
    if not re.fullmatch(r"\w[\w.-]*", name) or (SHIPPED_NETWORKS / name).exists():
        raise FishermixError(
            f"'{name}' cannot be the name of a network. Choose another one with --name.",
            code="wrong_parameter",
        )
    if (text is None) != (tokenizer is None):
        raise FishermixError(
            "--text and --tokenizer belong together. Give both, or neither.", code="wrong_parameter"
        )
    network = _read_network(graph)
    if text is not None and tokenizer is not None:
        files = {transformer.GRAPH: _read(text), transformer.TOKENIZER: _read(tokenizer)}
        _install(
            added_transformers() / name, files, lambda new: SentenceTransformer(new).encode(["two dogs"])
        )
    return install_network(name, _read(graph), describe_network(network))


def install_network(name: str, graph: bytes, sidecar: str) -> ImageEncoder:
    """Write a graph and the JSON that describes its input into the data folder, and return its encoder."""
    files = {GRAPH: graph, SIDECAR: sidecar.encode()}
    _install(added_networks() / name, files, _try_image)
    return ImageEncoder(name)


def _read_network(graph: Path) -> Network:
    """The network that the JSON next to a graph describes; the image graph of CLIP needs none.

    It runs on one image at a time: an 8-bit graph scales its activations by the largest of a batch, and a
    vector must not depend on the images next to it.
    """
    sidecar = graph.with_suffix(".json")
    if graph.is_file() and not sidecar.is_file():
        with explain_damage(graph):
            session = open_session(graph)
            inputs = session.get_inputs()
            outputs = [value.name for value in session.get_outputs()]
        if len(inputs) == 1 and IMAGE_EMBEDDING in outputs:
            side = inputs[0].shape[-1] if inputs[0].shape else None
            if isinstance(side, int) and not 1 <= side <= LARGEST_SIDE:
                raise FishermixError(
                    f"{graph} takes images of {side} x {side} pixels, which cannot be.", code="wrong_network"
                )
            return Network(
                graph=graph,
                size=side if isinstance(side, int) else CLIP_SIZE,
                mean=CLIP_MEAN,
                std=CLIP_STD,
                input=inputs[0].name,
                output=IMAGE_EMBEDDING,
                batch=1,
            )
    return Network.read(graph, sidecar)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise FishermixError(f"Cannot read {file} ({error.strerror}).", code="wrong_file") from error


def _try_image(folder: Path) -> None:
    if ImageEncoder(folder).n_features < 1:
        raise FishermixError("The network has no output.", code="wrong_network")


def _install(folder: Path, files: Mapping[str, bytes], check: Callable[[Path], object]) -> None:
    """Write files as `folder`, after a check of them; a folder that is there is replaced in one step."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".adding-"))
    new = scratch / "new"
    try:
        new.mkdir()
        for name, content in files.items():
            (new / name).write_bytes(content)
        check(new)
        if folder.exists():
            os.replace(folder, scratch / "old")
        os.replace(new, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
