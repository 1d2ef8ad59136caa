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

    from fishermix_photos.database import Picture

# Of 300 photos of Flickr8K, copies at half the size (250 pixels) have a cosine of 0.60 and more, others of
# 0.66. Of the 255 bits, copies differ in up to 26, those without a margin of 2 % in up to 47 (99 of 100), two
# photos of one moment in 67, and the other 4.5 million pairs of 3,000 photos in 83 and more.
LEAST_COSINE = 0.6  # of the points of two photos
MOST_DIFFERENT_BITS = 48
HASH_SIDE, GRAY_SIDE = 16, 64  # frequencies per direction; side of the gray photo in pixels
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


def find_duplicates(
    photos: Sequence[Photo], pictures: Mapping[str, Picture], dimension: int, exact: bool = False
) -> list[DuplicateGroup]:
    """The groups of photos with these pictures, by id, ordered by path; `exact`: only equal files."""
    contents: dict[int, list[Photo]] = {}
    for photo in sorted(photos, key=lambda photo: photo.path):
        if photo.id in pictures:
            contents.setdefault(pictures[photo.id].row, []).append(photo)
    groups = [[same] for same in contents.values()]
    if groups and not exact:
        labels = _label_groups([pictures[same[0].id] for same in contents.values()], dimension)
        groups = [[] for _ in range(len(contents))]
        for label, same in zip(labels, contents.values()):
            groups[label].append(same)
    found = []
    for group in groups:
        # What the library has not yet seen to be deleted must not be the copy that is kept.
        copies = [photo for same in group for photo in same if os.path.isfile(photo.path)]
        copies.sort(key=lambda photo: (*rank_copy(Path(photo.path), photo.details), photo.path))
        if len(copies) > 1:
            found.append(DuplicateGroup(tuple(copies), is_exact=len(group) == 1))
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


def _label_groups(pictures: Sequence[Picture], dimension: int) -> list[int]:
    """The number of the group of each picture: those that look the same, directly or by others."""
    from fishermix.mixture.compiling import njit  # a search needs none of these
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    known = [number for number, picture in enumerate(pictures) if picture.fingerprint is not None]
    bits = b"".join(pictures[number].fingerprint or b"" for number in known)
    pairs = njit()(_find_alike)(np.frombuffer(bits, np.uint64).reshape(-1, 4), MOST_DIFFERENT_BITS)
    edges = []
    for first, second in pairs:
        one, other = known[first], known[second]
        if pictures[one].point[:dimension] @ pictures[other].point[:dimension] >= LEAST_COSINE:
            edges.append((one, other))
    ends = np.array(edges, np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(len(edges)), (ends[0], ends[1])), shape=(len(pictures), len(pictures)))
    return connected_components(graph, directed=False)[1].tolist()


def _find_alike(words: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Pairs of rows of `words` (n, 4), each of 64 bits, that differ in at most this many bits.

    It is compiled: for 100,000 photos, these are five billion pairs.
    """
    pairs = [(0, 0) for _ in range(0)]
    twos = np.uint64(0x3333333333333333)
    for first in range(len(words)):
        for second in range(first + 1, len(words)):
            different = np.int64(0)
            for column in range(words.shape[1]):
                # The number of ones: of each two bits, then four, then eight, then their sum.
                x = words[first, column] ^ words[second, column]
                x -= (x >> np.uint64(1)) & np.uint64(0x5555555555555555)
                x = (x & twos) + ((x >> np.uint64(2)) & twos)
                x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
                different += np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))
            if different <= most:
                pairs.append((first, second))
    return pairs


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
