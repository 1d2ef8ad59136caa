"""CPU time of indexing a photo, by format: 12-megapixel photos, opened and encoded by the network.

    python benchmarks/formats.py PHOTO_FOLDER [PHOTOS]

Writes each of the first photos of the folder, enlarged to 4032 x 3024 pixels, in every format, and encodes
them with one thread. The HEIC photos consist of tiles of 512 x 512 pixels and have a thumbnail of 320 x 240
pixels, as those of phones do; those called "no thumbnail" have none.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import psutil
from fishermix_photos import ImageEncoder
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "fishermix-photos" / "tests" / "vision"))
import make_formats

SIZE = (4032, 3024)
MAKERS = {
    "JPEG": (".jpg", lambda image: make_formats.to_bytes(image, "JPEG", quality=90)),
    "HEIC": (
        ".heic",
        lambda image: make_formats.make_heic(image, quality=60, tile_size=512, thumbnails=[320]),
    ),
    "HEIC, no thumbnail": (".heic", lambda image: make_formats.make_heic(image, quality=60, tile_size=512)),
    "HEIC, one tile": (".heic", lambda image: make_formats.make_heic(image, quality=60)),
    "AVIF": (".avif", lambda image: make_formats.to_bytes(image, "AVIF", quality=60, speed=9)),
    "JPEG XL": (".jxl", make_formats.make_jxl),
    "WebP": (".webp", lambda image: make_formats.to_bytes(image, "WEBP", quality=80)),
    "PNG": (".png", lambda image: make_formats.to_bytes(image, "PNG", compress_level=1)),
    "TIFF": (".tif", lambda image: make_formats.to_bytes(image, "TIFF")),
    "DNG, no preview": (".dng", make_formats.make_dng),
}


def main(folder: Path, number: int = 4) -> None:
    photos = [Image.open(path).convert("RGB").resize(SIZE) for path in sorted(folder.glob("*.jpg"))[:number]]
    encoder = ImageEncoder(threads=1)
    encoder.transform([Image.new("RGB", (64, 64))])
    reference, seconds_of_jpeg = None, 0.0
    with tempfile.TemporaryDirectory() as place:
        for name, (suffix, make) in MAKERS.items():
            paths = [Path(place) / f"{position}{suffix}" for position in range(len(photos))]
            for path, photo in zip(paths, photos):
                path.write_bytes(make(photo))
            encoder.transform(paths[:1])  # starts the process that decodes some formats
            start = read_cpu_seconds()
            vectors = encoder.transform(paths)
            seconds = (read_cpu_seconds() - start) / len(paths)
            vectors /= (vectors**2).sum(axis=1, keepdims=True) ** 0.5
            if reference is None:
                reference, seconds_of_jpeg = vectors, seconds
            cosine = (vectors * reference).sum(axis=1).mean()
            speed = seconds_of_jpeg / seconds
            print(
                f"{name:20} {seconds:6.3f} s, {speed:5.2f} of JPEG's speed, cosine {cosine:.3f}", flush=True
            )


def read_cpu_seconds() -> float:
    """CPU time of this process and of those that decode photos for it."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(process.cpu_times()[:2]) for process in processes)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 4)
