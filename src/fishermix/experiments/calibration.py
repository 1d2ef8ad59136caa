"""Fits and checks what turns scores into probabilities: queries with known answers, half of them absent.

A trial is a query and a folder of photos drawn from a data set. The query is a caption, whose photo is the
right one, or a word or two that several captions of the same photos have in common; then a photo is right if
a caption names it. In every second trial the right photos are left out of the folder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fishermix.datasets.dataset import Dataset
from fishermix.model.calibration import FEWEST_SCORES, Calibration, describe_scores, measure_scale
from fishermix.model.model import ImageTextModel
from fishermix.text.tokens import tokenize

FOLDERS = (60, 250, 1000)  # numbers of photos
SMALL_FOLDERS = (1, 2, 3, 5, 7)
HITS = 10  # per trial, the best ones
WEIGHT_OF_BEST = HITS - 1  # in the fit: the best photo counts as much as the others together
FEWEST_CAPTIONS = 2  # of a photo that name a word, for the photo to be right
FEWEST_PHOTOS = 4  # that are right for a word
LEAST_SALIENCE = 2.2  # captions per photo that name a word, if one does: few name the grass, all the giraffe
LITTLE_WORDS = frozenset(
    ("a", "an", "the", "of", "in", "on", "is", "are", "with", "and", "at", "to", "his", "her", "their", "its")
    + ("it", "by", "while", "as", "for", "from", "that", "this")
)
BINS = 10


@dataclass(frozen=True)
class Trials:
    """Rows are the best photos of trials, at most `HITS` per trial, best first.

    numbers : (n, 4) of `describe_scores`
    right : (n,) whether the photo is right
    is_best : (n,) whether it is the best one of its trial
    """

    numbers: np.ndarray
    right: np.ndarray
    is_best: np.ndarray

    def halve(self) -> Trials:
        """The first half of the rows: small folders, should not outweigh the others in a fit."""
        half = len(self.right) // 2
        return Trials(self.numbers[:half], self.right[:half], self.is_best[:half])

    @classmethod
    def join(cls, trials: Sequence[Trials]) -> Trials:
        names = ("numbers", "right", "is_best")
        return cls(*(np.concatenate([getattr(one, name) for one in trials]) for name in names))


@dataclass(frozen=True, eq=False)
class Queries:
    """vectors : (q, d) as a store is searched for; mentions : (q, photos), captions that name the query;
    words : (q,) their numbers; model : that of the vectors
    """

    vectors: np.ndarray
    mentions: list[np.ndarray]
    words: list[int]
    model: ImageTextModel


def make_captions(model: ImageTextModel, dataset: Dataset, count: int, rng: np.random.Generator) -> Queries:
    """Random captions as queries."""
    chosen = rng.permutation(len(dataset.sentences))[:count]
    sentences = [dataset.sentences[position] for position in chosen]
    mentions = []
    for position in chosen:
        row = np.zeros(len(dataset), np.int64)
        row[dataset.image_of[position]] = FEWEST_CAPTIONS
        mentions.append(row)
    vectors = model.csls_sentences(model.encode_text(sentences))
    return Queries(vectors, mentions, [len(sentence.split()) for sentence in sentences], model)


def make_words(model: ImageTextModel, dataset: Dataset) -> Queries:
    """The salient words of a data set, and pairs of neighboring words, as queries."""
    texts = list(find_words(dataset).items())
    vectors = model.csls_sentences(model.encode_text([text for text, _ in texts]))
    return Queries(vectors, [row for _, row in texts], [len(text.split()) for text, _ in texts], model)


def find_words(dataset: Dataset) -> dict[str, np.ndarray]:
    """Salient words and pairs of words in alphabetical order, each with the number of captions of every photo
    that name it.
    """
    mentions: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(len(dataset), np.int64))
    for sentence, image in zip(dataset.sentences, dataset.image_of):
        tokens = tokenize(sentence)
        for text in {*tokens, *(" ".join(pair) for pair in pairwise(tokens))}:
            if not LITTLE_WORDS & set(text.split()):
                mentions[text][image] += 1
    return {
        text: row
        for text, row in sorted(mentions.items(), key=lambda item: item[0])  # a set has any order
        if (row >= FEWEST_CAPTIONS).sum() >= FEWEST_PHOTOS and row[row > 0].mean() >= LEAST_SALIENCE
    }


def run_trials(
    queries: Queries,
    photos: np.ndarray,
    count: int,
    rng: np.random.Generator,
    folders: Sequence[int] = FOLDERS,
) -> Trials:
    """`count` trials with random queries, among the vectors (n, d) of photos, in folders of these sizes."""
    trials: list[Trials] = []
    known = np.flatnonzero(queries.vectors.any(axis=1))
    for trial in range(count):
        query = rng.choice(known)
        mentions = queries.mentions[query]
        folder = _draw_folder(mentions, int(rng.choice(folders)), trial % 2 == 0, rng)
        scores = photos[folder] @ queries.vectors[query]
        few = len(scores) < FEWEST_SCORES
        others = queries.model.score_training_photos(queries.vectors[query]) if few else None
        scale = measure_scale(scores, queries.words[query], others)
        if scale is None:
            continue
        best = np.argsort(-scores, kind="stable")[:HITS]
        is_right = mentions[folder[best]] > 0
        trials.append(Trials(describe_scores(scores[best], scale), is_right, np.arange(len(best)) == 0))
    return Trials.join(trials)


def _draw_folder(mentions: np.ndarray, size: int, present: bool, rng: np.random.Generator) -> np.ndarray:
    """Rows of photos: wrong ones and, if `present`, the share of right ones that the whole set has."""
    wrong, right = np.flatnonzero(mentions == 0), np.flatnonzero(mentions >= FEWEST_CAPTIONS)
    number = max(1, round(size * len(right) / len(mentions))) if present else 0
    right = rng.permutation(right)[:number]
    return np.concatenate([rng.permutation(wrong)[: max(0, size - len(right))], right])


def fit_calibration(trials: list[Trials], model_key: str) -> Calibration:
    """Logistic regression of whether a photo is right."""
    from sklearn.linear_model import LogisticRegression

    all_ = Trials.join(trials)
    weights = np.where(all_.is_best, WEIGHT_OF_BEST, 1.0)
    deviation = all_.numbers.std(axis=0)
    fitted = LogisticRegression(C=100.0, max_iter=1000).fit(all_.numbers / deviation, all_.right, weights)
    score, deviations, log_photos, log_words = (float(value) for value in fitted.coef_[0] / deviation)
    return Calibration(
        model_key=model_key,
        intercept=float(fitted.intercept_[0]),
        score=score,
        deviations=deviations,
        log_photos=log_photos,
        log_words=log_words,
    )


@dataclass(frozen=True)
class Bin:
    """One bar of a reliability diagram: photos, their mean probability, and the share that is right."""

    photos: int
    probability: float
    right: float


def measure_reliability(probabilities: np.ndarray, right: np.ndarray) -> list[Bin]:
    """The bins of equal width that contain a photo."""
    bins = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    inside = [bins == number for number in range(BINS) if np.any(bins == number)]
    return [
        Bin(int(mask.sum()), float(probabilities[mask].mean()), float(right[mask].mean())) for mask in inside
    ]


def calibration_error(bins: list[Bin]) -> float:
    """The expected calibration error: the mean distance of probability and share."""
    total = sum(one.photos for one in bins)
    return sum(one.photos * abs(one.probability - one.right) for one in bins) / total


def predict(calibration: Calibration, trials: Trials) -> np.ndarray:
    """The probabilities of the photos of trials, as a search computes them."""
    weights = [calibration.score, calibration.deviations, calibration.log_photos, calibration.log_words]
    return 1 / (1 + np.exp(-(calibration.intercept + trials.numbers @ np.array(weights))))


def check_kinds(
    model: ImageTextModel, dataset: Dataset, photos: np.ndarray, count: int, seed: int
) -> Iterator[tuple[str, Trials]]:
    """Trials of each kind of query: its name and the trials."""
    rng = np.random.default_rng(seed)
    captions, words = make_captions(model, dataset, count, rng), make_words(model, dataset)
    yield "captions", run_trials(captions, photos, count, rng)
    yield "words", run_trials(words, photos, count, rng)
    yield "captions in small folders", run_trials(captions, photos, count // 4, rng, SMALL_FOLDERS)
    yield "words in small folders", run_trials(words, photos, count // 4, rng, SMALL_FOLDERS)
