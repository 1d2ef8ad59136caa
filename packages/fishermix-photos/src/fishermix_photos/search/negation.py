"""Negations in the words of a query: "a beach without people" is a beach, minus people."""

from __future__ import annotations

import re
from typing import NamedTuple

NEGATIONS = frozenset(("without", "excluding", "no", "not"))
LINKS = {"with", "but", "and", "that", "which", "who", "is", "are", "has", "have", "there", "having"}
PLACES = {"in", "on", "at", "by", "near", "under", "over", "behind", "beside", "above", "below", "around"}
ENDS = PLACES | {"with", "during", "but", "while", "from", "into", "inside", "outside", "next", "without"}
ENDS |= {"against", "where"}
NAMED_BEFORE = {"it", "them", "there"}  # "a bowl with no fruit in it": the bowl again
SIGNS = {"sign", "signs", "parking", "smoking", "entry"}  # "a no parking sign" shows one
MOST_NEGATED_WORDS = 12  # a longer phrase is no answer to "without what?"


class NegationReading(NamedTuple):
    """The words that describe a photo, and the phrases that say what it must not show."""

    wanted: str
    unwanted: tuple[str, ...]


def parse_negations(text: str) -> NegationReading:
    """What a text wants, and what it excludes.

    Examples
    --------
    >>> parse_negations("a beach without any people at sunset")
    NegationReading(wanted='a beach at sunset', unwanted=('people',))
    """
    words = text.split()
    wanted = list[str]()
    unwanted = list[str]()
    at = 0
    while at < len(words):
        phrase = _find_phrase(words, at + 1) if _plain(words[at]) in NEGATIONS else []
        is_sign = _plain(words[at]) == "no" and not SIGNS.isdisjoint(_plain(word) for word in phrase)
        if not phrase or is_sign:
            wanted.append(words[at])
            at += 1
            continue
        while wanted and _plain(wanted[-1]) in LINKS:
            wanted.pop()
        at += 1 + len(phrase)
        if _refers_back(words[at : at + 2]):
            at += 2
        unwanted.append(_trim(phrase))
    if not unwanted:
        return NegationReading(text, ())
    return NegationReading(" ".join(wanted).strip(" ,;"), tuple(unwanted))


def may_negate(text: str) -> bool:
    """Whether there may be a negation in a text."""
    return re.search(rf"\b({'|'.join(NEGATIONS)})\b", text, re.IGNORECASE) is not None


def _find_phrase(words: list[str], start: int) -> list[str]:
    """The words after a negation that it belongs to."""
    phrase: list[str] = []
    for word in words[start : start + MOST_NEGATED_WORDS]:
        if phrase and (_plain(word) in ENDS or phrase[-1].endswith((",", ".", ";"))):
            break
        phrase.append(word)
    return phrase


def _refers_back(words: list[str]) -> bool:
    """Whether two words such as "in it" name again what is described."""
    return len(words) == 2 and _plain(words[0]) in ENDS and _plain(words[1]) in NAMED_BEFORE


def _trim(phrase: list[str]) -> str:
    """A negated phrase without links at its end and "any" at its beginning."""
    while len(phrase) > 1 and _plain(phrase[-1]) in LINKS:
        phrase = phrase[:-1]
    if len(phrase) > 1 and _plain(phrase[0]) == "any":
        phrase = phrase[1:]
    return " ".join(phrase).strip(",.;")


def _plain(word: str) -> str:
    return word.lower().strip(",.;")
