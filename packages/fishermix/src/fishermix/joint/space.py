"""The joint space: rows of two feature matrices become unit embeddings, compared by their cosine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.joint.hubness import HubnessCorrection
from fishermix.joint.projections import CanonicalProjections
from fishermix.joint.vectors import unit_rows


@dataclass(frozen=True, eq=False)
class JointSpace:
    """The space in which rows of two feature matrices are compared, with all that maps them into it.

    The left side is X of the CCA and the right side is Y: images and sentences in the paper.

    Parameters
    ----------
    projections : RegularizedCCA
        A fitted `RegularizedCCA` or `RegularizedCCACV`. Only its correlations, weights and means are kept.
    power : float
        The power of the correlations that weights the dimensions.
    hubness : HubnessCorrection, optional
        What corrects the cosine for hubs. None leaves the cosine as it is.
    left_power : float, default 1.0
        Vectors z of the left side are replaced by sign(z)|z|^left_power first.
    left_l2 : bool, default False
        Whether each part of a left vector is scaled to unit length then.
    left_widths : sequence of int, default ()
        How many numbers each part of a left vector has, if it is several vectors side by side.
    right_optional : int, default 0
        How many of the first numbers of a right vector may be missing, such as those that come from the words
        of a sentence. If all of them are 0, they count as the mean of the training rows. 0 if none are
        missing.

    See Also
    --------
    fishermix.RegularizedCCA : makes the projections.
    fishermix.joint.ranks.task_ranks : measures how well the space retrieves.

    References
    ----------
    Conneau, Lample, Ranzato, Denoyer, Jegou (ICLR 2018), Word translation without parallel data.

    Examples
    --------
    >>> from fishermix import RegularizedCCA
    >>> rng = np.random.default_rng(0)
    >>> images = rng.normal(size=(200, 6))
    >>> sentences = images @ rng.normal(size=(6, 5)) + 0.1 * rng.normal(size=(200, 5))
    >>> space = JointSpace(RegularizedCCA().fit(images, sentences), power=1.0)
    >>> cosines = space.embed_right(sentences) @ space.embed_left(images).T
    >>> bool(np.mean(cosines.argmax(axis=1) == np.arange(200)) > 0.8)
    True
    """

    projections: Any  # CanonicalProjections
    power: float
    hubness: HubnessCorrection | None = None
    left_power: float = 1.0
    left_l2: bool = False
    left_widths: Sequence[int] = ()
    right_optional: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.projections, CanonicalProjections):
            return
        if not hasattr(self.projections, "_projections"):
            raise FishermixError(
                "JointSpace takes a fitted RegularizedCCA. Call its fit first.", code="not_fitted"
            )
        object.__setattr__(self, "projections", self.projections._projections)

    def embed_left(self, vectors: np.ndarray) -> np.ndarray:
        """Unit embeddings (n, d) float32 of vectors (n, p) of the left side.

        Returns
        -------
        embeddings : ndarray of shape (n, d)
            float32, each of length 1.
        """
        prepared = prepare_features(vectors, self.left_power, self.left_l2, self.left_widths)
        return unit_rows(prepared @ self.left_map - self.left_origin)

    def embed_right(self, vectors: np.ndarray) -> np.ndarray:
        """Unit embeddings (n, d) float32 of vectors (n, q) of the right side. The zero vector stays zero.

        Returns
        -------
        embeddings : ndarray of shape (n, d)
            float32, each of length 1 or zero.
        """
        embeddings = vectors @ self.right_map - self.right_origin
        if self.right_optional:
            optional = slice(self.right_optional)
            of_mean = self.projections.y_mean[optional].astype(np.float32) @ self.right_map[optional]
            embeddings[~np.any(vectors[:, optional], axis=1)] += of_mean
        return unit_rows(np.where(np.any(vectors, axis=1, keepdims=True), embeddings, 0))

    def csls_left(self, embeddings: np.ndarray) -> np.ndarray:
        """Embeddings (n, d) of the left side as vectors whose dot product with `csls_right` is the score.

        They are float32 of shape (n, d + 2), or the embeddings themselves without a hubness correction.
        """
        return self.hubness.csls_left(embeddings) if self.hubness else embeddings

    def csls_right(self, embeddings: np.ndarray) -> np.ndarray:
        """Embeddings (n, d) of the right side as vectors whose dot product with `csls_left` is the score."""
        return self.hubness.csls_right(embeddings) if self.hubness else embeddings

    def key(self, encoder_key: str) -> str:
        """Identifies the vectors that `csls_left` returns; `encoder_key` what makes left vectors."""
        space = self.space_key(encoder_key)
        if self.hubness is None:
            return space
        return hashlib.sha256(f"{space} {self.hubness.key}".encode()).hexdigest()[:16]

    def space_key(self, encoder_key: str) -> str:
        """Identifies the embeddings that `embed_left` returns; `encoder_key` what makes left vectors."""
        digest = hashlib.sha256(f"{encoder_key} {self.left_power}".encode())
        digest.update(np.ascontiguousarray(self.left_map).tobytes())
        digest.update(np.ascontiguousarray(self.left_origin).tobytes())
        return digest.hexdigest()[:16]

    # The key depends on every bit of the left map. So it is rounded to float32 once, at the end; the right
    # map may be twenty times as large and is computed in float32 throughout.

    @cached_property
    def left_map(self) -> np.ndarray:
        """(p, d) float32: a prepared left vector z has the embedding z @ left_map - left_origin."""
        fitted = self.projections
        return fitted.scale_columns(fitted.x_weights, self.power, np.float64).astype(np.float32)

    @cached_property
    def left_origin(self) -> np.ndarray:
        """(d,) float32."""
        return (self.projections.x_mean @ self.left_map).astype(np.float32)

    @cached_property
    def right_map(self) -> np.ndarray:
        """(q, d) float32: a right vector z has the embedding z @ right_map - right_origin."""
        fitted = self.projections
        return fitted.scale_columns(fitted.y_weights, self.power, np.float32)

    @cached_property
    def right_origin(self) -> np.ndarray:
        """(d,) float32."""
        return (self.projections.y_mean.astype(np.float32) @ self.right_map).astype(np.float32)


def prepare_features(features: np.ndarray, power: float, l2: bool, widths: Sequence[int]) -> np.ndarray:
    """sign(z)|z|^power of vectors (n, p), then each part (n, width) scaled to unit length."""
    prepared = np.array(features, np.float32)
    if power != 1:
        prepared = np.sign(prepared) * np.abs(prepared) ** np.float32(power)
    if l2:
        ends = np.cumsum(widths)
        for start, end in zip(ends - widths, ends):
            prepared[:, start:end] = unit_rows(prepared[:, start:end])
    return prepared
