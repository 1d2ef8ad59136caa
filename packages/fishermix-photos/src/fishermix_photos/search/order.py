"""The order of photos that are not sorted by their scores."""

from __future__ import annotations

from collections.abc import Sequence

from fishermix_photos.index.photo import Photo
from fishermix_photos.photos.details import is_doubtful


def sort_photos(photos: Sequence[Photo], order: str) -> list[Photo]:
    """Photos newest first ("date"), oldest first or by name. Doubtful dates come last, then photos without a
    date of their own; the same time by path.
    """
    if order == "name":
        return sorted(photos, key=lambda photo: photo.path.lower())
    found = sorted(photos, key=lambda photo: photo.path)
    found.sort(key=lambda photo: photo.details.taken or "", reverse=True)
    if order == "oldest":
        found.reverse()
    return sorted(found, key=lambda photo: (photo.details.is_undated, is_doubtful(photo.details.taken)))
