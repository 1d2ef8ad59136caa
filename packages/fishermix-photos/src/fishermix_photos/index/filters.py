"""Which photos a search considers: a table of all conditions that a user may give.

A new filter is a field of `Filter` and a row of `FILTERS`: the options of the command and the parameters of
the API are made of it, and both kinds of index take its conditions. Only its control on the page is written
by hand, in `index.html` and `route.js`; a test compares them with the table.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple

from fishermix.errors import FishermixError

from fishermix_photos.index.conditions import (
    AnyOf,
    AtLeast,
    Below,
    Condition,
    Contains,
    EqualTo,
    HasWords,
    LessThan,
    Near,
    Undated,
)
from fishermix_photos.index.names import fold
from fishermix_photos.index.scan import add_slash
from fishermix_photos.photos.formats import FORMATS

# A year, a month or a day that exists: February 29 in leap years only.
DAY = (
    r"^((19|20)[0-9]{2}(-(0[1-9]|1[0-2]))?"
    r"|(19|20)[0-9]{2}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
    r"|(19(0[48]|[2468][048]|[13579][26])|20([02468][048]|[13579][26]))-02-29)$"
)
NAME = r"^/|[^/ ]"
NAME_OF_PLACE = re.compile(r"[^\W\d_]{3}")  # km has fewer letters


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
    undated
        Only photos without a date of their own: the time of the file may be that of a copy.
    names
        Words that must follow each other in the name of the file, of a folder that contains it, or of
        the place where it was taken, or in the text that was read in the photo. Of alternatives, as in
        "peru|chile", one is enough.
    texts
        Words that must follow each other in the text that was read in the photo, or alternatives.

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
    undated: bool = False
    names: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self != Filter()

    def __post_init__(self) -> None:
        for kind in FILTERS:
            if (value := getattr(self, kind.name)) is not None:
                kind.parse(value)
        if self.after and self.before and parse_day(self.after, "after") >= parse_day(self.before, "before"):
            raise BadFilter(
                f"after {self.after} is later than before {self.before}.", field="after", before=self.before
            )


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


def parse_place(text: str) -> str:
    """The name of a place, or coordinates and a distance that can be read."""
    if NAME_OF_PLACE.search(text) is None:
        parse_near(text)
    return text


def parse_name(text: str, field: str) -> str:
    """A name with more than slashes and spaces; "/" alone is the root of a file system."""
    if text != "/" and not text.strip("/ "):
        raise BadFilter(f"{field} must be a name, not '{text}'.", field=field)
    return text


def parse_kind(text: str) -> str:
    """The name of a format as it is written in the library, from a name in any case."""
    for format in FORMATS:
        if format.name.lower() == text.lower():
            return format.name
    names = ", ".join(format.name for format in FORMATS)
    raise BadFilter(f"kind must be one of {names}, not '{text}'.", field="kind")


# Their conditions


def _limit_folder(name: str, folders: Callable[[], Sequence[str]]) -> list[Condition]:
    """The condition of photos in folders of a name or, if it begins with a slash, in one folder."""
    from fishermix_photos.index.photo import name_folders  # imports numpy; the help of a command needs none

    if not name.startswith("/"):
        words = fold(name)
        conditions: list[Condition] = [HasWords(words, "folders", is_prefix=True)] if words else []
        # The names of folders do not hold what tells "iapr/images" from "coco/images".
        if "/" in name.strip("/") and (inside := _find_inside(f"/{name}", name_folders(folders()))):
            conditions.append(Below(tuple(inside)))
        return conditions if len(conditions) == 1 else [AnyOf(tuple(conditions))]
    # As `Photo.name` shows it; or the name alone, which means all folders that have it.
    inside = _find_inside(name, name_folders(folders())) or _find_inside(
        name, {folder: os.path.basename(folder) for folder in folders()}
    )
    return [Below(tuple(inside))]


def _find_inside(path: str, labels: Mapping[str, str]) -> list[str]:
    """The beginnings of paths that a path such as "/Pictures/2019" means: inside a folder with this label, or
    the whole folder if the path is a part of its label.
    """
    wanted = add_slash(path)
    inside = []
    for folder, label in labels.items():
        shown = add_slash(f"/{label}")
        if wanted.startswith(shown):
            inside.append(add_slash(folder) + wanted[len(shown) :])
        elif shown.startswith(wanted):
            inside.append(add_slash(folder))
    return inside


class FilterKind(NamedTuple):
    """One condition that a user may give.

    name : the field of `Filter`
    parameter : its name in the API, and with two dashes the option of the command; None if it has none
    metavar, help : of the option
    pattern : a regular expression for the values that the API accepts
    parse : raises `BadFilter` if a value cannot be understood
    limit : the conditions of a value, all of which must hold; it may ask for the folders of the library
    is_flag : whether it is given without a value
    """

    name: str
    parameter: str | None
    metavar: str
    help: str
    pattern: str
    parse: Callable[[Any], Any]
    limit: Callable[[Any, Callable[[], Sequence[str]]], list[Condition]]
    is_flag: bool = False


FILTERS = (
    FilterKind(
        name="after",
        parameter="after",
        metavar="DATE",
        help="Only photos taken on this date or later: 2019-07-14.",
        pattern=DAY,
        parse=lambda text: parse_day(text, "after"),
        limit=lambda text, folders: [AtLeast("taken", parse_day(text, "after").isoformat())],
    ),
    FilterKind(
        name="before",
        parameter="before",
        metavar="DATE",
        help="Only photos taken before this date: 2020, 2020-06.",
        pattern=DAY,
        parse=lambda text: parse_day(text, "before"),
        limit=lambda text, folders: [LessThan("taken", parse_day(text, "before").isoformat())],
    ),
    FilterKind(
        name="folder",
        parameter="in",
        metavar="NAME",
        help="Only photos in folders with these words in their names: peru.",
        pattern=NAME,
        parse=lambda text: parse_name(text, "folder"),
        limit=_limit_folder,
    ),
    FilterKind(
        name="camera",
        parameter="camera",
        metavar="NAME",
        help="Only photos taken with a camera whose name contains this.",
        pattern=NAME,
        parse=lambda text: parse_name(text, "camera"),
        limit=lambda text, folders: [Contains("camera", text)],
    ),
    FilterKind(
        name="near",
        parameter="near",
        metavar="PLACE",
        help="Only photos taken near a city, in a country or around a point: Lima; Lima,50km; Peru; "
        "52.5,13.4,10km. Names of places: GeoNames, CC BY 4.0.",
        pattern=r"\w",
        parse=parse_place,
        limit=lambda text, folders: [Near(*parse_near(text))],
    ),
    FilterKind(
        name="kind",
        parameter="kind",
        metavar="FORMAT",
        help="Only photos of this format: JPEG, PNG, RAW, video.",
        pattern=f"^({'|'.join(format.name for format in FORMATS)})$",
        parse=parse_kind,
        limit=lambda text, folders: [EqualTo("kind", parse_kind(text))],
    ),
    FilterKind(
        name="undated",
        parameter="undated",
        metavar="",
        help="Only photos without a date of their own.",
        pattern="",
        parse=bool,
        limit=lambda wanted, folders: [Undated()],
        is_flag=True,
    ),
    FilterKind(
        name="names",
        parameter=None,
        metavar="",
        help="Only photos with these words in the name of the file, of a folder or of a place.",
        pattern="",
        parse=lambda names: names,
        limit=lambda names, folders: [
            AnyOf(tuple(HasWords(phrase) for phrase in name.split("|"))) for name in names
        ],
    ),
    FilterKind(
        name="texts",
        parameter=None,
        metavar="",
        help="Only photos that show these words.",
        pattern="",
        parse=lambda names: names,
        limit=lambda names, folders: [
            AnyOf(tuple(HasWords(phrase, "text") for phrase in name.split("|"))) for name in names
        ],
    ),
)
NO_FILTER = Filter()


def list_conditions(filter: Filter, folders: Callable[[], Sequence[str]]) -> list[Condition]:
    """The conditions of a filter, in a library with these folders; all must hold."""
    given = [(kind, getattr(filter, kind.name)) for kind in FILTERS]
    return [condition for kind, value in given if value for condition in kind.limit(value, folders)]
