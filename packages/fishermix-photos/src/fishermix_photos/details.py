"""What is known of a photo besides its content: when, where and with what it was taken, and its size."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from fishermix.storage import Count, Text
from msgspec import Meta

from fishermix_photos.vision.formats import find_format

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
        """What is known, by name.

        Returns
        -------
        details : dict
        """
        return {name: value for name, value in vars(self).items() if value is not None}


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
