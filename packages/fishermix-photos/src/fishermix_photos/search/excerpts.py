"""Why a photo was found: a few words of its text around those that were looked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fishermix_photos.index.names import fold
from fishermix_photos.search.reading import Reading
from fishermix_photos.search.results import Results

if TYPE_CHECKING:
    from fishermix_photos.index.protocol import PhotoIndex

KINDS = {"document", "documents", "screenshot", "screenshots"}  # their photos need not show these words
FEWEST_WORDS = 10  # in a photo of these kinds
WORDS_AROUND = 4
LONGEST_EXCERPT = 120  # characters


def add_excerpts(results: Results, reading: Reading, index: PhotoIndex) -> Results:
    """The results with excerpts of the texts in which names of the query were found."""
    names = (*reading.filter.names, *reading.filter.texts, *reading.preferred, *reading.written)
    phrases = list(dict.fromkeys(phrase for name in names for phrase in name.split("|")))
    if not phrases or not results.photos:
        return results
    of_kind = not KINDS.isdisjoint(phrases)
    photos = []
    texts = index.texts([photo.id for photo in results.photos])
    for photo in results.photos:
        text = texts.get(photo.id, "")
        found = (excerpt for phrase in phrases if (excerpt := cut_excerpt(text, phrase)))
        excerpt = next(found, "")
        if not excerpt and of_kind and photo.band is None and len(text.split()) >= FEWEST_WORDS:
            excerpt = cut_excerpt(text)
        photos.append(replace(photo, text=excerpt or None))
    return replace(results, photos=tuple(photos))


def cut_excerpt(text: str, phrase: str = "") -> str:
    """The words of a text around a phrase, or its first words without one; empty if it has no such phrase.

    >>> cut_excerpt("Please note:\\nNO PARKING at any time", "no parking")
    'Please note: NO PARKING at any time'
    """
    pieces = text.split()
    words = [(word, position) for position, piece in enumerate(pieces) for word in fold(piece).split()]
    wanted = phrase.split()
    for start in range(len(words) - len(wanted) + 1):
        if [word for word, _ in words[start : start + len(wanted)]] == wanted:
            break
    else:
        return ""
    if not words:
        return ""
    last = words[max(start, start + len(wanted) - 1)][1]
    first, end = max(0, words[start][1] - WORDS_AROUND), min(len(pieces), last + 1 + WORDS_AROUND)
    shown = " ".join(pieces[first:end])
    if len(shown) > LONGEST_EXCERPT:
        shown, end = shown[:LONGEST_EXCERPT], 0
    return f"{'… ' if first else ''}{shown}{' …' if end < len(pieces) else ''}"
