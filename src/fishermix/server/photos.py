"""What the server computes, without HTTP: queries and photos in, plain objects out. It is thread-safe."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from fishermix.caption.consensus import Description
from fishermix.errors import FishermixError
from fishermix.retrieval.contact_sheet import make_thumbnail
from fishermix.retrieval.details import Details
from fishermix.retrieval.explain import Explainer, Explanation
from fishermix.retrieval.index import MOST_SORTED_BY_DATE, PhotoIndex
from fishermix.retrieval.query import Query, split_sentences
from fishermix.retrieval.sentences import SentencePool
from fishermix.retrieval.store import Hit, Stamp, Store
from fishermix.server.catalog import Catalog, Entry, PageFilter
from fishermix.server.originals import Original, find_inside, open_original
from fishermix.server.thumbnails import Thumbnails, choose_place, find_whole
from fishermix.server.topics import find_topics
from fishermix.vision.formats import split_part
from fishermix.vision.worker import NetworkBytes

SIDES = {"small": 480, "large": 1600}
REMEMBERED_UPLOADS = 32
SECONDS_BETWEEN_COUNTS = 5.0
PHOTOS_FOR_TOPICS = 600  # a sample of so many says what a folder is about


class NotFound(Exception):
    """There is no such photo."""


@dataclass(frozen=True)
class Answer:
    """hits : photos, best first
    threshold : the score from which on they stand out
    out_of_vocabulary : words of the query that the model does not know
    remarks : how the query was understood
    more : whether there are photos after these
    probabilities : that each hit is right, if the model is calibrated
    """

    hits: list[Hit]
    threshold: float | None = None
    out_of_vocabulary: Sequence[str] = ()
    remarks: Sequence[str] = ()
    more: bool = False
    details: dict[str, Details] = field(default_factory=dict)
    probabilities: Sequence[float] = ()


class PhotoService:
    """Answers the requests for one index."""

    def __init__(self, index: PhotoIndex, sentences: list[str] | None = None):
        self.index, self.model, self._sentences = index, index.model, sentences
        self._loading = threading.Lock()
        self._uploads: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()
        self._counted = (float("-inf"), 0)
        self.catalog = Catalog(index.store)
        self._thumbnails = {id(part): Thumbnails(choose_place(part.store)) for part in index.parts}
        self._topics: tuple[list[Entry], list[str]] = [], []  # of these files

    # What takes seconds to load: a search does not wait for it

    def load(self) -> None:
        """Load everything before the first request for it."""
        self.model.image_encoder  # noqa: B018 (opens the network)
        self._pool, self._explainer, self.model.captioner  # noqa: B018

    @property
    def _pool(self) -> SentencePool:
        with self._loading:
            return self._loaded_pool

    @property
    def _explainer(self) -> Explainer:
        with self._loading:
            return self._loaded_explainer

    @cached_property
    def _loaded_pool(self) -> SentencePool:
        return SentencePool(self.model, self._sentences)

    @cached_property
    def _loaded_explainer(self) -> Explainer:
        return Explainer(self.model)

    # What the index holds

    def count(self) -> int:
        """The number of photos now or a few seconds ago: counting a large index takes a while."""
        with self._lock:
            counted, photos = self._counted
        if time.monotonic() - counted > SECONDS_BETWEEN_COUNTS:
            photos = self.index.store.summary().photos
            with self._lock:
                self._counted = time.monotonic(), photos
        return photos

    def has_changed(self) -> bool:
        """Whether another process has changed the number of photos."""
        with self._lock:
            photos = self._counted[1]
        self._counted = (float("-inf"), 0)
        return self.count() != photos

    def forget(self) -> None:
        """The index has changed: read it again for the next request."""
        self.catalog.forget()
        with self._lock:
            self._counted = (float("-inf"), 0)

    def remove_stale_thumbnails(self) -> None:
        for part in self.index.parts:
            store = find_whole(part.store)
            self._thumbnails[id(part)].remove_stale(partial(_find_stamp, store, store.stamps()))

    def find_topics(self) -> list[str]:
        """Words that the photos are about."""
        entries = self.catalog.entries()
        if self._topics[0] is not entries:
            step = max(1, len(entries) // PHOTOS_FOR_TOPICS)
            ids = (self.index.store.id_of(entry.path) for entry in entries[::step])
            points = [self.index.point_of(photo) for photo in ids if photo is not None]
            known = [point for point in points if point is not None]
            self._topics = entries, find_topics(self._pool, np.stack(known) if known else np.empty((0, 0)))
        return self._topics[1]

    # Points

    def point_of_photo(self, photo: str) -> np.ndarray:
        point = self.index.point_of(photo)
        if point is None:
            raise NotFound
        return point

    def point_of_upload(self, data: bytes) -> np.ndarray:
        """The page sends a dropped photo several times in a row, so its point is kept for a while."""
        if not data:
            raise FishermixError("The body is empty. Send a photo.")
        digest = hashlib.sha256(data).digest()
        with self._lock:
            if digest in self._uploads:
                self._uploads.move_to_end(digest)
                return self._uploads[digest]
        point = self.model.encode_images([NetworkBytes(data)])[0]
        with self._lock:
            self._uploads[digest] = point
            if len(self._uploads) > REMEMBERED_UPLOADS:
                self._uploads.popitem(last=False)
        return point

    # Responses

    def search(
        self,
        query: str | np.ndarray,
        n: int,
        offset: int = 0,
        only: PageFilter | None = None,
        by_date: bool = False,
    ) -> Answer:
        """The best n photos after the first `offset`. By date: those that may be right,
        newest first; if none may be, the best n.
        """
        encoded = self.index.encode_query(query)
        # One more than asked for tells whether there are more.
        wanted = MOST_SORTED_BY_DATE if by_date else offset + n + 1
        hits: list[Hit] = self.index.search(encoded, wanted, None, only or None)
        threshold = self.index.estimate_threshold(encoded, hits)
        if by_date:
            hits = [hit for hit in hits if hit.score >= threshold] or hits[:n]
            known = self.index.store.details([hit.path for hit in hits])
            hits.sort(
                key=lambda hit: (known[hit.path].taken or "") if hit.path in known else "", reverse=True
            )
        page = hits[offset : offset + n]
        return Answer(
            page,
            threshold,
            encoded.out_of_vocabulary,
            encoded.remarks,
            len(hits) > offset + n,
            self.index.store.details([hit.path for hit in page]),
            self._judge(encoded, page),
        )

    def _judge(self, query: Query, hits: Sequence[Hit]) -> list[float]:
        """The probabilities that the photos are right. Empty if the index has no judge for the query."""
        judge = self.index.judge(query)
        return [] if judge is None else judge.find_probabilities([hit.score for hit in hits])

    def find_similar(self, photo: str, n: int) -> Answer:
        found = self.index.search(self.point_of_photo(photo), n + 1)
        hits = [hit for hit in found if hit.id != photo][:n]
        return Answer(hits, details=self.index.store.details([hit.path for hit in hits]))

    def browse(self, only: PageFilter, sort: str, n: int, offset: int) -> tuple[list[tuple], int]:
        """(id, path, details) of the photos that meet the conditions, and the number of all that do."""
        found = self.catalog.select(only, sort)
        page = [(self.index.store.id_of(path), path, details) for path, details in found[offset : offset + n]]
        return [one for one in page if one[0] is not None], len(found)

    def rank_sentences(self, point: np.ndarray, n: int) -> list[tuple[str, float]]:
        return self._pool.rank_for_photos(point[None], n)[0]

    def describe(self, point: np.ndarray) -> Description:
        if self.model.captioner is None:
            raise FishermixError("This model has no captioner. It can search and annotate.")
        return self.model.describe_points(point[None])[0]

    def explain(self, query: str, photo: str) -> Explanation:
        """Explain the score of a photo with the sentences that the query adds. Subtracted sentences have
        their own scores; photos are ignored.
        """
        wanted, subtracted = split_sentences(query)
        return self._explainer.explain(wanted, self.point_of_photo(photo), subtracted)

    # Files

    def path_of(self, photo: str) -> str:
        """The path of a photo relative to the folder, with its part."""
        relative = self.index.store.path_of(photo)
        if relative is None:
            raise NotFound
        return relative

    def file_of(self, photo: str) -> Path:
        """The file of a photo. One that now leads outside the folder is not found."""
        file = self.find_file(split_part(self.path_of(photo))[0])
        if file is None or not file.is_file():
            raise NotFound
        return file

    def find_file(self, relative: str) -> Path | None:
        """The file at a path of the index; None if it is gone or leads out of its folder."""
        part, inside = self.index.part_of(relative)
        return find_inside(part.folder, inside)

    def open_file(self, relative: str) -> Original | None:
        """Open the file at a path of the index; None as for `find_file`."""
        part, inside = self.index.part_of(relative)
        return open_original(part.folder, inside)

    def details_of(self, photo: str) -> Details:
        path = self.path_of(photo)
        return self.index.store.details([path]).get(path, Details())

    def open_original(self, photo: str) -> Original:
        found = self.open_file(split_part(self.path_of(photo))[0])
        if found is None:
            raise NotFound
        return found

    def make_picture(self, photo: str, size: str) -> bytes:
        """A photo of the index as JPEG."""
        relative, file = self.path_of(photo), self.file_of(photo)
        picture = f"{file}{relative.removeprefix(split_part(relative)[0])}"
        if size != "small":
            return make_thumbnail(picture, SIDES[size])
        status = file.stat()
        stamp = Stamp(status.st_size, status.st_mtime_ns)
        kept = self._thumbnails[id(self.index.part_of(relative)[0])]
        return kept.get(photo, stamp, lambda: make_thumbnail(picture, SIDES["small"]))

    def close(self) -> None:
        for kept in self._thumbnails.values():
            kept.close()


def _find_stamp(store: Store, stamps: dict[str, Stamp], photo: str) -> Stamp | None:
    """The stamp of the file of a photo."""
    path = store.path_of(photo)
    return None if path is None else stamps.get(split_part(path)[0])
