"""Ranking sentences: for a photo (annotation) or for another sentence (similarity)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fishermix.errors import FishermixError
from fishermix.retrieval.exact_search import find_nearest

EVERYDAY = Path(__file__).with_name("everyday.txt")


def read_sentences(path: str | os.PathLike | None = None) -> list[str]:
    """The sentences of a text file, one per line; by default, plain ones about everyday photos. Blank lines
    and repeated sentences are skipped.
    """
    try:
        text = Path(path or EVERYDAY).read_text("utf8")
    except OSError as error:
        raise FishermixError(
            f"{path} cannot be read ({error.strerror}). Name a text file with one sentence per line."
        ) from error
    except UnicodeDecodeError as error:
        raise FishermixError(
            f"{path} is not UTF-8 text. Save it as UTF-8, with one sentence per line."
        ) from error
    sentences = list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
    if not sentences:
        raise FishermixError(f"{path} contains no sentence. Write one sentence per line.")
    return sentences


class SentencePool:
    """Sentences with their points; finds the best of them for any point of the joint space.

    Parameters
    ----------
    model : ImageTextModel
        The model that encodes the sentences.
    sentences : sequence of str
        The sentences.
    """

    def __init__(self, model, sentences: Sequence[str] | None = None):
        pool = getattr(model, "pool", None) if sentences is None else None
        if pool is not None:
            sentences, points = pool.sentences, pool.points
        else:
            sentences = read_sentences() if sentences is None else sentences
            points = np.asarray(model.encode_text(list(sentences)), np.float32)
        known = np.flatnonzero(points.any(axis=1))
        if not len(known):
            raise FishermixError(
                "All words of these sentences are out of the model's vocabulary. Use plain English sentences."
            )
        self.model = model
        self.sentences = [sentences[row] for row in known.tolist()]
        self.points = points[known]
        self.vectors = model.match_sentences(self.points)

    def rank_for_photos(self, points: np.ndarray, n: int) -> list[list[tuple[str, float]]]:
        """(sentence, CSLS score) of the n best sentences for each photo's point (m, d), best first.

        Parameters
        ----------
        points : array of shape (n, d)
            Unit points of the joint space.
        n : int
            The number of results.
        """
        return self._rank(self.vectors, self.model.match_images(points), n)

    def rank_for_sentences(self, points: np.ndarray, n: int) -> list[list[tuple[str, float]]]:
        """(sentence, cosine) of the n nearest sentences to each sentence's point (m, d), best first.

        Parameters
        ----------
        points : array of shape (n, d)
            Unit points of the joint space.
        n : int
            The number of results.
        """
        return self._rank(self.points, points, n)

    def _rank(self, vectors: np.ndarray, queries: np.ndarray, n: int) -> list[list[tuple[str, float]]]:
        rows, scores = find_nearest(vectors, np.asarray(queries, np.float32), n)
        return [
            [(self.sentences[row], score) for row, score in zip(*found)]
            for found in zip(rows.tolist(), scores.tolist())
        ]
