"""Fit and check the probabilities of a model's scores; writes `calibration.json` into the model's folder.

    python tools/calibrate.py MODEL --features WORK/features --fit flickr8k:DIR \
        --check flickr8k:DIR --check folder:COCO [--plot reliability.png]

Fits on the "dev" photos of one data set and checks on the "test" photos of others: captions and single
words, in folders of 60 to 1,000 photos and of 1 to 7, half of them without a right photo. WORK/features keeps
the features of the photos.

A trial is a query and a folder of photos drawn from a data set. The query is a caption, whose photo is the
right one, or a word or two that several captions of the same photos have in common; then a photo is right if
a caption names it. In every second trial the folder has none of the right photos.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from fishermix.text.tokens import STOP_WORDS, tokenize
from fishermix_photos.lab.datasets import Dataset, open_dataset
from fishermix_photos.model import Calibration, ImageTextModel
from fishermix_photos.search import FEWEST_SCORES, describe_scores, measure_scale
from fishermix_photos.vision.features import extract

TRIALS = 4000
FOLDERS = (60, 250, 1000)  # numbers of photos
SMALL_FOLDERS = (1, 2, 3, 5, 7)
HITS = 10  # per trial, the best ones
WEIGHT_OF_BEST = HITS - 1  # in the fit: the best photo counts as much as the others together
FEWEST_CAPTIONS = 2  # of a photo that name a word, for the photo to be right
FEWEST_PHOTOS = 4  # that are right for a word
LEAST_SALIENCE = 2.2  # captions per photo that name a word, if one does: few name the grass, all the giraffe
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
        return cls(*(np.concatenate([getattr(part, name) for part in trials]) for name in names))


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
            if not STOP_WORDS & set(text.split()):
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

    joined = Trials.join(trials)
    weights = np.where(joined.is_best, WEIGHT_OF_BEST, 1.0)
    deviation = joined.numbers.std(axis=0)
    fitted = LogisticRegression(C=100.0, max_iter=1000).fit(joined.numbers / deviation, joined.right, weights)
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
    total = sum(bin_.photos for bin_ in bins)
    return sum(bin_.photos * abs(bin_.probability - bin_.right) for bin_ in bins) / total


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--features", type=Path, required=True, help="folder of the feature cache")
    parser.add_argument("--fit", help="data set whose dev photos are fitted; omit to check only")
    parser.add_argument("--check", action="append", default=[], help="data set whose test photos are checked")
    parser.add_argument("--plot", type=Path, help="write the reliability diagrams as a picture")
    arguments = parser.parse_args()
    model = ImageTextModel.load(arguments.model)
    if arguments.fit:
        trials = make_trials(model, arguments.fit, "dev", arguments.features, seed=0)
        calibration = fit_calibration(list(trials.values()), model.key)
        calibration.save(arguments.model)
        print(f"Wrote {arguments.model / 'calibration.json'}: {calibration}")
    else:
        calibration = model.calibration or parser.error("the model has no calibration: add --fit")
    diagrams = {}
    for spec in arguments.check:
        trials = make_trials(model, spec, "test", arguments.features, seed=1)
        diagrams |= {f"{spec.partition(':')[0]}, {kind}": (calibration, one) for kind, one in trials.items()}
    for name, pair in diagrams.items():
        report(name, *pair)
    if arguments.plot:
        plot(diagrams, arguments.plot)


def make_trials(model: ImageTextModel, spec: str, split: str, features: Path, seed: int) -> dict[str, Trials]:
    dataset = open_dataset(spec).part(split)
    found = extract(dataset.image_paths, model.image_encoder, features).features
    points = model.csls_images(model.image_points(found))
    kinds = dict(check_kinds(model, dataset, points, TRIALS, seed))
    if split != "dev":
        return kinds | {"all": Trials.join(list(kinds.values()))}
    return {name: one.halve() if "small" in name else one for name, one in kinds.items()}


def report(name: str, calibration: Calibration, trials: Trials) -> None:
    probabilities, best = calibration.apply(trials.numbers), trials.is_best
    for title, rows in (("ten best photos", best | True), ("best photo", best)):
        bins = measure_reliability(probabilities[rows], trials.right[rows])
        error = calibration_error(bins)
        print(f"{name}, {title}: {rows.sum():,} photos, expected calibration error {error:.3f}")
        for one in bins:
            print(f"    {one.photos:6,} photos: probability {one.probability:.2f}, right {one.right:.2f}")


def plot(diagrams: dict[str, tuple[Calibration, Trials]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(diagrams), figsize=(3 * len(diagrams), 3.2), sharey=True)
    for axis, (name, (calibration, trials)) in zip(np.atleast_1d(axes), diagrams.items()):
        bins = measure_reliability(calibration.apply(trials.numbers), trials.right)
        axis.plot([0, 1], [0, 1], color="0.8")
        axis.plot([one.probability for one in bins], [one.right for one in bins], "o-", markersize=3)
        axis.set_title(f"{name}\nECE {calibration_error(bins):.3f}", fontsize=9)
        axis.set_xlabel("probability")
    np.atleast_1d(axes)[0].set_ylabel("share of right photos")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
