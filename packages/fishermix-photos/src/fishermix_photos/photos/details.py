"""What is known of a photo besides its content: when, where and with what it was taken, and its size."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

from fishermix.saved import Count, Text
from msgspec import Meta

from fishermix_photos.photos.formats import find_format

Source = Literal["exif", "name", "folder", "file"]
Moment = Annotated[str, Meta(pattern=r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\Z")]  # local time


@dataclass(frozen=True)
class Details:
    """What a photo says of itself; None is unknown.

    The types are also those of the columns of a library: SQLite would store any type in any column.

    Parameters
    ----------
    taken
        Local time as YYYY-MM-DDTHH:MM:SS.
    taken_from
        "exif", "name", "folder" or "file": the camera, the name of the file or of a folder that
        contains it, or the time of the last change.
    camera
        Maker and model.
    latitude, longitude
        In degrees.
    width, height
        Of the upright photo, in pixels.
    place
        City and country ("Lima, Peru"); region: district, county and state.
    """

    taken: Moment | None = None
    taken_from: Source | None = None
    camera: Text | None = None
    latitude: Annotated[float, Meta(ge=-90, le=90)] | None = None
    longitude: Annotated[float, Meta(ge=-180, le=180)] | None = None
    width: Count | None = None
    height: Count | None = None
    place: Text | None = None
    region: Text | None = None

    @property
    def is_undated(self) -> bool:
        """Whether the photo has no date of its own: the time of the file may be that of a copy."""
        return self.taken_from in (None, "file")

    def as_json(self) -> dict[str, str | float | int]:
        """What is known, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


DETAILS = tuple(field.name for field in fields(Details))
NO_DETAILS = Details()


def find_kind(name: str) -> str:
    """The name of a file's format, for example JPEG or video."""
    found = find_format(name)
    return found.name if found is not None else ""


# Dates

_DATE_IN_NAME = re.compile(
    r"(?<!\d)((?:19|20)\d\d)[-_.]?(0[1-9]|1[0-2])[-_.]?(0[1-9]|[12]\d|3[01])"
    r"(?:[-_. T]*([01]\d|2[0-3])[-_.:h]?([0-5]\d)[-_.:m]?([0-5]\d)(?:\d{3})?)?(?!\d)"
)
_DATE_OF_FOLDER = re.compile(
    r"(?<![^\W_])((?:19|20)\d\d)(?:[-_.]?(0[1-9]|1[0-2])(?:[-_.]?(0[1-9]|[12]\d|3[01]))?)?(?![^\W_])"
)


def find_bounds_of_dates(now: datetime | None = None) -> tuple[str, str]:
    """The earliest and the latest date that a camera whose clock is right can have written."""
    earliest = "1990"  # clocks that were never set show an earlier year
    latest = (now or datetime.now()) + timedelta(days=1)  # of another time zone
    return earliest, latest.isoformat()


def is_doubtful(taken: str | None, now: datetime | None = None) -> bool:
    """Whether a date is missing, in the future or before 1990: then the clock of a camera was wrong."""
    earliest, latest = find_bounds_of_dates(now)
    return taken is None or not earliest <= taken <= latest


def date_in_name(name: str) -> str | None:
    """The date, and the time if there is one, in a file name such as IMG_20190714_123000.jpg."""
    for found in _DATE_IN_NAME.finditer(name):
        try:
            moment = datetime(*(int(part or 0) for part in found.groups()))  # type: ignore[arg-type]
        except ValueError:
            continue
        if moment <= datetime.now() + timedelta(days=1):
            return moment.isoformat()
    return None


def date_of_folder(name: str) -> str | None:
    """The year, month or day in the name of a folder such as "2001-10 United States", as YYYY-MM-DD."""
    for found in _DATE_OF_FOLDER.finditer(name):
        day = "-".join(part for part in found.groups() if part)
        with suppress(ValueError):  # February 31
            datetime.fromisoformat(_first_moment(day))
            if not is_doubtful(day):
                return day
    return None


def read_details(file: str | os.PathLike, root: str | os.PathLike | None = None) -> Details:
    """The details of a photo: from its EXIF, else from its name, the names of its folders up to `root` or the
    file system. `taken` is always known; a doubtful date is used only if there is no other.
    """
    from fishermix_photos.photos.open import read_metadata  # opens decoders; a search needs none

    path = Path(file)
    found = read_metadata(path)
    changed = _time_of_change(path)
    dates: list[tuple[str | None, Source]] = [
        (found.pop("taken", None), "exif"),
        (date_in_name(path.name), "name"),
    ]
    top = path.parent if root is None else Path(root)
    folders = [folder for folder in path.parents if folder.is_relative_to(top)]
    for day in filter(None, (date_of_folder(folder.name) for folder in folders)):
        # The file says it more exactly if it does not contradict.
        dates.append((changed, "file") if changed.startswith(day) else (_first_moment(day), "folder"))
    dates.append((changed, "file"))
    known = [(taken, source) for taken, source in dates if taken is not None]
    taken, source = next((pair for pair in known if not is_doubtful(pair[0])), known[0])
    return Details(taken=taken, taken_from=source, **found)


def _first_moment(day: str) -> str:
    """The beginning of a year, a month or a day."""
    return f"{day}{'-01' * (2 - day.count('-'))}T00:00:00"


def _time_of_change(path: Path) -> str:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime).replace(microsecond=0).isoformat()
    except (OSError, OverflowError, ValueError):
        return "1970-01-01T00:00:00"
