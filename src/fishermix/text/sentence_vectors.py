"""Sentence vectors as sums over their words, remembered word by word.

Before normalisation a Fisher vector is a sum over the words, and a word belongs to a few components only. So
each word's blocks are built once, when it is first seen, and a sentence is the sum of its words' blocks.
Light to import: a search encodes its sentence without scikit-learn and a compiler.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from fishermix.errors import FishermixError, FishermixWarning
from fishermix.mixture.parameters import MixtureParameters
from fishermix.text.lookup import WordLookup
from fishermix.text.vectors import WordVectors
from fishermix.text.word_blocks import WordBlocks

Sentence = str | Sequence[str]


class SentenceSums:
    """What is derived from the parameters of a `SentenceEncoder` and grows with the words it has seen."""

    def __init__(
        self,
        vectors: WordVectors,
        whitening: Any,
        mixtures: Sequence[MixtureParameters],
        power: float,
        norm: str | None,
        stop_words: Iterable[str],
    ):
        if not isinstance(vectors, WordVectors):
            raise FishermixError(f"vectors is a {type(vectors).__name__}, not WordVectors")
        _check_mixtures(mixtures, vectors.dimension)
        self.whitening, self.vectors = whitening, vectors.vectors
        self.lookup = WordLookup(vectors, stop_words)
        self.tables = [
            WordBlocks(mixture, power, norm, len(self.vectors), self.word_vectors) for mixture in mixtures
        ]
        self.n_features = sum(table.n_features for table in self.tables) or vectors.dimension
        self.lock = threading.Lock()  # a server encodes in several threads; the tables are shared

    def word_vectors(self, rows: np.ndarray) -> np.ndarray:
        """The whitened vectors (m, D) float32 of these rows."""
        found = np.asarray(self.vectors[rows], dtype=np.float32)
        return found if self.whitening is None or not len(found) else self.whitening.transform(found)

    def blocks(self, sentences: Iterable[Sentence], rows: int = 2048) -> Iterator[np.ndarray]:
        """The vectors of sentences in blocks of `rows`; then one warning of those without known words."""
        empty, seen, remaining = 0, 0, iter(sentences)
        while block := list(islice(remaining, rows)):
            out, without = self.encode(block)
            empty, seen = empty + without, seen + len(block)
            yield out
        warn_of_empty(empty, seen)

    def encode(self, sentences: Sequence[Sentence]) -> tuple[np.ndarray, int]:
        """The vectors (n, n_features) of sentences, and how many have no known word."""
        out = np.empty((len(sentences), self.n_features), np.float32)
        clearing = threading.Thread(
            target=out.fill, args=(0,)
        )  # the system takes its time to hand out memory
        clearing.start()
        with self.lock:
            rows, offsets = self.lookup.bags(sentences)
            clearing.join()
            self._encode_bags(rows, offsets, out)
        return out, int((np.diff(offsets) == 0).sum())

    def _encode_bags(self, rows: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
        start = 0
        for table in self.tables:
            table.encode(rows, offsets, out, start)
            start += table.n_features
        if not self.tables and len(rows):
            from scipy.sparse import csr_array

            sizes = np.diff(offsets)
            words, positions = np.unique(rows, return_inverse=True)
            share = np.repeat(1 / np.maximum(sizes, 1), sizes).astype(np.float32)
            out[...] = csr_array((share, positions, offsets)) @ self.word_vectors(words)


def _check_mixtures(mixtures: Sequence[Any], dimension: int) -> None:
    if not isinstance(mixtures, Iterable):
        raise FishermixError(f"mixtures is a {type(mixtures).__name__}: give a list, such as [mixture]")
    for number, mixture in enumerate(mixtures):
        if not isinstance(mixture, MixtureParameters):
            kind = type(mixture)
            raise FishermixError(
                f"mixtures[{number}], a {kind.__module__}.{kind.__qualname__}, is not a fitted mixture of "
                "fishermix: call its fit, or load one"
            )
        if (found := mixture.locations.shape[1]) != dimension:
            raise FishermixError(f"word vectors of {dimension} dimensions do not fit a mixture of {found}")


def warn_of_empty(empty: int, n: int) -> None:
    if empty:
        message = f"{empty} of {n} sentences hold no known word: their vectors are 0"
        warnings.warn(message, FishermixWarning, stacklevel=3)
