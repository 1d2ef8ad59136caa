"""Ranking sentences: for a photo (annotation) or for another sentence (similarity)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fishermix.errors import FishermixError
from fishermix.retrieval.exact_search import nearest_rows

EVERYDAY = Path(__file__).with_name("everyday.txt")


def read_sentences(path: str | os.PathLike | None = None) -> list[str]:
    """The sentences of a text file, one a line, blank lines left out; None: plain ones about everyday
    photos.
    """
    try:
        text = Path(path or EVERYDAY).read_text("utf8")
    except OSError as error:
        raise FishermixError(
            f"{path} cannot be read ({error.strerror}): name a text file with one sentence a line"
        ) from error
    except UnicodeDecodeError as error:
        raise FishermixError(f"{path} is not UTF-8 text: save it as UTF-8, one sentence a line") from error
    sentences = list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
    if not sentences:
        raise FishermixError(f"{path} holds no sentence: write one a line")
    return sentences


class SentencePool:
    """Sentences and their points; the best of them for any point of the joint space."""

    def __init__(self, model, sentences: Sequence[str]):
        points = np.asarray(model.encode_text(list(sentences)), np.float32)
        known = np.flatnonzero(points.any(axis=1))
        if not len(known):
            raise FishermixError(
                "the model knows no word of these sentences: give sentences in plain English"
            )
        self.model = model
        self.sentences = [sentences[row] for row in known.tolist()]
        self.points = points[known]
        self.vectors = model.match_sentences(self.points)

    def for_photos(self, points: np.ndarray, n: int) -> list[list[tuple[str, float]]]:
        """(sentence, match) of the n best sentences for each photo's point (m, d), best first."""
        return self._best(self.vectors, self.model.match_images(points), n)

    def nearest(self, points: np.ndarray, n: int) -> list[list[tuple[str, float]]]:
        """(sentence, cosine) of the n nearest sentences of each sentence's point (m, d), best first."""
        return self._best(self.points, points, n)

    def _best(self, vectors: np.ndarray, queries: np.ndarray, n: int) -> list[list[tuple[str, float]]]:
        rows, scores = nearest_rows(vectors, np.asarray(queries, np.float32), n)
        return [
            [(self.sentences[row], score) for row, score in zip(*found)]
            for found in zip(rows.tolist(), scores.tolist())
        ]
