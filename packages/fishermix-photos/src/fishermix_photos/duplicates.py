"""Groups of photos that are the same: equal files, and copies in another size, format or quality.

Photos whose points are close are compared by a perceptual hash (the signs of the lowest frequencies of the
gray photo), so that two photos of one scene are no group. It is computed when a photo is encoded and kept in
the library as its fingerprint: a comparison opens no photo.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fishermix_photos.details import Details
from fishermix_photos.results import Photo

if TYPE_CHECKING:
    from PIL import Image

# On Flickr8K, copies at half the size (250 pixels) have a cosine of 0.66 and more. Of the 255 bits, copies
# differ in up to 15, copies without a margin of 2 % in up to 42, other photos of a scene in 89 and more.
LEAST_COSINE = 0.65  # of the points of two photos whose hashes are compared
MOST_DIFFERENT_BITS = 48
HASH_SIDE, GRAY_SIDE = 16, 64  # frequencies per direction; side of the gray photo in pixels
ROWS_AT_ONCE = 1024
BOX = 4  # Pillow's `Resampling.BOX`, without its import
# How programs call a copy: "photo copy", "photo - Copy (2)", "Copy of photo", "photo (1)".
COPY_MARK = re.compile(r"(?<![^\W_])(?:copy|copie|copia|kopie)(?![^\W\d_])|\(\d+\)$", re.IGNORECASE)


@dataclass(frozen=True)
class DuplicateGroup:
    """Photos that are the same.

    photos : at least two. The first one has the most pixels and, of several such photos, is likely the
        original
    is_exact : whether all files are equal, byte by byte
    """

    photos: tuple[Photo, ...]
    is_exact: bool


@dataclass(frozen=True)
class Content:
    """A picture of the library: the photos that show it, its unit point (d,) and its fingerprint."""

    photos: Sequence[Photo]
    point: np.ndarray
    fingerprint: bytes | None


def find_duplicates(contents: Sequence[Content], exact: bool = False) -> list[DuplicateGroup]:
    """The groups of pictures, ordered by path; `exact`: only equal files."""
    groups = _Groups(len(contents))
    if contents and not exact:
        for first, second in find_close(np.stack([content.point for content in contents])).tolist():
            if look_same(contents[first].fingerprint, contents[second].fingerprint):
                groups.join(first, second)
    found = []
    for rows in groups.list():
        # What the library has not yet seen to be deleted must not be the copy that is kept.
        photos = [photo for row in rows for photo in contents[row].photos if os.path.isfile(photo.path)]
        photos.sort(key=lambda photo: (*rank_copy(Path(photo.path), photo.details), photo.path))
        if len(photos) > 1:
            found.append(DuplicateGroup(tuple(photos), is_exact=len(rows) == 1))
    return sorted(found, key=lambda group: min(photo.path for photo in group.photos))


def rank_copy(path: Path, known: Details) -> tuple[int, bool, bool, str, int, int]:
    """Lower for an original than for its copies.

    It has more pixels; it still knows when it was taken; it is not called a copy; it was taken, then changed,
    earlier; its name is shorter.
    """
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        changed = sys.maxsize
    taken = known.taken if known.taken_from == "exif" else None
    is_copy = COPY_MARK.search(path.stem) is not None
    pixels = (known.width or 0) * (known.height or 0)
    return -pixels, taken is None, is_copy, taken or "", changed, len(path.name)


def find_originals(
    rows: Sequence[int], points: np.ndarray, fingerprints: Mapping[int, bytes | None]
) -> list[int]:
    """For each photo of a search the position of the first one that it is a copy of: its own, if there is
    none.

    rows : that of the content of each photo
    points : (n, d) of unit length
    fingerprints : by row
    """
    is_close = points @ points.T >= LEAST_COSINE
    originals: list[int] = []
    for photo, row in enumerate(rows):
        copied = (
            other
            for other in range(photo)
            if originals[other] == other
            and is_close[other, photo]
            and (rows[other] == row or look_same(fingerprints.get(rows[other]), fingerprints.get(row)))
        )
        originals.append(next(copied, photo))
    return originals


def look_same(first: bytes | None, second: bytes | None) -> bool:
    """Whether two fingerprints are those of one picture."""
    if first is None or second is None:
        return False
    different = int.from_bytes(first) ^ int.from_bytes(second)
    return different.bit_count() <= MOST_DIFFERENT_BITS


def find_close(points: np.ndarray) -> np.ndarray:
    """Pairs (n, 2) of rows with a cosine of at least `LEAST_COSINE`; the first is the lower one."""
    pairs = [np.empty((0, 2), np.int64)]
    for start in range(0, len(points), ROWS_AT_ONCE):
        close = points[start : start + ROWS_AT_ONCE] @ points[start:].T >= LEAST_COSINE
        pairs.append(np.argwhere(np.triu(close, 1)) + start)
    return np.concatenate(pairs)


def take_fingerprint(photo: Image.Image) -> bytes | None:
    """The bits of a photo's perceptual hash, 32 bytes; None if it shows a plain surface."""
    gray = photo.convert("L").resize((GRAY_SIDE, GRAY_SIDE), BOX)
    bits = hash_pixels(np.asarray(gray))
    return None if bits is None else np.packbits(bits).tobytes()


def hash_pixels(gray: np.ndarray) -> np.ndarray | None:
    """The signs of the lowest frequencies of a gray image (64, 64), without the mean."""
    at = np.arange(GRAY_SIDE)
    waves = np.cos(np.pi * np.outer(np.arange(HASH_SIDE), at + 0.5) / GRAY_SIDE)  # the first rows of a DCT
    frequencies = (waves @ gray.astype(np.float64) @ waves.T).ravel()[1:]
    if np.abs(frequencies).max() < GRAY_SIDE**2 / 100:
        return None
    return frequencies > 0


class _Groups:
    """Sets of rows that grow together (union-find)."""

    def __init__(self, size: int):
        self._parents = list(range(size))

    def _root(self, row: int) -> int:
        while self._parents[row] != row:
            self._parents[row] = self._parents[self._parents[row]]
            row = self._parents[row]
        return row

    def join(self, first: int, second: int) -> None:
        self._parents[self._root(first)] = self._root(second)

    def list(self) -> list[list[int]]:
        groups: dict[int, list[int]] = {}
        for row in range(len(self._parents)):
            groups.setdefault(self._root(row), []).append(row)
        return [*groups.values()]
