"""Cut an image network in two: the lower part runs in onnxruntime, once per photo; the upper part can learn.

The activations at the cut are kept in a file. A photo of EfficientNet-lite2 takes 69 kB after block 13, and
what follows costs a fifth of the network.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from fishermix.errors import FishermixError
from fishermix.progress import progress
from fishermix.rows import count_threads
from fishermix.saved import sha256_of_file, write_atomically
from fishermix_photos.model.image_vectors import cut_crops
from fishermix_photos.model.network import GRAPH, SIDECAR, Network, describe_network, open_session
from fishermix_photos.photos.open import open_photo
from msgspec import structs
from PIL import Image

from fishermix_lab.tuning.versions import draw_version

BATCH = 4  # photos per run of the lower part
BATCHES_BETWEEN_SAVES = 500


def cut_graph(network: Network, cut: str) -> bytes:
    """The graph that computes the activations named `cut` from an image."""
    model = onnx.shape_inference.infer_shapes(onnx.load(network.graph))
    if not any(cut in node.output for node in model.graph.node):
        raise FishermixError(f"{network.graph} has no activations named {cut}.", code="wrong_network")
    return onnx.utils.Extractor(model).extract_model([network.input], [cut]).SerializeToString()


def resize_network(network: Network, size: int, folder: Path) -> Network:
    """The same network for images of `size` x `size` pixels, written to a folder. Larger images show smaller
    things. Sizes whose halves are rounded as those of the old size keep every convolution where it was.
    """
    model = onnx.load(network.graph)
    (image,) = (value for value in model.graph.input if value.name == network.input)
    for axis in (2, 3) if network.layout == "NCHW" else (1, 2):
        image.type.tensor_type.shape.dim[axis].dim_value = size
    del model.graph.value_info[:]  # the shapes of the old size
    graph, resized = folder / GRAPH, structs.replace(network, size=size, graph=folder / GRAPH)
    write_atomically(graph, model.SerializeToString(deterministic=True))
    write_atomically(folder / SIDECAR, describe_network(resized).encode())
    return resized


def encode_activations(
    model: onnx.ModelProto, cut: str, output: str, activations: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """The vectors (n, p) float32 that the layers after the cut make of some rows of activations."""
    shapes = onnx.shape_inference.infer_shapes(model)
    upper = onnx.utils.Extractor(shapes).extract_model([cut], [output])
    session = open_session(upper.SerializeToString())

    def encode(start: int) -> np.ndarray:
        values = activations[rows[start : start + BATCH]].transpose(0, 3, 1, 2).astype(np.float32)
        return session.run([output], {cut: np.ascontiguousarray(values)})[0]

    found = []
    with progress("encoding photos", len(rows)) as bar, ThreadPoolExecutor(count_threads(None)) as pool:
        for vectors in pool.map(encode, range(0, len(rows), BATCH)):
            found.append(vectors)
            bar.advance(len(vectors))
    return np.concatenate(found)


class PhotoCopy(NamedTuple):
    """A photo as the network meets it.

    number : of the copy, see `draw_version`; None: the file itself
    """

    path: str
    number: int | None = None

    def open(self, side: int) -> Image.Image:
        """The copy, through the reader that opens a user's photos."""
        version = None if self.number is None else draw_version(self.path, self.number)
        if version is None:
            return open_photo(self.path, side=side)
        return open_photo(version.write(open_photo(self.path)), side=side)


class Activations:
    """The activations (n, height, width, channels) float16 of photos, in a memory-mapped file of a folder."""

    def __init__(self, folder: Path, network: Network, cut: str, photos: Sequence[PhotoCopy]):
        self.network = network
        self.cut = cut
        self.photos = list(photos)
        self.file, self.state = folder / "activations.npy", folder / "activations.json"
        described = json.dumps([sha256_of_file(network.graph), cut, self.photos])
        self.key = hashlib.sha256(described.encode()).hexdigest()

    def open(self) -> np.ndarray:
        """The array; photos that the file lacks are computed first. A stopped run continues."""
        session = open_session(cut_graph(self.network, self.cut))
        done = self._count_done()
        if done:
            rows = np.load(self.file, mmap_mode="r+")
        else:
            shape = len(self.photos), *self._run(session, 0).shape[1:]
            self.file.parent.mkdir(parents=True, exist_ok=True)
            rows = np.lib.format.open_memmap(self.file, "w+", np.float16, shape)
        n_threads = 3 * count_threads(None)  # they wait for the disk, and for decoding processes
        with progress("activations", len(self.photos)) as bar, ThreadPoolExecutor(n_threads) as pool:
            bar.advance(done)
            while done < len(self.photos):
                starts = range(done, len(self.photos), BATCH)[:BATCHES_BETWEEN_SAVES]
                for found in pool.map(lambda start: self._run(session, start), starts):
                    rows[done : done + len(found)] = found
                    done += len(found)
                    bar.advance(len(found))
                rows.flush()
                write_atomically(self.state, json.dumps({"key": self.key, "photos": done}).encode())
        return np.load(self.file, mmap_mode="r")

    def _count_done(self) -> int:
        saved = json.loads(self.state.read_text()) if self.state.is_file() else {}
        return saved["photos"] if saved.get("key") == self.key else 0

    def _run(self, session: Any, start: int) -> np.ndarray:
        """The activations of a batch of photos."""
        size = self.network.size
        photos = (photo.open(size) for photo in self.photos[start : start + BATCH])
        image = self.network.prepare(np.concatenate([cut_crops(photo, "squeeze", size) for photo in photos]))
        (values,) = session.run([self.cut], {self.network.input: image})
        return values.transpose(0, 2, 3, 1).astype(np.float16)
