"""What a score means: the probability that a photo is right, given the query and the folder.

The scores of one query over a folder are mostly those of photos that it does not describe. Their center m
and spread s are estimated as in `retrieval.threshold`. The probability is the logistic function of

    intercept + score * x + deviations * (x - m) / s + log_photos * log(n) + log_words * log(w)

for a score x, n photos and a query of w words. `tools/calibrate.py` fits the five numbers on validation
photos and writes them into the model's folder, as `calibration.json`. Of fewer than eight photos, center and
spread cannot be estimated: then they are those of the training photos in the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fishermix.schemas import Number, Struct, Text, parse_json

MOST_BYTES = 1 << 16
FILE = "calibration.json"
FEWEST_SCORES = 8  # of fewer scores a quantile says nothing
ONE_DEVIATION_BELOW = 0.158655  # this share of a normal distribution is lower
SMALLEST_SPREAD = 0.02  # half of a usual one: photos of one burst have almost the same score
HIGHER_THAN_ANY_SCORE = 2.0


class Calibration(Struct, kw_only=True):
    """The numbers of the map, and the key of the model whose scores it is for."""

    model_key: Text
    intercept: Number
    score: Number
    deviations: Number
    log_photos: Number
    log_words: Number


class ScoreScale(Struct):
    """The scores of one query over a folder: their center and spread, their number, and the query's words."""

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
    # As np.quantile, which imports numpy.ma: a search would wait for it.
    ordered = np.sort(np.asarray(known, np.float64))
    low, center = np.interp(
        np.array([ONE_DEVIATION_BELOW, 0.5]) * (len(ordered) - 1), np.arange(len(ordered)), ordered
    )
    return ScoreScale(float(center), max(float(center - low), SMALLEST_SPREAD), len(scores), max(words, 1))


def describe_scores(scores: np.ndarray, scale: ScoreScale) -> np.ndarray:
    """The four numbers (n, 4) of each score (n,) that the probability depends on."""
    same = np.ones(len(scores))
    deviations = (np.asarray(scores, np.float64) - scale.center) / scale.spread
    return np.stack([scores, deviations, same * math.log(scale.photos), same * math.log(scale.words)], axis=1)


class Judge(Struct):
    """Turns the scores of one query in one folder into probabilities, which are at most `most`."""

    calibration: Calibration
    scale: ScoreScale
    most: float = 1.0

    def find_probabilities(self, scores: Sequence[float] | np.ndarray) -> list[float]:
        """The probability that the photo with each score is right."""
        map_ = self.calibration
        weights = np.array([map_.score, map_.deviations, map_.log_photos, map_.log_words])
        logits = map_.intercept + describe_scores(np.asarray(scores, np.float64), self.scale) @ weights
        return np.minimum(1 / (1 + np.exp(-logits)), self.most).tolist()

    def find_score(self, probability: float) -> float:
        """The score with this probability; -inf if the probability does not grow with the score; a score that
        no photo has if no score has this probability.
        """
        if probability > self.most:
            return HIGHER_THAN_ANY_SCORE
        map_, scale = self.calibration, self.scale
        slope = map_.score + map_.deviations / scale.spread
        if slope <= 0:
            return -math.inf
        fixed = map_.log_photos * math.log(scale.photos) + map_.log_words * math.log(scale.words)
        at_zero = map_.intercept + fixed - map_.deviations * scale.center / scale.spread
        return (math.log(probability / (1 - probability)) - at_zero) / slope


def load_calibration(folder: Path, model_key: str) -> Calibration | None:
    """The calibration in a model's folder; None if it has none, or one for another model."""
    path = folder / FILE
    if not path.is_file():
        return None
    with open(path, "rb") as file:
        found = parse_json(file.read(MOST_BYTES), Calibration, path)
    return found if found.model_key == model_key else None


def save_calibration(folder: Path, calibration: Calibration) -> None:
    import json

    from msgspec import structs

    from fishermix.storage import write_atomically

    text = json.dumps(structs.asdict(calibration), indent=1) + "\n"
    write_atomically(folder / FILE, text.encode())
