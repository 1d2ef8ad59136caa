"""`ImageVectors` turns photos into vectors: open, cut the crops of a view, run a network, average.

It is a plain object, which the app uses; `ImageEncoder` is the same as an estimator.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from fishermix.errors import FishermixError
from fishermix.progress import progress
from fishermix.rows import count_threads
from PIL import Image

from fishermix_photos.model.network import DEFAULT_NETWORK, Network, NetworkSession
from fishermix_photos.photos.formats import UnreadableImage
from fishermix_photos.photos.open import ImageSource, TimeBudget, allow_pixels, borrow_photo

DEFAULT_VIEW = "squeeze"
CHUNKS_AHEAD = 2  # per thread: enough that no thread waits for the one that reads results
# 224 of the 256 pixels of the short side, the usual proportion for networks trained on ImageNet.
CROP = 224 / 256

Vectors = Iterator[tuple[int, np.ndarray | UnreadableImage]]
OnOpen = Callable[[Any, Image.Image], None]
Box = tuple[float, float, float, float]


class ImageVectors:
    """Image features (n, d) float32; the parameters and attributes are those of `ImageEncoder`."""

    def __init__(
        self,
        encoder: str | os.PathLike | Sequence[str | os.PathLike] = DEFAULT_NETWORK,
        view: str = DEFAULT_VIEW,
        batch_size: int = 1,
        threads: int | None = None,
        max_pixels: int | None = None,
    ):
        self.encoder = encoder
        self.view = view
        self.batch_size = batch_size
        self.threads = threads
        self.max_pixels = max_pixels

    @property
    def n_features(self) -> int:
        """The length d of a vector."""
        return sum(self.widths)

    @property
    def widths(self) -> list[int]:
        """The features of each network."""
        return [session.n_features for session in self._sessions]

    @property
    def encoders(self) -> list[str]:
        """The names or files of the networks."""
        given = self.encoder
        return [os.fspath(name) for name in ([given] if isinstance(given, str | os.PathLike) else given)]

    @cached_property
    def max_pixels_(self) -> int:
        """The pixel limit in effect."""
        return allow_pixels(self.max_pixels)

    @cached_property
    def key(self) -> str:
        """Identifies network and view: vectors with the same key are comparable and may be cached."""
        parse_view(self.view)
        return "+".join(network.features_key(self.view) for network in self._networks)

    def transform(self, images: Sequence[ImageSource]) -> np.ndarray:
        """(n, d) float32 of n paths, bytes or PIL images; raises `FishermixError` if one is unreadable.

        Returns
        -------
        vectors : ndarray of shape (n, d)
            float32, in the order of the images.
        """
        features = np.empty((len(images), self.n_features), np.float32)
        with progress("encoding photos", len(images)) as bar:
            for position, vector in self.stream(images):
                if isinstance(vector, UnreadableImage):
                    raise vector
                features[position] = vector
                bar.advance()
        return features

    def stream(self, images: Iterable[ImageSource], on_open: OnOpen | None = None) -> Vectors:
        """Yield (position, vector or error) of each image, in order; reads a few batches ahead.

        on_open : is called with each element of `images` and its decoded image, in the threads that decode
        """
        chunk = max(1, self.batch_size // count_crops(self.view))
        threads = count_threads(self.threads)
        sessions, limit, budget = self._sessions, self.max_pixels_, TimeBudget()  # the threads share them

        def cut(photo: ImageSource, session: NetworkSession) -> np.ndarray | UnreadableImage:
            try:
                with borrow_photo(photo, limit, session.network.size, budget) as image:
                    if on_open is not None and session is sessions[0]:
                        on_open(photo, image)
                    return cut_crops(image, self.view, session.network.size)
            except UnreadableImage as error:
                return error

        def encode(photos: list[ImageSource]) -> list[np.ndarray | UnreadableImage]:
            of_networks = [
                _encode_crops([cut(photo, session) for photo in photos], session) for session in sessions
            ]
            return [_concatenate(results) for results in zip(*of_networks)]

        remaining = iter(images)
        pool = ThreadPoolExecutor(threads, thread_name_prefix="fishermix-images")
        running: deque[Future[list[np.ndarray | UnreadableImage]]] = deque()
        position = 0
        try:
            while True:
                while len(running) <= CHUNKS_AHEAD * threads and (photos := list(islice(remaining, chunk))):
                    running.append(pool.submit(encode, photos))
                if not running:
                    return
                for vector in running.popleft().result():
                    yield position, vector
                    position += 1
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    @cached_property
    def _networks(self) -> list[Network]:
        return [Network.find(name) for name in self.encoders]

    @cached_property
    def _sessions(self) -> list[NetworkSession]:
        return [NetworkSession(network, self.batch_size) for network in self._networks]


def _encode_crops(opened: list[Any], session: NetworkSession) -> list[np.ndarray | UnreadableImage]:
    """The vector (d,) of each photo, the mean over its crops; errors stay where they are."""
    crops = [crop for crop in opened if isinstance(crop, np.ndarray)]
    if not crops:
        return opened
    rows = session.run(np.concatenate(crops)).reshape(len(crops), -1, session.n_features)
    vectors = iter(rows.mean(axis=1))
    return [next(vectors) if isinstance(crop, np.ndarray) else crop for crop in opened]


def _concatenate(results: Sequence[Any]) -> np.ndarray | UnreadableImage:
    """The vectors that the networks have for one photo as one, or the first error."""
    errors = (result for result in results if isinstance(result, UnreadableImage))
    return next(errors, None) or np.concatenate(results)


# The crops of an image that a network sees. A view is a list of crops, whose features are averaged. A crop is
# a box in the image, resampled directly to the size of the network's input, so a very wide image is never
# enlarged as a whole.


def _box_whole(width: int, height: int) -> list[Box]:
    return [(0, 0, width, height)]


def _box_center(width: int, height: int) -> list[Box]:
    crop = CROP * min(width, height)
    left, top = (width - crop) / 2, (height - crop) / 2
    return [(left, top, left + crop, top + crop)]


def _box_corners_and_center(width: int, height: int) -> list[Box]:
    crop = CROP * min(width, height)
    right, bottom = width - crop, height - crop
    corners = [(left, top, left + crop, top + crop) for top in (0, bottom) for left in (0, right)]
    return [*corners, *_box_center(width, height)]


View = tuple[Callable[[int, int], list[Box]], bool]
# Name: a function of width and height that gives the boxes, and whether mirror images are added.
VIEWS: dict[str, View] = {
    "squeeze": (_box_whole, False),
    "flip": (_box_whole, True),
    "center": (_box_center, False),
    "ten-crop": (_box_corners_and_center, True),
}


def cut_crops(image: Image.Image, view: str, side: int) -> np.ndarray:
    """The crops of an RGB image, (n_crops, side, side, 3) uint8; mirror images follow the plain crops."""
    boxes, mirrored = parse_view(view)
    resampled = [
        np.asarray(image.resize((side, side), Image.Resampling.BICUBIC, box=box))
        for box in boxes(*image.size)
    ]
    plain = np.stack(resampled)
    return np.concatenate([plain, plain[:, :, ::-1]]) if mirrored else plain


def count_crops(view: str) -> int:
    """The number of crops per image."""
    boxes, mirrored = parse_view(view)
    return len(boxes(1, 1)) * (2 if mirrored else 1)


def parse_view(view: str) -> View:
    if view not in VIEWS:
        raise FishermixError(
            f"There is no view '{view}'. Choose one of {', '.join(VIEWS)}.", code="wrong_parameter"
        )
    return VIEWS[view]
