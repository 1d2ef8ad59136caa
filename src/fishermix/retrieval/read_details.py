"""Read the details of a photo: from its EXIF, else from its name, else from the file system."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from fishermix.retrieval.details import Details, date_in_name
from fishermix.vision.formats import split_part
from fishermix.vision.metadata import read_metadata


def read_details(folder: Path, path: str) -> Details:
    """The details of a photo, by its path relative to the folder. `taken` is always known."""
    file = folder / split_part(path)[0]
    found = read_metadata(file)
    if "taken" in found:
        return Details(taken_from="exif", **found)
    if (taken := date_in_name(file.name)) is not None:
        return Details(taken=taken, taken_from="name", **found)
    try:
        seconds = file.stat().st_mtime
        taken = datetime.fromtimestamp(seconds).replace(microsecond=0).isoformat()
    except (OSError, OverflowError, ValueError):
        taken = "1970-01-01T00:00:00"
    return Details(taken=taken, taken_from="file", **found)
