"""Make a folder with one picture in every format that fishermix reads.

    python tests/vision/make_formats.py FOLDER

Formats whose package is not installed are left out. The RAW photo is a DNG written by hand: a Bayer mosaic of
the picture, with the few tags that LibRaw needs. Other makers' RAW formats have no public encoder.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from fishermix_photos.photos import formats
from PIL import Image

FRAMES_PER_SECOND = 4


def to_bytes(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def make_heic(image: Image.Image, **options: object) -> bytes:
    import pillow_heif

    pillow_heif.register_heif_opener()
    return to_bytes(image, "HEIF", **{"quality": 90, **options})


def make_jxl(image: Image.Image) -> bytes:
    import pillow_jxl  # noqa: F401

    return to_bytes(image, "JXL", quality=95)


def make_dng(image: Image.Image, orientation: int = 1, preview: bytes | None = None) -> bytes:
    """A DNG whose sensor saw `image`: linear values behind an RGGB filter, and a preview if there is one."""
    import tifffile

    unit = np.asarray(image.convert("RGB"), np.float64) / 255
    linear = np.where(unit <= 0.04045, unit / 12.92, ((unit + 0.055) / 1.055) ** 2.4)
    mosaic = np.empty(linear.shape[:2])
    for row in (0, 1):
        for column in (0, 1):
            mosaic[row::2, column::2] = linear[row::2, column::2, row + column]
    # XYZ to linear sRGB: this camera's colors are those of the screen.
    matrix = np.array([[3.2405, -1.5371, -0.4985], [-0.9693, 1.8760, 0.0416], [0.0556, -0.2040, 1.0572]])
    rationals = tuple(n for value in matrix.ravel() for n in (round(value * 10_000), 10_000))
    tags = [
        (274, "H", 1, orientation, True),
        (33421, "H", 2, (2, 2), True),
        (33422, "B", 4, (0, 1, 1, 2), True),
        (50706, "B", 4, (1, 4, 0, 0), True),
        (50708, "s", 0, "fishermix test", True),
        (50714, "H", 1, 0, True),
        (50717, "H", 1, 65535, True),
        (50721, "2i", 9, rationals, True),
        (50728, "2I", 3, (1, 1, 1, 1, 1, 1), True),
        (50778, "H", 1, 21, True),
    ]
    buffer = io.BytesIO()
    with tifffile.TiffWriter(buffer) as file:
        file.write(
            np.rint(mosaic * 65535).astype(np.uint16), photometric=32803, extratags=tags, metadata=None
        )
        if preview is not None:
            small = np.asarray(Image.open(io.BytesIO(preview)))
            file.write(small, photometric="rgb", subfiletype=1, metadata=None)
    return buffer.getvalue()


def make_video(images: list[Image.Image], seconds_each: float = 5) -> bytes:
    """An MP4 file that shows each picture for a few seconds; each starts with a key frame."""
    import av

    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=FRAMES_PER_SECOND)
        stream.width, stream.height = images[0].size
        stream.pix_fmt, stream.bit_rate = "yuv420p", 4_000_000
        stream.codec_context.gop_size = FRAMES_PER_SECOND  # a key frame per second
        for image in images:
            for _ in range(round(seconds_each * FRAMES_PER_SECOND)):
                container.mux(stream.encode(av.VideoFrame.from_image(image.convert("RGB"))))
        container.mux(stream.encode())
    return buffer.getvalue()


def make_pages(images: list[Image.Image]) -> bytes:
    return to_bytes(images[0], "TIFF", save_all=True, append_images=images[1:])


# File name, the format, the function that writes it.
MAKERS: dict[str, tuple[str, Callable[[Image.Image], bytes]]] = {
    "photo.jpg": ("JPEG", lambda image: to_bytes(image, "JPEG", quality=95)),
    "photo.png": ("PNG", lambda image: to_bytes(image, "PNG")),
    "photo.webp": ("WebP", lambda image: to_bytes(image, "WEBP", quality=95)),
    "photo.gif": ("GIF", lambda image: to_bytes(image, "GIF")),
    "photo.bmp": ("BMP", lambda image: to_bytes(image, "BMP")),
    "photo.tif": ("TIFF", lambda image: to_bytes(image, "TIFF")),
    "photo.ppm": ("PPM", lambda image: to_bytes(image, "PPM")),
    "photo.avif": ("AVIF", lambda image: to_bytes(image, "AVIF", quality=90)),
    "IMG_0001.HEIC": ("HEIC", make_heic),
    "photo.hif": ("HEIC", make_heic),
    "photo.jxl": ("JPEG XL", make_jxl),
    "raw.dng": ("RAW", make_dng),
    "clip.mp4": ("video", lambda image: make_video([image])),
}


def make_folder(folder: Path, image: Image.Image) -> list[Path]:
    """Write `image` in every format whose package is installed; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, (kind, make) in MAKERS.items():
        if formats._BY_NAME[kind].is_installed:
            (folder / name).write_bytes(make(image))
            written.append(folder / name)
    return written


if __name__ == "__main__":
    from skimage.data import chelsea

    for path in make_folder(Path(sys.argv[1]), Image.fromarray(chelsea())):
        print(path)
