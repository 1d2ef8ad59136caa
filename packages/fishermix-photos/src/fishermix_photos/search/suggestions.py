"""Queries that a library can answer, as suggestions: short sentences about everyday photos.

The first suggestion is the sentence for which most photos are likely, the next one that for which most other
photos are, and so on. No two are about the same thing, and each has at least three likely photos.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fishermix_photos.search.calibration import (
    FEWEST_PHOTOS,
    LIKELY,
    Probabilities,
    measure_scale,
    read_hubness,
)
from fishermix_photos.search.terms import Term
from fishermix_photos.search.vectors import find_query_kind, find_telling_words

if TYPE_CHECKING:
    from fishermix_photos.model.calibration import Calibration
    from fishermix_photos.model.sentences import SentencePool

LONGEST = 28  # characters: several suggestions are side by side, on a telephone, too
MOST_SUGGESTIONS = 12
FEWEST_LIKELY = 3  # photos
LARGEST_SHARE = 0.25  # of the photos; what more of them show distinguishes nothing


def suggest_queries(
    pool: SentencePool, photos: np.ndarray, n_photos: int, calibration: Calibration
) -> list[str]:
    """Suggestions for a library of `n_photos`, of which `photos` (n, d) are all or a sample, as an index has
    them.
    """
    rows = [row for row, sentence in enumerate(pool.sentences) if len(sentence) <= LONGEST]
    if not len(photos) or not rows:
        return []
    scores = photos @ pool.vectors[rows].T
    likely = np.column_stack(
        [
            _find_likely(scores[:, column], pool.sentences[row], pool.vectors[row], n_photos, calibration)
            for column, row in enumerate(rows)
        ]
    )
    counts = likely.sum(axis=0)
    likely[:, (counts < FEWEST_LIKELY) | (counts > LARGEST_SHARE * len(photos))] = False
    things = [find_telling_words([pool.sentences[row]]) for row in rows]
    suggestions: list[str] = []
    while len(suggestions) < MOST_SUGGESTIONS and likely.any():
        best = int(likely.sum(axis=0).argmax())
        if likely[:, best].sum() < FEWEST_LIKELY:
            break
        suggestions.append(pool.sentences[rows[best]])
        same = [column for column, words in enumerate(things) if words & things[best]]
        likely[likely[:, best]] = False  # their photos are shown
        likely[:, same] = False
    return suggestions


def _find_likely(
    scores: np.ndarray, sentence: str, vector: np.ndarray, n_photos: int, calibration: Calibration
) -> np.ndarray:
    """Which photos a search for a sentence calls likely (n,), by their scores (n,)."""
    words = len(find_telling_words([sentence]))
    scale = measure_scale(scores, words, None, read_hubness(vector))
    if scale is None:
        return np.zeros(len(scores), bool)
    kind = find_query_kind([Term("+", "text", sentence)])
    probabilities = Probabilities(calibration, replace(scale, photos=max(n_photos, FEWEST_PHOTOS), kind=kind))
    return scores >= probabilities.threshold(LIKELY)
