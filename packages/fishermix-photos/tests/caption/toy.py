"""A toy joint space in which every word has a direction and an image is the sum of its words."""

import numpy as np
from fishermix_photos.model.captioner.decoding import Weights
from fishermix_photos.model.captioner.vocabulary import CaptionSet

ANIMALS, PLACES = ("dog", "cat", "bird", "horse"), ("beach", "street", "park", "lake")
DIMENSION = 16
_directions = np.random.default_rng(7).standard_normal((50, DIMENSION)).astype(np.float32)
_rows = {word: row for row, word in enumerate((*ANIMALS, *PLACES, "runs", "on", "the", "sleeps", "at"))}


def encode_text(sentences: list[str]) -> np.ndarray:
    """Unit sums of the words' directions; zeros where no word is known ("a" is not)."""
    points = np.zeros((len(sentences), DIMENSION), np.float32)
    for row, sentence in enumerate(sentences):
        for word in sentence.split():
            if word in _rows:
                points[row] += _directions[_rows[word]]
    return points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)


def captions(n_images: int, seed: int = 0) -> CaptionSet:
    rng = np.random.default_rng(seed)
    scenes = [(rng.choice(ANIMALS), rng.choice(PLACES)) for _ in range(n_images)]
    points = encode_text([f"{animal} {place}" for animal, place in scenes])
    sentences = [
        text
        for animal, place in scenes
        for text in (f"A {animal} runs on the {place}.", f"A {animal} sleeps at the {place}")
    ]
    return CaptionSet(points, sentences, np.repeat(np.arange(n_images), 2))


def random_weights(
    dimension: int, units: int, n_words: int, seed: int = 0, sharpness: float = 1.0
) -> Weights:
    rng = np.random.default_rng(seed)

    def draw(*shape: int, size: float = 1.0) -> np.ndarray:
        return (size * rng.standard_normal(shape)).astype(np.float32)

    return Weights(
        input_weights=draw(4 * units, dimension, size=dimension**-0.5),
        recurrent_weights=draw(4 * units, units, size=units**-0.5),
        gate_bias=draw(4 * units),
        output_weights=draw(n_words, units, size=sharpness),
        output_bias=draw(n_words, size=sharpness),
    )
