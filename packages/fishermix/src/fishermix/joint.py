"""A joint space: rows of two feature matrices become unit points, and points become scores.

The score of a pair is the cosine of its points. In a space of many dimensions some images are near every
sentence and some sentences are near every image (Radovanovic et al., 2010). Such hubs displace the right
answers. The hubness r of an image is its mean cosine with its k nearest sentences among a bank of training
sentences; that of a sentence is the same among training images. Then

    score = cosine - r(image) / 2 - r(sentence) / 2,

where r is measured from its mean over the bank, so that scores stay on the scale of the cosine. This is half
of the measure CSLS (Conneau et al., 2018) with banks from the training set (Bogolin et al., 2022): a pair's
score does not depend on the rest of the collection. It is the dot product of two longer vectors,
(image, -r / 2, 1) and (sentence, 1, -r / 2), so any index of dot products can compute it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.storage import FolderKind, Number, SavedFolder, Size, Struct, save_folder

FEATURES_AT_ONCE = 2048
BLOCK_CELLS = 8_000_000  # 32 MB of cosines at a time: few enough to fit, enough for a full-speed product
CCA_TENSORS = {"correlations_": "k", "x_weights_": "p k", "y_weights_": "q k", "x_mean_": "p", "y_mean_": "q"}


def unit_rows(points: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
    """Rows of length 1, in this type. A zero row stays zero."""
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    return (points / np.where(lengths > 0, lengths, 1)).astype(dtype, copy=False)


@dataclass(frozen=True, eq=False)
class CanonicalProjections:
    """Correlations (k,), falling; weights (features, k) and mean (features,) of each side.

    A row x projects to (x - mean) W diag(correlations ** power). The power weights the directions: 0 treats
    them alike, 1 follows Klein et al., 4 follows Gong et al. (2014).
    """

    correlations: np.ndarray
    x_weights: np.ndarray
    y_weights: np.ndarray
    x_mean: np.ndarray
    y_mean: np.ndarray

    def scale_columns(self, columns: np.ndarray, power: float, dtype: Any) -> np.ndarray:
        """Columns (n, k) times `correlations ** power`, computed in `dtype`.

        This is the only place that applies the power: to weights, and to points projected with power 0.
        """
        if power == 0:
            return columns.astype(dtype, copy=False)
        return np.multiply(columns, (self.correlations**power).astype(dtype), dtype=dtype)

    def project_x(self, rows: np.ndarray, power: float) -> np.ndarray:
        """Points (n, k) of rows (n, p) of X, in the type of the rows."""
        return self._project(rows, self.x_weights, self.x_mean, power)

    def project_y(self, rows: np.ndarray, power: float) -> np.ndarray:
        """Points (n, k) of rows (n, q) of Y, in the type of the rows."""
        return self._project(rows, self.y_weights, self.y_mean, power)

    def _project(self, rows: np.ndarray, weights: np.ndarray, mean: np.ndarray, power: float) -> np.ndarray:
        scaled = self.scale_columns(weights, power, np.result_type(weights, np.float32))
        points = rows @ scaled.astype(rows.dtype, copy=False)
        origin = np.zeros(scaled.shape[1])
        for start in range(0, len(mean), FEATURES_AT_ONCE):
            part = slice(start, start + FEATURES_AT_ONCE)
            origin += mean[part] @ scaled[part]  # numpy widens these weights to float64
        points -= origin.astype(points.dtype)
        return points

    def unit_points(self, x: np.ndarray, y: np.ndarray, power: float) -> tuple[np.ndarray, np.ndarray]:
        """Unit points float32 of rows of X and Y that were projected with power 0, for this power."""
        scaled = self.scale_columns(x, power, np.float32), self.scale_columns(y, power, np.float32)
        return unit_rows(scaled[0]), unit_rows(scaled[1])

    def to_tensors(self) -> dict[str, np.ndarray]:
        return {f"{name}_": value for name, value in vars(self).items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, np.ndarray]) -> CanonicalProjections:
        """What `to_tensors` gave; the load of a folder has compared the shapes with `CCA_TENSORS`."""
        return cls(*(tensors[name] for name in CCA_TENSORS))


class HubnessConfig(Struct):
    """The numbers of a saved hubness correction."""

    neighbors: Size
    mean_of_images: Number
    mean_of_sentences: Number


HUBNESS_KIND = FolderKind("hubness", 1, HubnessConfig, {"images": "int m d", "sentences": "int n d"})


@dataclass(frozen=True, eq=False)
class HubnessCorrection:
    """Banks of points of training images (m, d) and sentences (n, d), stored as int8; only directions matter.

    neighbors : the number of nearest points whose cosines are averaged
    mean_of_images, mean_of_sentences : the mean hubness of the images and of the sentences of the banks
    """

    images: np.ndarray
    sentences: np.ndarray
    neighbors: int
    mean_of_images: float = 0.0
    mean_of_sentences: float = 0.0

    @classmethod
    def from_points(cls, images: np.ndarray, sentences: np.ndarray, neighbors: int) -> HubnessCorrection:
        """Banks of unit points; zero rows (sentences without a known word) are skipped."""
        banks = cls(to_bytes(images), to_bytes(sentences), neighbors)
        of_images = banks.of_images(banks.image_points)
        of_sentences = banks.of_sentences(banks._sentence_points)
        return replace(
            banks, mean_of_images=float(of_images.mean()), mean_of_sentences=float(of_sentences.mean())
        )

    def of_images(self, points: np.ndarray) -> np.ndarray:
        """The hubness (n,) of the unit points (n, d) of images."""
        return _mean_of_largest(points, self._sentence_points, self.neighbors) - self.mean_of_images

    def of_sentences(self, points: np.ndarray) -> np.ndarray:
        """The hubness (n,) of the unit points (n, d) of sentences."""
        return _mean_of_largest(points, self.image_points, self.neighbors) - self.mean_of_sentences

    def measure(self, images: np.ndarray, sentences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The hubness of the unit points of images, and of those of sentences."""
        return self.of_images(images), self.of_sentences(sentences)

    def csls_images(self, points: np.ndarray) -> np.ndarray:
        """(n, d + 2): the dot product with `csls_sentences` is the score. A zero row stays zero."""
        return _append_columns(points, -0.5 * self.of_images(points), 1.0)

    def csls_sentences(self, points: np.ndarray) -> np.ndarray:
        """(n, d + 2): the dot product with `csls_images` is the score. A zero row stays zero."""
        return _append_columns(points, 1.0, -0.5 * self.of_sentences(points))

    def score_bank(self, query: np.ndarray) -> np.ndarray:
        """The scores (m,) of a row of `csls_sentences` with the images of the bank.

        Their own hubness does not count: its mean is zero.
        """
        return self.image_points @ query[:-2] + query[-1]

    def find_nearness(self, point: np.ndarray) -> float:
        """The largest cosine of the unit point (d,) of a sentence with a sentence of the bank."""
        return float((self._sentence_points @ point).max())

    @cached_property
    def image_points(self) -> np.ndarray:
        return from_bytes(self.images)

    @cached_property
    def _sentence_points(self) -> np.ndarray:
        return from_bytes(self.sentences)

    @cached_property
    def key(self) -> str:
        """Identifies the correction."""
        digest = hashlib.sha256(self.sentences.tobytes() + self.images.tobytes())
        return f"{digest.hexdigest()} {self.neighbors} {self.mean_of_images} {self.mean_of_sentences}"

    def save(self, folder: Path) -> None:
        """Write the banks as a folder."""
        config = HubnessConfig(self.neighbors, self.mean_of_images, self.mean_of_sentences)
        save_folder(folder, HUBNESS_KIND, config, {"images": self.images, "sentences": self.sentences})

    @classmethod
    def from_saved(cls, saved: SavedFolder, dimension: int) -> HubnessCorrection:
        """Make the correction of a folder that was read."""
        config, images, sentences = saved.config, saved.tensors["images"], saved.tensors["sentences"]
        for bank in (images, sentences):
            is_sound = bank.dtype == np.int8 and len(bank) and bank.any(axis=1).all()
            if not is_sound or bank.shape[1] != dimension:
                raise FishermixError(f"{saved.folder} is damaged: a bank of points is invalid.")
        return cls(images, sentences, config.neighbors, config.mean_of_images, config.mean_of_sentences)


@dataclass(frozen=True, eq=False)
class JointSpace:
    """The space in which rows of two feature matrices are compared, with all that makes points of them.

    The two sides are called images (X of the CCA) and sentences (Y); any other two will do.

    Parameters
    ----------
    projections : CanonicalProjections
        Correlations (d,), weights and means of both sides: `projections_` of a fitted `RegularizedCCA`.
    power : float
        The power of the correlations that weights the dimensions.
    hubness : HubnessCorrection, optional
        What corrects the cosine of a sentence and an image for hubs. None leaves the cosine as it is.
    image_power : float, default 1.0
        Image vectors z are replaced by sign(z)|z|^image_power first.
    image_l2 : bool, default False
        Whether the vector of each network is scaled to unit length then.
    image_widths : sequence of int, default ()
        How many numbers of an image vector come from each network.
    n_word_features : int, default 0
        How many of the first numbers of a sentence vector come from its words, if others follow, such as a
        transformer's; 0 if all do. If no word is known, these numbers are 0, which says nothing about the
        sentence: they count as the mean of the training sentences.

    See Also
    --------
    fishermix.RegularizedCCA : makes the projections.
    fishermix.measures.task_ranks : measures how well the space retrieves.

    References
    ----------
    Conneau, Lample, Ranzato, Denoyer, Jegou (ICLR 2018), Word translation without parallel data.

    Examples
    --------
    >>> from fishermix import RegularizedCCA
    >>> rng = np.random.default_rng(0)
    >>> images = rng.normal(size=(200, 6))
    >>> sentences = images @ rng.normal(size=(6, 5)) + 0.1 * rng.normal(size=(200, 5))
    >>> space = JointSpace(RegularizedCCA().fit(images, sentences).projections_, power=1.0)
    >>> cosines = space.sentence_points(sentences) @ space.image_points(images).T
    >>> bool(np.mean(cosines.argmax(axis=1) == np.arange(200)) > 0.8)
    True
    """

    projections: CanonicalProjections
    power: float
    hubness: HubnessCorrection | None = None
    image_power: float = 1.0
    image_l2: bool = False
    image_widths: Sequence[int] = ()
    n_word_features: int = 0

    def image_points(self, features: np.ndarray) -> np.ndarray:
        """Unit points (n, d) float32 of image vectors (n, p).

        Returns
        -------
        points : ndarray of shape (n, d)
            float32, each of length 1.
        """
        prepared = prepare_features(features, self.image_power, self.image_l2, self.image_widths)
        return unit_rows(prepared @ self._image_map - self._image_origin)

    def sentence_points(self, vectors: np.ndarray) -> np.ndarray:
        """Unit points (n, d) float32 of sentence vectors (n, q). The zero vector stays zero.

        Returns
        -------
        points : ndarray of shape (n, d)
            float32, each of length 1 or zero.
        """
        points = vectors @ self._sentence_map - self._sentence_origin
        if self.n_word_features:
            words = slice(self.n_word_features)
            of_mean = self.projections.y_mean[words].astype(np.float32) @ self._sentence_map[words]
            points[~np.any(vectors[:, words], axis=1)] += of_mean
        return unit_rows(np.where(np.any(vectors, axis=1, keepdims=True), points, 0))

    def csls_images(self, points: np.ndarray) -> np.ndarray:
        """Points (n, d) of images as vectors whose dot product with `csls_sentences` is the score.

        They are float32 of shape (n, d + 2), or the points themselves without a hubness correction.
        """
        return self.hubness.csls_images(points) if self.hubness else points

    def csls_sentences(self, points: np.ndarray) -> np.ndarray:
        """Points (n, d) of sentences as vectors whose dot product with `csls_images` is the score."""
        return self.hubness.csls_sentences(points) if self.hubness else points

    def key(self, encoder_key: str) -> str:
        """Identifies the vectors that `csls_images` returns; `encoder_key` what makes vectors of images."""
        space = self.space_key(encoder_key)
        if self.hubness is None:
            return space
        return hashlib.sha256(f"{space} {self.hubness.key}".encode()).hexdigest()[:16]

    def space_key(self, encoder_key: str) -> str:
        """Identifies the points that `image_points` returns; `encoder_key` what makes vectors of images."""
        digest = hashlib.sha256(f"{encoder_key} {self.image_power}".encode())
        digest.update(np.ascontiguousarray(self._image_map).tobytes())
        digest.update(np.ascontiguousarray(self._image_origin).tobytes())
        return digest.hexdigest()[:16]

    # The key depends on every bit of the image map. So it is rounded to float32 once, at the end; the
    # sentence map is twenty times as large and computed in float32 throughout.

    @cached_property
    def _image_map(self) -> np.ndarray:
        fitted = self.projections
        return fitted.scale_columns(fitted.x_weights, self.power, np.float64).astype(np.float32)

    @cached_property
    def _image_origin(self) -> np.ndarray:
        return (self.projections.x_mean @ self._image_map).astype(np.float32)

    @cached_property
    def _sentence_map(self) -> np.ndarray:
        fitted = self.projections
        return fitted.scale_columns(fitted.y_weights, self.power, np.float32)

    @cached_property
    def _sentence_origin(self) -> np.ndarray:
        return (self.projections.y_mean.astype(np.float32) @ self._sentence_map).astype(np.float32)


def prepare_features(features: np.ndarray, power: float, l2: bool, widths: Sequence[int]) -> np.ndarray:
    """sign(z)|z|^power of image vectors (n, p), then each network's part (n, width) scaled to unit length."""
    prepared = np.array(features, np.float32)
    if power != 1:
        prepared = np.sign(prepared) * np.abs(prepared) ** np.float32(power)
    if l2:
        ends = np.cumsum(widths)
        for start, end in zip(ends - widths, ends):
            prepared[:, start:end] = unit_rows(prepared[:, start:end])
    return prepared


def to_bytes(points: np.ndarray) -> np.ndarray:
    """Directions of points as int8, without the zero rows."""
    points = points[np.any(points, axis=1)]
    return np.rint(127 * points / np.abs(points).max(axis=1, keepdims=True)).astype(np.int8)


def from_bytes(rows: np.ndarray) -> np.ndarray:
    """Unit points of what `to_bytes` gave."""
    return unit_rows(rows.astype(np.float32))


def _mean_of_largest(points: np.ndarray, bank: np.ndarray, k: int) -> np.ndarray:
    """Mean (n,) of the k largest dot products of each row with the rows of `bank`, or of all if k is more."""
    k = min(k, len(bank))
    means = np.empty(len(points), np.float32)
    rows = max(1, BLOCK_CELLS // len(bank))
    for start in range(0, len(points), rows):
        cosines = np.asarray(points[start : start + rows], np.float32) @ bank.T
        cosines.partition(-k, axis=1)
        means[start : start + rows] = cosines[:, -k:].mean(axis=1)
    return means


def _append_columns(points: np.ndarray, *columns: np.ndarray | float) -> np.ndarray:
    points = np.asarray(points, np.float32)
    longer = np.zeros((len(points), points.shape[1] + len(columns)), np.float32)
    longer[:, : points.shape[1]] = points
    for number, column in enumerate(columns, points.shape[1]):
        longer[:, number] = np.where(points.any(axis=1), column, 0)
    return longer
