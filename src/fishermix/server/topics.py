"""The words that the photos of a folder are about: suggestions for a search.

Each photo of a sample is annotated with its best sentences. A word is typical if these contain it more often
than the sentences in general do: it scores p log(p / q), its part of the divergence of the two distributions,
with p its share of the words of the annotations and q its share of the words of all sentences. Only words
that follow an article, a number or a preposition often enough count: those are nouns and colors, not verbs.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from fishermix.retrieval.sentences import SentencePool

SENTENCES_PER_PHOTO = 2
SHORTEST_WORD = 3  # letters
MOST_WORDS = 24
FEWEST_LEADS = 0.3  # of the occurrences of a noun follow such a word
LEADS = set(
    re.findall(
        r"\w+",
        """a an the his her its their two three four some many several of with on in at by to for from and""",
    )
)
# Words that say nothing about what is in a photo.
COMMON = LEADS | set(
    re.findall(
        r"\w+",
        """over under next near out off down into onto through across along around behind between front back
        top side inside outside together other another one group full very lots pair each middle something""",
    )
)


def find_topics(pool: SentencePool, points: np.ndarray) -> list[str]:
    """The most typical words of the photos with these points (m, d)."""
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
