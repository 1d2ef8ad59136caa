"""Fit and check the probabilities of a model's scores; writes `calibration.json` into the model's folder.

    python tools/calibrate.py MODEL --features WORK/features --fit flickr8k:DIR --fit folder:COCO \
        --fit folder:IAPR [--judgments tools/judgments.json] --check flickr8k:DIR --check folder:COCO

1. Captions give the weights. A query is a word, two words, the beginning of a caption, a caption, or a word
   minus another. A photo is right if its captions contain all telling words of the query, in any inflection,
   and not the word that is subtracted. A trial is a query and a folder of up to 10,000 of the photos; every
   second folder has no right photo. Logistic regression over the five best photos of each trial. Words that
   few captions mention although the photo shows them are not asked for: the captions would call right photos
   wrong. "dev" photos are fitted, each set with the same weight; "test" photos are checked.
2. People call more photos right than captions do, and ask for what they have. So the sum of the weighted
   numbers is mapped by a slope, a shift and a weight for each kind of query (`QueryKind`), which are fitted
   to photos that were judged by eye (`--judgments`), and so is the probability below which nothing matches.

WORK/features keeps the features of the photos. The names in the judgments are those of the folders of the
data sets.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from fishermix.text.tokens import STOP_WORDS, tokenize
from fishermix_lab.datasets.readers import open_dataset
from fishermix_lab.features import extract
from fishermix_photos.index.filters import Filter
from fishermix_photos.model.calibration import Calibration
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.search.calibration import (
    BANDS,
    FEWEST_SCORES,
    MAYBE,
    describe_scores,
    find_band,
    find_logits,
    find_probabilities,
    measure_scale,
    read_hubness,
)
from fishermix_photos.search.reading import read_terms
from fishermix_photos.search.terms import parse_query
from fishermix_photos.search.vectors import QueryKind, embed_terms
from msgspec import structs
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold, cross_val_predict
from snowballstemmer import stemmer

HITS = 5  # per trial, the best ones
SHARE_SUBTRACTED = 0.15, 0.8  # of the photos of a query that show what is subtracted
NOTHING_IS_FALSE = 0.05  # of the queries for which nothing matches, at most
BINS = 10
IRREGULAR = {
    "men": "man",
    "women": "woman",
    "children": "child",
    "ran": "run",
    "sat": "sit",
    "stood": "stand",
}
IRREGULAR |= {"wore": "wear", "held": "hold", "rode": "ride", "gray": "grey", "feet": "foot", "mice": "mouse"}
STEMMER = stemmer("english")
WEIGHTS = ("score", "deviations", "log_photos", "log_words", "hubness")


def find_stems(text: str) -> list[str]:
    """The telling words of a text without their inflections."""
    words = [IRREGULAR.get(word, word) for word in tokenize(text) if word not in STOP_WORDS]
    return list(dict.fromkeys(STEMMER.stemWords(words)))


@dataclass(frozen=True, eq=False)
class Collection:
    """Photos with captions: rows (n, d) that a query is compared with, the path of each file, and for each
    stem the number (n,) of captions that contain it.
    """

    photos: np.ndarray
    paths: list[str]
    captions: list[tuple[int, str]]
    mentions: dict[str, np.ndarray]

    @classmethod
    def make(
        cls, photos: np.ndarray, paths: Sequence[str], captions: Iterable[tuple[int, str]]
    ) -> Collection:
        """captions : the row of the photo, and the sentence"""
        pairs, mentions = list(captions), dict[str, np.ndarray]()
        for row, sentence in pairs:
            for stem in find_stems(sentence):
                mentions.setdefault(stem, np.zeros(len(photos), np.int16))[row] += 1
        return cls(photos, list(paths), pairs, mentions)

    @classmethod
    def open(cls, spec: str, split: str, model: ImageTextModel, features: Path) -> Collection:
        dataset = open_dataset(spec).part(split)
        found = extract(dataset.image_paths, model.image_encoder, features).features
        photos = model.joint_space.csls_left(model.joint_space.embed_left(found))
        paths = [os.fspath(path) for path in dataset.image_paths]
        return cls.make(photos, paths, zip(dataset.image_of.tolist(), dataset.sentences))

    @classmethod
    def join(cls, collections: Sequence[Collection]) -> Collection:
        starts = np.cumsum([0, *(len(one.photos) for one in collections)]).tolist()
        captions = [
            (start + row, text) for start, one in zip(starts, collections) for row, text in one.captions
        ]
        paths = [path for one in collections for path in one.paths]
        return cls.make(np.concatenate([one.photos for one in collections]), paths, captions)

    def find_right(self, stems: Sequence[str]) -> np.ndarray:
        """Whether the captions of each photo contain all stems (n,)."""
        return np.all([self.mentions[stem] > 0 for stem in stems], axis=0)

    def measure_salience(self) -> dict[str, float]:
        """For each stem, the share of the captions of a photo that contain it, if one does."""
        counts = np.bincount([row for row, _ in self.captions], minlength=len(self.photos))
        shares = {stem: (row[row > 0] / counts[row > 0]) for stem, row in self.mentions.items()}
        return {stem: float(found.mean()) for stem, found in shares.items()}


@dataclass(frozen=True, eq=False)
class Question:
    """A query, its kind, and whether each photo of a collection is right (n,)."""

    text: str
    kind: str
    right: np.ndarray


def make_questions(
    collection: Collection, salience: dict[str, float], rng: np.random.Generator, count: int = 200
) -> list[Question]:
    """At most `count` random queries of each kind. Words that are not in `salience` are not asked for."""
    texts = {kind: Counter[str]() for kind in ("word", "two words", "short", "long")}
    for _, sentence in collection.captions:
        tokens = tokenize(sentence)
        telling = [position for position, token in enumerate(tokens) if token not in STOP_WORDS]
        texts["word"].update({tokens[position] for position in telling})
        texts["two words"].update({f"{tokens[a]} {tokens[b]}" for a, b in pairwise(telling) if b == a + 1})
        texts["short"].update({" ".join(tokens[: position + 1]) for position in telling[2:4]})
        if len(telling) > 4:
            texts["long"][" ".join(tokens)] += 1
    questions: list[Question] = []
    least_salience = 0.35  # of the captions of a photo name a word, if one does: few name the grass
    most_right = 0.4  # of the photos; a query that describes more of them is no query
    for kind, found in texts.items():
        made = 0
        for text in rng.permutation(np.array(sorted(found), object)).tolist():
            stems = find_stems(text)
            if made < count and stems and all(salience.get(stem, 0) >= least_salience for stem in stems):
                right = collection.find_right(stems)
                if right.mean() <= most_right and (right.sum() > 1 or kind in ("short", "long")):
                    article = "a " if kind in ("word", "two words") and rng.random() < 0.5 else ""
                    questions.append(Question(article + text, kind, right))
                    made += 1
    return questions + _subtract(questions, rng, count)


def _subtract(questions: Sequence[Question], rng: np.random.Generator, count: int) -> list[Question]:
    """Queries minus a word that some of their photos show."""
    words = [question for question in questions if question.kind == "word"]
    found: list[Question] = []
    for _ in range(10 * count if words else 0):
        first, second = (words[i] for i in rng.integers(len(words), size=2))
        share = (first.right & second.right).sum() / first.right.sum()
        if len(found) < count // 2 and SHARE_SUBTRACTED[0] <= share <= SHARE_SUBTRACTED[1]:
            text = f"{first.text} - {second.text}"
            found.append(Question(text, "minus", first.right & ~second.right))
    return found


@dataclass(frozen=True, eq=False)
class Trials:
    """Rows are the best photos of trials, best first.

    numbers : (n, 8) of `describe_scores`
    right : (n,) whether the photo is right
    trial : (n,) the number of the trial
    kinds : (n,) the kind of its query
    """

    numbers: np.ndarray
    right: np.ndarray
    trial: np.ndarray
    kinds: np.ndarray


class Searcher:
    """Searches as `search.pipeline` does, for the numbers that a probability depends on."""

    def __init__(self, model: ImageTextModel, queries: Sequence[str]):
        self.joint_space, self.hubness = model.joint_space, model.joint_space.hubness
        self.reads_unknown_words, self.vocabulary = model.reads_unknown_words, model.vocabulary
        has_date = Filter(after="1900")  # then no dates are read in captions
        self._terms = {text: read_terms(parse_query(text), has_date).terms for text in queries}
        texts = list(dict.fromkeys(term.value for terms in self._terms.values() for term in terms))
        self._points = dict(zip(texts, model.encode_queries(texts)))  # at once: ten times as fast

    # What `embed_terms` asks a model for.

    def encode_query(self, text: str) -> tuple[np.ndarray, list[str]]:
        return self._points[text], []

    def score(self, text: str, photos: np.ndarray) -> np.ndarray:
        """The scores (n,) of a query with photos (n, d)."""
        self.encoded = embed_terms(self._terms[text], self, lambda _: None)
        return self.encoded.subtract(photos @ self.encoded.vector, photos)

    def describe(self, scores: np.ndarray, best: np.ndarray) -> np.ndarray:
        """The numbers (m, 8) of the best of the scores (n,) of the last query."""
        vector = self.encoded.vector
        others = self.hubness.score_bank(vector) if len(scores) < FEWEST_SCORES else None
        scale = measure_scale(scores, self.encoded.n_words, others, read_hubness(vector))
        assert scale is not None, "the model has no training photos to compare with"
        return describe_scores(scores[best], replace(scale, kind=self.encoded.kind))


def run_trials(
    model: ImageTextModel, collection: Collection, questions: Sequence[Question], rng: np.random.Generator
) -> Trials:
    """Two trials of each query, in folders of 2 to 10,000 photos."""
    searcher = Searcher(model, [question.text for question in questions])
    found = list[tuple[np.ndarray, np.ndarray, str]]()
    smallest, largest = np.log((2, 10_000))
    for question in questions:
        scores = searcher.score(question.text, collection.photos)
        for trial in range(2):
            size = int(np.exp(rng.uniform(smallest, min(largest, np.log(len(scores))))))
            folder = draw_folder(question.right, size, trial % 2 == 0, rng)
            best = np.argsort(-scores[folder], kind="stable")[:HITS]
            found.append(
                (searcher.describe(scores[folder], best), question.right[folder[best]], question.kind)
            )
    sizes = [len(right) for _, right, _ in found]
    return Trials(
        np.concatenate([numbers for numbers, _, _ in found]),
        np.concatenate([right for _, right, _ in found]),
        np.repeat(np.arange(len(found)), sizes),
        np.repeat([kind for *_, kind in found], sizes),
    )


def draw_folder(right: np.ndarray, size: int, present: bool, rng: np.random.Generator) -> np.ndarray:
    """Rows of photos: wrong ones and, if `present`, the share of right ones (n,) that all photos have."""
    count = min(max(1, rng.binomial(size, right.mean())), right.sum()) if present else 0
    rights, wrongs = (rng.permutation(np.flatnonzero(mask)) for mask in (right, ~right))
    return np.concatenate([wrongs[: size - count], rights[:count]])


# Fits


def fit_weights(trials: Sequence[Trials], model_key: str) -> Calibration:
    """Logistic regression of whether a photo is right; each of the trials has the same weight."""
    numbers = np.concatenate([one.numbers for one in trials])[:, : len(WEIGHTS)]
    right = np.concatenate([one.right for one in trials])
    weights = np.concatenate([np.full(len(one.right), 1000 / len(one.right)) for one in trials])
    deviation = np.where(numbers.std(axis=0) > 0, numbers.std(axis=0), 1)
    fitted = LogisticRegression(C=100.0, max_iter=1000).fit(numbers / deviation, right, weights)
    named = dict(zip(WEIGHTS, (fitted.coef_[0] / deviation).tolist()))
    return Calibration(
        model_key=model_key, intercept=float(fitted.intercept_[0]), nothing=0.0, understood=-1.0, **named
    )


def rescale(calibration: Calibration, slope: float, shift: float) -> Calibration:
    """The calibration whose logits are `slope` times as large, plus `shift`."""
    weights = {name: slope * getattr(calibration, name) for name in ("intercept", *WEIGHTS)}
    weights["intercept"] += shift
    return structs.replace(calibration, **weights)


def fit_to_judgments(calibration: Calibration, judged: Trials) -> tuple[Calibration, np.ndarray]:
    """The calibration mapped to what was judged, and the probabilities (n,) of each judged photo by maps that
    were fitted without its query.
    """
    inputs = np.column_stack([find_logits(calibration, judged.numbers), judged.numbers[:, len(WEIGHTS) :]])
    regression = LogisticRegression(C=1.0)
    fitted = regression.fit(inputs, judged.right)
    slope, *of_kinds = fitted.coef_[0].tolist()
    mapped = rescale(calibration, slope, float(fitted.intercept_[0]))
    mapped = structs.replace(mapped, **dict(zip(QueryKind._fields, of_kinds)))
    left_out = cross_val_predict(
        regression, inputs, judged.right, groups=judged.trial, cv=GroupKFold(10), method="predict_proba"
    )[:, 1]
    return structs.replace(
        mapped, nothing=fit_nothing(find_probabilities(mapped, judged.numbers), judged)
    ), left_out


def fit_nothing(probabilities: np.ndarray, judged: Trials) -> float:
    """The probability of the best photo below which at most `NOTHING_IS_FALSE` of the queries have a right
    photo among the first, by logistic regression.
    """
    first, has_right = summarize(probabilities, judged)
    if has_right.all():
        return 0.0
    logit = np.log(first / (1 - first))[:, None]
    fitted = LogisticRegression(C=100.0).fit(logit, has_right)
    wanted = np.log(NOTHING_IS_FALSE / (1 - NOTHING_IS_FALSE))
    return float(1 / (1 + np.exp(-(wanted - fitted.intercept_[0]) / fitted.coef_[0, 0])))


def summarize(probabilities: np.ndarray, trials: Trials) -> tuple[np.ndarray, np.ndarray]:
    """The probability of the best photo of each trial, and whether one of its photos is right."""
    _, starts = np.unique(trials.trial, return_index=True)
    return probabilities[starts], np.logical_or.reduceat(trials.right, starts)


def fit_understood(model: ImageTextModel, questions: Sequence[Question]) -> float:
    """The nearness that nearly all single words of captions have."""
    points = model.encode_queries([question.text for question in questions if question.kind == "word"])
    hubness = model.joint_space.hubness
    assert hubness is not None, "the model has no training sentences to compare with"
    nearness = [hubness.find_nearness(point) for point in points if point.any()]
    return float(np.quantile(nearness, 0.01))  # this share of them may count as not understood


def read_judgments(path: Path, model: ImageTextModel, specs: Sequence[str], features: Path) -> Trials:
    """The first photos of each judged query, as far as they were judged.

    The file is a list of sheets. A sheet has the "photos" among which was searched, each named by the last
    two parts of its path, and the "queries", each with photos and whether they are right.
    """
    files = {"/".join(file.parts[-2:]): file for spec in specs for file in open_dataset(spec).image_paths}
    found, missing = list[tuple[np.ndarray, list[bool], str]](), 0
    for number, sheet in enumerate(json.loads(path.read_text("utf8"))):
        vectors = extract([files[name] for name in sheet["photos"]], model.image_encoder, features).features
        photos = model.joint_space.csls_left(model.joint_space.embed_left(vectors))
        searcher = Searcher(model, list(sheet["queries"]))
        for query, judged in sheet["queries"].items():
            scores = searcher.score(query, photos)
            best = np.argsort(-scores, kind="stable")[:HITS]
            known = np.array([row for row in best if sheet["photos"][row] in judged], np.int64)
            missing += len(best) - len(known)
            right = [judged[sheet["photos"][row]] for row in known]
            found.append((searcher.describe(scores, known), right, f"sheet {number}"))
    print(f"{path}: {len(found)} queries; {missing} of their first {HITS} photos were not judged")
    sizes = [len(right) for _, right, _ in found]
    return Trials(
        np.concatenate([numbers for numbers, _, _ in found]),
        np.concatenate([right for _, right, _ in found]).astype(bool),
        np.repeat(np.arange(len(found)), sizes),
        np.repeat([sheet for *_, sheet in found], sizes),
    )


# Checks


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


def report(name: str, probabilities: np.ndarray, trials: Trials) -> None:
    """Print the calibration error of all photos and of those of each kind of query."""

    def measure(mask: np.ndarray) -> str:
        bins = measure_reliability(probabilities[mask], trials.right[mask])
        return f"{calibration_error(bins):.3f}"

    kinds = {kind: measure(trials.kinds == kind) for kind in dict.fromkeys(trials.kinds.tolist())}
    total = measure(np.ones(len(trials.right), bool))
    print(f"{name}: {len(trials.right):,} photos, expected calibration error {total} {kinds}")


def report_bands(name: str, probabilities: np.ndarray, trials: Trials) -> None:
    """Print how well right and wrong photos are told apart, and the share of each band that is right."""
    bands = np.array([find_band(probability) for probability in probabilities.tolist()])
    shares = {
        band: (int((bands == band).sum()), round(float(trials.right[bands == band].mean()), 2))
        for band in BANDS
        if np.any(bands == band)
    }
    print(f"{name}: AUC {roc_auc_score(trials.right, probabilities):.3f}, photos and share right {shares}")
    first, has_right = summarize(probabilities, trials)
    unlikely = first < MAYBE
    print(
        f"{name}: all unlikely in {unlikely.sum()} queries, {(unlikely & has_right).sum()} with a right photo"
    )


def check_sheets(calibration: Calibration, judged: Trials) -> None:
    """Print how good the probabilities of each sheet are if they are fitted to the other sheets."""
    for sheet in np.unique(judged.kinds).tolist():
        inside, others = (
            select_trials(judged, mask) for mask in (judged.kinds == sheet, judged.kinds != sheet)
        )
        fitted, _ = fit_to_judgments(calibration, others)
        report(f"{sheet}, fitted to the others", find_probabilities(fitted, inside.numbers), inside)
        report_bands(f"{sheet}, fitted to the others", find_probabilities(fitted, inside.numbers), inside)
        print_nothing(fitted, inside)


def select_trials(trials: Trials, mask: np.ndarray) -> Trials:
    return Trials(trials.numbers[mask], trials.right[mask], trials.trial[mask], trials.kinds[mask])


def print_nothing(calibration: Calibration, judged: Trials) -> None:
    first, has_right = summarize(find_probabilities(calibration, judged.numbers), judged)
    nothing = first < calibration.nothing
    print(f"nothing matches: {nothing.sum()} queries, {(nothing & has_right).sum()} with a right photo")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--features", type=Path, required=True, help="folder of the feature cache")
    parser.add_argument("--fit", action="append", required=True, help="data set whose dev photos are fitted")
    parser.add_argument("--check", action="append", default=[], help="data set whose test photos are checked")
    parser.add_argument("--judgments", type=Path, help="photos that were judged by eye")
    arguments = parser.parse_args()
    model, rng = ImageTextModel.load(arguments.model), np.random.default_rng(0)
    sets = {spec: Collection.open(spec, "dev", model, arguments.features) for spec in arguments.fit}
    everything = Collection.join(list(sets.values()))
    salience = everything.measure_salience()
    if len(sets) > 1:
        sets["all of them"] = everything
    questions = {name: make_questions(one, salience, rng) for name, one in sets.items()}
    trials = {name: run_trials(model, one, questions[name], rng) for name, one in sets.items()}
    for left_out in arguments.fit if len(arguments.fit) > 1 else ():
        others = [trials[name] for name in arguments.fit if name != left_out]
        report(
            f"{left_out}, fitted on the others",
            find_probabilities(fit_weights(others, ""), trials[left_out].numbers),
            trials[left_out],
        )
    calibration = fit_weights(list(trials.values()), model.key)
    for spec in arguments.check:
        one = Collection.open(spec, "test", model, arguments.features)
        checked = run_trials(model, one, make_questions(one, salience, rng), rng)
        report(f"{spec}, test", find_probabilities(calibration, checked.numbers), checked)
    everyone = [question for found in questions.values() for question in found]
    calibration = structs.replace(calibration, understood=fit_understood(model, everyone))
    if arguments.judgments:
        judged = read_judgments(arguments.judgments, model, arguments.fit, arguments.features)
        report(
            "judged by eye, by the captions alone", find_probabilities(calibration, judged.numbers), judged
        )
        check_sheets(calibration, judged)
        calibration, left_out = fit_to_judgments(calibration, judged)
        report("judged by eye, each query by the others", left_out, judged)
        report_bands("judged by eye, each query by the others", left_out, judged)
        print_nothing(calibration, judged)
    calibration.save(arguments.model)
    print(f"Wrote {arguments.model / 'calibration.json'}: {calibration}")


if __name__ == "__main__":
    main()
