"""Queries that combine sentences and photos: `"beach" - "people"`, `photo.jpg + "at night"`.

Each term is a unit point of the joint space; the query is the sum of the terms with their signs, brought
back to unit length. A query with a sentence in it is matched with photos as a sentence is; photos alone are
compared with photos by the cosine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fishermix.errors import FishermixError
from fishermix.retrieval.photo_files import is_photo_name

WEIGHT = {"+": 1.0, "-": -1.0}
# A quoted part, or a word; a sign stands alone between spaces.
TOKEN = re.compile(r'"([^"]*)"|(\S+)')


@dataclass(frozen=True)
class Term:
    """A sentence, a photo's path or a photo's id (`kind`), added or subtracted."""

    sign: str
    kind: str
    value: str


def terms_of_arguments(arguments: Sequence[str]) -> list[Term]:
    """Terms of command-line arguments: signs stand alone, photos are named by their files, all else is
    text.
    """
    from pathlib import Path

    pieces = [argument if argument in WEIGHT else ("", argument) for argument in arguments]
    terms = _signed(pieces)
    return [
        Term(term.sign, "photo", term.value)
        if is_photo_name(term.value) and Path(term.value).expanduser().is_file()
        else term
        for term in terms
    ]


def terms_of_text(query: str) -> list[Term]:
    """Terms of one line: `beach - people`, `"a dog" + "a cat"`, `photo:1f2e + at night`; quotes keep a
    sign as text.
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
    terms = _signed(pieces)
    return [
        Term(term.sign, "id", term.value.removeprefix("photo:"))
        if re.fullmatch(r"photo:\w+", term.value)
        else term
        for term in terms
    ]


def _signed(pieces: Sequence[str | tuple[str, str]]) -> list[Term]:
    """Terms from signs (str) and texts (a tuple's second)."""
    terms: list[Term] = []
    sign: str | None = "+"
    for piece in pieces:
        if isinstance(piece, str):
            if sign is not None and (terms or sign == "-"):
                raise FishermixError(
                    f"'{piece}' follows another sign: put a sentence or a photo between them"
                )
            sign = piece
        elif sign is None:
            raise FishermixError(
                f"'{terms[-1].value}' and '{piece[1]}' stand side by side: put a sentence of several words "
                f"in quotes, or + or - between two; there is no folder '{piece[1]}'"
            )
        else:
            terms.append(Term(sign, "text", piece[1]))
            sign = None
    if not terms:
        raise FishermixError("the query is empty: describe the photo in a few words")
    if sign is not None:
        raise FishermixError(f"nothing follows '{sign}': end the query with a sentence or a photo")
    return terms


def query_vector(
    terms: Sequence[Term], model, point_of: Callable[[str], np.ndarray | None] | None = None
) -> np.ndarray:
    """What a `PhotoIndex` searches for; `point_of` gives the point of a photo by its id."""
    point = _query_point(terms, model, point_of)
    if any(term.kind == "text" for term in terms):
        return model.match_sentences(point[None])[0]
    return point


def _query_point(
    terms: Sequence[Term], model, point_of: Callable[[str], np.ndarray | None] | None
) -> np.ndarray:
    total = np.zeros(model.dimension, np.float32)
    for term in terms:
        if term.kind == "photo":
            point = model.encode_images([term.value])[0]
        elif term.kind == "id":
            found = point_of(term.value) if point_of else None
            if found is None:
                raise FishermixError(f"there is no photo '{term.value}' in this index")
            point = found
        else:
            point = model.encode_text([term.value])[0]
            if not point.any():
                raise FishermixError(f"the model knows no word of '{term.value}': try other, plainer words")
        total += np.float32(WEIGHT[term.sign]) * point
    norm = float(np.linalg.norm(total))
    if norm < 1e-6:
        raise FishermixError("the query takes away everything it asks for: leave a term out")
    return total / np.float32(norm)
