"""`ImageEncoder` turns photos into vectors: open, cut the crops of a view, run a network, average."""

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
from fishermix.rows.blocks import count_threads
from PIL import Image
from sklearn.base import BaseEstimator, TransformerMixin

from fishermix_photos.vision.crops import count_crops, cut_crops, parse_view
from fishermix_photos.vision.formats import UnreadableImage
from fishermix_photos.vision.limits import allow_pixels
from fishermix_photos.vision.network import DEFAULT_NETWORK, Network, NetworkSession
from fishermix_photos.vision.open import ImageSource, open_photo
from fishermix_photos.vision.worker import TimeBudget

CHUNKS_AHEAD = 2  # per thread: enough that no thread waits for the one that reads results
DERIVED = ("_network", "_session", "key", "max_pixels_")  # cached; recomputed after `set_params`

Vectors = Iterator[tuple[int, np.ndarray | UnreadableImage]]
OnOpen = Callable[[Any, Image.Image], None]


class ImageEncoder(TransformerMixin, BaseEstimator):
    """Image features (n, d) float32: activations of a network, averaged over the crops of a view.

    The vector of an image depends only on the image, the network and the view. It has the same bits for
    every batch size, every number of threads and whatever other images are encoded with it.

    Parameters
    ----------
    encoder : str or path, default "efficientnet-lite2"
        The name of a network, or an ONNX file with a JSON next to it (see `fishermix_photos.vision.network`).
    view : {"squeeze", "flip", "center", "ten-crop"}, default "squeeze"
        "squeeze": the whole image, resized to a square. "flip": the same and its mirror image. "center": the
        middle square. "ten-crop": four corners and the middle, and their mirror images.
    batch_size : int, default 4
        The number of crops per run of the network.
    threads : int, optional
        The number of threads; None uses all cores, or OMP_NUM_THREADS if that is less. Each thread decodes
        its own images and runs the network on them.
    max_pixels : int, optional
        Images with more pixels are rejected. None: a limit that depends on the RAM.

    Attributes
    ----------
    n_features : int
        The length d of a vector.
    key : str
        Identifies network and view: vectors with the same key are comparable and may be cached.
    max_pixels_ : int
        The pixel limit in effect.

    See Also
    --------
    fishermix_photos.vision.features.extract : the same with a cache on disk.
    fishermix_photos.ImageTextModel : compares photos with sentences.

    Examples
    --------
    >>> ImageEncoder().transform(["beach.jpg", "dog.png"]).shape
    (2, 1280)
    """

    def __init__(
        self,
        encoder: str | os.PathLike = DEFAULT_NETWORK,
        view: str = "squeeze",
        batch_size: int = 4,
        threads: int | None = None,
        max_pixels: int | None = None,
    ):
        self.encoder = encoder
        self.view = view
        self.batch_size = batch_size
        self.threads = threads
        self.max_pixels = max_pixels

    def fit(self, images: object = None, y: object = None) -> ImageEncoder:
        """Do nothing: there is nothing to learn.

        Parameters
        ----------
        images : ignored
            Present for the interface of scikit-learn.
        y : ignored
            Present for the interface of scikit-learn.

        Returns
        -------
        self : ImageEncoder
        """
        return self

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """The names of the columns.

        Parameters
        ----------
        input_features : ignored
            Present for the interface of scikit-learn.

        Returns
        -------
        names : ndarray of str
        """
        name = os.path.basename(os.fspath(self.encoder)).removesuffix(".onnx")
        return np.array([f"{name}_{i}" for i in range(self.n_features)], object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True  # paths; also bytes and PIL images, for which there is no tag
        return tags

    @property
    def n_features(self) -> int:
        """The length d of a vector."""
        return self._session.n_features

    @cached_property
    def max_pixels_(self) -> int:
        """The pixel limit in effect."""
        return allow_pixels(self.max_pixels)

    @cached_property
    def key(self) -> str:
        """Identifies network and view: vectors with the same key are comparable and may be cached."""
        parse_view(self.view)
        return self._network.features_key(self.view)

    def transform(self, images: Sequence[ImageSource]) -> np.ndarray:
        """(n, d) float32 of n paths, bytes or PIL images; raises `FishermixError` if one is unreadable.

        Parameters
        ----------
        images : sequence of paths, bytes or PIL images
            The photos.

        Returns
        -------
        vectors : ndarray of shape (n, d) float32
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

        Parameters
        ----------
        images : sequence of paths, bytes or PIL images
            The photos.
        on_open : callable, optional
            Is called with each element of `images` and its decoded image, in the threads that decode.

        Returns
        -------
        vectors : iterator of (int, ndarray of shape (d,) or FishermixError)
        """
        chunk, threads = max(1, self.batch_size // count_crops(self.view)), count_threads(self.threads)
        session, limit, budget = self._session, self.max_pixels_, TimeBudget()  # the threads share them

        def encode(photos: list[ImageSource]) -> list[np.ndarray | UnreadableImage]:
            size = session.network.size
            results: list[Any] = []
            for photo in photos:
                try:
                    image = open_photo(photo, limit, size, budget)
                    if on_open is not None:
                        on_open(photo, image)
                    results.append(cut_crops(image, self.view, size))
                except UnreadableImage as error:
                    results.append(error)
            return average_crops(results, session)

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
    def _network(self) -> Network:
        return Network.find(self.encoder)

    @cached_property
    def _session(self) -> NetworkSession:
        return NetworkSession(self._network, self.batch_size)

    def set_params(self, **parameters: object) -> ImageEncoder:
        """Set parameters; the network is opened again on next use.

        Parameters
        ----------
        **parameters : dict
            New values by name.

        Returns
        -------
        self : ImageEncoder
        """
        for name in DERIVED:
            self.__dict__.pop(name, None)
        return super().set_params(**parameters)

    def __getstate__(self) -> dict:
        return {name: value for name, value in super().__getstate__().items() if name not in DERIVED}


def average_crops(results: list[Any], session: NetworkSession) -> list[np.ndarray | UnreadableImage]:
    """The vector (d,) of each photo, the mean over its crops; errors stay where they are."""
    crops = [result for result in results if isinstance(result, np.ndarray)]
    if not crops:
        return results
    rows = session.run(np.concatenate(crops)).reshape(len(crops), -1, session.n_features)
    vectors = iter(rows.mean(axis=1))
    return [next(vectors) if isinstance(result, np.ndarray) else result for result in results]


class FusedEncoder:
    """Several image encoders whose vectors are concatenated. It has the methods of one encoder."""

    def __init__(self, encoders: Sequence[Any]):
        self.encoders = list(encoders)
        self.view = self.encoders[0].view
        self.n_features = sum(encoder.n_features for encoder in self.encoders)
        self.key = "+".join(encoder.key for encoder in self.encoders)
        self.max_pixels_ = min(encoder.max_pixels_ for encoder in self.encoders)

    def transform(self, images: Sequence[ImageSource]) -> np.ndarray:
        """(n, sum of the dimensions) of n paths, bytes or PIL images."""
        return np.hstack([encoder.transform(images) for encoder in self.encoders])

    def stream(
        self, images: Iterable[ImageSource], on_open: OnOpen | None = None
    ) -> Iterator[tuple[int, np.ndarray | FishermixError]]:
        """Yield (position, vector or error) of each image, in order."""
        images = list(images)  # every encoder reads them all; a generator could be read once
        first, *others = self.encoders
        streams = [first.stream(images, on_open), *(encoder.stream(images) for encoder in others)]
        for results in zip(*streams, strict=True):
            (position, *_), vectors = zip(*results)
            errors = [vector for vector in vectors if isinstance(vector, FishermixError)]
            yield position, errors[0] if errors else np.concatenate(vectors)


def image_networks(encoder: Any) -> list[Any]:
    """The networks whose vectors an image encoder concatenates."""
    return list(getattr(encoder, "encoders", [encoder]))


def open_encoders(names: Sequence[str], view: str | None) -> Any:
    """An `ImageEncoder`, or a `FusedEncoder` if there are several names.

    names : networks, each with an optional output, such as `efficientnet-lite2:depths`
    view : the crops of a photo; None: that of the network
    """
    encoders = [ImageEncoder(name, view=view) if view else ImageEncoder(name) for name in names]
    return encoders[0] if len(encoders) == 1 else FusedEncoder(encoders)
