"""`Captioner` writes a new sentence for a point of the joint space. It needs numpy only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypedDict, Unpack

import numpy as np
from fishermix.errors import FishermixError
from fishermix.saved import FolderKind, Name, Size, Struct, Text, load_folder, require_tensors, save_folder
from fishermix.text.tokens import STOP_WORDS

from fishermix_photos.model.captioner.consensus import (
    Confidence,
    Description,
    EncodeText,
    choose_by_consensus,
)
from fishermix_photos.model.captioner.decoding import Decoder, Hypothesis, Weights
from fishermix_photos.model.captioner.vocabulary import CaptionVocabulary

MAX_WORDS = 24  # longer than almost all captions of people
# Chosen on the dev split of Flickr8K.
BEAM = 16
SAMPLES = 40
TEMPERATURE = 0.6
LENGTH_NORM = 0.7
RERANK_WEIGHT = 8.0
IMAGES_AT_ONCE_SAMPLED = 32
IMAGES_AT_ONCE = 256  # bounds the memory of the beam: 256 x beam x vocabulary log probabilities


class CaptionerConfig(Struct):
    """`config.json` of a captioner; the first word ends a sentence."""

    words: list[Name]
    units: Size
    dimension: Size
    model_key: Text = ""
    confidence: Confidence | None = None


CAPTIONER_KIND = FolderKind("captioner", 1, CaptionerConfig)


class CaptionOptions(TypedDict, total=False):
    """How sentences are written, see `Captioner.describe`."""

    beam: int
    samples: int


class Captioner:
    """One LSTM layer on the joint space and a softmax over a vocabulary.

    The input of step 0 is the point of the image, that of step t the point of word t - 1. Both are scaled in
    the same way: the first d coordinates of the unit row, times the constant sqrt(d), which makes each
    coordinate about one in size.

    Parameters
    ----------
    vocabulary : CaptionVocabulary
        The V words that it can write.
    points : array of shape (V, d)
        The points of the words, as in training.
    weights : Weights
        The network.
    model_key : str, default ""
        Identifies the joint space in which it was trained ("" if unknown).
    confidence : Confidence, optional
        Estimates how far a sentence can be trusted; None if it was never fitted.

    See Also
    --------
    fishermix_photos.ImageTextModel.caption : sentences for photos.

    References
    ----------
    Klein, Lev, Sadeh, Wolf (CVPR 2015), Associating Neural Word Embeddings with Deep Image Representations
    using Fisher Vectors; arXiv:1411.7399.

    Examples
    --------
    >>> captioner = Captioner.load("captioner")
    >>> points = np.random.default_rng(0).normal(size=(2, 384))  # of images, in the joint space
    >>> len(captioner.caption(points))
    2
    """

    def __init__(
        self,
        vocabulary: CaptionVocabulary,
        points: np.ndarray,
        weights: Weights,
        model_key: str = "",
        confidence: Confidence | None = None,
    ):
        if points.shape != (len(vocabulary), weights.dimension):
            raise FishermixError(
                f"points must have the shape {(len(vocabulary), weights.dimension)} (words, dimensions), "
                f"not {points.shape}.",
                code="wrong_shape",
            )
        self.vocabulary, self.points, self.weights = vocabulary, points, weights
        self.model_key, self.confidence = model_key, confidence
        self._once = np.array([word not in STOP_WORDS for word in vocabulary.words], bool)
        self._word_inputs = scale_points(points, weights.dimension)

    @property
    def dimension(self) -> int:
        """d, the number of leading coordinates of the joint space that it reads."""
        return self.weights.dimension

    def caption(
        self,
        image_points: np.ndarray,
        *,
        encode_text: EncodeText | None = None,
        **options: Unpack[CaptionOptions],
    ) -> list[str]:
        """One sentence per image; the options are those of `describe`.

        Returns
        -------
        sentences : list of str
            In the order of the images.
        """
        return [
            description.sentence
            for description in self.describe(image_points, encode_text=encode_text, **options)
        ]

    def describe(
        self,
        image_points: np.ndarray,
        *,
        encode_text: EncodeText | None = None,
        beam: int = BEAM,
        samples: int = SAMPLES,
        in_color: Sequence[bool | None] | None = None,
    ) -> list[Description]:
        """One sentence per image, and how far it can be trusted. No sentence uses a content word twice.

        Parameters
        ----------
        image_points : array of shape (n, at least d)
            Points of the images.
        encode_text : callable, optional
            Maps sentences to points of the joint space, which then helps to choose among the candidates.
            None: the network chooses alone.
        beam : int, default 16
            The number of beginnings that the search keeps. 1 is the greedy search of the paper, which may
            repeat words.
        samples : int, default 40
            The number of drawn sentences that compete with those of the beam; the one that agrees best with
            the others wins. 0: the first of `candidates` wins.
        in_color : sequence of bool or None, optional
            Whether each image has colors, None where it is not known. With colors, no sentence calls it black
            and white.

        Returns
        -------
        descriptions : list of Description
            With the attributes `sentence`, `confidence` and `unsure`.
        """
        image_points = np.atleast_2d(image_points)
        if beam == 1 or not samples:
            ranked = self.candidates(image_points, encode_text=encode_text, beam=beam)
            return [Description(sentences[0][0]) for sentences in ranked]
        written: list[Description] = []
        for first in range(0, len(image_points), IMAGES_AT_ONCE_SAMPLED):
            points = image_points[first : first + IMAGES_AT_ONCE_SAMPLED]
            drafts = self._draft(points, beam, samples)
            colors = None if in_color is None else in_color[first : first + IMAGES_AT_ONCE_SAMPLED]
            written += choose_by_consensus(drafts, points, self._join_words, encode_text, colors)
        if self.confidence is not None and encode_text is not None:
            written = [description.rate(self.confidence) for description in written]
        return written

    def _draft(self, image_points: np.ndarray, beam: int, samples: int) -> list[list[Hypothesis]]:
        """The different sentences of the beam and of sampling, per image."""
        starts = scale_points(image_points, self.dimension)
        decoder = Decoder(
            weights=self.weights, word_inputs=self._word_inputs, max_words=MAX_WORDS, once=self._once
        )
        beams = decoder.search_beam(starts, beam, LENGTH_NORM)
        drawn = decoder.sample(starts, samples, TEMPERATURE)
        drafts = []
        for of_beam, of_samples in zip(beams, drawn):
            by_words = {sentence.words: sentence for sentence in (*of_samples, *of_beam)}
            drafts.append([by_words[words] for words in sorted(by_words)])
        return drafts

    def candidates(
        self, image_points: np.ndarray, *, encode_text: EncodeText | None = None, beam: int = BEAM
    ) -> list[list[tuple[str, float]]]:
        """The sentences of the beam and their scores, per image, the best first; options as in `describe`.

        The score is log p / length^0.7, plus 8 times the cosine of sentence and image if `encode_text` is
        given.
        """
        image_points = np.atleast_2d(image_points)
        starts = scale_points(image_points, self.dimension)
        decoder = Decoder(
            weights=self.weights,
            word_inputs=self._word_inputs,
            max_words=MAX_WORDS,
            once=None if beam == 1 else self._once,
        )
        candidates: list[list[tuple[str, float]]] = []
        for first in range(0, len(starts), IMAGES_AT_ONCE):
            block = slice(first, first + IMAGES_AT_ONCE)
            scored = [
                [(self._join_words(sentence.words), sentence.score(LENGTH_NORM)) for sentence in of_image]
                for of_image in decoder.search_beam(starts[block], beam, LENGTH_NORM)
            ]
            if encode_text is not None:
                scored = _rerank(scored, image_points[block], encode_text)
            candidates += scored
        return candidates

    def _join_words(self, rows: Sequence[int]) -> str:
        return " ".join(self.vocabulary.words[row] for row in rows)

    def save(self, folder: str | os.PathLike[str], half: bool = True) -> None:
        """Write a folder of `config.json` and a safetensors file, by default in half precision."""
        precision = np.float16 if half else np.float32
        tensors = {"points": self.points, **vars(self.weights)}
        config = CaptionerConfig(
            self.vocabulary.words, self.weights.units, self.dimension, self.model_key, self.confidence
        )
        rounded = {name: value.astype(precision) for name, value in tensors.items()}
        save_folder(folder, CAPTIONER_KIND, config, rounded)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Captioner:
        """Read a folder that `save` wrote."""
        saved = load_folder(folder, CAPTIONER_KIND)
        config = saved.config
        units = config.units
        dimension = config.dimension
        n_words = len(config.words)
        shapes = {
            "points": f"{n_words} {dimension}",
            "input_weights": f"{4 * units} {dimension}",
            "recurrent_weights": f"{4 * units} {units}",
            "gate_bias": f"{4 * units}",
            "output_weights": f"{n_words} {units}",
            "output_bias": f"{n_words}",
        }
        points, *arrays = (
            array.astype(np.float32) for array in require_tensors(saved.tensors, shapes, folder)
        )
        vocabulary = CaptionVocabulary(config.words)
        return cls(vocabulary, points, Weights(*arrays), config.model_key, config.confidence)


def scale_points(points: np.ndarray, dimension: int) -> np.ndarray:
    """The inputs of the network: the first `dimension` coordinates, times sqrt(dimension)."""
    if points.shape[1] < dimension:
        raise FishermixError(
            f"The captioner needs points of at least {dimension} dimensions, not {points.shape[1]}: "
            "it was trained in the joint space of another model.",
            code="wrong_shape",
        )
    return points[:, :dimension].astype(np.float32) * np.float32(np.sqrt(dimension))


def _rerank(
    scored: list[list[tuple[str, float]]], image_points: np.ndarray, encode_text: EncodeText
) -> list[list[tuple[str, float]]]:
    """The sentences of each image, with the weighted cosine with it added, sorted again."""
    owner = np.repeat(np.arange(len(scored)), [len(of_image) for of_image in scored])
    points = encode_text([text for of_image in scored for text, _ in of_image])
    cosines = np.einsum("nd,nd->n", points, image_points[owner]).tolist()
    added = iter([RERANK_WEIGHT * cosine for cosine in cosines])
    summed = [[(text, score + next(added)) for text, score in of_image] for of_image in scored]
    return [sorted(of_image, key=lambda pair: (-pair[1], pair[0])) for of_image in summed]
