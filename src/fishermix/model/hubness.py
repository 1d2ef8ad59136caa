"""Scores that do not favor hubs: the cosine, less the hubness of the sentence and of the photo.

In a space of many dimensions some photos are near every sentence and some sentences are near every photo
(Radovanovic et al., 2010). Such hubs displace the right answers. The hubness r of a photo is its mean cosine
with its k nearest sentences among a bank of training sentences; that of a sentence is the same among training
photos. Then

    score = cosine - r(photo) / 2 - r(sentence) / 2,

where r is measured from its mean over the bank, so that scores stay on the scale of the cosine. This is half
of the measure CSLS (Conneau et al., 2018) with banks from the training set (Bogolin et al., 2022): a pair's
score does not depend on the rest of the collection. It is the dot product of two longer vectors,
(photo, -r / 2, 1) and (sentence, 1, -r / 2), so any index of dot products can compute it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from fishermix.errors import FishermixError
from fishermix.schemas import Number, Size, Struct
from fishermix.storage import FolderKind, SavedFolder, load_whole, require_tensors, save_folder

BLOCK_CELLS = 8_000_000  # 32 MB of cosines at a time


class HubnessConfig(Struct):
    """The numbers of a saved hubness correction."""

    neighbours: Size
    mean_of_images: Number
    mean_of_sentences: Number


KIND = FolderKind("crowding", 1, HubnessConfig)  # as 0.1 called it


@dataclass(frozen=True, eq=False)
class HubnessCorrection:
    """Banks of points of training photos (m, d) and sentences (n, d), stored as int8; only directions matter.

    Parameters
    ----------
    images : array of shape (m, d)
        Points of training photos.
    sentences : array of shape (n, d)
        Points of training sentences.
    neighbours : int
        The number of nearest points whose cosines are averaged.
    mean_of_images : float
        The mean hubness of the photos of the bank.
    mean_of_sentences : float
        The mean hubness of the sentences of the bank.
    """

    images: np.ndarray
    sentences: np.ndarray
    neighbours: int
    mean_of_images: float = 0.0
    mean_of_sentences: float = 0.0

    @classmethod
    def from_points(cls, images: np.ndarray, sentences: np.ndarray, neighbours: int) -> HubnessCorrection:
        """Banks of unit points; zero rows (sentences without a known word) are skipped.

        Parameters
        ----------
        images : array of shape (m, d)
            Points of training photos.
        sentences : array of shape (n, d)
            Points of training sentences.
        neighbours : int
            The number of nearest points whose cosines are averaged.
        """
        banks = cls(to_bytes(images), to_bytes(sentences), neighbours)
        of_images = banks.of_images(banks._image_points)
        of_sentences = banks.of_sentences(banks._sentence_points)
        return replace(
            banks, mean_of_images=float(of_images.mean()), mean_of_sentences=float(of_sentences.mean())
        )

    def of_images(self, points: np.ndarray) -> np.ndarray:
        """r (n,) of the unit points (n, d) of photos.

        Parameters
        ----------
        points : array of shape (n, d)
            Unit points of the joint space.
        """
        return _mean_of_largest(points, self._sentence_points, self.neighbours) - self.mean_of_images

    def of_sentences(self, points: np.ndarray) -> np.ndarray:
        """r (n,) of the unit points (n, d) of sentences.

        Parameters
        ----------
        points : array of shape (n, d)
            Unit points of the joint space.
        """
        return _mean_of_largest(points, self._image_points, self.neighbours) - self.mean_of_sentences

    def csls_images(self, points: np.ndarray) -> np.ndarray:
        """(n, d + 2): the dot product with `csls_sentences` is the score. A zero row stays zero.

        Parameters
        ----------
        points : array of shape (n, d)
            Unit points of the joint space.
        """
        return _append_columns(points, -0.5 * self.of_images(points), 1.0)

    def csls_sentences(self, points: np.ndarray) -> np.ndarray:
        """(n, d + 2): the dot product with `csls_images` is the score. A zero row stays zero.

        Parameters
        ----------
        points : array of shape (n, d)
            Unit points of the joint space.
        """
        return _append_columns(points, 1.0, -0.5 * self.of_sentences(points))

    def score_bank(self, query: np.ndarray) -> np.ndarray:
        """The scores (m,) of a row of `csls_sentences` with the photos of the bank, whose own hubness is left
        out: its mean is zero.

        Parameters
        ----------
        query : array of shape (d + 2,)
            A row of `csls_sentences`.
        """
        return self._image_points @ query[:-2] + query[-1]

    match_images, match_sentences, of_points = csls_images, csls_sentences, from_points  # as 0.1 called them

    @cached_property
    def _image_points(self) -> np.ndarray:
        return from_bytes(self.images)

    @cached_property
    def _sentence_points(self) -> np.ndarray:
        return from_bytes(self.sentences)

    @cached_property
    def key(self) -> str:
        digest = hashlib.sha256(self.sentences.tobytes() + self.images.tobytes())
        return f"{digest.hexdigest()} {self.neighbours} {self.mean_of_images} {self.mean_of_sentences}"

    def save(self, folder: Path) -> None:
        """Write the banks as a folder.

        Parameters
        ----------
        folder : path
            Where to write. The folder is created if it does not exist.
        """
        config = HubnessConfig(self.neighbours, self.mean_of_images, self.mean_of_sentences)
        save_folder(folder, KIND, config, {"images": self.images, "sentences": self.sentences})

    @classmethod
    def load(cls, folder: Path, dimension: int) -> HubnessCorrection:
        """Read a folder that `save` wrote.

        Parameters
        ----------
        folder : path
            A folder that `save` wrote.
        dimension : int
            The dimension d that the points must have.
        """
        return cls.from_saved(load_whole(folder, KIND), dimension)

    @classmethod
    def from_saved(cls, saved: SavedFolder, dimension: int) -> HubnessCorrection:
        """Make the correction of a folder that was read.

        Parameters
        ----------
        saved : SavedFolder
            The content of a folder that `save` wrote.
        dimension : int
            The dimension d that the points must have.
        """
        shapes = {"images": f"int m {dimension}", "sentences": f"int n {dimension}"}
        images, sentences = require_tensors(saved.tensors, shapes, saved.folder)
        for bank in (images, sentences):
            if bank.dtype != np.int8 or not len(bank) or not bank.any(axis=1).all():
                raise FishermixError(f"{saved.folder} is damaged: a bank of points is invalid.")
        config = saved.config
        return cls(images, sentences, config.neighbours, config.mean_of_images, config.mean_of_sentences)


def to_bytes(points: np.ndarray) -> np.ndarray:
    """Directions of points as int8, without the zero rows."""
    points = points[np.any(points, axis=1)]
    return np.rint(127 * points / np.abs(points).max(axis=1, keepdims=True)).astype(np.int8)


def from_bytes(rows: np.ndarray) -> np.ndarray:
    """Unit points of what `to_bytes` gave."""
    points = rows.astype(np.float32)
    return points / np.linalg.norm(points, axis=1, keepdims=True)


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
