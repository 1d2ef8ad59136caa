"""Photos in words: the best sentences of a pool for a photo, and the words that many photos are about."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from fishermix.errors import FishermixError
from fishermix.joint.vectors import from_bytes, to_bytes
from fishermix.saved import FolderKind, Struct, Text, load_folder, save_folder
from fishermix.text.tokens import STOP_WORDS

if TYPE_CHECKING:
    from fishermix_photos.model.model import ImageTextModel

EVERYDAY = Path(__file__).parents[1] / "pretrained" / "everyday.txt"
SENTENCES_PER_PHOTO = 2
PHOTOS_AT_ONCE = 256
SPARE_CANDIDATES = 16  # more than wanted, because products in float32 are ranked again in float64
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
            f"{path} cannot be read ({error.strerror}). Name a text file with one sentence per line.",
            code="wrong_file",
        ) from error
    except UnicodeDecodeError as error:
        raise FishermixError(
            f"{path} is not UTF-8 text. Save it as UTF-8, with one sentence per line.",
            code="wrong_file",
        ) from error
    sentences = list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
    if not sentences:
        raise FishermixError(f"{path} contains no sentence. Write one sentence per line.", code="too_few")
    return sentences


class PoolConfig(Struct):
    """`config.json` of a sentence pool: `model_key` is that of the model whose points these are."""

    model_key: Text
    source: str
    sentences: list[Text]


POOL_KIND = FolderKind(name="sentence pool", version=1, schema=PoolConfig, tensors={"points": "int n d"})


@dataclass(frozen=True, eq=False)
class PooledSentences:
    """Sentences that a model ranks for a photo when the user gives none, and their unit points (n, d).

    source : a note on where the sentences come from, and their license
    """

    sentences: Sequence[str]
    points: np.ndarray
    source: str = ""

    def save(self, folder: str | os.PathLike, model_key: str) -> None:
        """Write the sentences, and their points as int8; only the direction matters."""
        config = PoolConfig(model_key, self.source, list(self.sentences))
        save_folder(folder, POOL_KIND, config, {"points": to_bytes(self.points)})

    @classmethod
    def load(cls, folder: str | os.PathLike, model_key: str, dimension: int) -> PooledSentences:
        """Read what `save` wrote for the model with this key."""
        saved = load_folder(folder, POOL_KIND)
        config = saved.config
        if config.model_key != model_key:
            raise FishermixError(
                f"The sentences in {folder} were encoded by another model. Delete them.",
                code="wrong_sentences",
            )
        points = saved.tensors["points"]
        shape = (len(config.sentences), dimension)
        if points.shape != shape or points.dtype != np.int8 or not points.any(axis=1).all():
            raise FishermixError(
                f"{folder} is damaged: the points of the sentences are invalid.", code="damaged"
            )
        return cls(config.sentences, from_bytes(points), config.source)


class SentencePool:
    """Sentences with their points; finds the best of them for photos."""

    def __init__(self, model: ImageTextModel, sentences: Sequence[str] | None = None):
        pool = getattr(model, "pool", None) if sentences is None else None
        if pool is not None:
            sentences, points = pool.sentences, pool.points
        else:
            sentences = read_sentences() if sentences is None else sentences
            points = np.asarray(model.encode_text(list(sentences)), np.float32)
        known = np.flatnonzero(points.any(axis=1))
        if not len(known):
            raise FishermixError(
                "These sentences contain no word that fishermix knows. Use plain English sentences.",
                code="unknown_word",
            )
        self.model = model
        self.sentences = [sentences[row] for row in known.tolist()]
        self.points = points[known]
        self.vectors = model.joint_space.csls_right(self.points)

    def rank_for_photos(self, points: np.ndarray, n: int) -> list[list[tuple[str, float]]]:
        """(sentence, CSLS score) of the n best sentences for each photo's point (m, d), best first."""
        photos = np.asarray(self.model.joint_space.csls_left(points), np.float32)
        starts = range(0, len(photos), PHOTOS_AT_ONCE)
        return [
            ranked
            for start in starts
            for ranked in self._rank_block(photos[start : start + PHOTOS_AT_ONCE], n)
        ]

    def _rank_block(self, photos: np.ndarray, n: int) -> Iterator[list[tuple[str, float]]]:
        n = min(n, len(self.sentences))
        candidates = min(n + SPARE_CANDIDATES, len(self.sentences))
        products = photos @ self.vectors.T
        near = np.argpartition(products, len(self.sentences) - candidates, axis=1)[:, -candidates:]
        for photo, rows in zip(photos.astype(np.float64), np.sort(near, axis=1)):
            # Sums in float64 do not depend on the photos of a block; rows ascend, so ties keep their order.
            scores = np.einsum("nd,d->n", self.vectors[rows].astype(np.float64), photo).astype(np.float32)
            best = np.argsort(-scores, kind="stable")[:n]
            yield [(self.sentences[row], float(scores[i])) for i, row in zip(best, rows[best].tolist())]

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
        points = hubness.left_bank
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
