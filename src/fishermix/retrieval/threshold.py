"""The score from which on a photo counts as an answer: a threshold per query, since a fixed one fails.

Most scores of one query over a whole folder are those of photos that it does not describe: a bell curve
around a center that differs from query to query. Matches lie above it, so center and spread are estimated
from the lower half, which contains none: the median m, and s = m - (the 15.87 % quantile), which is one
standard deviation of a normal distribution. A photo stands out if its score reaches both

    m + z s, with 1 - Phi(z) = 1 / n: one of n unrelated photos is expected to reach it; and
    m + (best - m) / 2: half as far above the rest as the best photo.
"""

from __future__ import annotations

import numpy as np

FEWEST_SCORES = 8  # of fewer scores a quantile says nothing


def estimate_threshold(scores: np.ndarray, best: float) -> float:
    """The score from which on a photo stands out; -inf if there are fewer than eight scores.

    scores : (n,) of one query with all photos, or with a sample of them
    best : the highest score of all photos
    """
    if len(scores) < FEWEST_SCORES:
        return float("-inf")
    from statistics import NormalDist  # a search without a threshold does not wait for it

    one_deviation_below = NormalDist().cdf(-1)
    low, center = np.quantile(np.asarray(scores, np.float64), [one_deviation_below, 0.5])
    above_the_bell = center + NormalDist().inv_cdf(1 - 1 / len(scores)) * (center - low)
    return float(max(above_the_bell, (center + best) / 2))
