"""How photos are found: the best files of a query with their probabilities, and lists without a query.

The scores of one query over many photos are mostly those of photos that it does not describe: a bell curve
around a center that differs from query to query. Matches lie above it, so its center m and spread s are
estimated from the lower half, which contains none: the median, and the median minus the 15.87 % quantile,
which is one standard deviation of a normal distribution. The probability is the logistic function of

    intercept + score * x + deviations * (x - m) / s + log_photos * log(n) + log_words * log(w) + hubness * r

for a score x, n photos and a query of w telling words whose hubness is r (`fishermix.joint`), plus the
weights color, number, place and minus if the query is of that kind (`query.QueryKind`). `tools/calibrate.py`
fits these ten numbers. Of fewer than eight photos, center and spread cannot be estimated: then they are those
of the training photos in the model.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fishermix_photos.details import find_kind, is_doubtful
from fishermix_photos.duplicates import LEAST_COSINE, MOST_DIFFERENT_BITS
from fishermix_photos.query import PLAIN, EncodedQuery, QueryKind
from fishermix_photos.results import (
    Band,
    FacetCount,
    Facets,
    Photo,
    Query,
    Results,
    replace_undecodable,
)

if TYPE_CHECKING:
    from fishermix_photos.database import Picture, Scope
    from fishermix_photos.model import Calibration, ImageTextModel
    from fishermix_photos.postgres import PostgresStore
    from fishermix_photos.store import LocalStore

Folders = Sequence[str | os.PathLike]
MOST_SORTED = 2000  # likely photos and maybes, if they are not sorted by their scores
SPARE_PHOTOS = 10  # looked at besides those asked for: copies leave places free
SCORES_SAMPLED = 20_000  # enough to know center and spread of the scores of a query
BANDS: tuple[Band, ...] = ("likely", "maybe", "unlikely")
LIKELY, MAYBE = 0.5, 0.2  # the probabilities from which on a photo is called so
MOST_OF_A_GUESS = 0.15  # the probability that a photo is right if the query is not understood
FEWEST_SCORES = 8  # of fewer scores a quantile says nothing
FEWEST_PHOTOS = 500  # a smaller folder counts as one of this size: chosen by hand, see docs/searching.md
ONE_DEVIATION_BELOW = 0.158655  # this share of a normal distribution is lower
SMALLEST_SPREAD = 0.02  # half of a usual one: photos of one burst have almost the same score
HIGHER_THAN_ANY_SCORE = 2.0


@dataclass(frozen=True)
class PhotoSearch:
    """Searches and lists the photos of a store."""

    _store: LocalStore | PostgresStore

    def find(
        self,
        query: Query,
        encoded: EncodedQuery,
        model: ImageTextModel,
        scope: Scope,
        preferred: Sequence[str] = (),
    ) -> Results:
        """The photos of a query that this model encoded, with their probabilities, in its order.

        preferred : names of photos that come first within their band
        """
        scope.expect_model(model.key)
        # One more than asked for tells whether there are more; some may be copies of others.
        end = query.offset + query.n
        n = end + 1 + SPARE_PHOTOS if query.sort == "score" else MOST_SORTED
        photos = self._store.nearest_files(encoded.vector, n, scope.prefixes, query.filter)
        if not photos:
            return Results()
        probabilities, threshold = self._estimate(encoded, model, query, scope, photos[0].score or 0.0)
        is_understood, nothing = True, False
        if probabilities is not None:
            photos = probabilities.add_to(photos)
            is_understood, nothing = probabilities.most == 1, probabilities.exclude(photos[0])
            for name in reversed(preferred):
                filter = replace(query.filter, names=(*query.filter.names, name))
                named = self._store.nearest_files(encoded.vector, n, scope.prefixes, filter)
                photos = _put_first(probabilities.add_to(named), photos)
        chosen = self._choose(photos, threshold, query, encoded.dimension)
        shown = tuple(chosen[query.offset : end])
        return Results(
            shown,
            len(chosen) > end,
            nothing_matches=nothing,
            is_understood=is_understood,
            verdict=_judge(shown, nothing, is_understood),
        )

    def _choose(self, photos: list[Photo], threshold: float, query: Query, dimension: int) -> list[Photo]:
        """The photos from a score on, in the order of the query."""
        chosen = [photo for photo in photos if (photo.score or 0.0) >= threshold]
        if query.sort != "score":
            is_limited = query.min_probability is not None or query.min_score is not None
            return _sort(chosen if chosen or is_limited else photos[: query.n], query.sort)
        if not query.merge_copies or len(chosen) < 2:
            return chosen
        return _merge_copies(chosen, self._store.pictures([photo.id for photo in chosen]), dimension)

    def _estimate(
        self, encoded: EncodedQuery, model: ImageTextModel, query: Query, scope: Scope, best: float
    ) -> tuple[Probabilities | None, float]:
        """What turns the scores of a query into probabilities, and the score from which on photos are shown.

        A query of photos alone, or a model without calibration, has no probabilities. If a query is not
        understood, every photo is unlikely.
        """
        is_limited = query.min_probability is not None or query.sort != "score"
        calibration = model.calibration if encoded.n_words else None
        threshold = -np.inf if query.min_score is None else query.min_score
        if calibration is None and not is_limited:
            return None, threshold
        scores = self._store.sample_scores(encoded.vector, SCORES_SAMPLED, scope.prefixes)
        probabilities = None
        if calibration is not None:
            probabilities = _make_probabilities(scores, encoded, model, calibration)
        if is_limited and probabilities is not None:
            threshold = max(threshold, probabilities.threshold(query.min_probability or MAYBE))
        elif is_limited:
            threshold = max(threshold, estimate_threshold(scores, best))
        return probabilities, threshold

    def browse(self, query: Query, scope: Scope) -> Results:
        """The photos that meet the conditions of a query, without its terms, in its order."""
        end, order = query.offset + query.n, "date" if query.sort == "score" else query.sort
        photos, years = self._store.list_files(scope.prefixes, query.filter, order, query.n, query.offset)
        total = sum(years.values())
        return Results(tuple(photos), total > end, total, _sort_years(years, order))


def _make_probabilities(
    scores: np.ndarray, encoded: EncodedQuery, model: ImageTextModel, calibration: Calibration
) -> Probabilities | None:
    """What turns the scores of a query into probabilities; None if there are too few of them."""
    hubness, others, of_query = model.joint_space.hubness, None, 0.0
    if hubness is not None:
        of_query = read_hubness(encoded.vector)
        others = hubness.score_bank(encoded.vector) if len(scores) < FEWEST_SCORES else None
    scale = measure_scale(scores, encoded.n_words, others, of_query)
    if scale is None:
        return None
    is_guess = encoded.is_guess or encoded.nearness < calibration.understood
    scale = replace(scale, photos=max(scale.photos, FEWEST_PHOTOS), kind=encoded.kind)
    return Probabilities(calibration, scale, MOST_OF_A_GUESS if is_guess else 1.0)


def _judge(photos: Sequence[Photo], nothing_matches: bool, is_understood: bool) -> str:
    """What to say above photos if not one of them is likely."""
    bands = {photo.band for photo in photos}
    if not photos or not bands <= {"maybe", "unlikely"}:
        return ""
    if "maybe" in bands:
        return "No clear match. Perhaps one of these:"
    if not is_understood:
        return "These words are not understood. The closest photos:"
    return f"{'Nothing here looks like this' if nothing_matches else 'Not sure'}. The closest photos:"


def _put_first(first: Sequence[Photo], photos: Sequence[Photo]) -> list[Photo]:
    """Photos with those of `first` at the beginning of their band; both are sorted by band."""
    chosen = {photo.id for photo in first}
    others = [photo for photo in photos if photo.id not in chosen]
    return sorted([*first, *others], key=lambda photo: BANDS.index(photo.band or "unlikely"))


def _merge_copies(photos: Sequence[Photo], pictures: Mapping[str, Picture], dimension: int) -> list[Photo]:
    """The photos of a search without near copies of earlier ones, which become their `similar`.

    pictures : by id; another process may have removed some photos
    dimension : that of the points; the rest of a vector is its hubness
    """
    known = [photo for photo in photos if photo.id in pictures]
    if not known:
        return []
    found = [pictures[photo.id] for photo in known]
    points = np.stack([picture.point[:dimension] for picture in found])
    is_close = points @ points.T >= LEAST_COSINE
    similar: dict[int, list[Photo]] = {}  # by the position of the original
    for position, photo in enumerate(known):
        originals = (
            other
            for other in similar
            if is_close[other, position] and _look_same(found[other], found[position])
        )
        original = next(originals, position)
        copies = similar.setdefault(original, [])
        if original != position:
            copies.append(photo)
    return [replace(known[first], similar=tuple(copies)) for first, copies in similar.items()]


def _look_same(first: Picture, second: Picture) -> bool:
    """Whether two contents are equal, or their fingerprints those of one picture."""
    if first.row == second.row or first.fingerprint is None or second.fingerprint is None:
        return first.row == second.row
    different = int.from_bytes(first.fingerprint) ^ int.from_bytes(second.fingerprint)
    return different.bit_count() <= MOST_DIFFERENT_BITS


def _sort(photos: Sequence[Photo], order: str) -> list[Photo]:
    """Photos newest first ("date"), oldest first or by name; doubtful dates last, the same time by path."""
    if order == "name":
        return sorted(photos, key=lambda photo: photo.path.lower())
    found = sorted(photos, key=lambda photo: photo.path)
    found.sort(key=lambda photo: photo.details.taken or "", reverse=True)
    found = found[::-1] if order == "oldest" else found
    return sorted(found, key=lambda photo: is_doubtful(photo.details.taken))


def _sort_years(years: Mapping[tuple[bool, str], int], order: str) -> tuple[FacetCount, ...]:
    """The years of a list in its order, with their numbers of photos; none of a list by name."""
    if order == "name":
        return ()
    found = sorted(years, key=lambda year: year[1], reverse=order == "date")
    found.sort(key=lambda year: year[0])
    return tuple(FacetCount(year, years[doubtful, year]) for doubtful, year in found)


def count_facets(files: Sequence[tuple[str, bytes, bytes, str | None]]) -> Facets:
    """The years, folders and kinds of what `Database.files` gave."""
    years = Counter((taken or "")[:4] for _, _, _, taken in files)
    suffixes = Counter(path.rpartition(b".")[2].lower() for _, path, _, _ in files)
    parents = Counter((path.rpartition(b"/")[0], folder) for _, path, folder, _ in files)
    kinds, places = Counter[str](), Counter[str]()
    for suffix, count in suffixes.items():
        kinds[find_kind(f"photo.{os.fsdecode(suffix)}")] += count
    for (path, folder), count in parents.items():
        inside = path[len(folder.rpartition(b"/")[0]) + 1 :]  # from the name of the folder on
        name = replace_undecodable(os.fsdecode(inside))
        while name:
            places[name] += count
            name = os.path.dirname(name)
    del years[""]
    return Facets(
        tuple(FacetCount(*pair) for pair in sorted(years.items(), reverse=True)),
        tuple(FacetCount(*pair) for pair in sorted(places.items())),
        tuple(FacetCount(*pair) for pair in kinds.most_common()),
    )


# Probabilities


def find_band(probability: float | None) -> Band | None:
    """A probability in words."""
    if probability is None:
        return None
    return "likely" if probability >= LIKELY else "maybe" if probability >= MAYBE else "unlikely"


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
    return ScoreScale(center, max(spread, SMALLEST_SPREAD), len(scores), max(words, 1), hubness)


def read_hubness(query: np.ndarray) -> float:
    """The hubness of a query, a row of `csls_sentences`: how near it is to its nearest training photos,
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
    """The nine numbers (n, 9) of each score (n,) that the probability depends on."""
    deviations = (np.asarray(scores, np.float64) - scale.center) / scale.spread
    of_query = [math.log(scale.photos), math.log(scale.words), scale.hubness, *scale.kind]
    return np.column_stack([scores, deviations, np.tile(of_query, (len(scores), 1))])


def find_logits(calibration: Calibration, numbers: np.ndarray) -> np.ndarray:
    """The logits (n,) of the probabilities of what `describe_scores` gave (n, 9)."""
    fitted = calibration
    weights = [fitted.score, fitted.deviations, fitted.log_photos, fitted.log_words, fitted.hubness]
    weights += [fitted.color, fitted.number, fitted.place, fitted.minus]
    return fitted.intercept + numbers @ np.array(weights)


def find_probabilities(calibration: Calibration, numbers: np.ndarray) -> np.ndarray:
    """The probabilities (n,) of what `describe_scores` gave (n, 9)."""
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

    def exclude(self, best: Photo) -> bool:
        """Whether nothing matches if this photo is the best: true nine times out of ten."""
        return self.most == 1 and (best.probability or 0.0) < self.calibration.nothing

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
