"""Near copies in a search: photos of one picture share one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fishermix_photos.index.duplicates import find_near_copies
from fishermix_photos.index.photo import Photo

if TYPE_CHECKING:
    from fishermix_photos.index.values import Picture


FEWEST_COMPARED = 256  # photos at a time: of a long burst, not all pairs are compared


def merge_copies(photos: Sequence[Photo], pictures: Mapping[str, Picture], dimension: int) -> list[Photo]:
    """The photos of a search without near copies of earlier ones, which become their `similar`.

    pictures : by id; another process may have removed some photos
    dimension : that of the embeddings; the rest of a vector is its hubness
    """
    known = [photo for photo in photos if photo.id in pictures]
    similar: dict[int, list[Photo]] = {}  # by the position of the original
    start = 0
    while start < len(known):
        end = min(len(known), start + max(FEWEST_COMPARED, len(similar)))
        positions = [*similar, *range(start, end)]
        earlier: dict[int, list[int]] = {}  # by the position of a photo, those that it is a copy of
        for first, second in find_near_copies([pictures[known[at].id] for at in positions], dimension):
            earlier.setdefault(positions[second], []).append(positions[first])
        for position in range(start, end):
            original = next((first for first in earlier.get(position, ()) if first in similar), None)
            if original is None:
                similar[position] = []
            else:
                similar[original].append(known[position])
        start = end
    return [replace(known[first], similar=tuple(copies)) for first, copies in similar.items()]
