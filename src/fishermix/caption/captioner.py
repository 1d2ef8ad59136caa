"""`Captioner`: writes a new sentence for a point of the joint space; needs no torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from fishermix.caption.decoding import Weights, beam_search, greedy
from fishermix.caption.vocabulary import Dictionary
from fishermix.errors import FishermixError
from fishermix.storage import load_folder, require_tensor, save_folder

KIND = "captioner"
VERSION = 1
MAX_WORDS = 24
# Chosen on the dev part of Flickr8K.
BEAM = 8
LENGTH_NORM = 0.7
AGREEMENT = 8.0
STARTS_AT_ONCE = 256
EncodeText = Callable[[list[str]], np.ndarray]


class Captioner:
    """One LSTM layer on the joint space and a softmax over a dictionary.

    Step 0 takes the image's point, step t the point of word t - 1. Both enter the same way: the first d
    coordinates of the unit row, times the constant sqrt(d), which gives each coordinate a size of about
    one.

    Parameters
    ----------
    dictionary : the V words that it can write
    points : (V, d) the word points as the network was trained on them
    weights : the network
    model_key : the key of the `ImageTextModel` whose joint space it speaks ("" when unknown)
    """

    def __init__(self, dictionary: Dictionary, points: np.ndarray, weights: Weights, model_key: str = ""):
        if points.shape != (len(dictionary), weights.dimension):
            raise FishermixError(
                f"{len(dictionary)} words and {weights.dimension} dimensions need as many points, "
                f"not an array of {points.shape}"
            )
        self.dictionary, self.weights, self.model_key = dictionary, weights, model_key
        self.points = points
        self._word_inputs = network_inputs(points, weights.dimension)

    @property
    def dimension(self) -> int:
        """d: how many leading coordinates of the joint space it reads."""
        return self.weights.dimension

    def caption(
        self,
        image_points: np.ndarray,
        beam: int = BEAM,
        length_norm: float = LENGTH_NORM,
        max_words: int = MAX_WORDS,
        encode_text: EncodeText | None = None,
        agreement: float = AGREEMENT,
    ) -> list[str]:
        """One sentence per row of `image_points` (n, at least d); `beam=1` is the paper's greedy choice.

        With the model's `encode_text`, the beam's sentences are compared with the image; see `candidates`.
        """
        if beam == 1:
            starts = network_inputs(np.atleast_2d(image_points), self.dimension)
            return [self.text(words) for words in greedy(self.weights, starts, self._word_inputs, max_words)]
        found = self.candidates(image_points, beam, length_norm, max_words, encode_text, agreement)
        return [scored[0][0] for scored in found]

    def candidates(
        self,
        image_points: np.ndarray,
        beam: int = BEAM,
        length_norm: float = LENGTH_NORM,
        max_words: int = MAX_WORDS,
        encode_text: EncodeText | None = None,
        agreement: float = AGREEMENT,
    ) -> list[list[tuple[str, float]]]:
        """Per row of `image_points`, the beam's finished sentences and their scores, the best first.

        The score is log p / length^length_norm. If `encode_text` is given, which sends sentences to the joint
        space, `agreement` times the cosine of sentence and image is added: the same space that feeds the
        network also says which of its sentences fits the image best.
        """
        image_points = np.atleast_2d(image_points)
        starts = network_inputs(image_points, self.dimension)
        found: list[list[tuple[str, float]]] = []
        for first in range(0, len(starts), STARTS_AT_ONCE):
            block = slice(first, first + STARTS_AT_ONCE)
            hypotheses = beam_search(
                self.weights, starts[block], self._word_inputs, beam, max_words, length_norm
            )
            scored = [[(self.text(one.words), one.score(length_norm)) for one in few] for few in hypotheses]
            if encode_text is not None:
                scored = _agreeing(scored, image_points[block], encode_text, agreement)
            found += scored
        return found

    def text(self, rows: Sequence[int]) -> str:
        return " ".join(self.dictionary.words[row] for row in rows)

    def save(self, folder: str | os.PathLike, half: bool = True) -> None:
        """Write `config.json` and a safetensors file, in half precision unless told otherwise."""
        precision = np.float16 if half else np.float32
        tensors = {"points": self.points, **self.weights.as_dict()}
        config = {"words": self.dictionary.words, "units": self.weights.units, "dimension": self.dimension}
        save_folder(
            folder,
            KIND,
            VERSION,
            {**config, "model_key": self.model_key},
            {name: value.astype(precision) for name, value in tensors.items()},
        )

    @classmethod
    def load(cls, folder: str | os.PathLike) -> Captioner:
        config, tensors = load_folder(folder, KIND, VERSION)
        words, units, dimension = config.get("words"), config.get("units"), config.get("dimension")
        if not isinstance(words, list) or not isinstance(units, int) or not isinstance(dimension, int):
            raise FishermixError(f"{folder}: config.json lacks words, units or dimension")
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
        return cls(Dictionary(words), points, Weights(**arrays), str(config.get("model_key", "")))


def network_inputs(points: np.ndarray, dimension: int) -> np.ndarray:
    """The network's fixed input map: the first `dimension` coordinates, times sqrt(dimension)."""
    if points.shape[1] < dimension:
        raise FishermixError(
            f"points of {points.shape[1]} dimensions do not fit a captioner of {dimension}: "
            "it was trained on another model's joint space"
        )
    return points[:, :dimension].astype(np.float32) * np.float32(np.sqrt(dimension))


def _agreeing(
    scored: list[list[tuple[str, float]]], image_points: np.ndarray, encode_text: EncodeText, agreement: float
) -> list[list[tuple[str, float]]]:
    """Each image's sentences with `agreement` times their cosine with it added, the best first again."""
    owner = np.repeat(np.arange(len(scored)), [len(few) for few in scored])
    points = encode_text([text for few in scored for text, _ in few])
    cosines = iter(np.einsum("nd,nd->n", points, image_points[owner]).tolist())
    summed = [[(text, score + agreement * next(cosines)) for text, score in few] for few in scored]
    return [sorted(few, key=lambda one: (-one[1], one[0])) for few in summed]
