"""Photos in words: the best sentences of a pool for one photo, the words that many photos are about, and what
each word of a sentence contributes to its score with a photo.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from fishermix.errors import FishermixError
from fishermix.text.tokens import STOP_WORDS, tokenize

from fishermix_photos.nearest import find_nearest
from fishermix_photos.query import encode_sentence

EVERYDAY = Path(__file__).parent / "pretrained" / "everyday.txt"
SENTENCES_PER_PHOTO = 2
SHORTEST_WORD = 3  # letters
MOST_WORDS = 24
RARE = 0.5  # is added to the number of training photos: a word that none has is not infinitely typical
DEVIATIONS = 1.64  # 95 of 100 times, a factor is higher than that many standard errors below its estimate
FEWEST_LEADS = 0.3  # of the occurrences of a noun follow one of LEADS; as many precede one of ENDS
LEADS = set(
    re.findall(
        r"\w+",
        "a an the his her its their two three four some many several of with on in at by to for from and",
    )
)
ENDS = set(
    re.findall(
        r"\w+",
        "of with on in at by to for from and or is are that which who near over under into onto through as "
        "while behind between against along across around above below next outside inside down up after",
    )
)
# Words that say nothing about what is in a photo.
COMMON = STOP_WORDS | {"top", "side", "group", "full", "lots", "pair", "middle", "something", "get"}


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
                "These sentences contain no word that fishermix knows. Use plain English sentences."
            )
        self.model = model
        self.sentences = [sentences[row] for row in known.tolist()]
        self.points = points[known]
        self.vectors = model.joint_space.csls_sentences(self.points)

    def rank_for_photos(self, points: np.ndarray, n: int) -> list[list[tuple[str, float]]]:
        """(sentence, CSLS score) of the n best sentences for each photo's point (m, d), best first."""
        photos = np.asarray(self.model.joint_space.csls_images(points), np.float32)
        rows, scores = find_nearest(self.vectors, photos, n)
        return [
            [(self.sentences[row], score) for row, score in zip(*found)]
            for found in zip(rows.tolist(), scores.tolist())
        ]

    @cached_property
    def nouns(self) -> set[str]:
        """The nouns of the sentences."""
        return _find_nouns(self.sentences)

    def count_nouns(self, points: np.ndarray) -> Counter[str]:
        """The number of photos (m, d) whose best sentences contain each noun."""
        ranked = self.rank_for_photos(points, SENTENCES_PER_PHOTO)
        texts = (" ".join(sentence for sentence, _ in best) for best in ranked)
        return Counter(word for text in texts for word in self.nouns & {*_split(text)})

    @cached_property
    def reference(self) -> tuple[Counter[str], int]:
        """The number of training photos for each noun, and of all; without such photos, of sentences."""
        hubness = self.model.joint_space.hubness
        if hubness is None:
            nouns = (word for sentence in self.sentences for word in self.nouns & {*_split(sentence)})
            return Counter(nouns), len(self.sentences)
        points = hubness.image_points
        return self.count_nouns(points), len(points)


# Topics


def find_topics(pool: SentencePool, points: np.ndarray) -> list[str]:
    """The words that distinguish the photos with these points (m, d) from the model's training photos.

    Each photo is annotated with its best sentences. A word is more frequent in these annotations than in
    those of the training photos by the factor f = (a / m) / (b / n), for a of m photos and b of n training
    photos. Words are ranked by the smallest f that is plausible: with the standard error sqrt(1/a + 1/b) of
    log f, that is 1.64 standard errors below log f.
    """
    usual, n = pool.reference
    seen = pool.count_nouns(points) if len(points) else Counter[str]()
    scores = {}
    for word, count in seen.items():
        expected = usual[word] + RARE
        factor = math.log(count / len(points) * n / expected)
        scores[word] = factor - DEVIATIONS * math.sqrt(1 / count + 1 / expected)
    best = sorted((word for word in scores if scores[word] > 0), key=lambda word: (-scores[word], word))
    # Of dog and dogs, the more typical is enough.
    chosen: list[str] = []
    for word in best:
        if f"{word}s" not in chosen and word.removesuffix("s") not in chosen:
            chosen.append(word)
    return chosen[:MOST_WORDS]


def _find_nouns(sentences: Sequence[str]) -> set[str]:
    """The words that often follow an article, a number or a preposition, and often precede a preposition, a
    verb or the end: not verbs, not adjectives.
    """
    total, led, ended = Counter[str](), Counter[str](), Counter[str]()
    for sentence in sentences:
        words = _split(sentence)
        for before, word, after in zip(["a", *words], words, [*words[1:], "of"]):
            total[word] += 1
            led[word] += before in LEADS
            ended[word] += after in ENDS or after.endswith("ing")
    return {
        word
        for word, count in total.items()
        if len(word) >= SHORTEST_WORD
        and word not in COMMON
        and min(led[word], ended[word]) >= FEWEST_LEADS * count
    }


def _split(sentence: str) -> list[str]:
    return "".join(letter if letter.isalpha() else " " for letter in sentence.lower()).split()


# Explanations: the contribution of a word is what the score loses without the word


@dataclass(frozen=True)
class WordPart:
    """A word of the sentence, and how much the score drops without it."""

    word: str
    drop: float


@dataclass(frozen=True)
class SubtractedPart:
    """A sentence that the query subtracts, and its own score with the photo."""

    sentence: str
    score: float


@dataclass(frozen=True)
class Explanation:
    """What contributes to a score.

    words : in the order of the sentence
    out_of_vocabulary : the words of the sentence that the model does not know
    subtracted : the sentences that the query subtracts; they are no part of `score`
    """

    score: float
    words: list[WordPart]
    out_of_vocabulary: list[str] = field(default_factory=list)
    subtracted: list[SubtractedPart] = field(default_factory=list)


def explain_score(sentence: str, point: np.ndarray, subtracted: Sequence[str], model) -> Explanation:
    """Explain the score of a sentence and of the photo with this unit point (d,)."""
    words, space = tokenize(sentence), model.joint_space
    # As a search encodes it: the transformer reads punctuation too.
    whole, unknown = encode_sentence(sentence, model)
    without = model.encode_text([words[:i] + words[i + 1 :] for i in range(len(words))])
    others = [encode_sentence(text, model)[0] for text in subtracted]
    photo = space.csls_images(np.asarray(point, np.float32)[None])[0]
    score, *scores = (space.csls_sentences(np.vstack([whole, without, *others])) @ photo).tolist()
    return Explanation(
        score,
        [WordPart(word, score - left) for word, left in zip(words, scores)],
        unknown,
        [SubtractedPart(*pair) for pair in zip(subtracted, scores[len(words) :])],
    )
