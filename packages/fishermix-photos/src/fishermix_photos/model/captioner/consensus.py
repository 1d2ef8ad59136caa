"""Choosing among candidate sentences: the one that agrees best with the others, and with the photo.

The candidates c_1 … c_n of a photo get weights

    w_i ∝ exp(LOG_WEIGHT log p(c_i) + LENGTH_WEIGHT (length of c_i + 1) + COSINE_WEIGHT cos(c_i, photo)),

and its score is the expected agreement with a sentence drawn by these weights, plus its cosine with the
photo, plus the probability that such a sentence has its least probable content word, so that no detail is
written that few candidates share:

    score_i = Σ_j w_j agreement(c_i, c_j) + MATCH_WEIGHT cos(c_i, photo) + min over words of Σ_{j has it} w_j.

This is minimum Bayes risk decoding (Kumar and Byrne, 2004). The agreement is CIDEr-D's without its word
statistics: the mean over n = 1 … 4 of the cosine of n-gram counts, times a Gaussian of the difference of
lengths. The idea to let captions vote is that of Devlin et al. (2015); they let those of similar training
photos vote, these are the network's own, so that no training sentence is needed.

A sentence counts as right if people used at least half of its content words for the photo. Its confidence is
the probability of that, estimated from its cosine with the photo and its expected agreement (`Confidence`;
fishermix-lab fits it). It is unsure if it is twice as probable that it is wrong, or if a caption of a random
other photo would often match as well.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from fishermix.saved import Number, Struct
from fishermix.text.tokens import STOP_WORDS, tokenize

from fishermix_photos.model.captioner.decoding import Hypothesis

# Chosen on the dev split of Flickr8K.
LOG_WEIGHT = 0.2
LENGTH_WEIGHT = 0.15
COSINE_WEIGHT = 15.0
MATCH_WEIGHT = 3.0

ORDERS = 4  # n-grams of one to four words
CIDER_SIGMA = 6.0  # words: the width of the length penalty of CIDEr-D

# Of the whole photo; "a black and white dog" is a dog.
NO_COLORS = re.compile(
    r"\b(?:black[- ]and[- ]white|sepia|monochrome)\b"
    r"(?= (?:photo|photograph|picture|image|shot|view|scene|of)s?\b)|\bin black and white$"
)

Words = Sequence[int]
EncodeText = Callable[[list[str]], np.ndarray]


class Confidence(Struct):
    """P(right) = 1 / (1 + exp(-(intercept + cosine · cos + agreement · agreement)))."""

    intercept: Number
    cosine: Number
    agreement: Number
    threshold: Number

    def estimate(self, cosine: float, agreement: float) -> float:
        """The probability that the sentence is right, between 0 and 1."""
        logit = self.intercept + self.cosine * cosine + self.agreement * agreement
        return 1 / (1 + math.exp(-max(-50.0, min(50.0, logit))))


@dataclass(frozen=True)
class Description:
    """A written sentence.

    cosine : with the photo, in the joint space; agreement : expected, with the other candidates
    confidence : the probability that the sentence is right; None if it was not estimated
    unsure : whether a random caption would often match the photo as well
    """

    sentence: str
    cosine: float | None = None
    agreement: float | None = None
    confidence: float | None = None
    unsure: bool = False

    def rate(self, by: Confidence) -> Description:
        """The same with confidence and `unsure`."""
        if self.cosine is None or self.agreement is None:
            return self
        confidence = by.estimate(self.cosine, self.agreement)
        return replace(self, confidence=confidence, unsure=confidence < by.threshold)


def choose_by_consensus(
    drafts: list[list[Hypothesis]],
    image_points: np.ndarray,
    join_words: Callable[[Words], str],
    encode_text: EncodeText | None,
    in_color: Sequence[bool | None] | None = None,
) -> list[Description]:
    """The best of the drafts of each image (n, d), as the module says; without `encode_text` by agreement.

    in_color : whether each image has colors, as far as it is known; such an image is not "black and white"
    """
    colors = [None] * len(drafts) if in_color is None else in_color
    drafts = [
        _keep_possible(hypotheses, join_words, has_colors)
        for hypotheses, has_colors in zip(drafts, colors, strict=True)
    ]
    texts = [[join_words(hypothesis.words) for hypothesis in hypotheses] for hypotheses in drafts]
    points = encode_text([text for named in texts for text in named]) if encode_text else None
    ends = np.cumsum([len(named) for named in texts])
    chosen = []
    for hypotheses, named, end, image in zip(drafts, texts, ends, image_points):
        agreement = measure_agreement([hypothesis.words for hypothesis in hypotheses])
        log_probabilities = np.array([hypothesis.log_probability for hypothesis in hypotheses])
        lengths = np.array([len(hypothesis.words) for hypothesis in hypotheses])
        log_weights = LOG_WEIGHT * log_probabilities + LENGTH_WEIGHT * (lengths + 1)
        if points is None:
            best = int(np.argmax(expect_agreement(agreement, log_weights)))
            chosen.append(Description(named[best]))
            continue
        cosines = points[end - len(named) : end] @ image
        log_weights += COSINE_WEIGHT * cosines
        expected = expect_agreement(agreement, log_weights)
        best = int(np.argmax(expected + MATCH_WEIGHT * cosines + find_least_support(named, log_weights)))
        chosen.append(Description(named[best], float(cosines[best]), float(expected[best])))
    return chosen


def _keep_possible(
    hypotheses: list[Hypothesis], join_words: Callable[[Words], str], has_colors: bool | None
) -> list[Hypothesis]:
    """Those with a content word that do not call a photo with colors black and white; all if none is left."""
    texts = [join_words(one.words) for one in hypotheses]
    possible = [bool(content_words(text)) and not (has_colors and NO_COLORS.search(text)) for text in texts]
    return [one for one, kept in zip(hypotheses, possible, strict=True) if kept] or hypotheses


def measure_agreement(sentences: Sequence[Words]) -> np.ndarray:
    """The agreement (n, n) of each sentence with each: 1 with itself, 0 without a common word."""
    lengths = np.array([len(words) for words in sentences], np.float64)
    total = np.zeros((len(sentences), len(sentences)))
    orders = np.zeros_like(total)
    for order in range(1, ORDERS + 1):
        counts = _tabulate_ngrams(sentences, order)
        norms = np.linalg.norm(counts, axis=1)
        has = (norms > 0).astype(np.float64)
        counts /= np.where(norms > 0, norms, 1)[:, None]
        total += counts @ counts.T
        orders += np.maximum(has[:, None], has[None, :])  # an order counts if one of the two has it
    closeness = np.exp(-((lengths[:, None] - lengths[None, :]) ** 2) / (2 * CIDER_SIGMA**2))
    return total / np.maximum(orders, 1) * closeness


def expect_agreement(agreement: np.ndarray, log_weights: np.ndarray) -> np.ndarray:
    """The expected agreement (n,) of candidates with one drawn by the weights, from `agreement` (n, n)."""
    return agreement @ _normalize(log_weights)


def find_least_support(sentences: Sequence[str], log_weights: np.ndarray) -> np.ndarray:
    """For each sentence (n,) the total weight of those that have its rarest content word; 0 without one."""
    weights = _normalize(log_weights)
    words = [content_words(sentence) for sentence in sentences]
    support: dict[str, float] = defaultdict(float)
    for weight, of_sentence in zip(weights.tolist(), words):
        for word in set(of_sentence):
            support[word] += weight
    return np.array([min((support[word] for word in of_sentence), default=0.0) for of_sentence in words])


def content_words(sentence: str) -> list[str]:
    """The words that say what is in the photo."""
    return [word for word in tokenize(sentence) if word not in STOP_WORDS]


def _normalize(log_weights: np.ndarray) -> np.ndarray:
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def _tabulate_ngrams(sentences: Sequence[Words], order: int) -> np.ndarray:
    """Counts (n, different n-grams)."""
    column: dict[tuple[int, ...], int] = {}
    places = [
        [column.setdefault(ngram, len(column)) for ngram in zip(*(words[start:] for start in range(order)))]
        for words in sentences
    ]
    counts = np.zeros((len(sentences), max(len(column), 1)))
    for row, columns in enumerate(places):
        np.add.at(counts[row], columns, 1)
    return counts
