"""The directories of a TIFF file: its pages, and whether it is a RAW photo.

They are read here first, because Pillow reads all of them up to the wanted page, with every value in them;
they may overlap, and hold gigabytes in a small file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from PIL import Image

from fishermix_photos.photos.formats import UnreadableImage

TIFF_PIXELS_PER_BYTE = 2000  # of more, the file is empty or an attack
MOST_PAGES = 500  # of a file
MOST_DIRECTORIES = 1000
MOST_TAGS = 1000  # of a directory
MOST_VALUES = 4_000_000  # in a directory: the offsets of a million tiles
UNQUESTIONED_PIXELS_OF_PAGES = 500_000_000  # in all; of more, their file must not be too small
REDUCED_PAGE = 1  # the bit of NewSubfileType that marks a thumbnail of another page
SUBFILE_TYPE, WIDTH, HEIGHT, BITS_PER_SAMPLE, MAKE = 254, 256, 257, 258, 271  # tags
PLANAR_CONFIGURATION, SEPARATE_PLANES, SUB_IFDS, DNG_VERSION = 284, 2, 330, 50706
SHORT_INTEGER = 3  # a type of values
TIFF_HEADS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # of the last two, positions have 8 bytes


class Directory(NamedTuple):
    """A directory of a TIFF file: its position, its tags, and what it says of the picture."""

    position: int
    tags: frozenset[int]
    pixels: int
    is_thumbnail: bool


def list_pages(data: bytes) -> list[Directory]:
    """The pages of a TIFF file that are not thumbnails of others, as many as one file may have."""
    directories = list(_walk_directories(data))
    pages = [page for page in directories if not page.is_thumbnail] or directories[:1]
    most = max(UNQUESTIONED_PIXELS_OF_PAGES, TIFF_PIXELS_PER_BYTE * len(data))
    total = np.cumsum([page.pixels for page in pages[:MOST_PAGES]], dtype=np.float64)
    return pages[: max(1, int(np.count_nonzero(total <= most)))]


def _walk_directories(data: bytes) -> Iterator[Directory]:
    """The directories of a TIFF file in their order; it ends where the file is damaged."""
    order = "<" if data[:2] == b"II" else ">"
    is_big = data[:4] in TIFF_HEADS[2:]
    pointer, count = (np.dtype(f"{order}u8"),) * 2 if is_big else map(np.dtype, (f"{order}u4", f"{order}u2"))
    value = f"V{pointer.itemsize}"
    entry = np.dtype([("tag", f"{order}u2"), ("type", f"{order}u2"), ("count", pointer), ("value", value)])
    seen: set[int] = set()
    following = 8 if is_big else 4  # where the position of the next directory is
    while following + pointer.itemsize <= len(data) and len(seen) < MOST_DIRECTORIES:
        position = int(np.frombuffer(data, pointer, 1, following)[0])
        start = position + count.itemsize
        if position in seen or position < 8 or start > len(data):
            return
        seen.add(position)
        n_tags = int(np.frombuffer(data, count, 1, position)[0])
        following = start + n_tags * entry.itemsize
        if following > len(data):
            return
        tags = np.frombuffer(data, entry, n_tags, start)
        if n_tags > MOST_TAGS or tags["count"].sum(dtype=np.float64) > max(MOST_VALUES, len(data)):
            raise UnreadableImage("a directory of the file has too many values", code="too_costly")
        yield _describe_directory(position, tags, order)


def _describe_directory(position: int, tags: np.ndarray, order: str) -> Directory:
    def read(tag: int) -> int:
        for found in tags[tags["tag"] == tag][:1]:
            size = 2 if found["type"] == SHORT_INTEGER else 4
            return int.from_bytes(found["value"].tobytes()[:size], "little" if order == "<" else "big")
        return 0

    pixels = read(WIDTH) * read(HEIGHT)
    is_thumbnail = bool(read(SUBFILE_TYPE) & REDUCED_PAGE)
    return Directory(
        position=position, tags=frozenset(tags["tag"].tolist()), pixels=pixels, is_thumbnail=is_thumbnail
    )


def select_page(data: bytes, page: int) -> bytes:
    """The same TIFF file, with this page (counted from 1) as its first."""
    pages = list_pages(data)
    if not pages:  # the file is damaged, as its decoder will say
        return data
    if page > len(pages):
        raise UnreadableImage(f"the file has no page {page}", code="no_page")
    start, size = (8, 8) if data[:4] in TIFF_HEADS[2:] else (4, 4)
    position = pages[page - 1].position.to_bytes(size, "little" if data[:2] == b"II" else "big")
    end = start + size
    return data if data[start:end] == position else b"".join((data[:start], position, data[end:]))


def looks_like_raw(data: bytes) -> bool | None:
    """Whether a TIFF file is a RAW photo: True for a DNG; None for what NEF, ARW and PEF have in common with
    the files of some photo editors.
    """
    first = next(_walk_directories(data), None)
    if first is None or DNG_VERSION in first.tags:
        return first is not None
    return None if {SUB_IFDS, MAKE} <= first.tags else False


def get_stored_size(image: Image.Image) -> tuple[int, int]:
    """The size of the page as stored; Pillow gives that of the page turned upright."""
    tags = image.tag_v2  # type: ignore[attr-defined]
    return tags[WIDTH], tags[HEIGHT]


def has_deep_planes(image: Image.Image) -> bool:
    """Whether a page stores each color apart, with more than 8 bits: Pillow mixes up the bytes of these."""
    tags = image.tag_v2  # type: ignore[attr-defined]
    bits = tags.get(BITS_PER_SAMPLE, (8,))
    return tags.get(PLANAR_CONFIGURATION) == SEPARATE_PLANES and len(bits) > 1 and max(bits) > 8
