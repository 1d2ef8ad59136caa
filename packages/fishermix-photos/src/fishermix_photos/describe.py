"""Sentences for photos: the best of a pool for one photo, and the words that many photos are about."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from fishermix.errors import FishermixError
from fishermix.text.tokens import STOP_WORDS

from fishermix_photos.nearest import find_nearest

EVERYDAY = Path(__file__).parent / "pretrained" / "everyday.txt"
SENTENCES_PER_PHOTO = 2
SHORTEST_WORD = 3  # letters
MOST_WORDS = 24
FEWEST_LEADS = 0.3  # of the occurrences of a noun follow such a word
LEADS = set(
    re.findall(
        r"\w+",
        "a an the his her its their two three four some many several of with on in at by to for from and",
    )
)
# Words that say nothing about what is in a photo.
COMMON = STOP_WORDS | {"top", "side", "group", "full", "lots", "pair", "middle", "something"}


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
    """Sentences with their points; finds the best of them for photos."""

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
        self.vectors = model.csls_sentences(self.points)

    def rank_for_photos(self, points: np.ndarray, n: int) -> list[list[tuple[str, float]]]:
        """(sentence, CSLS score) of the n best sentences for each photo's point (m, d), best first."""
        photos = np.asarray(self.model.csls_images(points), np.float32)
        rows, scores = find_nearest(self.vectors, photos, n)
        return [
            [(self.sentences[row], score) for row, score in zip(*found)]
            for found in zip(rows.tolist(), scores.tolist())
        ]


# Topics


def find_topics(pool: SentencePool, points: np.ndarray) -> list[str]:
    """The most typical words of the photos with these points (m, d).

    Each photo is annotated with its best sentences. A word is typical if these contain it more often than the
    sentences in general do: it scores p log(p / q), its part of the divergence of the two distributions, with
    p its share of the words of the annotations and q its share of the words of all sentences. Only words that
    follow an article, a number or a preposition often enough count: those are nouns and colors, not verbs.
    """
    if not len(points):
        return []
    ranked = pool.rank_for_photos(points, SENTENCES_PER_PHOTO)
    nouns = _find_nouns(pool.sentences)
    seen = Counter(
        word for sentences in ranked for sentence, _ in sentences for word in nouns & {*_split(sentence)}
    )
    expected = Counter(word for sentence in pool.sentences for word in nouns & {*_split(sentence)})
    in_all, in_pool = sum(seen.values()), sum(expected.values())
    scores = {}
    for word, count in seen.items():
        share = count / in_all
        scores[word] = share * math.log(share * in_pool / expected[word])
    best = sorted((word for word in scores if scores[word] > 0), key=lambda word: (-scores[word], word))
    # Of dog and dogs, the more typical is enough.
    chosen: list[str] = []
    for word in best:
        if f"{word}s" not in chosen and word.removesuffix("s") not in chosen:
            chosen.append(word)
    return chosen[:MOST_WORDS]


def _find_nouns(sentences: Sequence[str]) -> set[str]:
    total, led = Counter[str](), Counter[str]()
    for sentence in sentences:
        words = _split(sentence)
        for before, word in zip(["a", *words], words):
            total[word] += 1
            led[word] += before in LEADS
    return {
        word
        for word, count in total.items()
        if len(word) >= SHORTEST_WORD and word not in COMMON and led[word] >= FEWEST_LEADS * count
    }


def _split(sentence: str) -> list[str]:
    return "".join(letter if letter.isalpha() else " " for letter in sentence.lower()).split()
