"""How far a written sentence can be trusted: a probability, and the threshold below which it is unsure.

A sentence counts as right if people used at least half of its content words for the photo. Confidence is the
probability of that, by a logistic regression on dev photos from two numbers: the cosine of the sentence and
the photo, and the expected agreement of the sentence with the other candidates. A sentence is unsure if it is
twice as probable that it is wrong, or if a caption of a random other photo would often match as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fishermix.caption.repetition import FUNCTION_WORDS
from fishermix.schemas import Number, Struct
from fishermix.text.tokens import tokenize

RIGHT_SHARE = 0.5  # of the content words of a sentence
RANDOM_SHARE = 0.95  # of random captions that must be unsure
LEAST_CONFIDENCE = 1 / 3  # below it, a sentence is unsure in any case
REGULARIZATION = 100.0  # scikit-learn's C: weak, since dev has many photos and two numbers each


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


def is_right(sentence: str, references: Sequence[str]) -> bool:
    """Whether at least half of the content words of `sentence` are in one of the references."""
    content = [word for word in tokenize(sentence) if word not in FUNCTION_WORDS]
    known = {word for reference in references for word in tokenize(reference)}
    return sum(word in known for word in content) >= RIGHT_SHARE * max(len(content), 1)


def fit_confidence(
    cosines: np.ndarray, agreements: np.ndarray, right: np.ndarray, random_cosines: np.ndarray
) -> Confidence:
    """Fit a `Confidence` to the sentences of dev photos.

    cosines, agreements, right (n,): of each sentence with its photo; random_cosines (n,): with a photo that
    it was not written for.
    """
    from sklearn.linear_model import LogisticRegression

    right = np.asarray(right, bool)
    features = np.column_stack([cosines, agreements])
    if right.all() or not right.any():
        intercept, weights = (4.0 if right.all() else -4.0), (0.0, 0.0)
    else:
        fitted = LogisticRegression(C=REGULARIZATION).fit(features, right)
        intercept, weights = float(fitted.intercept_[0]), fitted.coef_[0].tolist()
    found = Confidence(intercept, *weights, threshold=0.0)
    random = [found.estimate(*pair) for pair in zip(random_cosines.tolist(), agreements.tolist())]
    threshold = max(float(np.quantile(random, RANDOM_SHARE)), LEAST_CONFIDENCE)
    return Confidence(intercept, *weights, threshold=threshold)
