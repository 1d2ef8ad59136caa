"""What the service does, without HTTP: queries and photos in, plain answers out. Called from several
threads.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from functools import lru_cache

import numpy as np

from fishermix.errors import FishermixError
from fishermix.retrieval.explain import Explainer, Explanation
from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.query import terms_of_text
from fishermix.retrieval.sentences import SentencePool
from fishermix.retrieval.store import Hit
from fishermix.retrieval.thumbnails import jpeg

SIDES = {"small": 480, "large": 1600}
REMEMBERED_UPLOADS = 32
SECONDS_BETWEEN_COUNTS = 5.0


class NotFound(Exception):
    """There is no such photo."""


class PhotoService:
    def __init__(self, index: PhotoIndex, sentences: list[str]):
        self.index, self.model = index, index.model
        self.model.image_encoder  # noqa: B018 (opens the network before the first photo comes)
        self._explainer = Explainer(self.model)
        self._pool = SentencePool(self.model, sentences)
        self._uploads: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()
        self._counted = (float("-inf"), 0)
        # The time of the last change is part of the key: a changed photo is drawn anew.
        self._small = lru_cache(maxsize=1000)(lambda file, mtime_ns: jpeg(file, SIDES["small"]))

    def count(self) -> int:
        """How many photos there are, or were a few seconds ago: counting a large index takes a while."""
        with self._lock:
            counted, photos = self._counted
        if time.monotonic() - counted > SECONDS_BETWEEN_COUNTS:
            photos = self.index.store.summary().photos
            with self._lock:
                self._counted = time.monotonic(), photos
        return photos

    # Points

    def point_of_photo(self, photo: str) -> np.ndarray:
        point = self.index.point_of(photo)
        if point is None:
            raise NotFound
        return point

    def point_of_upload(self, data: bytes) -> np.ndarray:
        """A dropped photo is asked about several times in a row: its point is remembered for a while."""
        if not data:
            raise FishermixError("the body is empty: send a photo")
        digest = hashlib.sha256(data).digest()
        with self._lock:
            if digest in self._uploads:
                self._uploads.move_to_end(digest)
                return self._uploads[digest]
        point = self.model.encode_images([data])[0]
        with self._lock:
            self._uploads[digest] = point
            if len(self._uploads) > REMEMBERED_UPLOADS:
                self._uploads.popitem(last=False)
        return point

    # Answers

    def search(self, query: str | np.ndarray, n: int) -> tuple[list[Hit], float]:
        """The best n photos, and the score from which on they stand out."""
        vector = self.index.query(query)
        hits = self.index.search(vector, n)
        return hits, self.index.cut(vector, hits)

    def similar(self, photo: str, n: int) -> list[Hit]:
        hits = self.index.search(self.point_of_photo(photo), n + 1)
        return [hit for hit in hits if hit.id != photo][:n]

    def sentences(self, point: np.ndarray, n: int) -> list[tuple[str, float]]:
        return self._pool.for_photos(point[None], n)[0]

    def caption(self, point: np.ndarray) -> str:
        if self.model.captioner is None:
            raise FishermixError("this model has no captioner: it can search and annotate only")
        return self.model.caption_points(point[None])[0]

    def explain(self, query: str, photo: str) -> Explanation:
        """Why a photo matched the sentences that the query asks for; what it takes away or shows is left
        aside.
        """
        wanted = [term.value for term in terms_of_text(query) if term.kind == "text" and term.sign == "+"]
        if not wanted:
            raise FishermixError("only sentences can be explained: this query holds none")
        return self._explainer.explain(" ".join(wanted), self.point_of_photo(photo))

    def picture(self, photo: str, size: str) -> bytes:
        """A photo of the index as JPEG; nothing outside the folder, whatever became of the file since."""
        relative = self.index.store.path_of(photo)
        if relative is None:
            raise NotFound
        try:
            file = (self.index.folder / relative).resolve(strict=True)
        except OSError:
            raise NotFound from None
        if not file.is_relative_to(self.index.folder) or not file.is_file():
            raise NotFound
        if size == "small":
            return self._small(file, file.stat().st_mtime_ns)
        return jpeg(file, SIDES[size])
