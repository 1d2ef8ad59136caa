"""How photos are found: the best files of a query with their probabilities, and lists without a query."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from fishermix_photos.database import Record
from fishermix_photos.photo_files import is_inside_ignored, parse_patterns
from fishermix_photos.probability import (
    FEWEST_SCORES,
    MAYBE,
    MOST_OF_A_GUESS,
    Probabilities,
    estimate_threshold,
    find_band,
    measure_scale,
)
from fishermix_photos.query import EncodedQuery
from fishermix_photos.results import OtherModel, Photo, Query, Results
from fishermix_photos.update import add_slash
from fishermix_photos.vision.formats import is_whole_file, split_place

if TYPE_CHECKING:
    from fishermix_photos.model import ImageTextModel
    from fishermix_photos.postgres import PostgresStore
    from fishermix_photos.store import LocalStore

Folders = Sequence[str | os.PathLike]
Sortable = TypeVar("Sortable", Photo, Record)
MOST_SORTED = 2000  # photos that may be right, if they are not sorted by their scores
SCORES_SAMPLED = 20_000  # enough to know center and spread of the scores of a query


class PhotoSearch:
    """Searches and lists the photos of a store; `load_model` gives the model when it is needed."""

    def __init__(self, store: LocalStore | PostgresStore, load_model: Callable[[], ImageTextModel]):
        self._store, self._load_model = store, load_model
        self._catalog: tuple[tuple, list[Record]] = ((), [])

    def find(self, query: Query, encoded: EncodedQuery) -> Results:
        """The photos of an encoded query, with their probabilities, in its order."""
        # One more than asked for tells whether there are more.
        n = query.offset + query.n + 1 if query.sort == "score" else MOST_SORTED
        prefixes = self.find_prefixes(query.folders)
        found = self.find_files(encoded.vector, n, query, prefixes)
        if not found:
            return Results()
        photos = [make_photo(record, score) for record, score in found]
        probabilities, threshold = self._estimate(encoded, prefixes, found[0][1], query)
        nothing_matches = False
        if probabilities is not None:
            chances = probabilities.of_scores([score for _, score in found])
            photos = [
                replace(photo, probability=chance, band=find_band(chance))
                for photo, chance in zip(photos, chances)
            ]
            nothing_matches = photos[0].band == "unlikely"
        chosen = [photo for photo in photos if (photo.score or 0.0) >= threshold]
        if query.sort != "score":
            if not chosen and query.min_probability is None and query.min_score is None:
                chosen = photos[: query.n]
            chosen = _sort(chosen, query.sort)
        page = chosen[query.offset : query.offset + query.n]
        more = len(chosen) > query.offset + query.n
        return Results(tuple(page), more, nothing_matches=nothing_matches)

    def find_files(
        self, vector: np.ndarray, n: int, query: Query, prefixes: Sequence[str]
    ) -> list[tuple[Record, float]]:
        """The n best files: of a video, its best frame; of a TIFF file, its best page."""
        self.expect_model()
        rows = None
        if query.filter or query.exclude:
            allowed = {record.id: record.row for record in self._select(query, prefixes)}
            rows = np.array(sorted(set(allowed.values())), np.int64)
        asked = n
        while True:
            found = self._store.nearest(vector, asked, prefixes, rows)
            best: dict[str, tuple[Record, float]] = {}
            for record, score in found:
                if rows is None or record.id in allowed:
                    best.setdefault(split_place(record.path)[0], (record, score))
            if len(best) >= n or len(found) < asked:
                return list(best.values())[:n]
            asked *= 4

    def _estimate(
        self, encoded: EncodedQuery, prefixes: Sequence[str], best: float, query: Query
    ) -> tuple[Probabilities | None, float]:
        """What turns the scores of a query into probabilities, and the score from which on photos are shown.

        A query of photos alone, or a model without calibration, has no probabilities. If no word of a query
        is known, no photo is called more than unlikely.
        """
        is_limited = query.min_probability is not None or query.sort != "score"
        calibration = self._load_model().calibration if encoded.n_words else None
        threshold = -np.inf if query.min_score is None else query.min_score
        if calibration is None and not is_limited:
            return None, threshold
        scores = self._store.sample_scores(encoded.vector, SCORES_SAMPLED, prefixes)
        probabilities = None
        if calibration is not None:
            few = len(scores) < FEWEST_SCORES
            others = self._load_model().score_training_photos(encoded.vector) if few else None
            scale = measure_scale(scores, encoded.n_words, others)
            most = MOST_OF_A_GUESS if encoded.is_guess else 1.0
            probabilities = None if scale is None else Probabilities(calibration, scale, most)
        if is_limited and probabilities is not None:
            threshold = max(threshold, probabilities.threshold(query.min_probability or MAYBE))
        elif is_limited:
            threshold = max(threshold, estimate_threshold(scores, best))
        return probabilities, threshold

    def browse(self, query: Query) -> Results:
        """The photos that meet the conditions of a query, without its terms, in its order."""
        prefixes = self.find_prefixes(query.folders)
        files = [record for record in self._select(query, prefixes) if is_whole_file(record.path)]
        order = "date" if query.sort == "score" else query.sort
        files = _sort(files, order)
        page = files[query.offset : query.offset + query.n]
        photos = tuple(make_photo(record) for record in page)
        return Results(photos, len(files) > query.offset + query.n, len(files))

    def _select(self, query: Query, prefixes: Sequence[str]) -> list[Record]:
        """The photos that meet the filter and are not excluded."""
        query.filter.check()
        found = self.records(prefixes)
        if query.filter:
            found = [one for one in found if query.filter.matches(name_file(one), one.details)]
        if query.exclude:
            rules = [parse_patterns(query.exclude)]
            tops = sorted((add_slash(resolve(folder)) for folder in query.folders), key=len, reverse=True)
            found = [one for one in found if not is_inside_ignored(_relative_to(one, tops), rules)]
        return found

    def records(self, prefixes: Sequence[str]) -> list[Record]:
        """The photos below the prefixes; they are kept until the library changes."""
        key = (self._store.state().version, *prefixes)
        if self._catalog[0] != key:
            self._catalog = key, self._store.records(prefixes)
        return self._catalog[1]

    def find_prefixes(self, folders: Folders) -> list[str]:
        """The beginnings of the paths of photos below these folders; empty if those are all photos."""
        prefixes = [add_slash(folder) for folder in dict.fromkeys(map(resolve, folders))]
        covered = all(add_slash(path).startswith(tuple(prefixes)) for path in self._store.folders())
        return [] if covered and self._store.folders() else prefixes

    def expect_model(self) -> None:
        """Raise if the points of the library are those of another model."""
        if self.is_of_another_model():
            raise OtherModel("The photo library was made with another model. Update it.")

    def is_of_another_model(self) -> bool:
        return self._store.state().model_key not in ("", self._load_model().key)


def resolve(folder: str | os.PathLike) -> Path:
    return Path(folder).expanduser().resolve()


def make_photo(record: Record, score: float | None = None) -> Photo:
    file, time, page = split_place(record.path)
    return Photo(record.id, file, record.folder, time, page, score, details=record.details)


def name_file(record: Record) -> str:
    """As `Photo.name`."""
    parent = record.folder.rpartition("/")[0]
    return split_place(record.path).file[len(parent) + 1 :]


def _relative_to(record: Record, tops: Sequence[str]) -> str:
    """The path of a photo's file relative to the innermost of the folders searched, or to its own folder."""
    path = split_place(record.path)[0]
    top = next((top for top in tops if path.startswith(top)), add_slash(record.folder))
    return path[len(top) :]


def _sort(photos: Sequence[Sortable], order: str) -> list[Sortable]:
    """Photos newest first ("date"), oldest first or by name; of the same time, by path."""
    if order == "name":
        return sorted(photos, key=lambda photo: photo.path.lower())
    found = sorted(photos, key=lambda photo: photo.path)
    found.sort(key=lambda photo: photo.details.taken or "", reverse=True)
    return found[::-1] if order == "oldest" else found
