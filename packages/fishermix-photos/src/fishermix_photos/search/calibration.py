"""What "likely" means: the features of a score, the formula of its probability, and the bands in words.

The scores of one query over many photos are mostly those of photos that it does not describe: a bell curve
around a center that differs from query to query. Matches lie above it, so its center m and spread s are
estimated from the lower half, which contains none: the median, and the median minus the 15.87 % quantile,
which is one standard deviation of a normal distribution. The probability is the logistic function of

    intercept + score * x + deviations * (x - m) / s + log_photos * log(n) + log_words * log(w) + hubness * r

for a score x, n photos and a query of w telling words whose hubness is r (see `joint.hubness`), plus the
weights color, number and place if the query is of that kind (`vectors.QueryKind`). These nine numbers are
fitted by `tools/calibrate.py`. Of fewer than eight photos, center and spread cannot be estimated: then
they are those of the training photos in the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fishermix_photos.index.photo import Band, Photo
from fishermix_photos.search.vectors import PLAIN, QueryKind, QueryVector

if TYPE_CHECKING:
    from fishermix_photos.model.calibration import Calibration
    from fishermix_photos.model.model import ImageTextModel

BANDS: tuple[Band, ...] = ("likely", "maybe", "unlikely")
LIKELY, MAYBE = 0.5, 0.2  # the probabilities from which on a photo is called so
CLEAR = 0.4  # nothing is said above photos of which the best has this probability: most of them are right
MOST_OF_A_GUESS = 0.15  # the probability that a photo is right if the query is not understood
# Unknown words are understood by their pieces if their nearest training sentence is nearer, by this, than
# that of any other query must be.
NEARER_BY_PIECES = 0.1
FEWEST_SCORES = 8  # of fewer scores a quantile says nothing
FEWEST_PHOTOS = 500  # a smaller folder counts as one of this size: chosen by hand, see docs/searching.md
ONE_DEVIATION_BELOW = 0.158655  # this share of a normal distribution is lower
SMALLEST_SPREAD = 0.02  # half of a usual one: photos of one burst have almost the same score
HIGHER_THAN_ANY_SCORE = 2.0


def find_band(probability: float | None) -> Band | None:
    """A probability in words."""
    if probability is None:
        return None
    return "likely" if probability >= LIKELY else "maybe" if probability >= MAYBE else "unlikely"


def word_verdict(best: float | None, nothing_matches: bool, is_understood: bool) -> str:
    """What to say above photos of which the best has this probability; nothing if it is a clear match."""
    if best is None or best >= CLEAR:
        return ""
    if best >= MAYBE:
        return "No clear match. Perhaps one of these:"
    if not is_understood:
        return "These words are not understood. The closest photos:"
    return f"{'Nothing here looks like this' if nothing_matches else 'Not sure'}. The closest photos:"


@dataclass(frozen=True)
class ScoreScale:
    """The scores of one query over many photos: center and spread, their number, and the number of the
    query's telling words, its hubness and its kind.
    """

    center: float
    spread: float
    photos: int
    words: int
    hubness: float = 0.0
    kind: QueryKind = PLAIN


def measure_scale(
    scores: np.ndarray, words: int, reference: np.ndarray | None = None, hubness: float = 0.0
) -> ScoreScale | None:
    """The scale of the scores (n,) of one query; None if there are too few.

    reference : scores of the same query with other photos, which serve if there are too few
    """
    known = reference if reference is not None and len(scores) < FEWEST_SCORES else scores
    if len(known) < FEWEST_SCORES or not len(scores):
        return None
    center, spread = _measure_bell(known)
    return ScoreScale(
        center=center,
        spread=max(spread, SMALLEST_SPREAD),
        photos=len(scores),
        words=max(words, 1),
        hubness=hubness,
    )


def read_hubness(query: np.ndarray) -> float:
    """The hubness of a query, a row of `csls_right`: how near it is to its nearest training photos,
    measured from that of the training sentences.
    """
    return -2.0 * float(query[-1])


def _measure_bell(scores: np.ndarray) -> tuple[float, float]:
    """Center and spread of scores (n,)."""
    # As np.quantile, which imports numpy.ma: a search would wait for it.
    ordered = np.sort(np.asarray(scores, np.float64))
    positions = np.array([ONE_DEVIATION_BELOW, 0.5]) * (len(ordered) - 1)
    low, center = np.interp(positions, np.arange(len(ordered)), ordered)
    return float(center), float(center - low)


def describe_scores(scores: np.ndarray, scale: ScoreScale) -> np.ndarray:
    """The eight numbers (n, 8) of each score (n,) that the probability depends on."""
    deviations = (np.asarray(scores, np.float64) - scale.center) / scale.spread
    of_query = [math.log(scale.photos), math.log(scale.words), scale.hubness, *scale.kind]
    return np.column_stack([scores, deviations, np.tile(of_query, (len(scores), 1))])


def find_logits(calibration: Calibration, numbers: np.ndarray) -> np.ndarray:
    """The logits (n,) of the probabilities of what `describe_scores` gave (n, 8)."""
    fitted = calibration
    weights = [fitted.score, fitted.deviations, fitted.log_photos, fitted.log_words, fitted.hubness]
    weights += [fitted.color, fitted.number, fitted.place]
    return fitted.intercept + numbers @ np.array(weights)


def find_probabilities(calibration: Calibration, numbers: np.ndarray) -> np.ndarray:
    """The probabilities (n,) of what `describe_scores` gave (n, 8)."""
    return 1 / (1 + np.exp(-find_logits(calibration, numbers)))


@dataclass(frozen=True)
class Probabilities:
    """Turns the scores of one query into probabilities, which are at most `most`."""

    calibration: Calibration
    scale: ScoreScale
    most: float = 1.0

    def of_scores(self, scores: Sequence[float] | np.ndarray) -> list[float]:
        """The probability that the photo with each score is right."""
        numbers = describe_scores(np.asarray(scores, np.float64), self.scale)
        return np.minimum(find_probabilities(self.calibration, numbers), self.most).tolist()

    def add_to(self, photos: Sequence[Photo]) -> list[Photo]:
        """The photos with their probabilities and bands."""
        chances = self.of_scores([photo.score or 0.0 for photo in photos])
        return [
            replace(photo, probability=chance, band=find_band(chance))
            for photo, chance in zip(photos, chances)
        ]

    def exclude(self, best: float) -> bool:
        """Whether nothing matches if the best photo has this probability: true 19 times out of 20."""
        return self.most == 1 and best < self.calibration.nothing

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
        at_zero = float(find_logits(fitted, describe_scores(np.zeros(1), scale))[0])
        return (math.log(probability / (1 - probability)) - at_zero) / slope


def make_probabilities(
    scores: np.ndarray, vector: QueryVector, model: ImageTextModel
) -> Probabilities | None:
    """What turns the scores of a query into probabilities.

    None for a query of photos alone, for a model without calibration, or if there are too few scores. If a
    query is not understood, every photo is unlikely: it has unknown words and is far from all sentences about
    photos, or all its words are unknown and not even their pieces are near to one.

    scores : (n,) of the query with all photos, or with a sample of them
    """
    calibration, hubness = model.calibration, model.joint_space.hubness
    if calibration is None or not vector.n_words:
        return None
    others = None
    of_query = 0.0
    if hubness is not None:
        of_query = read_hubness(vector.vector)
        others = hubness.score_bank(vector.vector) if len(scores) < FEWEST_SCORES else None
    scale = measure_scale(scores, vector.n_words, others, of_query)
    if scale is None:
        return None
    scale = replace(scale, photos=max(scale.photos, FEWEST_PHOTOS), kind=vector.kind)
    is_understood = not vector.unknown_words or vector.nearness >= calibration.understood
    if vector.is_guess:
        is_understood = hubness is not None and vector.nearness >= calibration.understood + NEARER_BY_PIECES
    return Probabilities(calibration, scale, 1.0 if is_understood else MOST_OF_A_GUESS)


def estimate_threshold(scores: np.ndarray, best: float) -> float:
    """The score from which on photos are shown without a calibration; -inf if there are too few scores.

    It is the larger of what one of n unrelated photos is expected to reach, which is m + z s with
    1 - Phi(z) = 1 / n, and of the middle between m and the best score.

    scores : (n,) of one query with all photos, or with a sample of them
    best : the highest score of all photos
    """
    if len(scores) < FEWEST_SCORES:
        return -math.inf
    from statistics import NormalDist  # a search without a threshold does not wait for it

    center, spread = _measure_bell(scores)
    above_the_bell = center + NormalDist().inv_cdf(1 - 1 / len(scores)) * spread
    return float(max(above_the_bell, (center + best) / 2))
