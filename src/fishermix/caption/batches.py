"""Training sentences and their images as batches of sentences of about equal length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fishermix.caption.vocabulary import CaptionVocabulary, encode_words
from fishermix.errors import FishermixError
from fishermix.text.tokens import tokenize

IGNORED = -100  # a target that is not part of the loss; torch's own number
LONGEST = 40  # words of a training sentence that are read; almost all real ones are shorter


@dataclass(frozen=True)
class CaptionSet:
    """Points of images (n, d) in the joint space, and the sentences that describe them.

    image_of (n_sentences,) is the row of the image of each sentence.

    Parameters
    ----------
    points : array of shape (m, d)
        Points of the photos.
    sentences : sequence of str
        The sentences.
    image_of : array of shape (n_sentences,)
        The row of the photo that each sentence describes.
    """

    points: np.ndarray
    sentences: Sequence[str]
    image_of: np.ndarray

    def __post_init__(self) -> None:
        if len(self.image_of) != len(self.sentences):
            raise FishermixError("Every sentence needs the row of its image.")
        if not len(self.sentences):
            raise FishermixError("There are no sentences to train on.")

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
        self, vocabulary: CaptionVocabulary, points: np.ndarray, known: np.ndarray, words: Sequence[str]
    ):
        self.vocabulary, self.points, self.known = vocabulary, points, known
        self.row = {word: row for row, word in enumerate(words)}

    @classmethod
    def from_sentences(
        cls,
        sentences: Sequence[Sequence[str]],
        vocabulary: CaptionVocabulary,
        encode_text: Callable[[list[str]], np.ndarray],
        dimension: int,
    ) -> WordTable:
        rare = sorted({word for sentence in sentences for word in sentence if word not in vocabulary})
        words = [*vocabulary.words, *rare]
        points, known = encode_words(words[1:], encode_text, dimension)
        # ENDSENT is only ever a target.
        points = np.concatenate([np.zeros((1, points.shape[1]), np.float32), points])
        return cls(vocabulary, points, np.concatenate([[False], known]), words)

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
