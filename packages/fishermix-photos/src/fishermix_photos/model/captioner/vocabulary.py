"""The vocabulary of a captioner, and the point of every word in the joint space.

The network reads a word as the point of a one-word sentence. A word without a word vector has no such point:
it gets a fixed stand-in, a random direction drawn from the hash of its letters. In a space of hundreds of
dimensions these directions are almost orthogonal to everything else, so the network can tell the word from
all others, but not what it resembles. Nothing about the stand-in is learned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
from fishermix.errors import FishermixError
from fishermix.text.tokens import tokenize

END = "ENDSENT"
IGNORED = -100  # a target that is not part of the loss; torch's own number
LONGEST = 40  # words of a training sentence that are read; almost all real ones are shorter


class CaptionVocabulary:
    """The words of the softmax; row 0 is `ENDSENT`, which ends a sentence."""

    def __init__(self, words: Sequence[str]):
        self.words = list(words)
        self.row = {word: row for row, word in enumerate(self.words)}
        if not self.words or self.words[0] != END or len(self.row) != len(self.words):
            raise FishermixError(
                f"The words of a captioner must differ, and the first must be {END}.", code="wrong_parameter"
            )

    @classmethod
    def from_sentences(cls, sentences: Iterable[Sequence[str]], min_count: int) -> CaptionVocabulary:
        """The words that occur at least `min_count` times, by frequency, then alphabetically."""
        counts = Counter(word for sentence in sentences for word in sentence)
        kept = [word for word, count in counts.items() if count >= min_count]
        if not kept:
            raise FishermixError(
                f"No word occurs {min_count} times in the training sentences. Lower the minimum count "
                "(--min-count).",
                code="too_few",
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
) -> np.ndarray:
    """The points (n, dimension) of `words`.

    `encode_text` gives one row per one-word sentence, zeros for a word out of its vocabulary. Only the first
    `dimension` coordinates, those with the strongest correlations, are used.
    """
    points = np.array(encode_text(list(words)), dtype=np.float32)[:, :dimension]
    for row in np.flatnonzero(~points.any(axis=1)).tolist():
        points[row] = draw_stand_in(words[row], points.shape[1])
    return points


@dataclass(frozen=True)
class CaptionSet:
    """Points of images (n, d) in the joint space, and the sentences that describe them.

    image_of (n_sentences,) is the row of the image of each sentence.
    """

    points: np.ndarray
    sentences: Sequence[str]
    image_of: np.ndarray

    def __post_init__(self) -> None:
        if len(self.image_of) != len(self.sentences):
            raise FishermixError("Every sentence needs the row of its image.", code="wrong_shape")
        if not len(self.sentences):
            raise FishermixError("There are no sentences to train on.", code="too_few")

    def references(self) -> list[list[str]]:
        """The sentences of each image."""
        found: list[list[str]] = [[] for _ in self.points]
        for image, sentence in zip(self.image_of, self.sentences):
            found[image].append(sentence)
        return found

    @cached_property
    def words(self) -> list[list[str]]:
        """The words of each sentence."""
        return [tokenize(sentence) for sentence in self.sentences]


@dataclass(frozen=True)
class Batch:
    """n sentences: rows of their images (n,), of the input words (T, n), of the target words (T + 1, n)."""

    images: np.ndarray
    inputs: np.ndarray
    targets: np.ndarray


class WordTable:
    """Every word of the training sentences as an input: first the vocabulary, then the words too rare for it.

    A rare word is never a target (it is not part of the loss and cannot be written), but as an input it has
    its own point, so that the words after it are learned in their real context.
    """

    def __init__(
        self,
        sentences: Sequence[Sequence[str]],
        vocabulary: CaptionVocabulary,
        encode_text: Callable[[list[str]], np.ndarray],
        dimension: int,
    ):
        rare = sorted({word for sentence in sentences for word in sentence if word not in vocabulary})
        words = [*vocabulary.words, *rare]
        points = encode_words(words[1:], encode_text, dimension)
        self.vocabulary = vocabulary
        self.row = {word: row for row, word in enumerate(words)}
        # ENDSENT is only ever a target.
        self.points = np.concatenate([np.zeros((1, points.shape[1]), np.float32), points])

    def make_batch(self, sentences: Sequence[Sequence[str]], images: np.ndarray) -> Batch:
        """Sentences as columns; the shorter ones are padded with ignored targets."""
        longest = min(LONGEST, max(map(len, sentences)))
        inputs = np.zeros((longest, len(sentences)), np.int64)
        targets = np.full((longest + 1, len(sentences)), IGNORED, np.int64)
        for column, sentence in enumerate(sentences):
            rows = [self.row.get(word, 0) for word in sentence[:longest]]
            inputs[: len(rows), column] = rows
            targets[: len(rows), column] = [
                row if 0 < row < len(self.vocabulary) else IGNORED for row in rows
            ]
            if len(rows) == len(sentence):
                targets[len(rows), column] = 0
        return Batch(np.asarray(images), inputs, targets)

    def make_batches(
        self, captions: CaptionSet, size: int, rng: np.random.Generator | None = None
    ) -> Iterator[Batch]:
        """All sentences once, in batches of about equal length; in random order if `rng` is given."""
        lengths = np.array([len(sentence) for sentence in captions.words])
        shuffle = np.arange(len(lengths)) if rng is None else rng.permutation(len(lengths))
        by_length = shuffle[np.argsort(lengths[shuffle], kind="stable")]
        starts = np.arange(0, len(by_length), size)
        if rng is not None:
            rng.shuffle(starts)
        for start in starts:
            rows = by_length[start : start + size]
            yield self.make_batch([captions.words[row] for row in rows], captions.image_of[rows])
