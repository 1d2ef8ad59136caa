"""Groups of photos that are the same: equal files, and copies in another size, format or quality.

Photos whose points are close are compared by a perceptual hash (the signs of the lowest frequencies of the
gray photo), so that two photos of one scene are no group.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fishermix.errors import FishermixError
from fishermix.progress import progress
from fishermix.runtime import available_threads

from fishermix_photos.details import Details
from fishermix_photos.results import Photo
from fishermix_photos.vision.formats import may_hold_several

# On Flickr8K, copies at half the size (250 pixels) have a cosine of 0.66 and more. Of the 255 bits, copies
# differ in up to 15, copies without a margin of 2 % in up to 42, other photos of a scene in 89 and more.
LEAST_COSINE = 0.65  # of the points of two photos whose hashes are compared
MOST_DIFFERENT_BITS = 48
HASH_SIDE, GRAY_SIDE = 16, 64  # frequencies per direction; side of the gray photo in pixels
ROWS_AT_ONCE = 1024
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
    """A picture of the library: the photos that show it, and its unit point (d,)."""

    photos: Sequence[Photo]
    point: np.ndarray


def find_duplicates(contents: Sequence[Content], exact: bool = False) -> list[DuplicateGroup]:
    """The groups of pictures, ordered by path; `exact`: only equal files."""
    groups = _Groups(len(contents))
    if not exact:
        for first, second in _find_pairs(contents):
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


class CopyFinder:
    """Finds near copies among the photos of a search; remembers the hashes of the photos that it opened."""

    def __init__(self) -> None:
        self._hashes: dict[int, np.ndarray | None] = {}

    def find_originals(self, rows: Sequence[int], files: Sequence[str], points: np.ndarray) -> list[int]:
        """For each photo the position of the first one that it is a copy of: its own, if there is none.

        rows : that of the content of each photo
        points : (n, d) of unit length
        """
        cosines = points @ points.T
        originals: list[int] = []
        for photo, row in enumerate(rows):
            near = [
                other
                for other in range(photo)
                if originals[other] == other and cosines[other, photo] >= LEAST_COSINE
            ]
            copied = (
                other
                for other in near
                if rows[other] == row or self._look_same((rows[other], files[other]), (row, files[photo]))
            )
            originals.append(next(copied, photo))
        return originals

    def _look_same(self, *photos: tuple[int, str]) -> bool:
        hashes = []
        for row, file in photos:
            if row not in self._hashes:
                self._hashes[row] = None if may_hold_several(file) else _hash_photo(Path(file))
            hashes.append(self._hashes[row])
        first, second = hashes
        if first is None or second is None:
            return False
        return int(np.count_nonzero(first ^ second)) <= MOST_DIFFERENT_BITS


def _find_pairs(contents: Sequence[Content]) -> Iterator[tuple[int, int]]:
    """Positions of pictures that look the same."""
    names = [content.photos[0].path for content in contents]
    rows = np.array([row for row, name in enumerate(names) if not may_hold_several(name)], np.int64)
    if not len(rows):
        return
    candidates = find_close(np.stack([contents[row].point for row in rows]))
    wanted, pairs = np.unique(candidates.ravel(), return_inverse=True)
    paths = [Path(names[rows[position]]) for position in wanted]
    hashes = np.zeros((len(wanted), HASH_SIDE**2 - 1), bool)
    threads = available_threads()
    with progress("comparing photos", total=len(wanted)) as bar, ThreadPoolExecutor(threads) as pool:
        for position, found in enumerate(pool.map(_hash_photo, paths)):
            hashes[position] = found if found is not None else False
            bar.advance()
    readable = np.count_nonzero(hashes, axis=1) > 0
    for first, second in pairs.reshape(-1, 2).tolist():
        different = np.count_nonzero(hashes[first] ^ hashes[second])
        if readable[first] and readable[second] and different <= MOST_DIFFERENT_BITS:
            yield int(rows[wanted[first]]), int(rows[wanted[second]])


def find_close(points: np.ndarray) -> np.ndarray:
    """Pairs (n, 2) of rows with a cosine of at least `LEAST_COSINE`; the first is the lower one."""
    pairs = [np.empty((0, 2), np.int64)]
    for start in range(0, len(points), ROWS_AT_ONCE):
        close = points[start : start + ROWS_AT_ONCE] @ points[start:].T >= LEAST_COSINE
        pairs.append(np.argwhere(np.triu(close, 1)) + start)
    return np.concatenate(pairs)


def _hash_photo(path: Path) -> np.ndarray | None:
    """The bits of a photo's perceptual hash; None if it cannot be read or shows a plain surface."""
    from PIL import Image

    from fishermix_photos.vision.open import open_photo

    try:
        photo = open_photo(path, side=GRAY_SIDE)
    except FishermixError:
        return None
    return hash_pixels(np.asarray(photo.convert("L").resize((GRAY_SIDE, GRAY_SIDE), Image.Resampling.BOX)))


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
