"""`Captioner`: writes a new sentence for a point of the joint space; needs no torch."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from fishermix.caption.decoding import Hypothesis, Weights, beam_search, greedy
from fishermix.caption.dictionary import Dictionary
from fishermix.errors import FishermixError
from fishermix.storage import load_folder, require_tensor, save_folder

KIND = "captioner"
VERSION = 1
MAX_WORDS = 24
LENGTH_NORM = 0.7


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
        beam: int = 3,
        length_norm: float = LENGTH_NORM,
        max_words: int = MAX_WORDS,
    ) -> list[str]:
        """One sentence per row of `image_points` (n, at least d); `beam=1` is the paper's greedy choice."""
        starts = network_inputs(np.atleast_2d(image_points), self.dimension)
        if beam == 1:
            return [self.text(words) for words in greedy(self.weights, starts, self._word_inputs, max_words)]
        return [found[0][0] for found in self.candidates(image_points, beam, length_norm, max_words)]

    def candidates(
        self,
        image_points: np.ndarray,
        beam: int = 3,
        length_norm: float = LENGTH_NORM,
        max_words: int = MAX_WORDS,
    ) -> list[list[tuple[str, float]]]:
        """Per row of `image_points`, the beam's finished sentences and their scores, the best first."""
        starts = network_inputs(np.atleast_2d(image_points), self.dimension)
        found = beam_search(self.weights, starts, self._word_inputs, beam, max_words, length_norm)
        return [[self._scored(one, length_norm) for one in hypotheses] for hypotheses in found]

    def _scored(self, hypothesis: Hypothesis, length_norm: float) -> tuple[str, float]:
        return self.text(hypothesis.words), hypothesis.score(length_norm)

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
