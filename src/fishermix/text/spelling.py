"""The word of a vocabulary that a mistyped word most likely means."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fishermix.text.vectors import Vocabulary

SHORTEST = 4  # a shorter word has neighbors of every meaning
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LEAST_SIMILARITY = 0.8  # of difflib, for words with more than one mistake


def suggest_spelling(word: str, vocabulary: Vocabulary) -> str | None:
    """The first word of the vocabulary that is one mistake away, or has the same letters, or else the most
    similar one; None if there is none. The words of a vocabulary are ordered, frequent ones first.
    """
    word = word.lower()
    if len(word) < SHORTEST or not word.isalpha():
        return None
    edited = list(dict.fromkeys(_edit(word)))
    known = [(row, other) for row, other in zip(vocabulary.rows(edited), edited) if row >= 0]
    if known:
        return min(known)[1]
    alike = [other for other in vocabulary if other[:1] == word[0] and abs(len(other) - len(word)) <= 2]
    anagrams = [other for other in alike if sorted(other) == sorted(word)]
    found = anagrams or get_close_matches(word, alike, 1, LEAST_SIMILARITY)
    return found[0] if found else None


def _edit(word: str) -> Iterator[str]:
    """All words that one deletion, transposition, replacement or insertion makes of a word."""
    splits = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    return chain(
        (left + right[1:] for left, right in splits if right),
        (left + right[1] + right[0] + right[2:] for left, right in splits if len(right) > 1),
        (left + letter + right[1:] for left, right in splits if right for letter in LETTERS),
        (left + letter + right for left, right in splits for letter in LETTERS),
    )
