"""`open_photo`, the one function that opens photos: an allow-list of formats, a pixel limit, upright RGB.

Photo files may be hostile or damaged: whatever a decoder raises becomes an `UnreadableImage` with a reason.
So does a photo that takes too long or needs too much memory (see `picture_cost` and `worker`).
"""

from __future__ import annotations

import io
import logging
import os
import stat
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from fishermix.errors import FishermixError
from fishermix.vision.picture_cost import find_disproportion, find_excess
from fishermix.vision.remarks import collect_remarks
from fishermix.vision.worker import WorkerFailed, decode_in_worker, needs_worker

LOG = logging.getLogger("fishermix.vision")  # remarks of decoders, at the level INFO: not shown by default
ImageSource = str | os.PathLike | bytes | Image.Image

# Formats of photos that Pillow decodes itself. Never PostScript and the like, whose decoders run programs.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
BYTES_PER_PIXEL = 16  # a decoded image, its copy in another mode, and a transposed copy
SHARE_OF_MEMORY = 1 / 16  # per image, because several are decoded at once
PIXELS_WITHOUT_KNOWN_MEMORY = 64_000_000  # 1 GB at 16 bytes per pixel; cameras stay below it
FILE_BYTES_PER_PIXEL = 8  # of an uncompressed file with four channels of 16 bits
HEADER_BYTES = 1 << 20  # what an uncompressed file may hold besides its pixels
ORIENTATION = 0x0112  # the EXIF tag
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
    """An image that cannot be decoded; `reason` says why, `name` which image it is."""

    def __init__(self, reason: str, name: str = "the image"):
        super().__init__(f"Cannot read {name}: {reason}.")
        self.reason = reason


def memory_in_bytes() -> int | None:
    """The memory available to this process: RAM, or the container's limit if less; None if unknown."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    try:
        return min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        return memory


def default_max_pixels() -> int:
    """The default pixel limit: one image may take a sixteenth of the memory, at 16 bytes per pixel."""
    memory = memory_in_bytes()
    return int(memory * SHARE_OF_MEMORY / BYTES_PER_PIXEL) if memory else PIXELS_WITHOUT_KNOWN_MEMORY


def allow_pixels(max_pixels: int | None) -> int:
    """The pixel limit that `max_pixels` means (None: the default).

    A limit above Pillow's own raises that one too, for the whole process.
    """
    if max_pixels is None:
        return default_max_pixels()
    if max_pixels < 1:
        raise FishermixError(f"max_pixels must be at least 1, not {max_pixels}.")
    if Image.MAX_IMAGE_PIXELS and max_pixels > Image.MAX_IMAGE_PIXELS:
        Image.MAX_IMAGE_PIXELS = max_pixels
    return max_pixels


def read_bytes(path: str | os.PathLike, max_pixels: int) -> bytes:
    """The content of a regular file, unless it is larger than any image of `max_pixels` pixels."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableImage("it is a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file")
        if status.st_size > max_pixels * FILE_BYTES_PER_PIXEL + HEADER_BYTES:
            raise UnreadableImage(
                f"{status.st_size:,} bytes are too many for an image; {_explain_limit(max_pixels)}"
            )
        return Path(path).read_bytes()
    except OSError as error:
        raise UnreadableImage(error.strerror or str(error)) from error


def open_photo(photo: ImageSource, max_pixels: int | None = None, side: int = 0) -> Image.Image:
    """The upright RGB image of a path, bytes or a PIL image; of an animation, the first frame.

    An image with more than `max_pixels` pixels (None: the default) is rejected before it is decoded. A JPEG
    much larger than `side` x `side` pixels is decoded at a half, a quarter or an eighth of its size, but
    never below twice `side`: this is several times faster, and deterministic. The message of an
    `UnreadableImage` names the file if `photo` is a path.
    """
    limit = default_max_pixels() if max_pixels is None else max_pixels
    if not isinstance(photo, str | os.PathLike):
        return _decode_within_limits(photo, limit, side, "a photo")
    try:
        return _decode_within_limits(read_bytes(photo, limit), limit, side, os.fspath(photo))
    except UnreadableImage as error:
        raise UnreadableImage(error.reason, os.fspath(photo)) from error


def _decode_within_limits(data: bytes | Image.Image, max_pixels: int, side: int, name: str) -> Image.Image:
    """Decode here or, if the cost is unknown, in a worker; log what the decoder remarks on the photo."""
    if isinstance(data, bytes) and (excess := find_excess(data)):
        raise UnreadableImage(excess)
    try:
        if isinstance(data, bytes) and needs_worker(data):
            image, remarks = decode_in_worker(data, max_pixels, side)
        else:
            image, remarks = decode_bytes(data, max_pixels, side)
    except WorkerFailed as error:
        raise UnreadableImage(str(error)) from error
    for remark in remarks:
        LOG.info("%s: %s", name, remark)
    return image


def decode_bytes(data: bytes | Image.Image, max_pixels: int, side: int) -> tuple[Image.Image, list[str]]:
    """The upright RGB image and the remarks of its decoder, at any cost. Others call `open_photo`."""
    with collect_remarks() as remarks:
        return _decode(data, max_pixels, side), remarks


def _decode(data: bytes | Image.Image, max_pixels: int, side: int) -> Image.Image:
    try:
        if isinstance(data, Image.Image):
            return _load(data, max_pixels)
        if not isinstance(data, bytes):
            raise UnreadableImage(f"{type(data).__name__} is neither a path nor bytes nor a PIL image")
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            _check_pixels(image, max_pixels)
            if disproportion := find_disproportion(image, len(data)):
                raise UnreadableImage(disproportion)
            return _load(image, max_pixels, side)
    except UnreadableImage:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise UnreadableImage(f"the image is too large; {_explain_limit(max_pixels)}") from error
    except UnidentifiedImageError as error:
        problem = "the file is empty" if not data else "not an image, or its first bytes are damaged"
        raise UnreadableImage(f"{problem}. Supported formats: {', '.join(FORMATS)}") from error
    except MemoryError as error:
        raise UnreadableImage(f"the image does not fit in memory; {_explain_limit(max_pixels)}") from error
    except Exception as error:
        raise UnreadableImage(f"the file is damaged ({error or type(error).__name__})") from error


def _load(image: Image.Image, max_pixels: int, side: int = 0) -> Image.Image:
    _check_pixels(image, max_pixels)
    if side:
        image.draft(None, (2 * side, 2 * side))
    image.load()
    return _convert_to_rgb(_turn_upright(image))


def _explain_limit(max_pixels: int) -> str:
    return (
        f"the limit is {max_pixels:,} pixels. Use a smaller copy or, if you trust the image, raise "
        "max_pixels (fishermix features: --max-pixels)"
    )


def _check_pixels(image: Image.Image, max_pixels: int) -> None:
    width, height = image.size
    # Pillow only warns of a decompression bomb below twice its own limit; here it is an error.
    limit = min(max_pixels, Image.MAX_IMAGE_PIXELS or max_pixels)
    if width * height > limit:
        raise UnreadableImage(f"it has {width} x {height} pixels; {_explain_limit(limit)}")
    if width * height == 0:
        raise UnreadableImage("the image has no pixels")


def _turn_upright(image: Image.Image) -> Image.Image:
    """Apply the EXIF orientation. Loading has already turned a TIFF and removed its tag."""
    try:
        turn = _UPRIGHT.get(image.getexif().get(ORIENTATION, 1))
    except Exception:  # a damaged EXIF block does not make the pixels unreadable
        turn = None
    return image.transpose(turn) if turn is not None else image


def _convert_to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I;16"):
        return _make_gray(np.asarray(image, np.float32) / 65535)
    if image.mode in ("I", "F"):
        return _make_gray(_scale_to_unit_range(np.asarray(image, np.float64)))
    if image.has_transparency_data:
        background = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(background, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def _scale_to_unit_range(values: np.ndarray) -> np.ndarray:
    """Scale values of an unknown range to 0..1, by the smallest usual range that contains them all."""
    values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    largest = values.max()
    for top in (1.0, 255.0, 65535.0):
        if largest <= top:
            return values / top
    return values / largest


def _make_gray(unit: np.ndarray) -> Image.Image:
    return Image.fromarray(np.rint(np.clip(unit, 0, 1) * 255).astype(np.uint8)).convert("RGB")
