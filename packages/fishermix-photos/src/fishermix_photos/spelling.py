"""Which word of a vocabulary a mistyped one means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import chain

from fishermix.text.tokens import Vocabulary

SHORTEST_CORRECTED = 4  # a shorter word has neighbors of every meaning
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LEAST_SIMILARITY = 0.8  # of difflib, for words with more than one mistake
# Letters that sound alike: whoever writes elefant means elephant rather than elegant.
_SOUNDS = "f/ph k/c k/ck k/ch k/qu i/y s/z s/c ei/ie ie/y ee/ea er/re g/j r/rh w/wh j/y"
SOUNDS = [pair.split("/") for pair in _SOUNDS.split()]
ADVANTAGE_OF_SOUND = 3  # such a word is preferred to one that photos are described with three times as often


def suggest_spelling(word: str, vocabulary: Vocabulary, uses: Mapping[str, int] | None = None) -> str | None:
    """The word of the vocabulary that is one mistake away, or has the same letters, or else the most similar
    one; None if there is none. Of several, the one that `uses` counts most often; of equals, the first: the
    words of a vocabulary are ordered, frequent ones first.
    """
    word, uses = word.lower(), uses or {}
    if len(word) < SHORTEST_CORRECTED or not word.isalpha():
        return None
    sounds = set(_replace_sounds(word))
    edited = list(dict.fromkeys(chain(sounds, _edit(word))))

    def rank(candidate: tuple[int, str]) -> tuple[int, bool, int]:
        row, other = candidate
        return -uses.get(other, 0) * (ADVANTAGE_OF_SOUND if other in sounds else 1), other not in sounds, row

    known = [(row, other) for row, other in zip(vocabulary.rows(edited), edited) if row >= 0]
    if known:
        return min(known, key=rank)[1]
    alike = [other for other in vocabulary if other[:1] == word[0] and abs(len(other) - len(word)) <= 2]
    anagrams = [other for other in alike if sorted(other) == sorted(word)]
    found = anagrams or get_close_matches(word, alike, 1, LEAST_SIMILARITY)
    return found[0] if found else None


def _replace_sounds(word: str) -> Iterator[str]:
    """All words in which letters at one place are replaced by others that sound alike."""
    for pair in SOUNDS:
        for old, new in (pair, pair[::-1]):
            at = word.find(old)
            while at >= 0:
                yield word[:at] + new + word[at + len(old) :]
                at = word.find(old, at + 1)


def _edit(word: str) -> Iterator[str]:
    """All words that one deletion, transposition, replacement or insertion makes of a word."""
    splits = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    return chain(
        (left + right[1:] for left, right in splits if right),
        (left + right[1] + right[0] + right[2:] for left, right in splits if len(right) > 1),
        (left + letter + right[1:] for left, right in splits if right for letter in LETTERS),
        (left + letter + right for left, right in splits for letter in LETTERS),
    )
