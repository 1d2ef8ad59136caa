"""Names in the words of a query: of folders, files and places.

    "peru"                  the photos in folders or places named Peru
    "a church in peru"      the same, those that look like "a church" first
    "IMG_10987.jpg"         the photo of this name
    "a dog on the beach"    photos in folders named Beach come first among equally likely ones

A name becomes a filter if it is a file name, if the model does not know it, or if it is the name of a folder
or a place and hardly any caption of a photo contains it. A name that is also an everyday word hides nothing:
then photos of that name come first within likely, maybe and unlikely.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fishermix.text.tokens import STOP_WORDS

from fishermix_photos.query import NAME_OF_PLACE, BadFilter, Remark, Term, describes
from fishermix_photos.vision.formats import find_format

if TYPE_CHECKING:
    from fishermix_photos.model import ImageTextModel

WORD = re.compile(r"[^\W\d_]+|\d+")
LONGEST_NAME = 5  # words
MOST_PREFERRED = 10_000  # photos; a name that more of them have says little
SHORTEST_NUMBER = 4  # digits: "2 dogs" asks for no photo number 2
EVERYDAY_USES = 5  # a word of this many of the 8,000 sentences about photos is an everyday word
PREPOSITIONS = {"in", "at", "from", "near", "of", "to", "around", "the"}


def fold(text: str) -> str:
    """The words and numbers of a text in lower case without accents, with spaces between them."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return " ".join(WORD.findall(plain.casefold()))


@dataclass(frozen=True)
class NameCounts:
    """The numbers of photos whose files, folders and places have a name."""

    files: int = 0
    folders: int = 0
    places: int = 0

    def __bool__(self) -> bool:
        return bool(self.files or self.folders or self.places)

    @property
    def most(self) -> int:
        return max(self.files, self.folders, self.places)

    def __str__(self) -> str:
        found = {"files": self.files, "folders": self.folders, "places": self.places}
        return " and ".join(f"{count:,} in {kind}" for kind, count in found.items() if count)


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


def read_names(
    terms: Sequence[Term], count: Callable[[str], NameCounts], model: Callable[[], ImageTextModel]
) -> NamedTerms:
    """Find the names in terms; `count` tells how many photos have a name."""
    found = NamedTerms()
    for term in terms:
        if term.kind == "text" and term.sign == "+" and not term.is_quoted:
            term = replace(term, value=_read_names(term.value, count, model, found))
        if term.value:
            found.terms.append(term)
    return found


def _read_names(
    text: str, count: Callable[[str], NameCounts], model: Callable[[], ImageTextModel], found: NamedTerms
) -> str:
    """Add the names of a text to `found`, and return the words that describe the photo."""
    words, rest, start = text.split(), list[str](), 0
    folded = [fold(word) for word in words]
    is_name = [_may_be_name(word, part) and bool(count(part)) for word, part in zip(words, folded)]
    while start < len(words):
        end = _find_end(folded, is_name, start, count)
        name = " ".join(words[start:end])
        rest += words[start : max(end, start + 1)]
        if end > start:
            counts, phrase = count(fold(name)), fold(name)
            if _is_filter(name, phrase, counts, model()):
                del rest[-(end - start) :]
                while rest and rest[-1].lower() in PREPOSITIONS:
                    rest.pop()
                found.required.append(phrase)
                found.remarks.append(
                    Remark(
                        f"Only photos named '{name}': {counts}. Put the words in double quotes to search all "
                        "photos for them.",
                        f'"{text}"',
                    )
                )
            elif counts.most <= MOST_PREFERRED:
                found.preferred[phrase] = counts
        start = max(end, start + 1)
    return " ".join(rest) if len(rest) == len(words) or describes(" ".join(rest)) else ""


def _may_be_name(word: str, folded: str) -> bool:
    if folded.isdigit():
        return len(folded) >= SHORTEST_NUMBER
    return len(folded) > 1 and word.lower() not in STOP_WORDS


def _find_end(
    folded: Sequence[str], is_name: Sequence[bool], start: int, count: Callable[[str], NameCounts]
) -> int:
    """Where the longest name that begins at `start` ends; `start` if there is none."""
    if not is_name[start]:
        return start
    for end in range(min(len(folded), start + LONGEST_NAME), start + 1, -1):
        if is_name[end - 1] and count(" ".join(folded[start:end])):
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


# Places


def is_place_name(near: str) -> bool:
    """Whether a condition `near` names a place instead of its coordinates."""
    return NAME_OF_PLACE.search(near) is not None


def split_distance(near: str) -> tuple[str, float | None]:
    """The name of a place, and the distance in kilometers if one follows: "Lima,50km"."""
    found = re.fullmatch(r"(.*?),\s*(\d+(?:\.\d+)?)\s*(km|m)?\s*", near)
    if found is None:
        return near.strip(), None
    return found[1].strip(), float(found[2]) / (1000 if found[3] == "m" else 1)


def find_country(name: str, places: Sequence[tuple[str, float, float]]) -> str | None:
    """The country of this name, if photos were taken there."""
    countries = {fold(place.rpartition(", ")[2]): place.rpartition(", ")[2] for place, *_ in places}
    return countries.get(fold(name))


def find_city(name: str, places: Sequence[tuple[str, float, float]]) -> tuple[str, float, float]:
    """Name, latitude and longitude of a city: where photos were taken, or else anywhere."""
    wanted = fold(name)
    for place, latitude, longitude in places:
        if wanted in (fold(place), fold(place.rpartition(", ")[0])):
            return place, latitude, longitude
    from fishermix_photos.places import open_gazetteer  # takes a second

    gazetteer = open_gazetteer()
    city = gazetteer.find_city(name)
    if city is None:
        raise BadFilter(f"near must be a place: no city with 1,000 people is called '{name}'.", field="near")
    return f"{city.city}, {gazetteer.countries.get(city.country_code, '')}", city.latitude, city.longitude
