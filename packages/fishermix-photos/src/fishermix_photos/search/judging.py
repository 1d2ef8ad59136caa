"""Step 4 of a search: how likely the photos are, and which of them are shown in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fishermix_photos.index.photo import Photo
from fishermix_photos.search.calibration import (
    BANDS,
    MAYBE,
    Probabilities,
    estimate_threshold,
    make_probabilities,
    word_verdict,
)
from fishermix_photos.search.copies import merge_copies
from fishermix_photos.search.nearest import Hits
from fishermix_photos.search.order import sort_photos
from fishermix_photos.search.results import Query, Results
from fishermix_photos.search.vectors import QueryVector

if TYPE_CHECKING:
    from fishermix_photos.index.protocol import PhotoIndex
    from fishermix_photos.model.model import ImageTextModel


def judge(
    hits: Hits,
    query: Query,
    vector: QueryVector,
    model: ImageTextModel,
    index: PhotoIndex,
) -> Results | None:
    """The photos of a page with their probabilities, in their order, without near copies. None if copies took
    the places of others, so that more hits are needed to fill the page or to know whether one follows.
    """
    if not hits.photos:
        return Results(unknown_words=vector.unknown_words)
    probabilities = make_probabilities(hits.sample, vector, model)
    photos = hits.photos if probabilities is None else _add_probabilities(hits, query, probabilities)
    threshold = _find_threshold(hits, query, probabilities)
    # Their text found them, so they have no probability: that tells how likely a photo looks as asked.
    first = {photo.id for photo in hits.written}
    photos = [photo for photo in photos if photo.id not in first]
    shown = hits.written + [photo for photo in photos if (photo.score or 0.0) >= threshold]
    end = query.offset + query.n
    if query.sort != "score":
        is_limited = query.min_probability is not None or query.min_score is not None
        shown = sort_photos(shown if shown or is_limited else photos[: query.n], query.sort)
    elif query.merge_copies and len(shown) > 1:
        shown = shown[: hits.limit]  # what follows them may come after a photo that was not looked for
        shown = merge_copies(shown, index.pictures([photo.id for photo in shown]), vector.dimension)
        may_follow = len(hits.photos) >= hits.limit and (hits.photos[-1].score or 0.0) >= threshold
        if may_follow and len(shown) <= end:
            return None
    page = tuple(shown[query.offset : end])
    best = max((photo.probability for photo in photos if photo.probability is not None), default=None)
    nothing = not first and probabilities is not None and best is not None and probabilities.exclude(best)
    is_understood = probabilities is None or probabilities.most == 1
    return Results(
        photos=page,
        more=len(shown) > end,
        unknown_words=vector.unknown_words,
        nothing_matches=nothing,
        is_understood=is_understood,
        verdict=word_verdict(best, nothing, is_understood) if page and not first else "",
    )


def _add_probabilities(hits: Hits, query: Query, probabilities: Probabilities) -> list[Photo]:
    """The photos with their probabilities; within a band, those of a preferred name come first."""
    photos = probabilities.add_to(hits.photos)
    for named in reversed(hits.named if query.sort == "score" else []):
        first = probabilities.add_to(named)
        chosen = {photo.id for photo in first}
        others = [photo for photo in photos if photo.id not in chosen]
        photos = sorted([*first, *others], key=lambda photo: BANDS.index(photo.band or "unlikely"))
    return photos


def _find_threshold(hits: Hits, query: Query, probabilities: Probabilities | None) -> float:
    """The score from which on photos are shown. A search by date shows likely photos and maybes."""
    threshold = -np.inf if query.min_score is None else query.min_score
    if query.min_probability is None and query.sort == "score":
        return threshold
    if probabilities is not None:
        return max(threshold, probabilities.threshold(query.min_probability or MAYBE))
    return max(threshold, estimate_threshold(hits.sample, hits.photos[0].score or 0.0))
