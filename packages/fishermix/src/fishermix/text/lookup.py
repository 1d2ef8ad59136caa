"""`WordLookup` finds the tokens of sentences in a vocabulary, also in other spellings and by their parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np

from fishermix.errors import FishermixError
from fishermix.text.tokens import Sentence, spellings, tokenize
from fishermix.text.vocabulary import Vocabulary

MOST_REMEMBERED_TOKENS = 1_000_000  # about 200 MB; then the lookup forgets them all


@dataclass(frozen=True)
class WordBags:
    """What `WordLookup.find` found in n sentences.

    rows: rows of the vocabulary, int64; sentence s has rows[offsets[s]:offsets[s + 1]].
    tokens: the tokens of each sentence, without stop words. lookup: what found them.
    """

    rows: np.ndarray
    offsets: np.ndarray
    tokens: list[list[str]]
    lookup: WordLookup

    @property
    def out_of_vocabulary(self) -> list[list[str]]:
        """For each sentence, its tokens that are not in the vocabulary."""
        return [[token for token in tokens if not self.lookup[token]] for tokens in self.tokens]

    @property
    def empty(self) -> np.ndarray:
        """The positions of the sentences without any word of the vocabulary."""
        return np.flatnonzero(np.diff(self.offsets) == 0)


class WordLookup:
    """Finds tokens in a vocabulary: as they are, in another spelling, or by the parts of a hyphenated word.

    `lookup[token]` is a tuple of rows: one row, several for a compound known by its parts, or none.
    """

    def __init__(self, vocabulary: Vocabulary, stop_words: Iterable[str] = ()):
        if isinstance(stop_words, str):
            raise FishermixError(
                f"stop_words is {stop_words!r}. Give a list of words, such as ['a', 'the'].",
                code="wrong_parameter",
            )
        self.vocabulary = vocabulary
        self.stop_words = frozenset(stop_words)
        self._rows: dict[str, tuple[int, ...]] = {}

    def __getitem__(self, token: str) -> tuple[int, ...]:
        if token not in self._rows:
            self._learn([token])
        return self._rows[token]

    def tokenize(self, sentence: Sentence) -> list[str]:
        """The tokens of a string, or of a list of tokens, without the stop words."""
        if isinstance(sentence, str):
            tokens = tokenize(sentence)
        else:
            is_list = isinstance(sentence, Iterable) and not isinstance(sentence, bytes)
            tokens = list(sentence) if is_list else []
            if not is_list or not all(isinstance(token, str) for token in tokens):
                raise FishermixError(
                    f"A sentence must be a string or a list of words, not {sentence!r:.60}.",
                    code="wrong_parameter",
                )
        return [token for token in tokens if token not in self.stop_words] if self.stop_words else tokens

    def find(self, sentences: Iterable[Sentence]) -> WordBags:
        """Tokenize sentences, each once, and find the rows of their words."""
        tokenized = [self.tokenize(sentence) for sentence in sentences]
        if any(token not in self._rows for tokens in tokenized for token in tokens):
            self._learn(chain.from_iterable(tokenized))
        rows: list[int] = []
        offsets = [0]
        for tokens in tokenized:
            for token in tokens:
                rows.extend(self._rows[token])
            offsets.append(len(rows))
        return WordBags(
            rows=np.array(rows, np.int64), offsets=np.array(offsets, np.int64), tokens=tokenized, lookup=self
        )

    def _learn(self, tokens: Iterable[str]) -> None:
        """Look up the tokens that are new, all in one go."""
        if len(self._rows) >= MOST_REMEMBERED_TOKENS:
            self._rows.clear()
        missing = self._learn_spellings(tokens)
        self._rows.update(dict.fromkeys(missing, ()))
        compounds = {
            token: [part for part in token.split("-") if part not in self.stop_words]
            for token in missing
            if "-" in token  # snow-covered
        }
        unknown = self._learn_spellings(chain.from_iterable(compounds.values()))
        self._rows.update(dict.fromkeys(unknown, ()))
        for token, parts in compounds.items():
            self._rows[token] = tuple(row for part in parts for row in self._rows[part])

    def _learn_spellings(self, tokens: Iterable[str]) -> list[str]:
        """Look up tokens, in other spellings if need be; returns those that are not found."""
        new = [token for token in dict.fromkeys(tokens) if token not in self._rows]
        if not new:
            return []
        others = []
        for token, row in zip(new, self.vocabulary.rows(new)):
            if row < 0:
                others += [(token, spelling) for spelling in spellings(token)]
            else:
                self._rows[token] = (row,)
        if others:
            for (token, _), row in zip(others, self.vocabulary.rows([spelling for _, spelling in others])):
                if row >= 0 and token not in self._rows:
                    self._rows[token] = (row,)
        return [token for token in new if token not in self._rows]
