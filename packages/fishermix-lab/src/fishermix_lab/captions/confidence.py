"""How often a written sentence is right: fits the confidence of a captioner to dev photos.

The probability that a sentence is right is a logistic regression from its cosine with the photo and its
expected agreement with the other candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from fishermix.text.tokens import tokenize
from fishermix_photos.model.captioner.consensus import Confidence, content_words


def is_right(sentence: str, references: Sequence[str]) -> bool:
    """Whether at least half of the content words of `sentence` are in one of the references."""
    content = content_words(sentence)
    known = {word for reference in references for word in tokenize(reference)}
    return sum(word in known for word in content) >= 0.5 * max(len(content), 1)


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
        intercept = 4.0 if right.all() else -4.0
        weights = (0.0, 0.0)
    else:
        # A weak regularization: dev has many photos, and two numbers of each.
        fitted = LogisticRegression(C=100.0).fit(features, right)
        intercept = float(fitted.intercept_[0])
        weights = fitted.coef_[0].tolist()
    found = Confidence(intercept, *weights, threshold=0.0)
    random = [found.estimate(*pair) for pair in zip(random_cosines.tolist(), agreements.tolist())]
    random_share = 0.95  # of random captions that must be unsure
    least = 1 / 3  # below it, a sentence is unsure in any case
    threshold = max(float(np.quantile(random, random_share)), least)
    return Confidence(intercept, *weights, threshold=threshold)
