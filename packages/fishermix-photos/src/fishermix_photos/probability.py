"""What a score means: the probability that a photo is right, given the query and the photos searched.

The scores of one query over many photos are mostly those of photos that it does not describe: a bell curve
around a center that differs from query to query. Matches lie above it, so its center m and spread s are
estimated from the lower half, which contains none: the median, and the median minus the 15.87 % quantile,
which is one standard deviation of a normal distribution. The probability is the logistic function of

    intercept + score * x + deviations * (x - m) / s + log_photos * log(n) + log_words * log(w)

for a score x, n photos and a query of w words. `tools/calibrate.py` fits the five numbers on validation
photos. Of fewer than eight photos, center and spread cannot be estimated: then they are those of the training
photos in the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fishermix_photos.model import Calibration
from fishermix_photos.results import Band

LIKELY, MAYBE = 0.5, 0.2  # the probabilities from which on a photo is likely right, or may be
MOST_OF_A_GUESS = 0.15  # the probability that a photo is right if no word of the query is known
FEWEST_SCORES = 8  # of fewer scores a quantile says nothing
ONE_DEVIATION_BELOW = 0.158655  # this share of a normal distribution is lower
SMALLEST_SPREAD = 0.02  # half of a usual one: photos of one burst have almost the same score
HIGHER_THAN_ANY_SCORE = 2.0


def find_band(probability: float) -> Band:
    """A probability in words."""
    return "likely" if probability >= LIKELY else "maybe" if probability >= MAYBE else "unlikely"


@dataclass(frozen=True)
class ScoreScale:
    """The scores of one query over many photos: center and spread, their number, and the query's words."""

    center: float
    spread: float
    photos: int
    words: int


def measure_scale(scores: np.ndarray, words: int, reference: np.ndarray | None = None) -> ScoreScale | None:
    """The scale of the scores (n,) of one query; None if there are too few.

    reference : scores of the same query with other photos, which serve if there are too few
    """
    known = reference if reference is not None and len(scores) < FEWEST_SCORES else scores
    if len(known) < FEWEST_SCORES or not len(scores):
        return None
    center, spread = _measure_bell(known)
    return ScoreScale(center, max(spread, SMALLEST_SPREAD), len(scores), max(words, 1))


def _measure_bell(scores: np.ndarray) -> tuple[float, float]:
    """Center and spread of scores (n,)."""
    # As np.quantile, which imports numpy.ma: a search would wait for it.
    ordered = np.sort(np.asarray(scores, np.float64))
    positions = np.array([ONE_DEVIATION_BELOW, 0.5]) * (len(ordered) - 1)
    low, center = np.interp(positions, np.arange(len(ordered)), ordered)
    return float(center), float(center - low)


def describe_scores(scores: np.ndarray, scale: ScoreScale) -> np.ndarray:
    """The four numbers (n, 4) of each score (n,) that the probability depends on."""
    same = np.ones(len(scores))
    deviations = (np.asarray(scores, np.float64) - scale.center) / scale.spread
    return np.stack([scores, deviations, same * math.log(scale.photos), same * math.log(scale.words)], axis=1)


@dataclass(frozen=True)
class Probabilities:
    """Turns the scores of one query into probabilities, which are at most `most`."""

    calibration: Calibration
    scale: ScoreScale
    most: float = 1.0

    def of_scores(self, scores: Sequence[float] | np.ndarray) -> list[float]:
        """The probability that the photo with each score is right."""
        numbers = describe_scores(np.asarray(scores, np.float64), self.scale)
        return np.minimum(self.calibration.apply(numbers), self.most).tolist()

    def threshold(self, probability: float) -> float:
        """The score with this probability; -inf if the probability does not grow with the score; a score that
        no photo has if no score has this probability.
        """
        if probability > self.most:
            return HIGHER_THAN_ANY_SCORE
        fitted, scale = self.calibration, self.scale
        slope = fitted.score + fitted.deviations / scale.spread
        if slope <= 0:
            return -math.inf
        fixed = fitted.log_photos * math.log(scale.photos) + fitted.log_words * math.log(scale.words)
        at_zero = fitted.intercept + fixed - fitted.deviations * scale.center / scale.spread
        return (math.log(probability / (1 - probability)) - at_zero) / slope


def estimate_threshold(scores: np.ndarray, best: float) -> float:
    """The score from which on a photo stands out, without a calibration; -inf if there are too few scores.

    A photo stands out if its score is both above what one of n unrelated photos is expected to reach, which
    is m + z s with 1 - Phi(z) = 1 / n, and at least half as far above the rest as the best photo.

    scores : (n,) of one query with all photos, or with a sample of them
    best : the highest score of all photos
    """
    if len(scores) < FEWEST_SCORES:
        return -math.inf
    from statistics import NormalDist  # a search without a threshold does not wait for it

    center, spread = _measure_bell(scores)
    above_the_bell = center + NormalDist().inv_cdf(1 - 1 / len(scores)) * spread
    return float(max(above_the_bell, (center + best) / 2))
