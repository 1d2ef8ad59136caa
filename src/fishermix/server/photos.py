"""What the server computes, without HTTP: queries and photos in, plain objects out. It is thread-safe."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from functools import lru_cache

import numpy as np

from fishermix.errors import FishermixError
from fishermix.retrieval.contact_sheet import make_thumbnail
from fishermix.retrieval.explain import Explainer, Explanation
from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.query import parse_query
from fishermix.retrieval.sentences import SentencePool
from fishermix.retrieval.store import Hit
from fishermix.vision.formats import split_part
from fishermix.vision.worker import NetworkBytes

SIDES = {"small": 480, "large": 1600}
REMEMBERED_UPLOADS = 32
SECONDS_BETWEEN_COUNTS = 5.0


class NotFound(Exception):
    """There is no such photo."""


class PhotoService:
    """Answers the requests for one index."""

    def __init__(self, index: PhotoIndex, sentences: list[str]):
        self.index, self.model = index, index.model
        self.model.image_encoder  # noqa: B018 (opens the network before the first photo comes)
        self._explainer = Explainer(self.model)
        self._pool = SentencePool(self.model, sentences)
        self._uploads: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()
        self._counted = (float("-inf"), 0)
        # The modification time is part of the key: a changed photo gets a new thumbnail.
        self._small = lru_cache(maxsize=1000)(lambda file, mtime_ns: make_thumbnail(file, SIDES["small"]))

    def count(self) -> int:
        """The number of photos now or a few seconds ago: counting a large index takes a while."""
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

    def search(self, query: str | np.ndarray, n: int) -> tuple[list[Hit], float, list[str]]:
        """The best n photos, the score from which on they stand out, and the out-of-vocabulary words."""
        encoded = self.index.encode_query(query)
        hits = self.index.search(encoded, n)
        return hits, self.index.estimate_threshold(encoded, hits), encoded.out_of_vocabulary

    def find_similar(self, photo: str, n: int) -> list[Hit]:
        hits = self.index.search(self.point_of_photo(photo), n + 1)
        return [hit for hit in hits if hit.id != photo][:n]

    def rank_sentences(self, point: np.ndarray, n: int) -> list[tuple[str, float]]:
        return self._pool.rank_for_photos(point[None], n)[0]

    def caption(self, point: np.ndarray) -> str:
        if self.model.captioner is None:
            raise FishermixError("This model has no captioner. It can search and annotate.")
        return self.model.caption_points(point[None])[0]

    def explain(self, query: str, photo: str) -> Explanation:
        """Explain the score of a photo with the sentences that the query adds. Subtracted sentences and
        photos are ignored.
        """
        wanted = [term.value for term in parse_query(query) if term.kind == "text" and term.sign == "+"]
        if not wanted:
            raise FishermixError("Only sentences can be explained, and this query contains none.")
        return self._explainer.explain(" ".join(wanted), self.point_of_photo(photo))

    def make_picture(self, photo: str, size: str) -> bytes:
        """A photo of the index as JPEG. A file that now leads outside the folder is not read."""
        relative = self.index.store.path_of(photo)
        if relative is None:
            raise NotFound
        name = split_part(relative)[0]
        try:
            file = (self.index.folder / name).resolve(strict=True)
        except OSError:
            raise NotFound from None
        if not file.is_relative_to(self.index.folder) or not file.is_file():
            raise NotFound
        picture = f"{file}{relative.removeprefix(name)}"
        if size == "small":
            return self._small(picture, file.stat().st_mtime_ns)
        return make_thumbnail(picture, SIDES[size])
