"""The index of a photo folder: an update looks only at what changed, then sentences and photos search it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fishermix.errors import FishermixError
from fishermix.retrieval.details import Filter
from fishermix.retrieval.hits import Hits
from fishermix.retrieval.ignore import is_excluded, parse_patterns
from fishermix.retrieval.open import open_store, resolve_folder
from fishermix.retrieval.query import Query, combine_filters, encode_terms, parse_query
from fishermix.retrieval.store import Hit, Store
from fishermix.retrieval.threshold import estimate_threshold
from fishermix.retrieval.update import Changes, IndexUpdate
from fishermix.vision.formats import split_part

if TYPE_CHECKING:
    from fishermix.caption.consensus import Description
    from fishermix.model.calibration import Calibration, Judge

MOST_OF_A_GUESS = 0.15  # the probability that a photo is right if no word of the query is known
MOST_SORTED_BY_DATE = 2000  # photos that may be right
LIKELY, MAYBE = 0.5, 0.2  # the probabilities from which on a photo is likely right, or may be
SCORES_FOR_THRESHOLD = 20_000  # a sample of them is enough for the two quantiles of a threshold


class Model(Protocol):
    """The part of `fishermix.ImageTextModel` that an index and the server use."""

    @property
    def image_encoder(self) -> Any: ...
    @property
    def sentence_encoder(self) -> Any: ...
    @property
    def cca(self) -> Any: ...
    @property
    def captioner(self) -> Any: ...
    @property
    def calibration(self) -> Calibration | None: ...
    @property
    def key(self) -> str: ...
    @property
    def dimension(self) -> int: ...
    @property
    def match_dimension(self) -> int: ...
    def encode_query(self, sentence: str) -> tuple[np.ndarray, list[str]]: ...
    def suggest_spelling(self, word: str) -> str | None: ...
    def encode_text(self, sentences: Sequence[str]) -> np.ndarray: ...
    def encode_images(self, images: Sequence[Any]) -> np.ndarray: ...
    def image_points(self, features: np.ndarray) -> np.ndarray: ...
    def match_images(self, points: np.ndarray) -> np.ndarray: ...
    def match_sentences(self, points: np.ndarray) -> np.ndarray: ...
    def score_training_photos(self, query: np.ndarray) -> np.ndarray | None: ...
    def describe_points(self, points: np.ndarray) -> list[Description]: ...


class PhotoIndex:
    """The photos below one folder, with their points of the joint space and their hubness corrections.

    Example::

        index = PhotoIndex("~/Pictures", model)
        index.update()
        for hit in index.search("two dogs run on a beach", n=10):
            print(hit.score, hit.path)

    Parameters
    ----------
    folder : path
        The folder of photos.
    model : ImageTextModel
        The model that encodes photos and sentences.
    index : path, optional
        Where the index is kept. Default: in the data folder of the user.
    store : Store, optional
        An open store, in place of `index`.
    exclude
        Globs, as in a .fishermixignore; photos that one matches are neither encoded nor found.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        model: Model,
        index: str | os.PathLike | None = None,
        store: Store | None = None,
        exclude: Sequence[str] = (),
    ):
        key = model.key
        self.model, self.folder = model, resolve_folder(folder)
        self.store = store or open_store(self.folder, index, model_key=key)
        self._index_option = f" --index {shlex.quote(str(index))}" if index is not None else ""
        self._is_default, self._found_nothing = index is None and store is None, False
        self.exclude = tuple(exclude)
        self._patterns = parse_patterns(exclude) if exclude else []

    def __repr__(self) -> str:
        return f"PhotoIndex({str(self.folder)!r}, {self.store.summary().photos:,} photos)"

    def __enter__(self) -> PhotoIndex:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store. An index in the default place is deleted if its folder has no photos, or if it is
        new and was not updated.
        """
        from fishermix.retrieval.sqlite_store import LocalStore

        if self._is_default and isinstance(self.store, LocalStore):
            self._is_default = False
            with suppress(FishermixError):  # a damaged index
                if self._found_nothing or not self.store.model_key():
                    self.store.delete_if_empty()
        self.store.close()

    @property
    def parts(self) -> list[PhotoIndex]:
        """The indexes of single folders that this one consists of: itself."""
        return [self]

    def part_of(self, path: str) -> tuple[PhotoIndex, str]:
        """The index of a single folder that has a photo, and the path relative to that folder.

        Parameters
        ----------
        path : str
            The path relative to the folder of this index.
        """
        return self, path

    def path(self, hit: Hit) -> Path:
        """The file of a photo that a search found.

        Parameters
        ----------
        hit : Hit
            A result of `search`.
        """
        return self.folder / hit.path

    def point(self, hit: Hit) -> np.ndarray:
        """The point (d,) of a photo that a search found.

        Parameters
        ----------
        hit : Hit
            A result of `search`.
        """
        point = self.point_of(hit.id)
        if point is None:
            raise FishermixError(f"{hit.path} is no longer in the index. Search again.")
        return point

    def point_of(self, photo: str) -> np.ndarray | None:
        """The point (d,) of a photo by its id; None if there is no such photo.

        Parameters
        ----------
        photo : str
            The id of a photo.
        """
        stored = self.store.vector_of(photo)
        return None if stored is None else stored[: self.model.dimension]

    def check(self) -> None:
        """Raise if the index is damaged so much that it cannot be searched."""
        if self.store.model_key() == self.model.key:
            self.store.sample_scores(np.zeros(self.model.match_dimension, np.float32), 1)

    def update(self) -> Changes:
        """Encode new and changed photos, recognize moved ones by their content, remove deleted ones."""
        changes = IndexUpdate(self.folder, self.model, self.store, self.exclude, self._index_option).run()
        self._found_nothing = changes.found_nothing
        return changes

    def search(
        self,
        query: str | np.ndarray | Query,
        n: int = 10,
        min_score: float | str | None = None,
        only: Filter | None = None,
    ) -> Hits:
        """The n photos with the highest scores, best first; in a notebook, they show as thumbnails.

        Parameters
        ----------
        query : str, array or Query
            A sentence, several with + and - between them, a row of `match_sentences`, or the unit point
            (d,) of a photo, which is compared by the cosine.
        n : int
            The number of photos.
        min_score : float or "auto", optional
            Only photos with at least this score. "auto" estimates a threshold for the query.
        only : Filter, optional
            Only photos that meet its conditions.
        """
        query = query if isinstance(query, Query) else self.encode_query(query)
        only = combine_filters(query.only, only)
        if not query.has_terms:
            return Hits(self._list_by_date(n, only), self)
        hits = self._find_files(query.vector, n, only)
        if min_score is not None:
            limit = self.estimate_threshold(query, hits) if min_score == "auto" else float(min_score)
            hits = [hit for hit in hits if hit.score >= limit]
        return Hits(hits, self)

    def _find_files(self, vector: np.ndarray, n: int, only: Filter | None = None) -> list[Hit]:
        """The n best files: of a video, its best frame; of a TIFF file, its best page."""
        asked, allowed = n, self._filter(only)
        while True:
            found = self.store.nearest(vector[None], asked)[0]
            files = [split_part(hit.path)[0] for hit in found]
            best: dict[str, Hit] = {}
            for file, hit in zip(files, found):
                if allowed is None or hit.path in allowed:
                    best.setdefault(file, hit)
            if len(best) >= n or len(found) < asked:
                return list(best.values())[:n]
            asked *= 4

    def _list_by_date(self, n: int, only: Filter | None) -> list[Hit]:
        """The n newest photos that meet the conditions, newest first; their scores are 0."""
        taken = {path: details.taken or "" for path, details in self.store.details().items()}
        allowed = self._filter(only)
        paths = [path for path in taken if allowed is None or path in allowed]
        files = sorted(path for path in paths if split_part(path)[0] == path)
        files.sort(key=lambda path: taken[path], reverse=True)
        ids = [(self.store.id_of(path), path) for path in files[:n]]
        return [Hit(photo, path, 0.0) for photo, path in ids if photo is not None]

    def _filter(self, only: Filter | None) -> set[str] | None:
        """The paths that meet the conditions and are not excluded; None if there is no condition."""
        if not only and not self.exclude:
            return None
        only = only or Filter()
        only.check()
        matching = (path for path, details in self.store.details().items() if only.matches(path, details))
        return {path for path in matching if not self._excludes(path)}

    def _excludes(self, path: str) -> bool:
        return is_excluded(split_part(path)[0], self._patterns)

    def estimate_threshold(self, query: Query, hits: list[Hit]) -> float:
        """The score from which on a photo may be right; `hits` are the query's best photos.

        For a model without calibration, and for a query of photos, the score from which on it stands out.

        Parameters
        ----------
        query : Query
            The query.
        hits : list of Hit
            Its best photos.
        """
        if not query.has_terms:
            return float("-inf")
        if (judge := self.judge(query)) is not None:
            return judge.find_score(MAYBE)
        best = hits[0].score if hits else 0.0
        return estimate_threshold(self.store.sample_scores(query.vector, SCORES_FOR_THRESHOLD), best)

    def judge(self, query: Query) -> Judge | None:
        """What turns the scores of a query into probabilities that the photos are right.

        None for a query of photos alone, and for a model without calibration. If no word of a query is known,
        no photo is called more than unlikely.

        Parameters
        ----------
        query : Query
            The query.
        """
        if not query.words or self.model.calibration is None:
            return None
        from fishermix.model.calibration import FEWEST_SCORES, Judge, measure_scale

        scores = self.store.sample_scores(query.vector, SCORES_FOR_THRESHOLD)
        few = len(scores) < FEWEST_SCORES
        others = self.model.score_training_photos(query.vector) if few else None
        scale = measure_scale(scores, query.words, others)
        most = MOST_OF_A_GUESS if query.is_guess else 1.0
        return None if scale is None else Judge(self.model.calibration, scale, most)

    def encode_query(self, query: str | np.ndarray) -> Query:
        """A query in the form in which the store is searched.

        Parameters
        ----------
        query : str or array
            A sentence, several with + and - between them, or a vector.
        """
        if isinstance(query, str):
            return encode_terms(parse_query(query), self.model, self.point_of)
        d, longer = self.model.dimension, self.model.match_dimension
        if np.shape(query) not in ((d,), (longer,)) or not np.isfinite(query).all():
            raise FishermixError(f"A query must be a sentence, or {d} or {longer} finite numbers.")
        return Query(np.pad(np.asarray(query, np.float32), (0, longer - len(query))))
