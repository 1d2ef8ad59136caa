"""Pages of TIFF files, and those files that Pillow does not read: colors of 32-bit floats and integers."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from fishermix.vision.formats import PictureProblem

MOST_PAGES = 500  # of a file
REDUCED_PAGE = 1  # the bit of NewSubfileType that marks a thumbnail of another page
WIDTH, HEIGHT = 256, 257  # tags
BITS_PER_SAMPLE, PLANAR_CONFIGURATION, SEPARATE_PLANES = 258, 284, 2  # two tags, and a value of the second
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


def has_deep_planes(image: Image.Image) -> bool:
    """Whether a page stores each color apart, with more than 8 bits: Pillow mixes up the bytes of these."""
    tags = image.tag_v2  # type: ignore[attr-defined]
    bits = tags.get(BITS_PER_SAMPLE, (8,))
    return tags.get(PLANAR_CONFIGURATION) == SEPARATE_PLANES and len(bits) > 1 and max(bits) > 8


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
        if 0 < len(file.pages) < page:
            raise PictureProblem(f"the file has no page {page}")
        found: Any = file.pages[page - 1]
        check_size(found.imagewidth, found.imagelength)
        try:
            values = found.asarray()
        except ValueError as error:
            if "imagecodecs" not in str(error):
                raise
            name = found.compression.name
            raise PictureProblem(f"fishermix does not read TIFF files with the compression {name}") from error
        values = _put_channels_last(values, found.axes)
    if not values.size:
        raise PictureProblem("the image has no pixels")
    return values[..., :3] if values.shape[2] >= 3 else np.repeat(values[..., :1], 3, axis=2)


def _put_channels_last(values: np.ndarray, axes: str) -> np.ndarray:
    """(height, width, channels) of a page, whose channels may be planes: "SYX" instead of "YXS"."""
    if axes.count("S") == 1 and values.ndim == len(axes):
        values = np.moveaxis(values, axes.index("S"), -1)
    values = np.atleast_3d(np.squeeze(values))
    if values.ndim != 3 or values.shape[2] > 4:
        raise PictureProblem(f"a TIFF page of shape {values.shape} is not a photo")
    return values
