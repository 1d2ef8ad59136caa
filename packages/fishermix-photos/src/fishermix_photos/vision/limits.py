"""How many pixels and bytes a picture may have. `decode` checks what decoding it costs besides."""

from __future__ import annotations

import os
from io import BufferedReader
from pathlib import Path

from fishermix.errors import FishermixError
from PIL import Image

from fishermix_photos.disk import open_regular
from fishermix_photos.vision.formats import VIDEO, UnreadableImage, find_format

BYTES_PER_PIXEL = 16  # a decoded image, its copy in another mode, and a transposed copy
SHARE_OF_MEMORY = 1 / 16  # per image, because several are decoded at once
PIXELS_WITHOUT_KNOWN_MEMORY = 64_000_000  # 1 GB at 16 bytes per pixel; cameras stay below it
FILE_BYTES_PER_PIXEL = 8  # of an uncompressed file with four channels of 16 bits
LARGEST_VIDEO = 256 << 30  # bytes; 16 hours at 36 Mbit/s
HEADER_BYTES = 1 << 20  # what an uncompressed file may hold besides its pixels
# Up to this many pixels, a picture may be as small a file as it likes: decoding it takes well under a second.
UNQUESTIONED_PIXELS = 16_000_000
# Above, a file with more pixels per byte is empty or an attack. Formats that are not here have no such limit.
PIXELS_PER_BYTE = {
    "JPEG": 1000,
    "MPO": 1000,
    "PNG": 2000,
    "WEBP": 1000,
    "GIF": 3000,
    "BMP": 200,
    "TIFF": 2000,
}
_chosen_max_pixels: int | None = None


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


def set_default_max_pixels(max_pixels: int) -> None:
    """Set the default pixel limit of this process."""
    global _chosen_max_pixels
    _chosen_max_pixels = allow_pixels(max_pixels)


def default_max_pixels() -> int:
    """The default pixel limit: what `set_default_max_pixels` chose, or else one image may take a sixteenth of
    the memory, at 16 bytes per pixel.
    """
    if _chosen_max_pixels is not None:
        return _chosen_max_pixels
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


def explain_limit(max_pixels: int) -> str:
    return (
        f"the limit is {max_pixels:,} pixels. Use a smaller copy or, if you trust the image, raise "
        "max_pixels (on the command line: --max-pixels)"
    )


def open_binary(path: str | os.PathLike) -> BufferedReader:
    """Open the file of a photo to read, if it is a regular file."""
    try:
        return open_regular(path)
    except OSError as error:
        raise UnreadableImage(error.strerror or str(error)) from error


def read_bytes(path: str | os.PathLike, max_pixels: int) -> bytes:
    """The content of a regular file, unless it is larger than any image of `max_pixels` pixels."""
    with open_binary(path) as file:
        check_file_size(os.fstat(file.fileno()).st_size, max_pixels)
        try:
            return file.read()
        except OSError as error:
            raise UnreadableImage(error.strerror or str(error)) from error


def check_file_size(size: int, max_pixels: int) -> None:
    """Raise if a file is larger than any image of `max_pixels` pixels."""
    if size > max_pixels * FILE_BYTES_PER_PIXEL + HEADER_BYTES:
        reason = f"{size:,} bytes are too many for an image; {explain_limit(max_pixels)}"
        raise UnreadableImage(reason, may_change=True)


def check_photo_size(file: str, size: int) -> None:
    """Raise if a file is too large to be read whole: one with holes takes no space, whatever its size."""
    if find_format(file) is not VIDEO:
        check_file_size(size, default_max_pixels())
    elif size > LARGEST_VIDEO:
        reason = f"{size:,} bytes are too many for a video; the limit is {LARGEST_VIDEO:,} bytes"
        raise UnreadableImage(reason)


def check_size(width: int, height: int, limit: int) -> None:
    """Raise if a picture has more pixels than the limit."""
    if width * height > limit:
        reason = f"it has {width} x {height} pixels; {explain_limit(limit)}"
        raise UnreadableImage(reason, may_change=True)
