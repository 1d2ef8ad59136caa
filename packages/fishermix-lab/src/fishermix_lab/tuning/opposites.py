"""Captions made wrong by one word: another color, number, side or person.

They are wrong answers for the photo of the true caption, and the nearest there are. A rule cannot see the
photo, so some are not wrong ("two dogs" where there are three): they count half.
"""

from __future__ import annotations

import re

import numpy as np

GROUPS = (
    "red blue green yellow orange purple pink black white brown gray",
    "two three four five six",
    "left right",
    "front behind",
    "under over",
    "inside outside",
    "man woman",
    "boy girl",
    "men women",
    "boys girls",
    "day night",
    "sitting standing",
)
_OTHERS = {
    word: [other for other in group.split() if other != word] for group in GROUPS for word in group.split()
}
_WORD = re.compile(r"\b(" + "|".join(_OTHERS) + r")\b")


def write_opposite(sentence: str, random: np.random.Generator) -> str | None:
    """The lower-case sentence with one word replaced by another of its group; None: it has no such word.

    A word is kept if the sentence has another of its group, because the result could be as true: "a man and a
    woman".
    """
    text = sentence.lower()
    words = set(_WORD.findall(text))
    places = [found for found in _WORD.finditer(text) if not words.intersection(_OTHERS[found[0]])]
    if not places:
        return None
    chosen = places[random.integers(len(places))]
    other = random.choice(_OTHERS[chosen[0]])
    return f"{text[: chosen.start()]}{other}{text[chosen.end() :]}"
