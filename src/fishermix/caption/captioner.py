"""`Captioner` writes a new sentence for a point of the joint space. It needs numpy only."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from fishermix.aliases import accept_old_arguments
from fishermix.caption.confidence import Confidence
from fishermix.caption.consensus import Description, EncodeText, choose_by_consensus
from fishermix.caption.decoding import Hypothesis, Weights, search_beam, search_greedily
from fishermix.caption.repetition import content_words
from fishermix.caption.sampling import sample_sentences
from fishermix.caption.vocabulary import CaptionVocabulary
from fishermix.errors import FishermixError
from fishermix.schemas import Count, Name, Size, Struct, Text
from fishermix.storage import FolderKind, load_folder, require_tensor, save_folder

MAX_WORDS = 24  # longer than almost all captions of people
# Chosen on the dev split of Flickr8K.
BEAM = 16
SAMPLES = 40
TEMPERATURE = 0.6
LENGTH_NORM = 0.7
RERANK_WEIGHT = 8.0
TINY = 1e-12  # a shorter vector counts as zero
IMAGES_AT_ONCE_SAMPLED = 32
IMAGES_AT_ONCE = 256  # bounds the memory of the beam: 256 x beam x vocabulary log probabilities


class CaptionerConfig(Struct):
    """`config.json` of a captioner; the first word ends a sentence."""

    words: list[Name]
    units: Size
    dimension: Size
    model_key: Text = ""
    confidence: Confidence | None = None
    mapped_dimension: Count = 0  # k of `image_map`


KIND = FolderKind("captioner", 1, CaptionerConfig)


class Captioner:
    """One LSTM layer on the joint space and a softmax over a vocabulary.

    The input of step 0 is the point of the image, that of step t the point of word t - 1. Both are scaled in
    the same way: the first d coordinates of the unit row, times the constant sqrt(d), which makes each
    coordinate about one in size.

    Parameters
    ----------
    vocabulary
        The V words that it can write.
    points
        (V, d) the points of the words, as in training.
    weights
        The network.
    model_key
        The key of the `ImageTextModel` in whose joint space it was trained ("" if unknown).
    confidence
        Estimates how far a sentence can be trusted; None if it was never fitted.
    image_map
        (k, d) maps the points of images in the joint space of `model_key` to the one in which it was
        trained; None if they are the same.
    """

    @accept_old_arguments(dictionary="vocabulary")
    def __init__(
        self,
        vocabulary: CaptionVocabulary,
        points: np.ndarray,
        weights: Weights,
        model_key: str = "",
        confidence: Confidence | None = None,
        image_map: np.ndarray | None = None,
    ):
        if points.shape != (len(vocabulary), weights.dimension):
            raise FishermixError(
                f"points must have the shape {(len(vocabulary), weights.dimension)} (words, dimensions), "
                f"not {points.shape}."
            )
        self.vocabulary, self.weights, self.model_key = vocabulary, weights, model_key
        self.points, self.confidence, self.image_map = points, confidence, image_map
        self._once = content_words(vocabulary.words)
        self._word_inputs = scale_points(points, weights.dimension)

    @property
    def dictionary(self) -> CaptionVocabulary:
        """The name of `vocabulary` in 0.1."""
        return self.vocabulary

    @property
    def dimension(self) -> int:
        """d, the number of leading coordinates of the joint space that it reads."""
        return self.weights.dimension

    @accept_old_arguments(agreement="rerank_weight")
    def caption(
        self,
        image_points: np.ndarray,
        beam: int = BEAM,
        length_norm: float = LENGTH_NORM,
        max_words: int = MAX_WORDS,
        encode_text: EncodeText | None = None,
        rerank_weight: float = RERANK_WEIGHT,
        samples: int = SAMPLES,
    ) -> list[str]:
        """One sentence per row of `image_points` (n, at least d); see `describe`.

        Parameters
        ----------
        image_points : array of shape (n_images, d)
            Points of the photos.
        beam : int
            The number of beginnings that the search keeps. 1 is the greedy search of the paper.
        length_norm : float
            Scores are log p / length^length_norm.
        max_words : int
            The longest sentence.
        encode_text : callable, optional
            Maps sentences to points; the model's `encode_text`. The joint space then chooses among the
            candidates.
        rerank_weight : float
            The weight of the cosine of sentence and photo.
        samples : int
            The number of sampled sentences that compete with those of the beam.
        """
        options = (beam, length_norm, max_words, encode_text, rerank_weight, samples)
        return [one.sentence for one in self.describe(image_points, *options)]

    def describe(
        self,
        image_points: np.ndarray,
        beam: int = BEAM,
        length_norm: float = LENGTH_NORM,
        max_words: int = MAX_WORDS,
        encode_text: EncodeText | None = None,
        rerank_weight: float = RERANK_WEIGHT,
        samples: int = SAMPLES,
    ) -> list[Description]:
        """One sentence per row of `image_points` (n, at least d), and how far it can be trusted.

        `beam=1` is the paper's greedy search. Otherwise the sentences of the beam and `samples` drawn ones
        compete, and the winner is chosen by `consensus`; with `samples=0` it is the best of `candidates`.
        `encode_text` maps sentences to the joint space; without it, or with `rerank_weight=0`, the network
        chooses alone.

        Parameters
        ----------
        image_points : array of shape (n_images, d)
            Points of the photos.
        beam : int
            The number of beginnings that the search keeps. 1 is the greedy search of the paper.
        length_norm : float
            Scores are log p / length^length_norm.
        max_words : int
            The longest sentence.
        encode_text : callable, optional
            Maps sentences to points; the model's `encode_text`. The joint space then chooses among the
            candidates.
        rerank_weight : float
            The weight of the cosine of sentence and photo.
        samples : int
            The number of sampled sentences that compete with those of the beam.
        """
        image_points = np.atleast_2d(image_points)
        if beam == 1:
            starts = self._make_starts(image_points)
            found_words = search_greedily(self.weights, starts, self._word_inputs, max_words)
            return [Description(self.join_words(words)) for words in found_words]
        if not samples:
            found = self.candidates(image_points, beam, length_norm, max_words, encode_text, rerank_weight)
            return [Description(scored[0][0]) for scored in found]
        written: list[Description] = []
        encode = encode_text if rerank_weight else None
        for first in range(0, len(image_points), IMAGES_AT_ONCE_SAMPLED):
            points = image_points[first : first + IMAGES_AT_ONCE_SAMPLED]
            drafts = self._draft(points, beam, length_norm, max_words, samples)
            written += choose_by_consensus(drafts, points, self.join_words, encode, rerank_weight)
        if self.confidence is not None and encode is not None:
            written = [one.judge(self.confidence) for one in written]
        return written

    def _draft(
        self, image_points: np.ndarray, beam: int, length_norm: float, max_words: int, samples: int
    ) -> list[list[Hypothesis]]:
        """The different sentences of the beam and of sampling, per image."""
        starts = self._make_starts(image_points)
        beams = search_beam(self.weights, starts, self._word_inputs, beam, max_words, length_norm, self._once)
        drawn = sample_sentences(
            self.weights, starts, self._word_inputs, samples, max_words, TEMPERATURE, self._once
        )
        merged = [{one.words: one for one in (*sampled, *few)} for few, sampled in zip(beams, drawn)]
        return [[merged_of[words] for words in sorted(merged_of)] for merged_of in merged]

    @accept_old_arguments(agreement="rerank_weight")
    def candidates(
        self,
        image_points: np.ndarray,
        beam: int = BEAM,
        length_norm: float = LENGTH_NORM,
        max_words: int = MAX_WORDS,
        encode_text: EncodeText | None = None,
        rerank_weight: float = RERANK_WEIGHT,
    ) -> list[list[tuple[str, float]]]:
        """The finished sentences of the beam and their scores, per row of `image_points`, the best first.

        The score is log p / length^length_norm. With `encode_text`, which maps sentences to the joint space,
        the sentences are re-ranked: `rerank_weight` times the cosine of sentence and image is added, so the
        joint space chooses the sentence that fits the image best. No sentence uses a content word twice.

        Parameters
        ----------
        image_points : array of shape (n_images, d)
            Points of the photos.
        beam : int
            The number of beginnings that the search keeps. 1 is the greedy search of the paper.
        length_norm : float
            Scores are log p / length^length_norm.
        max_words : int
            The longest sentence.
        encode_text : callable, optional
            Maps sentences to points; the model's `encode_text`. The joint space then chooses among the
            candidates.
        rerank_weight : float
            The weight of the cosine of sentence and photo.
        """
        image_points = np.atleast_2d(image_points)
        starts = self._make_starts(image_points)
        found: list[list[tuple[str, float]]] = []
        for first in range(0, len(starts), IMAGES_AT_ONCE):
            some = slice(first, first + IMAGES_AT_ONCE)
            hypotheses = search_beam(
                self.weights, starts[some], self._word_inputs, beam, max_words, length_norm, self._once
            )
            scored = [
                [(self.join_words(one.words), one.score(length_norm)) for one in few] for few in hypotheses
            ]
            if encode_text is not None:
                scored = _rerank(scored, image_points[some], encode_text, rerank_weight)
            found += scored
        return found

    def _make_starts(self, image_points: np.ndarray) -> np.ndarray:
        """The inputs (n, d) of the network for the points of images."""
        if self.image_map is not None:
            scale_points(image_points, len(self.image_map))  # refuses points of too few dimensions
            mapped = image_points[:, : len(self.image_map)] @ self.image_map
            image_points = mapped / np.maximum(np.linalg.norm(mapped, axis=1, keepdims=True), TINY)
        return scale_points(image_points, self.dimension)

    def join_words(self, rows: Sequence[int]) -> str:
        """The sentence of these words.

        Parameters
        ----------
        rows : sequence of int
            Rows of the vocabulary.
        """
        return " ".join(self.vocabulary.words[row] for row in rows)

    def save(self, folder: str | os.PathLike, half: bool = True) -> None:
        """Write `config.json` and a safetensors file, in half precision by default.

        Parameters
        ----------
        folder : path
            Where to write. The folder is created if it does not exist.
        half : bool
            Store floats in half precision.
        """
        precision = np.float16 if half else np.float32
        tensors = {"points": self.points, **self.weights.as_dict()}
        if self.image_map is not None:
            tensors["image_map"] = self.image_map
        config = CaptionerConfig(
            self.vocabulary.words,
            self.weights.units,
            self.dimension,
            self.model_key,
            self.confidence,
            0 if self.image_map is None else len(self.image_map),
        )
        save_folder(folder, KIND, config, {name: value.astype(precision) for name, value in tensors.items()})

    @classmethod
    def load(cls, folder: str | os.PathLike) -> Captioner:
        """Read a folder that `save` wrote.

        Parameters
        ----------
        folder : path
            A folder that `save` wrote.
        """
        config, tensors = load_folder(folder, KIND)
        words, units, dimension = config.words, config.units, config.dimension
        shapes = {
            "input_weights": (4 * units, dimension),
            "recurrent_weights": (4 * units, units),
            "gate_bias": (4 * units,),
            "output_weights": (len(words), units),
            "output_bias": (len(words),),
        }
        arrays = {
            name: require_tensor(tensors, name, shape, folder).astype(np.float32)
            for name, shape in shapes.items()
        }
        points = require_tensor(tensors, "points", (len(words), dimension), folder).astype(np.float32)
        image_map = None
        if config.mapped_dimension:
            shape = (config.mapped_dimension, dimension)
            image_map = require_tensor(tensors, "image_map", shape, folder).astype(np.float32)
        vocabulary = CaptionVocabulary(words)
        return cls(vocabulary, points, Weights(**arrays), config.model_key, config.confidence, image_map)


def scale_points(points: np.ndarray, dimension: int) -> np.ndarray:
    """The inputs of the network: the first `dimension` coordinates, times sqrt(dimension)."""
    if points.shape[1] < dimension:
        raise FishermixError(
            f"The captioner needs points of at least {dimension} dimensions, not {points.shape[1]}: "
            "it was trained in the joint space of another model."
        )
    return points[:, :dimension].astype(np.float32) * np.float32(np.sqrt(dimension))


def _rerank(
    scored: list[list[tuple[str, float]]], image_points: np.ndarray, encode_text: EncodeText, weight: float
) -> list[list[tuple[str, float]]]:
    """The sentences of each image, with `weight` times their cosine with it added, sorted again."""
    owner = np.repeat(np.arange(len(scored)), [len(few) for few in scored])
    points = encode_text([text for few in scored for text, _ in few])
    cosines = iter(np.einsum("nd,nd->n", points, image_points[owner]).tolist())
    summed = [[(text, score + weight * next(cosines)) for text, score in few] for few in scored]
    return [sorted(few, key=lambda one: (-one[1], one[0])) for few in summed]
