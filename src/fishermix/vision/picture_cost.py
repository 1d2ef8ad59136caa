"""What a picture costs to decode, judged by its structure before it is decoded.

A pixel limit does not bound the cost: a JPEG of 500 kB can have thousands of scans, each as large as the
picture, and a WebP of 3 kB can need gigabytes. The functions here look at bytes and headers only.
"""

from __future__ import annotations

import re

from PIL import Image

from fishermix.vision.pixel_limit import BYTES_PER_PIXEL
from fishermix.vision.unreadable import UnreadableImage, explain_limit

LARGEST_REDUCTION = 16  # a JPEG may have this many times the pixels it is decoded to
COEFFICIENT_BYTES = 6  # per pixel of a progressive JPEG, which libjpeg keeps whole at its full size
MAX_SCANS = 64  # of a JPEG; encoders write about ten
MAX_SEGMENTS = 10_000  # of a JPEG before its first scan
MAX_CHUNKS = 20_000  # of a PNG: 160 MB in the usual pieces of 8 kB
MAX_PLAIN_BYTES = 1_000_000  # of a PPM in ASCII, which Pillow decodes number by number
# Up to so many pixels, a picture may be as small a file as it likes: decoding them takes well under a second.
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
# Formats whose cost their structure does not bound: TIFF and raw photos, GIF, WebP, BMP, PPM, and what is in
# an ISO container (HEIC, AVIF, videos).
_UNBOUNDED = re.compile(rb"II|MM|GIF8|RIFF|BM|P[1-7fF]|....ftyp", re.DOTALL)
_PLAIN_PPM = re.compile(rb"P[123]\s")
# Any marker of a JPEG but a stuffed byte, a restart and a filler.
_MARKER = re.compile(rb"\xff+([^\x00\x01\xd0-\xd7\xff])", re.DOTALL)


def is_bounded(data: bytes) -> bool:
    """Whether the structure of a file without excess bounds the cost of decoding it, so that no time limit is
    needed.
    """
    if data.startswith(_JPEG):
        return _count_segments(data) <= MAX_SEGMENTS
    if data.startswith(_PNG):
        return _count_chunks(data) <= MAX_CHUNKS
    return _UNBOUNDED.match(data) is None


def find_excess(data: bytes) -> str | None:
    """The reason why the bytes of a picture are not worth decoding; None if there is none."""
    if data.startswith(_JPEG) and _has_many_scans(data):
        return f"it has more than {MAX_SCANS} scans; decoding it would take too long"
    if _PLAIN_PPM.match(data) and len(data) > MAX_PLAIN_BYTES:
        return (
            f"it is a PPM in ASCII of more than {MAX_PLAIN_BYTES:,} bytes; decoding it would take too long. "
            "Convert it to PNG"
        )
    return None


def check_opened(
    image: Image.Image, full: tuple[int, int], max_pixels: int, n_bytes: int | None = None
) -> None:
    """Raise if decoding an opened picture takes too much memory, or its header does not fit its file.

    full : the size in the file, before a reduction
    n_bytes : the size of the file; None: it is not known
    """
    if n_bytes is not None:
        check_proportion(image, full, n_bytes)
    width, height = image.size
    # Pillow only warns of a decompression bomb below twice its own limit; here it is an error.
    limit = min(max_pixels, Image.MAX_IMAGE_PIXELS or max_pixels)
    pixels = full[0] * full[1]
    needed = max(width * height, pixels // LARGEST_REDUCTION)
    if image.info.get("progressive"):
        needed = max(needed, pixels * COEFFICIENT_BYTES // BYTES_PER_PIXEL)
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


def _has_many_scans(data: bytes) -> bool:
    # The first count is an upper limit and takes microseconds; the second one reads every byte of the scans.
    return data.count(b"\xff\xda") > MAX_SCANS and count_scans(data) > MAX_SCANS


def count_scans(data: bytes) -> int:
    """The number of scans of a JPEG up to its end; counting stops above `MAX_SCANS`."""
    scans = 0
    for kind in _markers(data):
        scans += kind == b"\xda"
        if scans > MAX_SCANS:
            break
    return scans


def _count_segments(data: bytes) -> int:
    """The number of segments before the first scan, which Pillow reads one by one."""
    count = 0
    for count, kind in enumerate(_markers(data), 1):
        if kind == b"\xda" or count > MAX_SEGMENTS:
            break
    return count


def _markers(data: bytes):
    """The kinds of the markers of a JPEG, in order. Metadata are skipped: they may contain other pictures."""
    position = 2
    while (found := _MARKER.search(data, position)) and (kind := found[1]) != b"\xd9":
        yield kind
        position = found.end()
        if kind != b"\xd8":
            position += int.from_bytes(data[position : position + 2])


def _count_chunks(data: bytes) -> int:
    """The number of chunks of a PNG; counting stops above `MAX_CHUNKS`."""
    position, count = len(_PNG), 0
    while position < len(data) and count <= MAX_CHUNKS:
        position += 12 + int.from_bytes(data[position : position + 4])
        count += 1
    return count
