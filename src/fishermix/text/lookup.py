"""Which word vectors the tokens of a sentence stand for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from fishermix.errors import FishermixError
from fishermix.text.tokens import parts, spellings, tokenize
from fishermix.text.vectors import WordVectors

MOST_REMEMBERED_TOKENS = 1_000_000


class WordLookup(dict[str, tuple[int, ...]]):
    """Rows of word vectors by token: as it is, in another spelling, or by the parts of a hyphenated word.

    `lookup[token]` is one row, several for a compound known by its parts, none for an unknown word.
    """

    def __init__(self, vectors: WordVectors, stop_words: Iterable[str] = ()):
        if isinstance(stop_words, str):
            raise FishermixError(
                f"stop_words is {stop_words!r}: give the words themselves, such as ['a', 'the'], in a list"
            )
        self.vectors = vectors
        self.stop_words = frozenset(stop_words)

    def __missing__(self, token: str) -> tuple[int, ...]:
        if len(self) >= MOST_REMEMBERED_TOKENS:
            self.clear()
        found = self[token] = self._looked_up(token)
        return found

    def _looked_up(self, token: str) -> tuple[int, ...]:
        for spelling in spellings(token):
            row = self.vectors.row(spelling)
            if row >= 0:
                return (row,)
        return tuple(row for part in parts(token) if part not in self.stop_words for row in self[part])

    def tokens(self, sentence: str | Sequence[str]) -> list[str]:
        """The tokens of a string, or of a sentence cut already, without the stop words."""
        tokens = tokenize(sentence) if isinstance(sentence, str) else _cut_already(sentence)
        return [token for token in tokens if token not in self.stop_words] if self.stop_words else tokens

    def bags(self, sentences: Iterable[str | Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
        """The rows of all sentences, one after the other, and where each sentence begins (n + 1,); int64."""
        rows: list[int] = []
        offsets = [0]
        rows_of = self.__getitem__
        for sentence in sentences:
            rows.extend(chain.from_iterable(map(rows_of, self.tokens(sentence))))
            offsets.append(len(rows))
        return np.array(rows, np.int64), np.array(offsets, np.int64)


def _cut_already(sentence: Sequence[str]) -> list[str]:
    if isinstance(sentence, Iterable) and not isinstance(sentence, bytes):
        tokens = list(sentence)
        if all(isinstance(token, str) for token in tokens):
            return tokens
    raise FishermixError(f"a sentence is a string or a list of words, not {sentence!r:.60}")
