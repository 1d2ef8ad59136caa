"""The joint space: vectors of photos and sentences become unit points, and points become scores."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fishermix.cca.projections import CanonicalProjections

if TYPE_CHECKING:
    from fishermix.model.hubness import HubnessCorrection


@dataclass(frozen=True, eq=False)
class JointSpace:
    """Everything between a vector and its point; images are side x of the CCA, sentences side y.

    projections : correlations (d,), weights and means of both sides
    power : the power of the correlations that weights the dimensions
    hubness : what corrects the cosine of a sentence and a photo for hubs; None leaves the cosine as it is
    image_power, image_l2, image_widths : how image vectors are prepared, see `prepare_features`
    n_word_features : how many of the first numbers of a sentence vector come from its words, if others
        follow, such as a transformer's; 0 if all do. If no word is known, these numbers are 0, which says
        nothing about the sentence: they count as the mean of the training sentences.
    """

    projections: CanonicalProjections
    power: float
    hubness: HubnessCorrection | None = None
    image_power: float = 1.0
    image_l2: bool = False
    image_widths: Sequence[int] = ()
    n_word_features: int = 0

    def image_points(self, features: np.ndarray) -> np.ndarray:
        """Unit points (n, d) float32 of the networks' vectors (n, p)."""
        prepared = prepare_features(features, self.image_power, self.image_l2, self.image_widths)
        return unit_rows(prepared @ self._image_map - self._image_origin)

    def sentence_points(self, vectors: np.ndarray) -> np.ndarray:
        """Unit points (n, d) float32 of sentence vectors (n, q). The zero vector stays zero."""
        points = vectors @ self._sentence_map - self._sentence_origin
        if self.n_word_features:
            words = slice(self.n_word_features)
            of_mean = self.projections.y_mean[words].astype(np.float32) @ self._sentence_map[words]
            points[~np.any(vectors[:, words], axis=1)] += of_mean
        return unit_rows(np.where(np.any(vectors, axis=1, keepdims=True), points, 0))

    def center_sentence(self, vector: np.ndarray) -> np.ndarray:
        """A sentence vector (q,) minus the mean of the training sentences, in float64."""
        centered = vector.astype(np.float64) - self.projections.y_mean
        if not vector[: self.n_word_features].any():
            centered[: self.n_word_features] = 0
        return centered

    def csls_images(self, points: np.ndarray) -> np.ndarray:
        """Points of photos as vectors whose dot product with `csls_sentences` is the score."""
        return self.hubness.csls_images(points) if self.hubness else points

    def csls_sentences(self, points: np.ndarray) -> np.ndarray:
        """Points of sentences as vectors whose dot product with `csls_images` is the score."""
        return self.hubness.csls_sentences(points) if self.hubness else points

    def key(self, encoder_key: str) -> str:
        """Identifies the vectors of photos that an index stores, given the key of the image encoder."""
        space = self.space_key(encoder_key)
        if self.hubness is None:
            return space
        return hashlib.sha256(f"{space} {self.hubness.key}".encode()).hexdigest()[:16]

    def space_key(self, encoder_key: str) -> str:
        """Identifies the map from photos to points, given the key of the image encoder."""
        if encoder_key not in self._space_keys:
            digest = hashlib.sha256(f"{encoder_key} {self.image_power}".encode())
            digest.update(np.ascontiguousarray(self._image_map).tobytes())
            digest.update(np.ascontiguousarray(self._image_origin).tobytes())
            self._space_keys[encoder_key] = digest.hexdigest()[:16]
        return self._space_keys[encoder_key]

    @cached_property
    def _space_keys(self) -> dict[str, str]:
        return {}

    # The key depends on every bit of the image map. So it is rounded to float32 once, at the end; the
    # sentence map is twenty times as large and computed in float32 throughout.

    @cached_property
    def _image_map(self) -> np.ndarray:
        parts = self.projections
        return parts.scale_columns(parts.x_weights, self.power, np.float64).astype(np.float32)

    @cached_property
    def _image_origin(self) -> np.ndarray:
        return (self.projections.x_mean @ self._image_map).astype(np.float32)

    @cached_property
    def _sentence_map(self) -> np.ndarray:
        parts = self.projections
        return parts.scale_columns(parts.y_weights, self.power, np.float32)

    @cached_property
    def _sentence_origin(self) -> np.ndarray:
        return (self.projections.y_mean.astype(np.float32) @ self._sentence_map).astype(np.float32)


def image_networks(encoder: Any) -> list[Any]:
    """The networks whose vectors an image encoder concatenates."""
    return list(getattr(encoder, "encoders", [encoder]))


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


def unit_rows(points: np.ndarray) -> np.ndarray:
    """Rows of length 1, float32. A zero row stays zero."""
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    return (points / np.where(lengths > 0, lengths, 1)).astype(np.float32, copy=False)
