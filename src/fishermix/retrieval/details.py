"""When and where a photo was taken, with what, and its size; and the filters of a search by them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Annotated, Any, Literal

from msgspec import Meta

from fishermix.errors import FishermixError
from fishermix.schemas import Count, Text

EARTH_RADIUS_KM = 6371.0


@dataclass(frozen=True)
class Details:
    """taken : local time as YYYY-MM-DDTHH:MM:SS
    taken_from : where the time is from: "exif", "name" or "file"
    width, height : of the upright photo, in pixels
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


COLUMNS = tuple(Details.__dataclass_fields__)
# What a database may hold of them, after the path: SQLite stores any type in any column.
DetailsRow: Any = tuple[
    bytes,
    Annotated[str, Meta(pattern=r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\Z")] | None,
    Literal["exif", "name", "file"] | None,
    Text | None,
    Annotated[float, Meta(ge=-90, le=90)] | None,
    Annotated[float, Meta(ge=-180, le=180)] | None,
    Count | None,
    Count | None,
]


@dataclass(frozen=True)
class Filter:
    """The photos that a search considers; a photo must meet all conditions that are given.

    Parameters
    ----------
    after : str, optional
        Taken on this day or later: YYYY, YYYY-MM or YYYY-MM-DD.
    before : str, optional
        Taken before this day.
    folder : str, optional
        The name of a folder that contains the photo, or several in a row.
    camera : str, optional
        Part of the name of the camera.
    near : str, optional
        "latitude,longitude,distance", the distance in kilometers: "52.5,13.4,10km".
    shape : "portrait" or "landscape", optional
        The orientation.
    """

    after: str | None = None
    before: str | None = None
    folder: str | None = None
    camera: str | None = None
    near: str | None = None
    shape: str | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in vars(self).values())

    def combine(self, other: Filter | None) -> Filter:
        """Both conditions; where both have one of the same kind, that of `other`.

        Parameters
        ----------
        other : Filter
            Further conditions.
        """
        if other is None:
            return self
        missing = {name: value for name, value in vars(self).items() if getattr(other, name) is None}
        return replace(other, **missing)

    def check(self) -> None:
        """Raise if a condition cannot be understood."""
        for name in ("after", "before"):
            if (text := getattr(self, name)) is not None:
                parse_day(text, f"--{name}")
        if self.near is not None:
            parse_near(self.near)
        for option, text in (("--in", self.folder), ("--camera", self.camera)):
            if text is not None and not text.strip("/ "):
                raise FishermixError(f"{option} must be a name, not '{text}'. Omit it to search all photos.")

    def check_order(self) -> None:
        """Raise if the dates are reversed, so that no photo can meet both."""
        if self.after is None or self.before is None:
            return
        if parse_day(self.after, "--after") >= parse_day(self.before, "--before"):
            raise FishermixError(
                f"No photo is taken in {self.after} or later and before {self.before}. Swap --after and "
                "--before, or omit one of them."
            )

    def matches(self, path: str, details: Details) -> bool:
        """Whether a photo meets all conditions.

        Parameters
        ----------
        path : str
            The path relative to the folder of the index.
        details : Details
            What the index knows of the photo.
        """
        return (
            self._matches_date(details.taken)
            and (self.folder is None or is_in_folder(path, self.folder))
            and (self.camera is None or self.camera.lower() in (details.camera or "").lower())
            and self._matches_place(details.latitude, details.longitude)
            and self._matches_shape(details.width, details.height)
        )

    def _matches_date(self, taken: str | None) -> bool:
        if self.after is None and self.before is None:
            return True
        if taken is None:
            return False
        try:
            day = date.fromisoformat(taken[:10])
        except ValueError:  # of a damaged index: February 31
            return False
        return (self.after is None or day >= parse_day(self.after, "--after")) and (
            self.before is None or day < parse_day(self.before, "--before")
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


def parse_day(text: str, option: str) -> date:
    """The first day of a year, a month or a day."""
    if re.fullmatch(r"\d{4}(-\d{1,2}){0,2}", text):
        year, month, day = [*map(int, text.split("-")), 1, 1][:3]
        try:
            return date(year, month, day)
        except ValueError:
            pass
    raise FishermixError(f"{option} must be a date such as 2019, 2019-07 or 2019-07-14, not '{text}'.")


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
        raise FishermixError(
            f"--near must be a latitude, a longitude and a distance such as 52.5,13.4,10km, not '{text}'."
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


def is_in_folder(path: str, folder: str) -> bool:
    """Whether `folder`, one or several names in a row, is among the folders that contain the photo."""
    inside = f"/{path.lower().rpartition('/')[0]}/"
    return f"/{folder.strip('/').lower()}/" in inside


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
