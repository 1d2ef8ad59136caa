"""`Captioner` writes a new sentence for a point of the joint space. It needs numpy only."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from fishermix.aliases import accept_old_arguments
from fishermix.caption.decoding import Weights, search_beam, search_greedily
from fishermix.caption.vocabulary import CaptionVocabulary
from fishermix.errors import FishermixError
from fishermix.schemas import Name, Size, Struct, Text
from fishermix.storage import FolderKind, load_folder, require_tensor, save_folder

MAX_WORDS = 24  # longer than almost all captions of people
# Chosen on the dev split of Flickr8K.
BEAM = 8
LENGTH_NORM = 0.7
RERANK_WEIGHT = 8.0
IMAGES_AT_ONCE = 256  # bounds the memory of the beam: 256 x beam x vocabulary log probabilities
EncodeText = Callable[[list[str]], np.ndarray]


class CaptionerConfig(Struct):
    """`config.json` of a captioner; the first word ends a sentence."""

    words: list[Name]
    units: Size
    dimension: Size
    model_key: Text = ""


KIND = FolderKind("captioner", 1, CaptionerConfig)


class Captioner:
    """One LSTM layer on the joint space and a softmax over a vocabulary.

    The input of step 0 is the point of the image, that of step t the point of word t - 1. Both are scaled in
    the same way: the first d coordinates of the unit row, times the constant sqrt(d), which makes each
    coordinate about one in size.

    Parameters
    ----------
    vocabulary : the V words that it can write
    points : (V, d) the points of the words, as in training
    weights : the network
    model_key : the key of the `ImageTextModel` in whose joint space it was trained ("" if unknown)
    """

    @accept_old_arguments(dictionary="vocabulary")
    def __init__(
        self, vocabulary: CaptionVocabulary, points: np.ndarray, weights: Weights, model_key: str = ""
    ):
        if points.shape != (len(vocabulary), weights.dimension):
            raise FishermixError(
                f"points must have the shape {(len(vocabulary), weights.dimension)} (words, dimensions), "
                f"not {points.shape}."
            )
        self.vocabulary, self.weights, self.model_key = vocabulary, weights, model_key
        self.points = points
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
    ) -> list[str]:
        """One sentence per row of `image_points` (n, at least d); `beam=1` is the paper's greedy search.

        With the model's `encode_text`, the sentences of the beam are re-ranked; see `candidates`.
        """
        if beam == 1:
            starts = scale_points(np.atleast_2d(image_points), self.dimension)
            found_words = search_greedily(self.weights, starts, self._word_inputs, max_words)
            return [self.join_words(words) for words in found_words]
        found = self.candidates(image_points, beam, length_norm, max_words, encode_text, rerank_weight)
        return [scored[0][0] for scored in found]

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
        joint space chooses the sentence that fits the image best.
        """
        image_points = np.atleast_2d(image_points)
        starts = scale_points(image_points, self.dimension)
        found: list[list[tuple[str, float]]] = []
        for first in range(0, len(starts), IMAGES_AT_ONCE):
            some = slice(first, first + IMAGES_AT_ONCE)
            hypotheses = search_beam(
                self.weights, starts[some], self._word_inputs, beam, max_words, length_norm
            )
            scored = [
                [(self.join_words(one.words), one.score(length_norm)) for one in few] for few in hypotheses
            ]
            if encode_text is not None:
                scored = _rerank(scored, image_points[some], encode_text, rerank_weight)
            found += scored
        return found

    def join_words(self, rows: Sequence[int]) -> str:
        return " ".join(self.vocabulary.words[row] for row in rows)

    def save(self, folder: str | os.PathLike, half: bool = True) -> None:
        """Write `config.json` and a safetensors file, in half precision by default."""
        precision = np.float16 if half else np.float32
        tensors = {"points": self.points, **self.weights.as_dict()}
        config = CaptionerConfig(self.vocabulary.words, self.weights.units, self.dimension, self.model_key)
        save_folder(folder, KIND, config, {name: value.astype(precision) for name, value in tensors.items()})

    @classmethod
    def load(cls, folder: str | os.PathLike) -> Captioner:
        """Read a folder that `save` wrote."""
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
        return cls(CaptionVocabulary(words), points, Weights(**arrays), config.model_key)


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
