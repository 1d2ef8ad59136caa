"""The words a captioner can write, and the point of every word in the joint space.

A word enters the network as the point of a one-word sentence. A word that was never given a vector has no
such point: it gets a fixed stand-in, a random direction drawn from the hash of its letters. In a space of
hundreds of dimensions these directions are almost orthogonal to everything else, so that the network can
tell the word from all others, though not what it resembles. Nothing about it is learned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

import numpy as np

from fishermix.errors import FishermixError

END = "ENDSENT"


class Dictionary:
    """The words of the softmax; row 0 is `ENDSENT`, which closes a sentence."""

    def __init__(self, words: Sequence[str]):
        self.words = list(words)
        self.row = {word: row for row, word in enumerate(self.words)}
        if not self.words or self.words[0] != END or len(self.row) != len(self.words):
            raise FishermixError(f"a dictionary holds different words, the first of which is {END}")

    @classmethod
    def of(cls, sentences: Iterable[Sequence[str]], min_count: int) -> Dictionary:
        """The words that occur `min_count` times or more, the most frequent first, ties in ABC order."""
        counts = Counter(word for sentence in sentences for word in sentence)
        kept = [word for word, count in counts.items() if count >= min_count]
        if not kept:
            raise FishermixError(
                f"no word occurs {min_count} times in the training sentences: lower the minimum count"
            )
        return cls([END, *sorted(kept, key=lambda word: (-counts[word], word))])

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.row


def stand_in(word: str, dimension: int) -> np.ndarray:
    """The fixed unit vector (dimension,) of a word without a vector, the same on every machine."""
    seed = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")
    direction = np.random.Generator(np.random.PCG64(seed)).standard_normal(dimension)
    return (direction / np.linalg.norm(direction)).astype(np.float32)


def word_points(
    words: Sequence[str], encode_text: Callable[[list[str]], np.ndarray], dimension: int
) -> tuple[np.ndarray, np.ndarray]:
    """The points (n, dimension) of `words`, and which of them (n,) bool have a vector of their own.

    `encode_text` gives one row per one-word sentence, a row of zeros for a word it does not know. Only the
    first `dimension` coordinates, those of the strongest correlations, are kept.
    """
    points = np.array(encode_text(list(words)), dtype=np.float32)[:, :dimension]
    known = np.asarray(points.any(axis=1))
    for row in np.flatnonzero(~known).tolist():
        points[row] = stand_in(words[row], points.shape[1])
    return points, known
