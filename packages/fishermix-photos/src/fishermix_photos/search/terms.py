"""The terms of a query: the parts of a line such as `"beach" - "people"` or `photo.jpg + 2:"at night"`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from fishermix.errors import FishermixError

from fishermix_photos.photos.formats import explain_missing, find_format

SIGNS = ("+", "-")
# A quoted part, which may have a weight, or a word. A sign is a word of its own, or a minus before either.
QUERY_TOKEN = re.compile(r'(-(?=[^\W\d_]|"))?(?:((?:\d+(?:\.\d+)?|\.\d+):)?"([^"]*)"|(\S+))')
# An argument of several terms, or with words in quotes
IS_LINE = re.compile(r"(?:^|\S\s)\s*(?:[+-]\s+\S|-(?=[^\W\d_]|\"))|\".*\"")
WEIGHTED = re.compile(
    r"([-+]?[\d.]*\d(?:e[-+]?\d+)?):(?=[^\s\d])(.+)", re.DOTALL | re.IGNORECASE
)  # not 10:30
# What a camera calls a file, without its suffix: IMG_2041, DSC01234, but not covid-19 or 2041
CAMERA_NAME = re.compile(r"(?i:[a-z]{1,4}[_-]\d{4,}\w*)|[A-Z]{2,4}\d{4,}\w*")
QUOTED = re.compile(r'"([^"]*)"')
LARGEST_WEIGHT = 100.0


@dataclass(frozen=True)
class Term:
    """A sentence, the path of a photo or the id of a photo, added ("+") or subtracted ("-") `weight` times.

    is_quoted : whether the words are taken as they are: no dates, no negations, no corrections
    kept : words within the sentence that were in quotes: they are not corrected

    Examples
    --------
    >>> Term("-", "text", "people").weight
    1.0
    """

    sign: str
    kind: Literal["text", "photo", "id"]
    value: str
    weight: float = 1.0
    is_quoted: bool = field(default=False, compare=False)
    kept: tuple[str, ...] = field(default=(), compare=False)


def parse_query(text: str) -> tuple[Term, ...]:
    """Terms of one line: `beach - people`, `"a dog" + "a cat"`, `photo:1f2e + at night`.

    Parameters
    ----------
    text : str
        The line. A minus directly before a word, or before quotes, subtracts only these: `beach -people`.
        A sign in quotes is text.

    Returns
    -------
    terms : tuple of Term

    Examples
    --------
    >>> [(term.sign, term.value) for term in parse_query("beach - people")]
    [('+', 'beach'), ('-', 'people')]
    """
    return tuple(_find_id(term) for term in _add_signs(_split_line(text)))


def parse_arguments(arguments: Sequence[str]) -> tuple[Term, ...]:
    """Terms of command-line arguments.

    Parameters
    ----------
    arguments : sequence of str
        A sign is an argument of its own, a photo is the name of an existing picture file, everything else is
        text. A file name that names no photo is an error, never text.

    Returns
    -------
    terms : tuple of Term

    Examples
    --------
    >>> [(term.sign, term.value) for term in parse_arguments(["beach", "-", "people"])]
    [('+', 'beach'), ('-', 'people')]
    """
    pieces: list[str | Term] = []
    for argument in arguments:
        if not argument.strip():
            continue
        if argument in SIGNS:
            pieces.append(argument)
        elif IS_LINE.search(argument) and not os.path.isfile(os.path.expanduser(argument)):
            pieces += _split_line(argument)  # "dog - water" in one pair of quotes
        else:
            pieces.append(Term("+", "text", argument))
    return tuple(_find_photo(term) for term in _add_signs(pieces))


def write_query(terms: Sequence[Term]) -> str | None:
    """The line that `parse_query` reads as these terms; None if one is the path of a photo."""
    if any(term.kind == "photo" for term in terms):
        return None
    pieces = []
    for term in terms:
        weight = "" if term.weight == 1 else f"{term.weight:g}:"
        text = f"photo:{term.value}" if term.kind == "id" else term.value
        for word in term.kept if not term.is_quoted else ():
            text = re.sub(rf"(?<![\w\"]){re.escape(word)}(?![\w\"])", f'"{word}"', text)
        pieces += [term.sign, f'{weight}"{text}"' if term.is_quoted else f"{weight}{text}"]
    return " ".join(pieces).removeprefix("+ ") or None


def check_words(text: str) -> None:
    """Raise if a word of a sentence is the name of a picture file, which no photo has."""
    for word in text.split():
        if ("." in word and find_format(word) is not None) or CAMERA_NAME.fullmatch(word):
            name = text if text.endswith(word) else word
            raise FishermixError(
                f"There is no photo {name}. To search by a photo, name an existing file, with + or - between "
                "it and other terms. To search by words, leave the file name out.",
                code="not_found",
            )


def _find_id(term: Term) -> Term:
    """A term whose text is the id of a photo, as in `photo:1f2e`, as that photo."""
    if term.is_quoted or not re.fullmatch(r"photo:\w+", term.value):
        return term
    return replace(term, kind="id", value=term.value.removeprefix("photo:"))


def _find_photo(term: Term) -> Term:
    """A term whose text is the name of a picture file as that photo."""
    if not term.is_quoted and not os.path.isfile(os.path.expanduser(term.value)):
        term = _split_weight(term)
    if quoted := QUOTED.fullmatch(term.value):
        return replace(term, value=quoted[1], is_quoted=True)
    path = os.path.expanduser(term.value)
    if os.path.isfile(path):
        if (found := find_format(path)) is not None:
            if not found.is_installed:
                raise FishermixError(
                    f"{term.value} cannot be read: {explain_missing(found)}.", code="wrong_file"
                )
            return replace(term, kind="photo", value=path)
        if os.path.splitext(path)[1] and not re.search(r"\s", term.value):
            raise FishermixError(
                f"{term.value} is a file, but not a photo. Name a photo, or describe one.", code="wrong_file"
            )
    return term


def _split_weight(term: Term) -> Term:
    """A term whose text begins with a weight, as in `2:dog`, without it."""
    if found := WEIGHTED.fullmatch(term.value):
        return replace(term, value=found[2], weight=_parse_weight(found[1]))
    return term


def _parse_weight(text: str) -> float:
    try:
        weight = 0.0 if text.startswith(("+", "-")) else float(text)
    except ValueError:
        weight = 0.0
    if not 0 < weight <= LARGEST_WEIGHT:
        raise FishermixError(
            f"The weight {text} must be above 0 and at most {LARGEST_WEIGHT:g}. "
            "To subtract a term, put a minus and a space before it.",
            code="wrong_query",
        )
    return weight


def _split_line(line: str) -> list[str | Term]:
    """The signs of a line, and the terms between them; what has its own minus is last."""
    pieces: list[str | Term] = []
    subtracted: list[str | Term] = []
    for match in QUERY_TOKEN.finditer(line):
        minus, weight, quoted, word = match.groups()
        before = pieces[-1] if pieces and not minus else None
        if word in SIGNS:
            pieces.append(word)
        elif isinstance(before, Term):
            text = word if quoted is None else quoted
            is_quoted = before.is_quoted and quoted is not None
            kept = (*before.kept, *(before.value.split() if before.is_quoted else ()))
            kept += tuple(text.split()) if quoted is not None else ()
            pieces[-1] = replace(before, value=f"{before.value} {text}", is_quoted=is_quoted, kept=kept)
        else:
            term = _make_term(minus or "+", weight, quoted, word)
            (subtracted if minus else pieces).append(term)
    return [*pieces, *subtracted]


def _make_term(sign: str, weight: str | None, quoted: str | None, word: str | None) -> Term:
    """The term of a quoted part, which may have a weight such as "2:", or of a word."""
    if quoted is None:
        return _split_weight(Term(sign, "text", word or ""))
    value = 1.0 if weight is None else _parse_weight(weight.removesuffix(":"))
    return Term(sign=sign, kind="text", value=quoted, weight=value, is_quoted=True)


def _add_signs(pieces: Sequence[str | Term]) -> list[Term]:
    """Terms with the signs before them."""
    terms: list[Term] = []
    sign: str | None = "+"
    for piece in pieces:
        if isinstance(piece, str):
            if sign is not None and (terms or sign == "-"):
                raise FishermixError(
                    f"'{piece}' follows another sign. Put a sentence or a photo between them.",
                    code="wrong_query",
                )
            sign = piece
        elif sign is None and piece.sign == "+":
            raise FishermixError(
                f"There is no folder '{piece.value}', "
                f"and no sign between '{terms[-1].value}' and '{piece.value}'. "
                "Put quotes around a sentence of several words, or + or - between two terms.",
                code="wrong_query",
            )
        else:
            terms.append(replace(piece, sign="-") if sign == "-" else piece)
            sign = None
    if not terms:
        raise FishermixError("The query is empty. Describe the photo in a few words.", code="wrong_query")
    if sign is not None:
        raise FishermixError(
            f"Nothing follows '{sign}'. End the query with a sentence or a photo.", code="wrong_query"
        )
    return terms
