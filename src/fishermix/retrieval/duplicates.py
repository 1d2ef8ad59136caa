"""Groups of photos that are the same: equal files, and copies in another size, format or quality.

Photos whose points are close are compared by a perceptual hash (the signs of the lowest frequencies of the
gray photo), so that two photos of one scene are no group.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fishermix.errors import FishermixError
from fishermix.progress import progress
from fishermix.retrieval.details import Details
from fishermix.retrieval.index import PhotoIndex
from fishermix.threads import available_threads
from fishermix.vision.formats import may_have_parts, split_part

# On Flickr8K, copies at half the size (250 pixels) have a cosine of 0.66 and more. Of the 255 bits, copies
# differ in up to 15, copies without a margin of 2 % in up to 42, other photos of a scene in 89 and more.
LEAST_COSINE = 0.65  # of the points of two photos whose hashes are compared
MOST_DIFFERENT_BITS = 48
HASH_SIDE, GRAY_SIDE = 16, 64  # frequencies per direction; side of the gray photo in pixels
ROWS_AT_ONCE = 1024
# How programs call a copy: "photo copy", "photo - Copy (2)", "Copy of photo", "photo (1)".
COPY_MARK = re.compile(r"(?<![^\W_])(?:copy|copie|copia|kopie)(?![^\W\d_])|\(\d+\)$", re.IGNORECASE)


@dataclass(frozen=True)
class Group:
    """paths : of at least two photos; the first one has the most pixels and, of several such photos, is
        likely the original
    is_exact : whether all files are equal, byte by byte
    """

    paths: list[str]
    is_exact: bool


def find_duplicates(index: PhotoIndex, exact: bool = False) -> list[Group]:
    """The groups of an index, ordered by path; `exact`: only equal files."""
    contents, vectors = index.store.contents()
    files = [[path for path in paths if split_part(path)[0] == path] for paths in contents]
    if len(index.parts) > 1:
        files = _merge_equal(index, files)
    groups = _Groups(len(files))
    if not exact:
        points = vectors[:, : index.model.dimension]
        for first, second in _find_pairs(index, files, points):
            groups.join(first, second)
    details = index.store.details()
    found = []
    for rows in groups.list():
        # What an index has not yet seen to be deleted must not be the copy that is kept.
        paths = sorted(path for row in rows for path in files[row] if (index.folder / path).is_file())
        paths.sort(key=lambda path: judge_file(index.folder / path, details.get(path)))
        if len(paths) > 1:
            found.append(Group(paths, is_exact=len(rows) == 1))
    return sorted(found, key=lambda group: min(group.paths))


def _merge_equal(index: PhotoIndex, files: Sequence[Sequence[str]]) -> list[list[str]]:
    """The paths of each content, of which each index has its own row: equal files get the first such row."""
    stamps, by_size = index.store.stamps(), dict[int, list[int]]()
    for row, paths in enumerate(files):
        if paths:
            by_size.setdefault(stamps[paths[0]].size, []).append(row)
    merged, first = [list(paths) for paths in files], dict[bytes, int]()
    for rows in by_size.values():
        for row in rows if len(rows) > 1 else ():
            with suppress(OSError), open(index.folder / files[row][0], "rb") as file:
                target = first.setdefault(hashlib.file_digest(file, "sha256").digest(), row)
                if target != row:
                    merged[target] += merged[row]
                    merged[row] = []
    return merged


def judge_file(path: Path, details: Details | None = None) -> tuple[int, bool, bool, str, int, int]:
    """Lower for an original than for its copies.

    It has more pixels; it still knows when it was taken; it is not called a copy; it was taken, then changed,
    earlier; its name is shorter.
    """
    known = details or Details()
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        changed = sys.maxsize
    taken = known.taken if known.taken_from == "exif" else None
    is_copy = COPY_MARK.search(path.stem) is not None
    pixels = (known.width or 0) * (known.height or 0)
    return -pixels, taken is None, is_copy, taken or "", changed, len(path.name)


def _find_pairs(
    index: PhotoIndex, files: Sequence[Sequence[str]], points: np.ndarray
) -> Iterator[tuple[int, int]]:
    """Rows of contents that look the same."""
    comparable = [bool(paths) and not may_have_parts(paths[0]) for paths in files]
    rows = np.flatnonzero(np.array(comparable, bool))
    candidates = find_close(points[rows])
    wanted, pairs = np.unique(candidates.ravel(), return_inverse=True)
    paths = [index.folder / files[rows[position]][0] for position in wanted]
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

    from fishermix.vision.images import open_photo

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
