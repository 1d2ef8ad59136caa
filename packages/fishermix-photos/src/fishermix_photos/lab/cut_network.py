"""Cut an image network in two: the lower part runs in onnxruntime, once per photo; the upper part can learn.

The activations at the cut are kept in a file. A photo of EfficientNet-lite2 takes 69 kB after block 13, and
what follows costs a fifth of the network.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from fishermix.errors import FishermixError
from fishermix.progress import progress
from fishermix.rows.blocks import count_threads
from fishermix.storage import sha256_of_file, write_atomically

from fishermix_photos.vision.encoder import cut_crops
from fishermix_photos.vision.limits import allow_pixels
from fishermix_photos.vision.network import Network, open_session
from fishermix_photos.vision.open import open_photo

BATCH = 4  # photos per run of the lower part
THREADS_PER_CORE = 3  # they wait for the disk, and for the processes that decode some photos
BATCHES_BETWEEN_SAVES = 500


def cut_graph(network: Network, cut: str) -> bytes:
    """The graph that computes the activations named `cut` from an image."""
    import onnx

    model = onnx.load(network.graph)
    nodes = {name: node for node in model.graph.node for name in node.output}
    if cut not in nodes:
        raise FishermixError(f"{network.graph} has no activations named {cut}.")
    needed: set[str] = set()
    waiting = [cut]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += nodes[name].input if name in nodes else ()
    kept = [node for node in model.graph.node if needed & set(node.output)]
    tensors = [tensor for tensor in model.graph.initializer if tensor.name in needed]
    output = onnx.helper.make_tensor_value_info(cut, onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph(kept, "lower", list(model.graph.input), [output], tensors)
    lower = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return lower.SerializeToString()


class Activations:
    """The activations (n, height, width, channels) float16 of photos, in a memory-mapped file of a folder."""

    def __init__(self, folder: Path, network: Network, cut: str, paths: Sequence[str | os.PathLike]):
        self.folder, self.network, self.cut = folder, network, cut
        self.paths = [os.fspath(path) for path in paths]
        self.file = folder / "activations.npy"

    def open(self) -> np.ndarray:
        """The array; photos that the file lacks are computed first. A stopped run continues."""
        session = open_session(cut_graph(self.network, self.cut))
        key, done = self._describe(), 0
        state = self.folder / "activations.json"
        if state.is_file() and (saved := json.loads(state.read_text()))["key"] == key:
            done = saved["photos"]
            rows = np.load(self.file, mmap_mode="r+")
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            shape = len(self.paths), *self._run(session, self.paths[:1]).shape[1:]
            rows = np.lib.format.open_memmap(self.file, "w+", np.float16, shape)
        starts = deque(range(done, len(self.paths), BATCH))
        running: deque = deque()
        with (
            progress("activations", len(self.paths)) as bar,
            ThreadPoolExecutor(threads := THREADS_PER_CORE * count_threads(None)) as pool,
        ):
            bar.advance(done)
            while starts or running:
                while starts and len(running) < 3 * threads:
                    batch = self.paths[starts[0] : starts[0] + BATCH]
                    running.append((starts.popleft(), pool.submit(self._run, session, batch)))
                start, future = running.popleft()
                found = future.result()
                rows[start : start + len(found)] = found
                bar.advance(len(found))
                done = start + len(found)
                if done % (BATCH * BATCHES_BETWEEN_SAVES) == 0 or not running:
                    rows.flush()
                    write_atomically(state, json.dumps({"key": key, "photos": done}).encode())
        return np.load(self.file, mmap_mode="r")

    def _run(self, session, paths: list[str]) -> np.ndarray:
        size, limit = self.network.size, allow_pixels(None)
        crops = [cut_crops(open_photo(path, limit, side=size), "squeeze", size) for path in paths]
        image = self.network.prepare(np.concatenate(crops))
        (values,) = session.run([self.cut], {self.network.input: image})
        return values.transpose(0, 2, 3, 1).astype(np.float16)

    def _describe(self) -> str:
        described = json.dumps([sha256_of_file(self.network.graph), self.cut, self.paths])
        return hashlib.sha256(described.encode()).hexdigest()
