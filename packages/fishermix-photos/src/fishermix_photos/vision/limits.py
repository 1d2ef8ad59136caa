"""What a picture may cost, checked before it is decoded: pixels, bytes, and the structure of its file.

A pixel limit alone does not bound the cost: a JPEG of 500 kB can have thousands of scans, each as large as
the picture, and a WebP of 3 kB can need gigabytes. The functions here look at bytes and headers only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from io import BufferedReader
from itertools import islice
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
LARGEST_REDUCTION = 16  # a JPEG may have this many times the pixels it is decoded to
COEFFICIENT_BYTES = 6  # per pixel of a JPEG with several scans, which libjpeg keeps whole at its full size
MAX_SCANS = 64  # of a JPEG; encoders write about ten
MAX_SCANNED_PIXELS = 4_000_000_000  # pixels times scans: a few seconds
MAX_SEGMENTS = 10_000  # of a JPEG before its first scan
MAX_CHUNKS = 20_000  # of a PNG: 160 MB in the usual pieces of 8 kB
MAX_PLAIN_BYTES = 1_000_000  # of a PPM in ASCII, which Pillow decodes number by number
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
TILE_WIDTH, TILE_LENGTH = 322, 323  # tags of a TIFF

_JPEG, _PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
_SCAN, _END = b"\xda", b"\xd9"
_FRAMES, _PROGRESSIVE = (b"\xc0", b"\xc1", b"\xc9"), (b"\xc2", b"\xca")
_PLAIN_PPM = (b"P1", b"P2", b"P3")
# Any marker of a JPEG but a stuffed byte, a restart and a filler.
_MARKER = re.compile(rb"\xff+([^\x00\x01\xd0-\xd7\xff])", re.DOTALL)
_chosen_max_pixels: int | None = None


# Pixels and bytes


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


# The structure of a file


def is_bounded(data: bytes) -> bool:
    """Whether the structure of a file bounds the cost of decoding it, so that no worker is needed: that of an
    ordinary PNG, or of a JPEG with one scan. For several scans, libjpeg keeps all coefficients in memory.
    """
    if data.startswith(_PNG):
        kinds = [kind for kind, _ in list_png_chunks(data)]
        return len(kinds) <= MAX_CHUNKS and kinds.count(b"iCCP") <= 1  # Pillow decompresses each profile
    if not data.startswith(_JPEG):
        return not data
    colors = 0
    for kind, start, _ in islice(_list_markers(data), MAX_SEGMENTS):
        if kind in _PROGRESSIVE:
            return False
        if kind in _FRAMES:
            colors = int.from_bytes(data[start + 7 : start + 8])
        elif kind == _SCAN:
            return 0 < colors <= int.from_bytes(data[start + 2 : start + 3])  # 0: a frame of another kind
    return False


def check_opened(
    image: Image.Image, full: tuple[int, int], max_pixels: int, data: bytes | None = None
) -> None:
    """Raise if decoding an opened picture takes too much memory or time, or its header does not fit its file.

    full : the size in the file, before a reduction
    data : the file; None if it is not known
    """
    if data is not None:
        check_proportion(image, full, len(data))
        if data[:2] in _PLAIN_PPM and len(data) > MAX_PLAIN_BYTES:
            reason = f"it is a PPM in ASCII of more than {MAX_PLAIN_BYTES:,} bytes. Convert it to PNG"
            raise UnreadableImage(reason)
    width, height = image.size
    # Pillow only warns of a decompression bomb below twice its own limit; here it is an error.
    limit = min(max_pixels, Image.MAX_IMAGE_PIXELS or max_pixels)
    pixels = full[0] * full[1]
    needed = max(width * height, pixels // LARGEST_REDUCTION)
    if data is not None and data.startswith(_JPEG) and not is_bounded(data):
        needed = max(needed, pixels * COEFFICIENT_BYTES // BYTES_PER_PIXEL)
        most_scans = min(MAX_SCANS, MAX_SCANNED_PIXELS // max(1, pixels))
        if count_scans(data) > most_scans:
            raise UnreadableImage(f"it has more than {most_scans} scans; decoding it would take too long")
    if needed > limit:
        check_size(*full, limit)
    if width * height == 0:
        raise UnreadableImage("the image has no pixels")


def check_size(width: int, height: int, limit: int) -> None:
    """Raise if a picture has more pixels than the limit."""
    if width * height > limit:
        reason = f"it has {width} x {height} pixels; {explain_limit(limit)}"
        raise UnreadableImage(reason, may_change=True)


def check_proportion(image: Image.Image, full: tuple[int, int], n_bytes: int) -> None:
    """Raise if the header of an opened picture of the size `full` does not fit a file of `n_bytes`."""
    width, height = full
    pixels, limit = width * height, PIXELS_PER_BYTE.get(image.format or "")
    if limit and pixels > max(UNQUESTIONED_PIXELS, limit * n_bytes):
        raise UnreadableImage(f"{n_bytes:,} bytes are too few for {width} x {height} pixels")
    tags = getattr(image, "tag_v2", {})
    tile_width, tile_length = tags.get(TILE_WIDTH, 0), tags.get(TILE_LENGTH, 0)
    if not all(isinstance(side, int) for side in (tile_width, tile_length)):
        raise UnreadableImage("the size of its tiles is damaged")
    if tile_width * tile_length > max(UNQUESTIONED_PIXELS, 2 * pixels):
        reason = f"its tiles of {tile_width} x {tile_length} pixels are larger than the picture"
        raise UnreadableImage(reason)


def count_scans(data: bytes) -> int:
    """The number of scans of a JPEG up to its end; counting stops above `MAX_SCANS`."""
    scans = (kind for kind, _, _ in _list_markers(data) if kind == _SCAN)
    return sum(1 for _ in islice(scans, MAX_SCANS + 1))


def _list_markers(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The markers of a JPEG, in order, each with the start and the end of its segment.

    The content of a segment is skipped: metadata may contain other pictures.
    """
    position = 2
    while (found := _MARKER.search(data, position)) and (kind := found[1]) != _END:
        start = position = found.end()
        if kind != b"\xd8":
            position += int.from_bytes(data[start : start + 2])
        yield kind, start, position


def list_png_chunks(data: bytes) -> Iterator[tuple[bytes, slice]]:
    """The kind and the content of each chunk of a PNG, up to one more than `MAX_CHUNKS`."""
    position = len(_PNG)
    for _ in range(MAX_CHUNKS + 1):
        if position >= len(data):
            return
        start, length = position + 8, int.from_bytes(data[position : position + 4])
        yield data[position + 4 : start], slice(start, start + length)
        position = start + length + 4
