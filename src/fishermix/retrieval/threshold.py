"""From which score on is a photo an answer? A cut per query, since a flat one fails.

The scores of one query over a whole folder are mostly those of photos it does not describe: a bell around
some centre that differs from query to query. Matches only ever lie above it, so centre and spread are read
from the lower half, where there are none: the median m, and s = m - (the 15.87 % quantile), which is one
standard deviation of a normal bell. A photo stands out if its score reaches both

    m + z s, with 1 - Phi(z) = 1 / n: of n unrelated photos one would be expected to get there; and
    m + (best - m) / 2: half as far above the rest as the best photo is.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

FEWEST_FOR_A_CUT = 8


def automatic_cut(scores: np.ndarray, best: float) -> float:
    """The score from which on a photo stands out, -inf for a handful of photos.

    scores (n,) of one query against all photos, or against a sample of them; best: the highest of all.
    """
    if len(scores) < FEWEST_FOR_A_CUT:
        return float("-inf")
    one_deviation_below = NormalDist().cdf(-1)
    low, centre = np.quantile(np.asarray(scores, np.float64), [one_deviation_below, 0.5])
    above_the_bell = centre + NormalDist().inv_cdf(1 - 1 / len(scores)) * (centre - low)
    return float(max(above_the_bell, (centre + best) / 2))
