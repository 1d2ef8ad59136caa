"""Photos to vectors with the default encoder, against onnxruntime used in the plain way on the same photos.

The photos are those of Flickr8K where FISHERMIX_DATA names it, else made-up ones of the same size.
"""

import io
import os
import tempfile
from pathlib import Path

import numpy as np
from fishermix_lab.features import extract
from fishermix_photos.model.image_encoder import ImageEncoder
from fishermix_photos.model.network import DEFAULT_NETWORK, Network, import_onnxruntime
from PIL import Image

from benchmarks.timing import FULL, Row, compare, measure, peak_memory

PHOTOS, BATCH = 640 if FULL else 160, 32


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as scratch:
        photos = _photos(Path(scratch))
        encoder = ImageEncoder()
        encoder.transform(photos[:BATCH])
        folders = (Path(scratch) / name for name in ("warm", "1", "2"))
        runs = {
            "ours": lambda: extract(photos, encoder, next(folders)),
            "peer": lambda: _run_plain_onnxruntime(photos),
        }
        found = compare(runs, 2)
        result, memory = peak_memory(lambda: extract(photos, encoder, Path(scratch) / "out"))
        again = extract(photos, encoder, Path(scratch) / "out")
        seconds = measure(lambda: extract(photos, encoder, Path(scratch) / "out"))
        if again.encoded or not np.array_equal(again.features, result.features):
            raise AssertionError("the second extraction is not the first")
    speed = f"{PHOTOS} photos to vectors on disk ({PHOTOS / found['ours'].wall:.1f} images/s)"
    return [
        Row(
            speed,
            found["ours"],
            "onnxruntime, batches of 32",
            found["peer"],
            "≥ 50 images/s",
            f"{memory / 1e6:.0f} MB",
        ),
        Row(f"the same {PHOTOS} again", seconds, wanted=f"≤ {20 * PHOTOS / 8091:.1f} s"),
    ]


def _photos(scratch: Path) -> list[Path]:
    real = Path(os.environ.get("FISHERMIX_DATA", "")) / "flickr8k" / "Images"
    if real.is_dir():
        return sorted(real.iterdir())[:PHOTOS]
    rng, paths = np.random.default_rng(0), []
    for i in range(PHOTOS):
        rough = Image.fromarray(rng.integers(0, 256, (32, 40, 3), np.uint8))
        paths.append(scratch / f"{i:04}.jpg")
        rough.resize((340, 256), Image.Resampling.BICUBIC).save(paths[-1], quality=75)
    return paths


def _run_plain_onnxruntime(photos: list[Path]) -> None:
    """The loop one would write: decode a batch, run it on all cores, decode the next."""
    network = Network.find(DEFAULT_NETWORK)
    session = import_onnxruntime().InferenceSession(network.graph, providers=["CPUExecutionProvider"])
    for i in range(0, len(photos), BATCH):
        shape, bicubic = (network.size, network.size), Image.Resampling.BICUBIC
        opened = [Image.open(io.BytesIO(photo.read_bytes())) for photo in photos[i : i + BATCH]]
        crops = np.stack([np.asarray(image.convert("RGB").resize(shape, bicubic)) for image in opened])
        session.run([network.output], {network.input: network.prepare(crops)})
