"""Sentences to vectors: the mean of the words, or Fisher vectors of one or more mixtures side by side."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone

from fishermix.errors import FishermixError
from fishermix.fisher.encoder import FisherEncoder
from fishermix.text.lookup import WordLookup
from fishermix.text.sentence_vectors import SentenceSums, warn_of_empty
from fishermix.text.vectors import WordVectors


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
    A clone shares all of these with its original, fitted as they are.

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

    def set_params(self, **params) -> SentenceEncoder:
        """As always, but parameters of the fitted whitening cannot be set: nobody would refit it."""
        if nested := [name for name in params if name.startswith("whitening__")]:
            raise FishermixError(f"{nested[0]}: the whitening comes fitted; set whitening= to another one")
        return super().set_params(**params)

    @property
    def n_features(self) -> int:
        return self._memory.n_features

    def transform(self, X: Sequence[str | Sequence[str]]) -> np.ndarray:
        """Sentence vectors (n, n_features) float32."""
        if isinstance(X, str | bytes) or not isinstance(X, Iterable):
            raise FishermixError(f"transform takes a list of sentences, not {X!r:.60}")
        X = X if isinstance(X, Sized) else list(X)
        out, empty = self._memory.encode(X)
        warn_of_empty(empty, len(X))
        return out

    def blocks(self, sentences: Iterable[str | Sequence[str]], rows: int = 2048) -> Iterator[np.ndarray]:
        """The rows of `transform(sentences)` in blocks of `rows`, one in memory at a time."""
        return self._memory.blocks(sentences, rows)

    def unknown(self, sentences: Iterable[str | Sequence[str]]) -> UnknownWords:
        """Count the tokens, the words without a vector, and the sentences without a known word."""
        lookup = self.lookup
        tokens = 0
        words: Counter[str] = Counter()
        empty = []
        for position, sentence in enumerate(sentences):
            found = lookup.tokens(sentence)
            missing = [token for token in found if not lookup[token]]
            tokens += len(found)
            words.update(missing)
            if len(missing) == len(found):
                empty.append(position)
        return UnknownWords(tokens, dict(words.most_common()), empty)

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """mean_d; or, of mixture i, mixture_i_location_k_d for all k and d and then mixture_i_scale_k_d."""
        if not self._memory.tables:
            return np.array([f"mean_{d}" for d in range(self.vectors.dimension)], dtype=object)
        names = [FisherEncoder(mixture).get_feature_names_out() for mixture in self.mixtures]
        return np.array([f"mixture_{i}_{name}" for i, of in enumerate(names) for name in of], dtype=object)

    def with_words_of(self, sentences: Iterable[str | Sequence[str]], n_words: int = 0) -> SentenceEncoder:
        """An encoder that does the same to these sentences and holds the vectors of their words, stop words
        among them, and so many of the first others that there are `n_words`."""
        used = np.unique(WordLookup(self.vectors).bags(sentences)[0])
        others = np.setdiff1d(np.arange(len(self.vectors)), used)
        kept = np.sort(np.concatenate([used, others[: max(0, n_words - len(used))]]))
        return clone(self).set_params(vectors=self.vectors[kept])

    def __sklearn_clone__(self) -> SentenceEncoder:
        # It has no fit of its own to forget, and scikit-learn's clone would forget those of its parts.
        return copy.copy(self)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self.__dict__.pop("_derived", None)

    def __getstate__(self):
        return {name: value for name, value in super().__getstate__().items() if name != "_derived"}

    @property
    def lookup(self) -> WordLookup:
        """Which vectors the tokens of a sentence stand for."""
        return self._memory.lookup

    @property
    def _memory(self) -> SentenceSums:
        memory = self.__dict__.get("_derived")
        if memory is None:
            memory = self.__dict__["_derived"] = SentenceSums(
                self.vectors,
                self.whitening,
                parameters_of(self.mixtures),
                self.power,
                self.norm,
                self.stop_words,
            )
        return memory


def parameters_of(mixtures: Any) -> Any:
    """The parameters of fitted mixtures; what is not one stays as it is, to be named by whoever checks it."""
    if not isinstance(mixtures, Iterable):
        return mixtures
    return [mixture.parameters_ if hasattr(mixture, "locations_") else mixture for mixture in mixtures]
