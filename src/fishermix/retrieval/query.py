"""Queries that combine sentences and photos: `"beach" - "people"`, `photo.jpg + "at night"`.

Each term is a unit point of the joint space; the query is the signed sum of the terms, scaled to unit
length. A query that contains a sentence is scored like a sentence (CSLS); photos alone are compared with
photos by the cosine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fishermix.errors import FishermixError
from fishermix.vision.formats import explain_missing, find_format

WEIGHT = {"+": 1.0, "-": -1.0}
# A quoted part or a word. A sign is a word of its own.
TOKEN = re.compile(r'"([^"]*)"|(\S+)')
SHORTEST_SUM = 1e-6  # a shorter sum of unit points has no direction but that of rounding errors


class UnknownTerm(FishermixError):
    """No word of a sentence is in the model's vocabulary, or a photo is not in the index."""


@dataclass(frozen=True)
class Term:
    """A sentence, the path of a photo or the id of a photo (`kind`), added or subtracted."""

    sign: str
    kind: str
    value: str


@dataclass(frozen=True, eq=False)
class Query:
    """vector : its dot product with the stored vector of a photo is the score
    out_of_vocabulary : the words of the sentences that the model does not know, which it ignored
    """

    vector: np.ndarray
    out_of_vocabulary: list[str] = field(default_factory=list)


def parse_arguments(arguments: Sequence[str]) -> list[Term]:
    """Terms of command-line arguments: a sign is an argument of its own, a photo is the name of an existing
    picture file, everything else is text. A file name that names no photo is an error, never text.
    """
    pieces = [argument if argument in WEIGHT else ("", argument) for argument in arguments]
    return [_find_photo(term) for term in _add_signs(pieces)]


def _find_photo(term: Term) -> Term:
    path = os.path.expanduser(term.value)
    found = find_format(path)
    if os.path.isfile(path) and found is not None:
        if not found.is_installed:
            raise FishermixError(f"{term.value} cannot be read: {explain_missing(found)}.")
        return Term(term.sign, "photo", path)
    if os.path.isfile(path) and os.path.splitext(path)[1] and not re.search(r"\s", term.value):
        raise FishermixError(f"{term.value} is a file, but not a photo. Name a photo, or describe one.")
    check_words(term.value)
    return term


def check_words(text: str) -> None:
    """Raise if a word of a sentence is the name of a picture file: the user meant the file."""
    for word in text.split():
        if find_format(word) is not None:
            name = text if text.endswith(word) else word
            raise FishermixError(
                f"There is no photo {name}. To search by a photo, name an existing file, with + or - between "
                "it and other terms. To search by words, leave the file name out."
            )


def parse_query(query: str) -> list[Term]:
    """Terms of one line: `beach - people`, `"a dog" + "a cat"`, `photo:1f2e + at night`. A sign in quotes is
    text.
    """
    pieces: list[str | tuple[str, str]] = []
    for match in TOKEN.finditer(query):
        quoted, word = match.groups()
        if word in WEIGHT:
            pieces.append(word)
        elif pieces and not isinstance(pieces[-1], str):
            pieces[-1] = ("", f"{pieces[-1][1]} {quoted if word is None else word}")
        else:
            pieces.append(("", quoted if word is None else word))
    terms = []
    for term in _add_signs(pieces):
        if re.fullmatch(r"photo:\w+", term.value):
            term = Term(term.sign, "id", term.value.removeprefix("photo:"))
        else:
            check_words(term.value)
        terms.append(term)
    return terms


def _add_signs(pieces: Sequence[str | tuple[str, str]]) -> list[Term]:
    """Terms from signs (str) and texts (the second of a tuple)."""
    terms: list[Term] = []
    sign: str | None = "+"
    for piece in pieces:
        if isinstance(piece, str):
            if sign is not None and (terms or sign == "-"):
                raise FishermixError(
                    f"'{piece}' follows another sign. Put a sentence or a photo between them."
                )
            sign = piece
        elif sign is None:
            raise FishermixError(
                f"There is no folder '{piece[1]}', and no sign between '{terms[-1].value}' and '{piece[1]}'. "
                "Put quotes around a sentence of several words, or + or - between two terms."
            )
        else:
            terms.append(Term(sign, "text", piece[1]))
            sign = None
    if not terms:
        raise FishermixError("The query is empty. Describe the photo in a few words.")
    if sign is not None:
        raise FishermixError(f"Nothing follows '{sign}'. End the query with a sentence or a photo.")
    return terms


def encode_terms(
    terms: Sequence[Term], model, point_of: Callable[[str], np.ndarray | None] | None = None
) -> Query:
    """The query that a `PhotoIndex` searches for; `point_of` gives the point of a photo by its id."""
    points, unknown = [], list[str]()
    has_sentence = any(term.kind == "text" for term in terms)
    for term in terms:
        if term.kind == "photo":
            point = model.encode_images([term.value])[0]
        elif term.kind == "id":
            point = point_of(term.value) if point_of else None
            if point is None:
                raise UnknownTerm(f"There is no photo '{term.value}' in this index.")
        else:
            point, ignored = encode_sentence(term.value, model)
            unknown += ignored
        points.append(np.float32(WEIGHT[term.sign]) * point)
    total = sum(points)
    norm = float(np.linalg.norm(total))
    if norm < SHORTEST_SUM:
        raise FishermixError("The terms of the query cancel out. Remove one of them.")
    vector = total / np.float32(norm)
    if has_sentence:
        return Query(model.match_sentences(vector[None])[0], unknown)
    # Zeros switch the hubness correction off.
    return Query(np.pad(vector, (0, model.match_dimension - len(vector))))


def encode_sentence(sentence: str | Sequence[str], model) -> tuple[np.ndarray, list[str]]:
    """The unit point (d,) of a sentence (a string or its tokens), and its out-of-vocabulary words."""
    point, unknown = model.encode_query(sentence)
    if not point.any():
        text = sentence if isinstance(sentence, str) else " ".join(sentence)
        if not text.strip():
            raise FishermixError("The query is empty. Describe a photo in a few words.")
        raise UnknownTerm(
            f"All words of '{text}' are out of the model's vocabulary. Use other, more common words."
        )
    return point, unknown
