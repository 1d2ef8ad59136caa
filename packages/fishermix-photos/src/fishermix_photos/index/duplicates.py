"""Groups of photos that are the same: equal files, and copies in another size, format or quality.

Photos whose embeddings are close are compared by a perceptual hash (the signs of the lowest frequencies of
the gray photo), so that two photos of one scene are no group. It is computed when a photo is encoded and kept
in the library as its fingerprint: a comparison opens no photo.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from fishermix_photos.index.photo import Photo
from fishermix_photos.photos.details import Details

if TYPE_CHECKING:
    from PIL import Image

    from fishermix_photos.index.values import Picture

# Of 300 photos of Flickr8K, copies at half the size (250 pixels) have a cosine of 0.60 and more, others of
# 0.66. Of the 255 bits, copies differ in up to 26, those without a margin of 2 % in up to 47 (99 of 100), two
# photos of one moment in 67, and the other 4.5 million pairs of 3,000 photos in 83 and more.
LEAST_COSINE = 0.6  # of the embeddings of two photos
MOST_DIFFERENT_BITS = 48
HASH_SIDE, GRAY_SIDE = 16, 64  # frequencies per direction; side of the gray photo in pixels
BOX = 4  # Pillow's `Resampling.BOX`, without its import
# How programs call a copy: "photo copy", "photo - Copy (2)", "Copy of photo", "photo (1)".
COPY_MARK = re.compile(r"(?<![^\W_])(?:copy|copie|copia|kopie)(?![^\W\d_])|\(\d+\)$", re.IGNORECASE)
# Why a photo is kept: it has more pixels; it has a date or a camera in its EXIF; it has more bytes per pixel;
# its file is older; it is not named as a copy.
Reason = Literal["larger", "has_exif", "less_compressed", "older", "original_name"]


@dataclass(frozen=True)
class DuplicateGroup:
    """Photos that are the same.

    photos : at least two. The first one is the best to keep
    is_exact : whether all files are equal, byte by byte
    reason : the first thing that tells the first photo from the second; None if nothing does
    """

    photos: tuple[Photo, ...]
    is_exact: bool
    reason: Reason | None = None


class Rank(NamedTuple):
    """What decides which of several copies to keep, the most important first. The lowest is kept."""

    larger: int
    has_exif: bool
    less_compressed: float
    older: int
    original_name: tuple[bool, int]

    def tell_from(self, other: Rank) -> Reason | None:
        """The first thing that tells one from the other."""
        reasons: tuple[Reason, ...] = self._fields  # type: ignore[assignment]
        return next((name for name, *values in zip(reasons, self, other) if values[0] != values[1]), None)


def rank_copy(path: Path, known: Details) -> Rank:
    """What decides whether a photo is kept, of itself and its copies."""
    try:
        status = path.stat()
        size, changed = status.st_size, status.st_mtime_ns
    except OSError:
        size = 0
        changed = sys.maxsize
    pixels = (known.width or 0) * (known.height or 0)
    return Rank(
        larger=-pixels,
        has_exif=known.taken_from != "exif" and known.camera is None,
        less_compressed=-size / max(1, pixels),
        older=changed,
        original_name=(COPY_MARK.search(path.stem) is not None, len(path.name)),
    )


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
        if len(copies) > 1:
            ranks = {photo.id: rank_copy(Path(photo.path), photo.details) for photo in copies}
            copies.sort(key=lambda photo: (ranks[photo.id], photo.path))
            reason = ranks[copies[0].id].tell_from(ranks[copies[1].id])
            found.append(DuplicateGroup(tuple(copies), len(group) == 1, reason))
    return sorted(found, key=lambda group: min(photo.path for photo in group.photos))


def _label_groups(pictures: Sequence[Picture], dimension: int) -> list[int]:
    """The number of the group of each picture: those that look the same, directly or by others."""
    from scipy.sparse import coo_array  # a search needs none of it
    from scipy.sparse.csgraph import connected_components

    edges = np.array(find_near_copies(pictures, dimension), np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(edges.shape[1]), (edges[0], edges[1])), shape=(len(pictures), len(pictures)))
    return connected_components(graph, directed=False)[1].tolist()


def find_near_copies(pictures: Sequence[Picture], dimension: int) -> list[tuple[int, int]]:
    """The pairs of pictures, by position, that are copies of each other: equal contents, or two whose
    fingerprints and embeddings are close. The first is before the second.

    dimension : that of the embeddings; the rest of a stored vector is its hubness
    """
    rows: dict[int, list[int]] = {}
    for position, picture in enumerate(pictures):
        rows.setdefault(picture.row, []).append(position)
    pairs = [(same[0], other) for same in rows.values() for other in same[1:]]
    known = [position for position, picture in enumerate(pictures) if picture.fingerprint is not None]
    bits = b"".join(pictures[position].fingerprint or b"" for position in known)
    for first, second in _find_alike(np.frombuffer(bits, np.uint64).reshape(-1, 4)):
        one, other = known[first], known[second]
        if pictures[one].embedding[:dimension] @ pictures[other].embedding[:dimension] >= LEAST_COSINE:
            pairs.append((one, other))
    return sorted(set(pairs))


def _find_alike(words: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of fingerprints (n, 4), each of 4 words of 64 bits, that differ in few bits."""
    columns = [np.ascontiguousarray(column) for column in words.T]
    rows = 16  # at a time: they stay in the processor's cache
    pairs: list[tuple[int, int]] = []
    for start in range(0, len(words), rows):
        different = np.uint8(0)
        for column in columns[:2]:  # half of the bits rule out nearly all pairs
            different = different + np.bitwise_count(column[start : start + rows, None] ^ column[start:])
        first, second = np.nonzero(different <= MOST_DIFFERENT_BITS)
        first, second = first[second > first] + start, second[second > first] + start
        different = np.bitwise_count(words[first] ^ words[second]).sum(axis=1)
        is_alike = different <= MOST_DIFFERENT_BITS
        pairs += zip(first[is_alike].tolist(), second[is_alike].tolist())
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
