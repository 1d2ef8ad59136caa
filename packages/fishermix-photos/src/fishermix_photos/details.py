"""What is known of a photo besides its content: when, where and with what it was taken, and its size."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from fishermix.errors import FishermixError
from fishermix.storage import Count, Text
from msgspec import Meta

from fishermix_photos.vision.formats import find_format

EARTH_RADIUS_KM = 6371.0
DETAILS = ("taken", "taken_from", "camera", "latitude", "longitude", "width", "height")  # columns
# What a database may hold in these columns: SQLite stores any type in any column.
DetailsTypes: Any = (
    Annotated[str, Meta(pattern=r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\Z")] | None,
    Literal["exif", "name", "file"] | None,
    Text | None,
    Annotated[float, Meta(ge=-90, le=90)] | None,
    Annotated[float, Meta(ge=-180, le=180)] | None,
    Count | None,
    Count | None,
)


@dataclass(frozen=True)
class Details:
    """What a photo says of itself; None is unknown.

    Parameters
    ----------
    taken : str, optional
        Local time as YYYY-MM-DDTHH:MM:SS.
    taken_from : {"exif", "name", "file"}, optional
        Where the time is from: the camera, the name of the file, or the time of the last change.
    camera : str, optional
        Maker and model.
    latitude, longitude : float, optional
        Where the photo was taken, in degrees.
    width, height : int, optional
        The size of the upright photo in pixels.
    """

    taken: str | None = None
    taken_from: str | None = None
    camera: str | None = None
    latitude: float | None = None
    longitude: float | None = None
    width: int | None = None
    height: int | None = None

    def as_json(self) -> dict[str, str | float | int]:
        """What is known, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


class BadFilter(FishermixError):
    """A condition that cannot be understood; `values["field"]` is its name in `Filter`."""

    code = "bad_filter"


@dataclass(frozen=True)
class Filter:
    """Which photos a search considers; a photo must meet all conditions that are given.

    Parameters
    ----------
    after : str, optional
        Taken on this day or later: YYYY, YYYY-MM or YYYY-MM-DD.
    before : str, optional
        Taken before this day.
    folder : str, optional
        The name of a folder that contains the photo, or several names in a row. One that begins with a slash
        is a single folder, by its path from the name of the library's folder on: "/Pictures/2019".
    camera : str, optional
        Part of the name of the camera.
    near : str, optional
        "latitude,longitude,distance", the distance in kilometers: "52.5,13.4,10km".
    shape : {"portrait", "landscape"}, optional
        The orientation.
    kind : str, optional
        The name of a format, for example "JPEG" or "video".
    """

    after: str | None = None
    before: str | None = None
    folder: str | None = None
    camera: str | None = None
    near: str | None = None
    shape: str | None = None
    kind: str | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in vars(self).values())

    def combine(self, other: Filter) -> Filter:
        """The conditions of both; where both have one of the same kind, that of `other`.

        Parameters
        ----------
        other : Filter
            Further conditions.
        """
        missing = {name: value for name, value in vars(self).items() if getattr(other, name) is None}
        return replace(other, **missing)

    def check(self) -> None:
        """Raise `BadFilter` if a condition cannot be understood or no photo can meet all of them."""
        bounds = {field: text for field in ("after", "before") if (text := getattr(self, field)) is not None}
        days = [parse_day(text, field) for field, text in bounds.items()]
        if len(days) == 2 and days[0] >= days[1]:
            raise BadFilter(
                f"after {self.after} is later than before {self.before}.", field="after", before=self.before
            )
        if self.near is not None:
            parse_near(self.near)
        for field in ("folder", "camera"):
            text = getattr(self, field)
            if text is not None and text != "/" and not text.strip("/ "):
                raise BadFilter(f"{field} must be a name, not '{text}'.", field=field)

    def matches(self, name: str, details: Details) -> bool:
        """Whether a photo meets all conditions.

        Parameters
        ----------
        name : str
            The path of the photo from the name of the library's folder on: "Pictures/2019/dog.jpg".
        details : Details
            What is known of the photo.
        """
        return (
            self._matches_date(details.taken)
            and (self.folder is None or is_in_folder(name, self.folder))
            and (self.camera is None or self.camera.lower() in (details.camera or "").lower())
            and self._matches_place(details.latitude, details.longitude)
            and self._matches_shape(details.width, details.height)
            and (self.kind is None or find_kind(name) == self.kind)
        )

    def _matches_date(self, taken: str | None) -> bool:
        if self.after is None and self.before is None:
            return True
        if taken is None:
            return False
        try:
            day = date.fromisoformat(taken[:10])
        except ValueError:  # of a damaged library: February 31
            return False
        return (self.after is None or day >= parse_day(self.after, "after")) and (
            self.before is None or day < parse_day(self.before, "before")
        )

    def _matches_place(self, latitude: float | None, longitude: float | None) -> bool:
        if self.near is None:
            return True
        if latitude is None or longitude is None:
            return False
        *place, kilometers = parse_near(self.near)
        return distance_km((place[0], place[1]), (latitude, longitude)) <= kilometers

    def _matches_shape(self, width: int | None, height: int | None) -> bool:
        if self.shape is None:
            return True
        if width is None or height is None:
            return False
        return height > width if self.shape == "portrait" else width > height


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
            f"near must be a latitude, a longitude and a distance such as 52.5,13.4,10km, not '{text}'.",
            field="near",
        )
    return latitude, longitude, distance / 1000 if found and found[4] == "m" else distance


def distance_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """The distance of two places (latitude, longitude) on a sphere, by the haversine formula."""
    phi, other = math.radians(a[0]), math.radians(b[0])
    h = (
        math.sin((other - phi) / 2) ** 2
        + math.cos(phi) * math.cos(other) * math.sin(math.radians(b[1] - a[1]) / 2) ** 2
    )
    return 2 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(h)))


def is_in_folder(name: str, folder: str) -> bool:
    """Whether a photo is in a folder of this name, or of these names in a row; see `Filter.folder`."""
    if folder.startswith("/"):
        return f"/{name}".startswith(f"{folder.rstrip('/')}/")
    inside = f"/{name.lower().rpartition('/')[0]}/"
    return f"/{folder.strip('/').lower()}/" in inside


def find_kind(name: str) -> str:
    """The name of a file's format, for example JPEG or video."""
    found = find_format(name)
    return found.name if found is not None else ""


# Reading

_DATE_IN_NAME = re.compile(
    r"(?<!\d)((?:19|20)\d\d)[-_.]?(0[1-9]|1[0-2])[-_.]?(0[1-9]|[12]\d|3[01])"
    r"(?:[-_. T]*([01]\d|2[0-3])[-_.:h]?([0-5]\d)[-_.:m]?([0-5]\d)(?:\d{3})?)?(?!\d)"
)


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


def read_details(file: str | os.PathLike) -> Details:
    """The details of a photo: from its EXIF, else from its name, else from the file system. `taken` is always
    known.
    """
    from fishermix_photos.vision.open import read_metadata  # opens decoders; a search needs none

    path = Path(file)
    found = read_metadata(path)
    if "taken" in found:
        return Details(taken_from="exif", **found)
    if (taken := date_in_name(path.name)) is not None:
        return Details(taken=taken, taken_from="name", **found)
    try:
        seconds = path.stat().st_mtime
        taken = datetime.fromtimestamp(seconds).replace(microsecond=0).isoformat()
    except (OSError, OverflowError, ValueError):
        taken = "1970-01-01T00:00:00"
    return Details(taken=taken, taken_from="file", **found)
