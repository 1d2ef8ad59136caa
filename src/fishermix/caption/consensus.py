"""Choosing among candidate sentences: the one that agrees best with the others, and with the photo.

The candidates c_1 … c_n of a photo get weights

    w_i ∝ exp(LOG_WEIGHT log p(c_i) + LENGTH_WEIGHT (length of c_i + 1) + COSINE_WEIGHT cos(c_i, photo)),

and its score is the expected agreement with a sentence drawn by these weights, plus the cosine:

    score_i = Σ_j w_j agreement(c_i, c_j) + cos(c_i, photo).

This is minimum Bayes risk decoding (Kumar and Byrne, 2004). The agreement is CIDEr-D's without its word
statistics: the mean over n = 1 … 4 of the cosine of n-gram counts, times a Gaussian of the difference of
lengths. The idea to let captions vote is that of Devlin et al. (2015); they let those of similar training
photos vote, these are the network's own, so that no training sentence is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fishermix.caption.confidence import Confidence
from fishermix.caption.decoding import Hypothesis

# Chosen on the dev split of Flickr8K.
LOG_WEIGHT = 0.2
LENGTH_WEIGHT = 0.15
COSINE_WEIGHT = 15.0
LEADERS = 32  # candidates whose cosine is computed; encoding a sentence takes milliseconds
ORDERS = 4  # n-grams of one to four words
LENGTH_SIGMA = 6.0  # words, as in CIDEr-D

USUAL_RERANK_WEIGHT = 8.0  # of the joint space; half of it halves the weights of the cosine above

Words = Sequence[int]
EncodeText = Callable[[list[str]], np.ndarray]


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

    def judge(self, by: Confidence) -> Description:
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
    rerank_weight: float = USUAL_RERANK_WEIGHT,
) -> list[Description]:
    """The best of the drafts of each image (n, d), as the module says.

    The leaders by agreement alone are compared with the photo; without `encode_text` the first of them wins.
    """
    agreements, priors, leaders = [], [], []
    for few in drafts:
        agreement = measure_agreement([one.words for one in few])
        prior = compute_prior(
            np.array([one.log_probability for one in few]), np.array([len(one.words) for one in few])
        )
        kept = np.argsort(-expect_agreement(agreement, prior), kind="stable")[:LEADERS]
        agreements.append(agreement[np.ix_(kept, kept)])
        priors.append(prior[kept])
        leaders.append([few[row] for row in kept])
    texts = [[join_words(one.words) for one in few] for few in leaders]
    if encode_text is None:
        return [Description(named[0]) for named in texts]
    points = encode_text([text for named in texts for text in named])
    ends = np.cumsum([len(named) for named in texts])
    part = rerank_weight / USUAL_RERANK_WEIGHT
    chosen = []
    for named, agreement, prior, end, image in zip(texts, agreements, priors, ends, image_points):
        cosines = points[end - len(named) : end] @ image
        expected = expect_agreement(agreement, prior + part * COSINE_WEIGHT * cosines)
        best = int(np.argmax(expected + part * cosines))
        chosen.append(Description(named[best], float(cosines[best]), float(expected[best])))
    return chosen


def measure_agreement(sentences: Sequence[Words]) -> np.ndarray:
    """The agreement (n, n) of each sentence with each: 1 with itself, 0 without a common word."""
    lengths = np.array([len(words) for words in sentences], np.float64)
    total = np.zeros((len(sentences), len(sentences)))
    orders = np.zeros_like(total)
    for order in range(1, ORDERS + 1):
        counts = _count_ngrams(sentences, order)
        norms = np.linalg.norm(counts, axis=1)
        has = (norms > 0).astype(np.float64)
        counts /= np.where(norms > 0, norms, 1)[:, None]
        total += counts @ counts.T
        orders += np.maximum(has[:, None], has[None, :])  # an order counts if one of the two has it
    closeness = np.exp(-((lengths[:, None] - lengths[None, :]) ** 2) / (2 * LENGTH_SIGMA**2))
    return total / np.maximum(orders, 1) * closeness


def compute_prior(log_probabilities: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The logarithms (n,) of the weights of candidates before the photo is compared, up to a constant."""
    return LOG_WEIGHT * log_probabilities + LENGTH_WEIGHT * (lengths + 1)


def expect_agreement(agreement: np.ndarray, log_weights: np.ndarray) -> np.ndarray:
    """The expected agreement (n,) of candidates with one drawn by the weights, from `agreement` (n, n)."""
    weights = np.exp(log_weights - log_weights.max())
    return agreement @ (weights / weights.sum())


def _count_ngrams(sentences: Sequence[Words], order: int) -> np.ndarray:
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
