"""Step 3 of a search: the photos with the highest scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fishermix_photos.index.filters import Filter
from fishermix_photos.index.photo import Photo
from fishermix_photos.search.reading import Reading
from fishermix_photos.search.results import Query
from fishermix_photos.search.vectors import QueryVector

if TYPE_CHECKING:
    from fishermix_photos.index.protocol import PhotoIndex

MOST_SORTED = 2000  # likely photos and maybes, if they are not sorted by their scores
FEWEST_LOOKED_AT, MOST_LOOKED_AT = 256, 4096  # files, if something is subtracted


@dataclass(frozen=True, eq=False)
class Hits:
    """What an index found.

    limit : the number of files that were asked for; if there are fewer `photos`, these are all
    photos : the best files with their scores, best first
    named : for each preferred name, the best of the files that have it
    written : the best of the files that show one of the phrases that were looked for in texts
    sample : (n,) scores of what the query wants with photos of the whole scope: they tell what is usual
    """

    limit: int
    photos: list[Photo]
    named: list[list[Photo]]
    written: list[Photo]
    sample: np.ndarray


def find_nearest(
    query: Query,
    reading: Reading,
    vector: QueryVector,
    index: PhotoIndex,
    prefixes: Sequence[str],
    limit: int,
) -> Hits:
    """The photos with the highest scores, at most `limit`, and as many of each preferred name."""
    photos = _find_files(vector, limit, index, prefixes, reading.filter)
    named = [
        _find_files(
            vector, limit, index, prefixes, replace(reading.filter, names=(*reading.filter.names, name))
        )
        for name in reading.preferred
    ]
    written = []
    if reading.written:
        texts = (*reading.filter.texts, "|".join(reading.written))
        written = _find_files(vector, limit, index, prefixes, replace(reading.filter, texts=texts))
    sample = index.sample_scores(vector.vector, 20_000, prefixes)  # enough for a median and a quantile
    return Hits(limit=limit, photos=photos, named=named, written=written, sample=sample)


def start_limit(query: Query) -> int:
    """How many photos to look for first. Some more than asked for: copies will take no place."""
    return query.offset + query.n + 11 if query.sort == "score" else MOST_SORTED


def _find_files(
    vector: QueryVector,
    n: int,
    index: PhotoIndex,
    prefixes: Sequence[str],
    filter: Filter,
) -> list[Photo]:
    """The n best files. What is subtracted only lowers scores: a file that has not been looked at has at most
    the score of the last one that has.
    """
    if vector.unwanted is None:
        return index.nearest_files(vector.vector, n, prefixes, filter)
    asked = FEWEST_LOOKED_AT
    while True:
        found = index.nearest_files(vector.vector, asked, prefixes, filter)
        best = _subtract(found, vector, index)
        is_exact = len(found) < asked or (len(best) >= n and _score(best[n - 1]) >= _score(found[-1]))
        if is_exact or asked >= max(n, MOST_LOOKED_AT):
            return best[:n]
        asked *= 4


def _subtract(photos: Sequence[Photo], vector: QueryVector, index: PhotoIndex) -> list[Photo]:
    """Photos with the scores that are left to them, best first; another process may have removed some."""
    pictures = index.pictures([photo.id for photo in photos])
    known = [photo for photo in photos if photo.id in pictures]
    if not known:
        return []
    points = np.stack([pictures[photo.id].embedding for photo in known])
    scores = vector.subtract(np.array([photo.score for photo in known], np.float32), points)
    left = [replace(photo, score=score) for photo, score in zip(known, scores.tolist())]
    return sorted(left, key=lambda photo: -_score(photo))


def _score(photo: Photo) -> float:
    return photo.score or 0.0
