"""Sentences to vectors: the mean of the words, or Fisher vectors of one or more mixtures side by side.

Before normalisation a Fisher vector is a sum over the words, and a word belongs to a few components only. So
each word's blocks are built once, when it is first seen, and a sentence is the sum of its words' blocks.
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, TransformerMixin

from fishermix.errors import FishermixError
from fishermix.fisher import FisherEncoder
from fishermix.text.lexicon import Lexicon
from fishermix.text.vectors import WordVectors
from fishermix.text.word_blocks import WordBlocks

ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class UnknownWords:
    """What `SentenceEncoder.unknown` found.

    tokens: how many there are, stop words apart. words: those without a vector, with their counts, the most
    frequent first. empty: the positions of the sentences in which no word is known.
    """

    tokens: int
    words: dict[str, int]
    empty: list[int]

    @property
    def share_known(self) -> float:
        return 1 - sum(self.words.values()) / self.tokens if self.tokens else 0.0


class SentenceEncoder(TransformerMixin, BaseEstimator):
    """Sentences in, (n, n_features) float32 out; `transform` needs no `fit`.

    vectors: the `WordVectors`. whitening: a fitted `Whitening`, or None. mixtures: fitted mixtures, whose
    Fisher vectors stand side by side, each of them normalised by `power` and `norm`; without one it is the
    mean of the (whitened) word vectors, which `power` and `norm` leave alone. stop_words: tokens left out.

    A sentence is a string, which `tokenize` cuts, or a list of tokens. A token without a vector is looked up
    in other spellings (`tokens.spellings`), then, if hyphenated, by its parts, then left out. A sentence
    without a known word gives zeros and one warning; `unknown` lists them all.

    >>> encoder = SentenceEncoder(WordVectors(["dog", "cat"], [[1, 0], [0, 1]]))
    >>> encoder.transform(["A dog!", "dog, cat"]).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """

    def __init__(
        self,
        vectors: WordVectors,
        whitening: Any = None,
        mixtures: Sequence[Any] = (),
        power: float = 0.5,
        norm: str | None = "l2",
        stop_words: Iterable[str] = (),
    ):
        self.vectors = vectors
        self.whitening = whitening
        self.mixtures = mixtures
        self.power = power
        self.norm = norm
        self.stop_words = stop_words

    def fit(self, X=None, y=None) -> SentenceEncoder:
        """Nothing to learn: vectors, whitening and mixtures come fitted."""
        return self

    @property
    def n_features(self) -> int:
        if not self.mixtures:
            return self.vectors.dimension
        return sum(2 * mixture.locations_.size for mixture in self.mixtures)

    def transform(self, X: Sequence[str | Sequence[str]]) -> np.ndarray:
        """Sentence vectors (n, n_features) float32."""
        if isinstance(X, str):
            raise FishermixError("transform takes a list of sentences, not one string")
        out = np.zeros((len(X), self.n_features), np.float32)
        cuts = [slice(start, start + ROWS_AT_ONCE) for start in range(0, len(X), ROWS_AT_ONCE)]
        empty = self._memory.encode([X[cut] for cut in cuts], [out[cut] for cut in cuts])
        _warn_of_empty(empty, len(X))
        return out

    def blocks(self, sentences: Iterable[str | Sequence[str]], rows: int = 2048) -> Iterator[np.ndarray]:
        """The rows of `transform(sentences)` in blocks of `rows`, one in memory at a time."""
        empty, seen, remaining = 0, 0, iter(sentences)
        while block := list(islice(remaining, rows)):
            out = np.zeros((len(block), self.n_features), np.float32)
            empty += self._memory.encode([block], [out])
            seen += len(block)
            yield out
        _warn_of_empty(empty, seen)

    def unknown(self, sentences: Iterable[str | Sequence[str]]) -> UnknownWords:
        """Count the tokens, the words without a vector, and the sentences without a known word."""
        lexicon = self._memory.lexicon
        tokens = 0
        words: Counter[str] = Counter()
        empty = []
        for position, sentence in enumerate(sentences):
            found = lexicon.tokens(sentence)
            missing = [token for token in found if not lexicon.rows(token)]
            tokens += len(found)
            words.update(missing)
            if len(missing) == len(found):
                empty.append(position)
        return UnknownWords(tokens, dict(words.most_common()), empty)

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """mean_d; or, of mixture i, mixture_i_location_k_d for all k and d and then mixture_i_scale_k_d."""
        if not self.mixtures:
            return np.array([f"mean_{d}" for d in range(self.vectors.dimension)], dtype=object)
        names = [FisherEncoder(mixture).get_feature_names_out() for mixture in self.mixtures]
        return np.array([f"mixture_{i}_{name}" for i, of in enumerate(names) for name in of], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self.__dict__.pop("_derived", None)

    def __getstate__(self):
        return {name: value for name, value in super().__getstate__().items() if name != "_derived"}

    @property
    def _memory(self) -> _Memory:
        memory = self.__dict__.get("_derived")
        if memory is None:
            memory = self.__dict__["_derived"] = _Memory(self)
        return memory


class _Memory:
    """What is derived from the parameters of an encoder and grows with the words it has seen."""

    def __init__(self, encoder: SentenceEncoder):
        if len(encoder.mixtures) and encoder.vectors.dimension != encoder.mixtures[0].locations_.shape[1]:
            raise FishermixError(
                f"word vectors of {encoder.vectors.dimension} dimensions do not fit a mixture of "
                f"{encoder.mixtures[0].locations_.shape[1]}"
            )
        self.whitening, self.vectors = encoder.whitening, encoder.vectors.vectors
        self.lexicon = Lexicon(encoder.vectors, encoder.stop_words)
        self.tables = [
            WordBlocks(
                FisherEncoder(mixture, encoder.power, encoder.norm), len(self.vectors), self.word_vectors
            )
            for mixture in encoder.mixtures
        ]
        self.lock = threading.Lock()  # a server encodes in several threads; the tables are shared

    def word_vectors(self, rows: np.ndarray) -> np.ndarray:
        """The whitened vectors (m, D) float32 of these rows."""
        found = np.asarray(self.vectors[rows], dtype=np.float32)
        return found if self.whitening is None or not len(found) else self.whitening.transform(found)

    def encode(self, pieces: Sequence[Sequence[str | Sequence[str]]], outs: Sequence[np.ndarray]) -> int:
        """Write the vectors of pieces of a corpus into as many zeros; returns how many have no known word."""
        empty = 0
        with self.lock, ThreadPoolExecutor(1) as ahead:
            # The words of a piece are looked up while the piece before is summed, which needs no Python.
            apply = ahead.map if len(pieces) > 1 else map
            for (rows, offsets), out in zip(apply(self.lexicon.bags, pieces), outs):
                self._encode_bags(rows, offsets, out)
                empty += int((np.diff(offsets) == 0).sum())
        return empty

    def _encode_bags(self, rows: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
        start = 0
        for table in self.tables:
            table.encode(rows, offsets, out, start)
            start += table.n_features
        if not self.tables and len(rows):
            sizes = np.diff(offsets)
            words, positions = np.unique(rows, return_inverse=True)
            share = np.repeat(1 / np.maximum(sizes, 1), sizes).astype(np.float32)
            out[...] = csr_array((share, positions, offsets)) @ self.word_vectors(words)


def _warn_of_empty(empty: int, n: int) -> None:
    if empty:
        warnings.warn(f"{empty} of {n} sentences hold no known word: their vectors are 0", stacklevel=3)
