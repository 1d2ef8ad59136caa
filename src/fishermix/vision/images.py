"""Bytes to an upright RGB image, safely: known formats only, a cap on the pixels, a reason for every failure.

Decoders meet hostile and broken files: whatever one of them raises becomes an `UnreadableImage`.
"""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from fishermix.errors import FishermixError

ImageSource = str | os.PathLike | bytes | Image.Image

# What photographs come in and Pillow decodes by itself; never PostScript and its like, which run programs.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
BYTES_PER_PIXEL = 16  # a decoded image, its copy in another mode, and a transposed one
SHARE_OF_MEMORY = 1 / 16  # of one image: several are decoded at once
PIXELS_WITHOUT_KNOWN_MEMORY = 64_000_000
HEADERS = 1 << 20  # what a file may hold beside its pixels when it is not compressed
ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class UnreadableImage(FishermixError):
    """An image that gives no pixels, and the reason; `name` says which one it is."""

    def __init__(self, reason: str, name: str = "the image"):
        super().__init__(f"{name}: {reason}")
        self.reason = reason


def memory_in_bytes() -> int | None:
    """The memory this process may use: the machine's, or its container's if that is less; None if unknown."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    try:
        return min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        return memory


def default_max_pixels() -> int:
    """The largest image decoded unless told otherwise: one sixteenth of the memory at 16 bytes a pixel."""
    memory = memory_in_bytes()
    return int(memory * SHARE_OF_MEMORY / BYTES_PER_PIXEL) if memory else PIXELS_WITHOUT_KNOWN_MEMORY


def read_bytes(path: str | os.PathLike, max_pixels: int) -> bytes:
    """The content of a regular file that is not larger than an image of `max_pixels` can be."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableImage("a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file")
        if status.st_size > max_pixels * 8 + HEADERS:
            raise UnreadableImage(
                f"{status.st_size:,} bytes, too many for an image; {_how_to_allow(max_pixels)}"
            )
        return Path(path).read_bytes()
    except OSError as error:
        raise UnreadableImage(f"cannot be read: {error.strerror or error}") from error


def decode(data: bytes | Image.Image, max_pixels: int, side: int = 0) -> Image.Image:
    """The upright RGB image in `data`; of an animation, the first frame.

    A JPEG much larger than `side` x `side` pixels is decoded at a half, a quarter or an eighth of its size,
    but at no less than twice `side`: several times faster, and always the same for the same image and `side`.
    """
    try:
        if isinstance(data, Image.Image):
            image = data
            _check_pixels(image, max_pixels)
            image.load()
            return _rgb(_upright(image))
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            _check_pixels(image, max_pixels)
            if side:
                image.draft(None, (2 * side, 2 * side))
            image.load()
            return _rgb(_upright(image))
    except UnreadableImage:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise UnreadableImage(f"too large; {_how_to_allow(max_pixels)}") from error
    except UnidentifiedImageError as error:
        kind = "empty" if not data else "not an image, or damaged at its start"
        raise UnreadableImage(f"{kind}; these formats are read: {', '.join(FORMATS)}") from error
    except MemoryError as error:
        raise UnreadableImage(f"does not fit in memory; {_how_to_allow(max_pixels)}") from error
    except Exception as error:
        raise UnreadableImage(f"damaged: {error or type(error).__name__}") from error


def _how_to_allow(max_pixels: int) -> str:
    return (
        f"the limit is {max_pixels:,} pixels: take a smaller copy or, if you trust the image, raise "
        "max_pixels= (fishermix features: --max-pixels)"
    )


def _check_pixels(image: Image.Image, max_pixels: int) -> None:
    width, height = image.size
    # Up to twice its own limit, Pillow only warns of a decompression bomb: here it is an error.
    limit = min(max_pixels, Image.MAX_IMAGE_PIXELS or max_pixels)
    if width * height > limit:
        raise UnreadableImage(f"{width} x {height} pixels; {_how_to_allow(limit)}")
    if width * height == 0:
        raise UnreadableImage("no pixels")


def _upright(image: Image.Image) -> Image.Image:
    """Turned as its EXIF tag asks; called after loading, when Pillow has turned TIFF and removed the tag."""
    try:
        turn = _UPRIGHT.get(image.getexif().get(ORIENTATION, 1))
    except Exception:  # a damaged EXIF block does not make the pixels unreadable
        turn = None
    return image.transpose(turn) if turn is not None else image


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I;16"):
        return _grey(np.asarray(image, np.float32) / 65535)
    if image.mode in ("I", "F"):
        return _grey(_unit_range(np.asarray(image, np.float64)))
    if image.has_transparency_data:
        paper = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(paper, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def _unit_range(values: np.ndarray) -> np.ndarray:
    """Integers and floats of an unstated range to 0..1: by the smallest usual range that holds them all."""
    values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    largest = values.max()
    for top in (1.0, 255.0, 65535.0):
        if largest <= top:
            return values / top
    return values / largest


def _grey(unit: np.ndarray) -> Image.Image:
    return Image.fromarray(np.rint(np.clip(unit, 0, 1) * 255).astype(np.uint8)).convert("RGB")
