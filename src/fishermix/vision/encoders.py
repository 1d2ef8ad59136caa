"""Photos to vectors: decode, take the crops of a view, run a network, average."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from itertools import islice

import numpy as np
from PIL import Image
from sklearn.base import BaseEstimator, TransformerMixin

from fishermix.errors import FishermixError
from fishermix.progress import progress
from fishermix.vision.crops import crops, crops_per_image
from fishermix.vision.images import ImageSource, UnreadableImage, decode, default_max_pixels, read_bytes
from fishermix.vision.network_file import DEFAULT, Network, features_key

CHUNKS_AHEAD = 2  # for each thread
DERIVED = ("_run", "key")  # what an encoder keeps beside its parameters


class ImageEncoder(TransformerMixin, BaseEstimator):
    """The features of images, (n, d) float32: a network's activations, averaged over the crops of a view.

        ImageEncoder().transform(["beach.jpg", "dog.png"])

    Parameters
    ----------
    encoder : str or path, default "efficientnet-lite2"
        The name of a network, or an ONNX file with a JSON beside it (see `fishermix.vision.network_file`).
    view : {"squeeze", "flip", "center", "ten-crop"}
        The whole image as a square; the same and its mirror image; the middle; four corners and the middle,
        and their mirror images.
    batch_size : int
        Crops that go through the network together.
    threads : int or None
        None for all cores. Each thread decodes its own images and runs the network on them, so nothing waits.
    max_pixels : int or None
        Larger images are refused; None for a limit that follows from the memory of the machine.

    The vector of an image depends on nothing but the image, the network and the view: the same bits for every
    batch size, number of threads and company.
    """

    def __init__(
        self,
        encoder: str | os.PathLike = DEFAULT,
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
        """Nothing is learned."""
        return self

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        name = os.path.basename(os.fspath(self.encoder)).removesuffix(".onnx")
        return np.array([f"{name}_{i}" for i in range(self.n_features)], object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def n_features(self) -> int:
        """The length d of a vector."""
        return self._run.n_features

    @property
    def max_pixels_(self) -> int:
        """The limit in force."""
        return self._run.max_pixels

    @cached_property
    def key(self) -> str:
        """Identifies network and view: vectors under the same key may be compared, and cached."""
        crops_per_image(self.view)
        return features_key(self.encoder, self.view)

    def transform(self, images: Sequence[ImageSource]) -> np.ndarray:
        """(n, d) float32 for n paths, bytes or PIL images; an unreadable one raises `FishermixError`."""
        features = np.empty((len(images), self.n_features), np.float32)
        with progress("encoding photos", len(images)) as bar:
            for position, vector in self.stream(images):
                if isinstance(vector, UnreadableImage):
                    raise vector
                features[position] = vector
                bar.advance()
        return features

    def stream(self, images: Iterable[ImageSource]) -> Iterator[tuple[int, np.ndarray | UnreadableImage]]:
        """(position, vector or error) of each image, in order; images are taken a few batches ahead."""
        run, chunk = self._run, max(1, self.batch_size // crops_per_image(self.view))
        threads = self.threads or _cores()
        remaining = iter(images)
        pool = ThreadPoolExecutor(threads, thread_name_prefix="fishermix-images")
        running: deque[tuple[list[ImageSource], Future[list[np.ndarray | UnreadableImage]]]] = deque()
        position = 0
        try:
            while True:
                while len(running) <= CHUNKS_AHEAD * threads and (taken := list(islice(remaining, chunk))):
                    running.append((taken, pool.submit(run, taken)))
                if not running:
                    return
                taken, future = running.popleft()
                for image, vector in zip(taken, future.result()):
                    yield position, _named(vector, image) if isinstance(vector, UnreadableImage) else vector
                    position += 1
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    @cached_property
    def _run(self) -> _Run:
        return _Run(Network.find(self.encoder), self.view, self.batch_size, self.max_pixels)

    def set_params(self, **parameters: object) -> ImageEncoder:
        for name in DERIVED:
            self.__dict__.pop(name, None)
        return super().set_params(**parameters)

    def __getstate__(self) -> dict:
        return {name: value for name, value in super().__getstate__().items() if name not in DERIVED}


class _Run:
    """An opened network: a chunk of images in, their vectors out; called from several threads at once."""

    def __init__(self, network: Network, view: str, batch_size: int, max_pixels: int | None):
        if batch_size < 1:
            raise FishermixError(f"batch_size must be at least 1, not {batch_size}")
        if max_pixels is not None and max_pixels < 1:
            raise FishermixError(f"max_pixels must be at least 1, not {max_pixels}")
        self.network, self.view = network, view
        self.n_crops = crops_per_image(view)
        self.max_pixels = max_pixels or default_max_pixels()
        if max_pixels and Image.MAX_IMAGE_PIXELS and max_pixels > Image.MAX_IMAGE_PIXELS:
            Image.MAX_IMAGE_PIXELS = max_pixels  # Pillow's own limit, which holds for the process
        self.session = _session(network)
        rows = self.session.get_inputs()[0].shape[0]
        self.fixed_rows = rows if isinstance(rows, int) else 0  # some files allow one batch size only
        self.batch_size = self.fixed_rows or batch_size
        self.n_features = self._run_blank().shape[1]

    def _run_blank(self) -> np.ndarray:
        try:
            return self.features(np.zeros((1, self.network.size, self.network.size, 3), np.uint8))
        except Exception as error:  # onnxruntime raises its own classes
            raise FishermixError(
                f"{self.network.graph} does not run on an image prepared as the JSON beside it says: {error}"
            ) from error

    def __call__(self, images: Sequence[ImageSource]) -> list[np.ndarray | UnreadableImage]:
        found = [self.crops_or_error(image) for image in images]
        seen = [crop for crop in found if isinstance(crop, np.ndarray)]
        vectors = iter(self.vectors(np.concatenate(seen)) if seen else ())
        return [next(vectors) if isinstance(crop, np.ndarray) else crop for crop in found]

    def crops_or_error(self, image: ImageSource) -> np.ndarray | UnreadableImage:
        try:
            if isinstance(image, str | os.PathLike):
                image = read_bytes(image, self.max_pixels)
            if not isinstance(image, bytes | Image.Image):
                raise UnreadableImage(f"{type(image).__name__} is neither a path nor bytes nor a PIL image")
            return crops(decode(image, self.max_pixels, self.network.size), self.view, self.network.size)
        except UnreadableImage as error:
            return error

    def vectors(self, seen: np.ndarray) -> np.ndarray:
        """(n * n_crops, size, size, 3) crops to (n, d): the mean over each image's crops."""
        parts = [self.features(seen[i : i + self.batch_size]) for i in range(0, len(seen), self.batch_size)]
        return np.concatenate(parts).reshape(-1, self.n_crops, self.n_features).mean(axis=1)

    def features(self, seen: np.ndarray) -> np.ndarray:
        image = self.network.prepare(seen)
        if self.fixed_rows:
            image = np.concatenate(
                [image, np.zeros((self.fixed_rows - len(seen), *image.shape[1:]), np.float32)]
            )
        (values,) = self.session.run([self.network.output], {self.network.input: image})
        values = values[: len(seen)]
        if values.ndim == 4:
            values = values.mean(axis=(2, 3) if self.network.layout == "NCHW" else (1, 2))
        return values.reshape(len(seen), -1).astype(np.float32, copy=False)


def _named(error: UnreadableImage, image: ImageSource) -> UnreadableImage:
    return UnreadableImage(error.reason, os.fspath(image)) if isinstance(image, str | os.PathLike) else error


def _session(network: Network):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # One thread a run and as many runs as cores: faster than sharing each run, and decoding is never starved.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(network.graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises its own classes for every kind of damage
        raise FishermixError(f"{network.graph} cannot be opened as a network: {error}") from error
    inputs = [value.name for value in session.get_inputs()]
    outputs = [value.name for value in session.get_outputs()]
    if network.input not in inputs or network.output not in outputs:
        raise FishermixError(
            f"{network.graph} has the inputs {inputs} and the outputs {outputs}, "
            f"but the JSON beside it names '{network.input}' and '{network.output}'"
        )
    return session


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
