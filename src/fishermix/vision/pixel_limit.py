"""How many pixels, and bytes, a photo may have. The default follows from the memory of this machine."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from PIL import Image

from fishermix.errors import FishermixError
from fishermix.vision.unreadable import UnreadableImage, explain_limit

BYTES_PER_PIXEL = 16  # a decoded image, its copy in another mode, and a transposed copy
SHARE_OF_MEMORY = 1 / 16  # per image, because several are decoded at once
PIXELS_WITHOUT_KNOWN_MEMORY = 64_000_000  # 1 GB at 16 bytes per pixel; cameras stay below it
FILE_BYTES_PER_PIXEL = 8  # of an uncompressed file with four channels of 16 bits
HEADER_BYTES = 1 << 20  # what an uncompressed file may hold besides its pixels
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


def read_bytes(path: str | os.PathLike, max_pixels: int) -> bytes:
    """The content of a regular file, unless it is larger than any image of `max_pixels` pixels."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableImage("it is a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file")
        if status.st_size > max_pixels * FILE_BYTES_PER_PIXEL + HEADER_BYTES:
            raise UnreadableImage(
                f"{status.st_size:,} bytes are too many for an image; {explain_limit(max_pixels)}",
                may_change=True,
            )
        return Path(path).read_bytes()
    except OSError as error:
        raise UnreadableImage(error.strerror or str(error)) from error
