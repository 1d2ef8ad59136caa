"""Queries that combine sentences and photos: `"beach" - "people"`, `photo.jpg + 2:"at night"`.

Each term is a unit point of the joint space; the query is the sum of the terms with their signs and weights,
scaled to unit length. A query that contains a sentence is scored like a sentence (CSLS); photos alone are
compared with photos by the cosine.
"""

from __future__ import annotations

import math
import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from fishermix.errors import FishermixError
from fishermix.text.tokens import STOP_WORDS

from fishermix_photos.vision.formats import explain_missing, find_format

if TYPE_CHECKING:
    from fishermix_photos.model import ImageTextModel

WEIGHT = {"+": 1.0, "-": -1.0}
# A quoted part, which may have a weight, or a word. A sign is a word of its own, or a minus before either.
QUERY_TOKEN = re.compile(r'(-(?=[^\W\d_]|"))?(?:((?:\d+(?:\.\d+)?|\.\d+):)?"([^"]*)"|(\S+))')
# What a user calls the photos themselves: it describes none of them.
ABOUT_PHOTOS = re.compile(
    r"(?:(?:show|find|me|my|our|all|some|the|a)\s+)*(?:photo(?:graph)?|picture|pic|image|shot)s?"
    r"(?:\s+(?:of|showing|with|taken)\b\s*|\s*$|(?=\s+(?:in|at|from|near|on\s+\d|since|before|after)\b))",
    re.IGNORECASE,
)
WEIGHTED = re.compile(r"(\d+(?:\.\d+)?|\.\d+):(?=[^\s\d])(.+)", re.DOTALL)  # not a time such as 10:30
SIGN_INSIDE = re.compile(r"(?:^|\S\s)\s*(?:[+-]\s+\S|-(?=[^\W\d_]|\"))")
LIKE_A_WEIGHT = re.compile(r"([-+]?[\d.]*\d(?:e[-+]?\d+)?):(?=[^\s\d]).+", re.DOTALL | re.IGNORECASE)
QUOTED = re.compile(r'"([^"]*)"')
LARGEST_WEIGHT = 100.0
EARTH_RADIUS_KM = 6371.0
NAME_OF_PLACE = re.compile(r"[^\W\d_]{3}")  # km has fewer letters
NEGATIONS = frozenset(("without", "excluding", "no", "not"))
# Words of dates without a number, see `dates`.
DATE_WORDS = frozenset(("yesterday", "today", "last", "this"))
WORD = re.compile(r"[^\W\d_]+|\d+")
LONGEST_NAME = 5  # words
MOST_PREFERRED = 10_000  # photos; a name that more of them have says little
SHORTEST_NUMBER = 4  # digits: "2 dogs" asks for no photo number 2
EVERYDAY_USES = 5  # a word of this many of the 8,000 sentences about photos is an everyday word
PREPOSITIONS = {"in", "at", "from", "near", "of", "to", "around", "the"}
COLOR = re.compile(r"\b(?:black|white|red|green|blue|yellow|orange|brown|purple|pink|gray|grey)\b")
NUMBER = re.compile(
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|[1-9]|single|pair|several|many)\b"
)
PLACE = re.compile(
    r"\b(?:in|on|at|by|near|under|over|behind|beside|above|below|around|inside|outside|next|between|against"
    r"|along|across|through|into|onto|off)\b"
)
SHORTEST_SUM = 1e-6  # a shorter sum of unit points has no direction but that of rounding errors


class Remark(str):
    """A sentence about how a query was understood; `query` is a line that may be searched for instead."""

    query: str | None

    def __new__(cls, text: str, query: str | None = None) -> Remark:
        remark = super().__new__(cls, text)
        remark.query = query
        return remark


class UnknownTerm(FishermixError):
    """No word of a sentence is in the model's vocabulary, or a photo is not in the library."""

    code = "unknown_term"


@dataclass(frozen=True)
class Term:
    """A sentence, the path of a photo or the id of a photo, added ("+") or subtracted ("-") `weight` times.

    is_quoted : whether the words are taken as they are: no dates, no negations

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


class QueryKind(NamedTuple):
    """Whether a query names a color, a number or a place, or subtracts something. Scores say less about
    whether colors, numbers and places are right, and more photos lack a thing than captions tell.
    """

    color: bool = False
    number: bool = False
    place: bool = False
    minus: bool = False


PLAIN = QueryKind()


@dataclass(frozen=True, eq=False)
class EncodedQuery:
    """A query as the vector (d,) whose dot product with the stored vector of a photo is the score.

    dimension : that of the points; the rest of a vector is its hubness
    unknown_words : those that are out of the model's vocabulary
    n_words : the number of words that describe the photo; 0 for a query of photos alone
    is_guess : whether the model knows none of these words
    nearness : of the sentences that the query adds to what the model was trained on, the largest cosine
    kind : what the query asks for
    """

    vector: np.ndarray
    dimension: int
    unknown_words: tuple[str, ...] = ()
    n_words: int = 0
    is_guess: bool = False
    nearness: float = 1.0
    kind: QueryKind = PLAIN


# Terms of a text


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
    terms = _add_signs(_split_line(text))
    return tuple(
        replace(term, kind="id", value=term.value.removeprefix("photo:"))
        if not term.is_quoted and re.fullmatch(r"photo:\w+", term.value)
        else term
        for term in terms
    )


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
    for argument in filter(str.strip, arguments):
        if argument in WEIGHT:
            pieces.append(argument)
        elif SIGN_INSIDE.search(argument) and not os.path.isfile(os.path.expanduser(argument)):
            pieces += _split_line(argument)  # "dog - water" in one pair of quotes
        else:
            pieces.append(Term("+", "text", argument))
    return tuple(map(_find_photo, _add_signs(pieces)))


def _split_weight(term: Term) -> Term:
    """A term whose text begins with a weight, as in `2:dog`, without it."""
    found = WEIGHTED.fullmatch(term.value)
    weight = float(found[1]) if found else 0.0
    if found and 0 < weight <= LARGEST_WEIGHT:
        return replace(term, value=found[2], weight=weight)
    if odd := LIKE_A_WEIGHT.fullmatch(term.value):
        raise FishermixError(
            f"The weight {odd[1]} must be above 0 and at most {LARGEST_WEIGHT:g}. "
            "To subtract a term, put a minus and a space before it."
        )
    return term


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
                raise FishermixError(f"{term.value} cannot be read: {explain_missing(found)}.")
            return replace(term, kind="photo", value=path)
        if os.path.splitext(path)[1] and not re.search(r"\s", term.value):
            raise FishermixError(f"{term.value} is a file, but not a photo. Name a photo, or describe one.")
    return term


def check_words(text: str) -> None:
    """Raise if a word of a sentence is the name of a picture file that no photo has."""
    for word in text.split():
        if "." in word and find_format(word) is not None:
            name = text if text.endswith(word) else word
            raise FishermixError(
                f"There is no photo {name}. To search by a photo, name an existing file, with + or - between "
                "it and other terms. To search by words, leave the file name out."
            )


def _split_line(line: str) -> list[str | Term]:
    """The signs of a line, and the terms between them; what has its own minus is last."""
    pieces: list[str | Term] = []
    subtracted: list[str | Term] = []
    for match in QUERY_TOKEN.finditer(line):
        minus, weight, quoted, word = match.groups()
        before = pieces[-1] if pieces and not minus else None
        if word in WEIGHT:
            pieces.append(word)
        elif isinstance(before, Term):
            text = word if quoted is None else quoted
            is_quoted = before.is_quoted and quoted is not None
            pieces[-1] = replace(before, value=f"{before.value} {text}", is_quoted=is_quoted)
        else:
            term = _split_weight(Term(minus or "+", "text", word if quoted is None else f"{weight or ''}x"))
            term = term if quoted is None else replace(term, value=quoted, is_quoted=True)
            (subtracted if minus else pieces).append(term)
    return [*pieces, *subtracted]


def _add_signs(pieces: Sequence[str | Term]) -> list[Term]:
    """Terms with the signs before them."""
    terms: list[Term] = []
    sign: str | None = "+"
    for piece in pieces:
        if isinstance(piece, str):
            if sign is not None and (terms or sign == "-"):
                raise FishermixError(
                    f"'{piece}' follows another sign. Put a sentence or a photo between them."
                )
            sign = piece
        elif sign is None and piece.sign == "+":
            raise FishermixError(
                f"There is no folder '{piece.value}', "
                f"and no sign between '{terms[-1].value}' and '{piece.value}'. "
                "Put quotes around a sentence of several words, or + or - between two terms."
            )
        else:
            terms.append(replace(piece, sign="-") if sign == "-" else piece)
            sign = None
    if not terms:
        raise FishermixError("The query is empty. Describe the photo in a few words.")
    if sign is not None:
        raise FishermixError(f"Nothing follows '{sign}'. End the query with a sentence or a photo.")
    return terms


# What the words mean


def read_terms(
    terms: Sequence[Term], filter: Filter | None = None, today: date | None = None
) -> tuple[list[Term], Filter, list[str]]:
    """Terms in which dates and negations are read, the filter with the date unless it has one already, and
    remarks on what was read. Words such as "photos of", which describe nothing, are dropped.
    """
    found: list[Term] = []
    remarks: list[str] = []
    filter = filter or NO_FILTER
    for term in terms:
        if term.kind != "text" or term.is_quoted or term.sign == "-":
            found.append(term)
            continue
        if not _may_mean_more(term.value):
            found.append(replace(term, value=drop_photo_words(term.value) or term.value))
            continue
        from fishermix_photos.dates import read_words

        reading = read_words(term.value, filter.after is None and filter.before is None, today)
        wanted = drop_photo_words(reading.wanted)
        if describes(wanted) or (reading.wanted and not reading.filter):
            found.append(replace(term, value=wanted or reading.wanted))
        found += [Term("-", "text", phrase, term.weight) for phrase in reading.unwanted]
        if reading.filter:
            filter = replace(filter, after=reading.after, before=reading.before)
        remarks += reading.remarks
    return found, filter, remarks


def _may_mean_more(text: str) -> bool:
    """Whether there may be a date or a negation in a text: most searches do not wait for what reads them."""
    words = set(text.lower().split())
    return any(letter.isdigit() for letter in text) or not words.isdisjoint(NEGATIONS | DATE_WORDS)


def describes(text: str) -> bool:
    """Whether a text has a word that describes a photo."""
    return any(word.lower().strip(".,;:!?'") not in STOP_WORDS for word in text.split())


def drop_photo_words(text: str) -> str:
    """A text without a beginning such as "photos of"."""
    found = ABOUT_PHOTOS.match(text)
    return text[found.end() :].strip() if found else text


def split_sentences(query: str) -> tuple[str, list[str]]:
    """The sentences that a line adds, as one, and those that it subtracts; without photos and dates."""
    terms, *_ = read_terms(parse_query(query))
    sentences = [term for term in terms if term.kind == "text"]
    wanted = [term.value for term in sentences if term.sign == "+"]
    if not wanted:
        raise FishermixError("Only sentences can be explained, and this query contains none.")
    return " ".join(wanted), [term.value for term in sentences if term.sign == "-"]


# Names of folders, files and places
#
#     "peru"                  the photos in folders or places named Peru
#     "a church in peru"      the same, those that look like "a church" first
#     "IMG_10987.jpg"         the photo of this name
#     "a dog on the beach"    photos in folders named Beach come first among equally likely ones
#
# A name becomes a filter if it is a file name, if the model does not know it, or if it is the name of a
# folder or a place and hardly any caption of a photo contains it. A name that is also an everyday word hides
# nothing: then photos of that name come first within likely, maybe and unlikely.


def fold(text: str) -> str:
    """The words and numbers of a text in lower case without accents, with spaces between them."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return " ".join(WORD.findall(plain.casefold()))


class NameCounts(NamedTuple):
    """The numbers of photos whose files, folders and places have a name."""

    files: int = 0
    folders: int = 0
    places: int = 0

    def __str__(self) -> str:
        found = self._asdict().items()
        return " and ".join(f"{count:,} in {kind}" for kind, count in found if count)


CountNames = Callable[[Sequence[str]], Mapping[str, NameCounts]]


@dataclass
class NamedTerms:
    """What is left of terms without the names that are filters, and the names.

    required : names that photos must have
    preferred : names of photos that come first, with the numbers of these photos
    """

    terms: list[Term] = field(default_factory=list)
    required: list[str] = field(default_factory=list)
    preferred: dict[str, NameCounts] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def read_names(terms: Sequence[Term], count: CountNames, model: Callable[[], ImageTextModel]) -> NamedTerms:
    """Find the names in terms; `count` tells how many photos have each of several names."""
    found = NamedTerms()
    for term in terms:
        if term.kind == "text" and not term.is_quoted:
            if term.sign == "+":
                term = replace(term, value=_read_names(term.value, count, model, found))
            check_words(term.value)
        if term.value:
            found.terms.append(term)
    return found


def _read_names(text: str, count: CountNames, model: Callable[[], ImageTextModel], found: NamedTerms) -> str:
    """Add the names of a text to `found`, and return the words that describe the photo."""
    words, rest, start = text.split(), list[str](), 0
    folded = [fold(word) for word in words]
    counts = dict(count([part for word, part in zip(words, folded) if _may_be_name(word, part)]))
    while start < len(words):
        end = _find_end(folded, counts, start, count)
        name, phrase = " ".join(words[start:end]), " ".join(folded[start:end])
        rest += words[start : max(end, start + 1)]
        if end > start and _is_filter(name, phrase, counts[phrase], model()):
            del rest[-(end - start) :]
            while rest and rest[-1].lower() in PREPOSITIONS:
                rest.pop()
            found.required.append(phrase)
            remark = (
                f"Only photos named '{name}': {counts[phrase]}. Put the words in double quotes to search all "
                "photos for them."
            )
            found.remarks.append(Remark(remark, f'"{text}"'))
        elif end > start and max(counts[phrase]) <= MOST_PREFERRED:
            found.preferred[phrase] = counts[phrase]
        start = max(end, start + 1)
    return " ".join(rest) if len(rest) == len(words) or describes(" ".join(rest)) else ""


def _may_be_name(word: str, folded: str) -> bool:
    if folded.isdigit():
        return len(folded) >= SHORTEST_NUMBER
    return len(folded) > 1 and word.lower() not in STOP_WORDS


def _find_end(folded: Sequence[str], counts: dict[str, NameCounts], start: int, count: CountNames) -> int:
    """Where the longest name that begins at `start` ends; `start` if there is none."""
    if not any(counts.get(folded[start], ())):
        return start
    for end in range(min(len(folded), start + LONGEST_NAME), start + 1, -1):
        if any(counts.get(folded[end - 1], ())):
            phrase = " ".join(folded[start:end])
            counts |= count([phrase])
            if any(counts[phrase]):
                return end
    return start + 1


def _is_filter(name: str, phrase: str, counts: NameCounts, model: ImageTextModel) -> bool:
    """Whether only photos of this name are wanted."""
    if find_format(name) is not None:
        return True
    words = [word for word in phrase.split() if word not in STOP_WORDS]
    if not all(word in model.vocabulary for word in words):
        return True
    is_rare = model.pool is not None and any(model.word_counts[word] < EVERYDAY_USES for word in words)
    return is_rare and bool(counts.folders or counts.places)


# Points


def encode_terms(
    terms: Sequence[Term], model, find_point: Callable[[str], np.ndarray | None]
) -> EncodedQuery:
    """The query that the points of photos are compared with; `find_point` gives that of a photo by its id."""
    points, unknown = dict[Term, np.ndarray](), list[str]()
    # Sentences first: an unknown word is reported before the image network is opened.
    for term in sorted(terms, key=lambda term: term.kind == "photo"):
        if term.kind == "photo":
            points[term] = model.encode_images([term.value])[0]
        elif term.kind == "text":
            points[term], ignored = encode_sentence(term.value, model)
            unknown += ignored
        elif (point := find_point(term.value)) is not None:
            points[term] = point
        else:
            raise UnknownTerm(f"There is no photo '{term.value}' in the library.", photo=term.value)
    total = np.sum([np.float32(WEIGHT[term.sign] * term.weight) * points[term] for term in terms], axis=0)
    norm = float(np.linalg.norm(total))
    if norm < SHORTEST_SUM:
        raise FishermixError("The terms of the query cancel out. Remove one of them.")
    vector = total / np.float32(norm)
    if not any(term.kind == "text" for term in terms):
        return EncodedQuery(compare_by_cosine(vector, model), len(total))
    wanted = [term for term in terms if term.kind == "text" and term.sign == "+"]
    telling = _find_telling_words([term.value for term in wanted])
    is_guess = bool(telling) and telling.issubset(unknown)
    n_words = len(telling) or len(wanted)
    hubness = model.joint_space.hubness
    near = [] if hubness is None else [hubness.find_nearness(points[term]) for term in wanted]
    vector = model.joint_space.csls_sentences(vector[None])[0]
    nearness, kind = max(near, default=1.0), find_query_kind(terms)
    return EncodedQuery(vector, len(total), tuple(unknown), n_words, is_guess, nearness, kind)


def find_query_kind(terms: Sequence[Term]) -> QueryKind:
    """The kind of the sentences that a query adds."""
    wanted = [term.value.lower() for term in terms if term.kind == "text" and term.sign == "+"]
    color, number, place = (any(map(words.search, wanted)) for words in (COLOR, NUMBER, PLACE))
    return QueryKind(color, number, place, any(term.sign == "-" for term in terms))


def compare_by_cosine(point: np.ndarray, model) -> np.ndarray:
    """The query vector of a photo's unit point (d,): zeros switch the hubness correction off."""
    return np.pad(np.asarray(point, np.float32), (0, model.csls_dimension - len(point)))


def encode_sentence(sentence: str | Sequence[str], model) -> tuple[np.ndarray, list[str]]:
    """The unit point (d,) of a sentence (a string or its tokens), and its out-of-vocabulary words."""
    point, unknown = model.encode_query(sentence)
    if not point.any():
        text = sentence if isinstance(sentence, str) else " ".join(sentence)
        if not text.strip():
            # No tokens: a text without words, for example of control characters.
            kind = FishermixError if isinstance(sentence, str) else UnknownTerm
            raise kind("The query is empty. Describe a photo in a few words.")
        suggested = " ".join(suggest_words(unknown, model))
        raise UnknownTerm(
            f"'{text}' contains no word that fishermix knows. "
            f"{suggested or 'Use other, more common English words.'}"
        )
    return point, unknown


def write_query(terms: Sequence[Term]) -> str | None:
    """The line that `parse_query` reads as these terms; None if one is the path of a photo."""
    if any(term.kind == "photo" for term in terms):
        return None
    pieces = []
    for term in terms:
        weight = "" if term.weight == 1 else f"{term.weight:g}:"
        text = f"photo:{term.value}" if term.kind == "id" else term.value
        pieces += [term.sign, f'{weight}"{text}"' if term.is_quoted else f"{weight}{text}"]
    return " ".join(pieces).removeprefix("+ ")


def explain_unknown(unknown: Sequence[str], model, terms: Sequence[Term] = ()) -> list[str]:
    """Remarks on out-of-vocabulary words of a query: what the model makes of them, and better words."""
    if not unknown:
        return []
    treatment = "guessed from their spelling" if model.reads_unknown_words else "ignored"
    return [f"Unknown words, {treatment}: {', '.join(unknown)}.", *suggest_words(unknown, model, terms)]


def suggest_words(unknown: Sequence[str], model, terms: Sequence[Term] = ()) -> list[str]:
    """A remark about each unknown word that is a month, or nearly a word of the vocabulary; with the query
    that it makes of `terms`.
    """
    from fishermix_photos.dates import is_month
    from fishermix_photos.spelling import suggest_spelling

    remarks = [f"A month is a date only with a year: {word} 2024." for word in unknown if is_month(word)]
    for word in unknown:
        if not is_month(word) and (better := suggest_spelling(word, model.vocabulary, model.word_counts)):
            whole = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE)
            corrected = [replace(term, value=whole.sub(better, term.value)) for term in terms]
            remarks.append(
                Remark(f"Did you mean {better} instead of {word}?", write_query(corrected) or None)
            )
    return remarks


def _find_telling_words(texts: Sequence[str]) -> set[str]:
    """The words of texts that describe something: not "a" or "of"."""
    return {word.lower().strip(".,;:!?'\"") for text in texts for word in text.split()} - STOP_WORDS


# Filters


class BadFilter(FishermixError):
    """A condition that cannot be understood; `values["field"]` is its name in `Filter`."""

    code = "bad_filter"


@dataclass(frozen=True)
class Filter:
    """Which photos a search considers; a photo must meet all conditions that are given.

    Raises `BadFilter` if a condition cannot be understood or no photo can meet all of them.

    Parameters
    ----------
    after, before
        Taken on this day or later, and before this day: YYYY, YYYY-MM or YYYY-MM-DD.
    folder
        Words of the names of the folders that contain the photo, in a row; the last one may be
        incomplete: "peru", "2019/rome". One that begins with a slash is a single folder, by its path
        from the name of the library's folder on: "/Pictures/2019".
    camera
        Part of the name of the camera.
    near
        "latitude,longitude,distance", the distance in kilometers: "52.5,13.4,10km". Or the name of a
        city, a region or a country, which may have a distance: "Lima", "Paris, Texas", "Lima,50km".
    kind
        The name of a format, for example "JPEG" or "video".
    names
        Words that must follow each other in the name of the file, of a folder that contains it, or of
        the place where it was taken.

    Examples
    --------
    >>> bool(Filter(after="2019-06", camera="iphone")), bool(Filter())
    (True, False)
    """

    after: str | None = None
    before: str | None = None
    folder: str | None = None
    camera: str | None = None
    near: str | None = None
    kind: str | None = None
    names: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self != NO_FILTER

    def __post_init__(self) -> None:
        bounds = {name: text for name in ("after", "before") if (text := getattr(self, name)) is not None}
        days = [parse_day(text, name) for name, text in bounds.items()]
        if len(days) == 2 and days[0] >= days[1]:
            raise BadFilter(
                f"after {self.after} is later than before {self.before}.", field="after", before=self.before
            )
        if self.near is not None and not re.search(NAME_OF_PLACE, self.near):
            parse_near(self.near)
        for name in ("folder", "camera"):
            text = getattr(self, name)
            if text is not None and text != "/" and not text.strip("/ "):
                raise BadFilter(f"{name} must be a name, not '{text}'.", field=name)


NO_FILTER = Filter()


def parse_day(text: str, field: str) -> date:
    """The first day of a year, a month or a day."""
    if re.fullmatch(r"\d{4}(-\d{1,2}){0,2}", text):
        year, month, day = [*map(int, text.split("-")), 1, 1][:3]
        try:
            return date(year, month, day)
        except ValueError:
            pass
    raise BadFilter(f"{field} must be a date such as 2019, 2019-07 or 2019-07-14, not '{text}'.", field=field)


def parse_near(text: str) -> tuple[float, float, float]:
    """Latitude and longitude in degrees and a distance in kilometers."""
    found = re.fullmatch(r"\s*(-?[\d.]+)\s*,\s*(-?[\d.]+)\s*,\s*([\d.]+)\s*(km|m)?\s*", text)
    try:
        if found is None:
            raise ValueError
        latitude, longitude, distance = (float(found[i]) for i in (1, 2, 3))
    except ValueError:
        latitude = math.inf
    if not (abs(latitude) <= 90 and abs(longitude) <= 180):
        raise BadFilter(
            f"near must be a place such as Lima, or a latitude, a longitude and a distance such as "
            f"52.5,13.4,10km, not '{text}'.",
            field="near",
        )
    return latitude, longitude, distance / 1000 if found and found[4] == "m" else distance


def distance_km(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float:
    """The distance of two places on a sphere, by the haversine formula."""
    phi, other = math.radians(latitude), math.radians(other_latitude)
    h = (
        math.sin((other - phi) / 2) ** 2
        + math.cos(phi) * math.cos(other) * math.sin(math.radians(other_longitude - longitude) / 2) ** 2
    )
    return 2 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(h)))
