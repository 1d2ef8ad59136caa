"""Pages of TIFF files, and those files that Pillow does not read: colors of 32-bit floats and integers."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

MOST_PAGES = 500  # of a file
REDUCED_PAGE = 1  # the bit of NewSubfileType that marks a thumbnail of another page
WIDTH, HEIGHT = 256, 257  # tags
SUBFILE_TYPE, MAKE, SUB_IFDS, DNG_VERSION = 254, 271, 330, 50706  # tags


def list_pages(image: Image.Image, at_most: int = MOST_PAGES) -> list[int]:
    """The numbers, from 0, of the pages that are not thumbnails of others."""
    pages: list[int] = []
    for number in range(2 * MOST_PAGES):
        try:
            image.seek(number)
        except EOFError:
            break
        if not image.tag_v2.get(SUBFILE_TYPE, 0) & REDUCED_PAGE:  # type: ignore[attr-defined]
            pages.append(number)
        if len(pages) >= at_most:
            break
    return pages or [0]


def get_stored_size(image: Image.Image) -> tuple[int, int]:
    """The size of the page as stored; Pillow gives that of the page turned upright."""
    tags = image.tag_v2  # type: ignore[attr-defined]
    return tags[WIDTH], tags[HEIGHT]


def looks_like_raw(data: bytes) -> bool | None:
    """Whether a TIFF file is a RAW photo: True for a DNG; None for what NEF, ARW and PEF have in common with
    the files of some photo editors.
    """
    tags = ImageFileDirectory_v2(data[:8])
    tags.load(_at(data, tags.next))
    if DNG_VERSION in tags:
        return True
    return None if SUB_IFDS in tags and MAKE in tags else False


def _at(data: bytes, position: int) -> io.BytesIO:
    file = io.BytesIO(data)
    file.seek(position)
    return file


def read_page(data: bytes, page: int, check_size: Callable[[int, int], None]) -> np.ndarray:
    """The values (height, width, 3) of a page, by the package tifffile."""
    import tifffile

    with tifffile.TiffFile(io.BytesIO(data)) as file:
        found: Any = file.pages[page - 1]
        check_size(found.imagewidth, found.imagelength)
        values = np.atleast_3d(np.squeeze(found.asarray()))
    if values.ndim != 3 or values.shape[2] > 4:
        raise ValueError(f"a TIFF page of shape {values.shape} is not a photo")
    return values[..., :3] if values.shape[2] >= 3 else np.repeat(values[..., :1], 3, axis=2)
