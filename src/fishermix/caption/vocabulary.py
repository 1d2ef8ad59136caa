"""The vocabulary of a captioner, and the point of every word in the joint space.

The network reads a word as the point of a one-word sentence. A word without a word vector has no such point:
it gets a fixed stand-in, a random direction drawn from the hash of its letters. In a space of hundreds of
dimensions these directions are almost orthogonal to everything else, so the network can tell the word from
all others, but not what it resembles. Nothing about the stand-in is learned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

import numpy as np

from fishermix.errors import FishermixError

END = "ENDSENT"


class CaptionVocabulary:
    """The words of the softmax; row 0 is `ENDSENT`, which ends a sentence."""

    def __init__(self, words: Sequence[str]):
        self.words = list(words)
        self.row = {word: row for row, word in enumerate(self.words)}
        if not self.words or self.words[0] != END or len(self.row) != len(self.words):
            raise FishermixError(f"The words of a captioner must differ, and the first must be {END}.")

    @classmethod
    def from_sentences(cls, sentences: Iterable[Sequence[str]], min_count: int) -> CaptionVocabulary:
        """The words that occur at least `min_count` times, by frequency, then alphabetically."""
        counts = Counter(word for sentence in sentences for word in sentence)
        kept = [word for word, count in counts.items() if count >= min_count]
        if not kept:
            raise FishermixError(
                f"No word occurs {min_count} times in the training sentences. Lower the minimum count "
                "(--min-count)."
            )
        return cls([END, *sorted(kept, key=lambda word: (-counts[word], word))])

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.row


def draw_stand_in(word: str, dimension: int) -> np.ndarray:
    """The fixed unit vector (dimension,) of a word without a word vector, the same on every machine."""
    seed = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")
    direction = np.random.Generator(np.random.PCG64(seed)).standard_normal(dimension)
    return (direction / np.linalg.norm(direction)).astype(np.float32)


def encode_words(
    words: Sequence[str], encode_text: Callable[[list[str]], np.ndarray], dimension: int
) -> tuple[np.ndarray, np.ndarray]:
    """The points (n, dimension) of `words`, and a bool (n,) per word: whether it has a word vector.

    `encode_text` gives one row per one-word sentence, zeros for a word out of its vocabulary. Only the first
    `dimension` coordinates, those with the strongest correlations, are used.
    """
    points = np.array(encode_text(list(words)), dtype=np.float32)[:, :dimension]
    known = np.asarray(points.any(axis=1))
    for row in np.flatnonzero(~known).tolist():
        points[row] = draw_stand_in(words[row], points.shape[1])
    return points, known
