"""A photo of a library."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fishermix_photos.photos.details import NO_DETAILS, Details
from fishermix_photos.photos.formats import TIFF, VIDEO, Place, split_place

Band = Literal["likely", "maybe", "unlikely"]
SEVERAL = VIDEO.name, TIFF.name  # kinds of files that may hold several photos
_ODD_PATH = re.compile(rb"\0|/\.{0,2}(?:/|\Z)")  # names that no listing gives


@dataclass(frozen=True)
class Photo:
    """A photo of the library, or a frame of a video, or a page of a TIFF file.

    id : identifies the photo in its library: 16 hexadecimal digits
    path : the absolute path of the file; bytes that are not text are escaped as by `os.fsdecode`
    folder : the folder of the library that contains it
    text : an excerpt of the text in the photo, if a search looked for it
    label : its name, with as much of its path as tells it from the other folders; see `name_folders`
    time : of a video frame, in seconds
    page : of a TIFF file, if it is not the first one
    details : when, where and with what it was taken
    score : how well the photo matches the query; None without a query
    probability : that the photo is right, if it can be estimated; `band` is the same in words
    similar : near copies that a search found, too: they take no place of their own
    """

    id: str
    path: str
    folder: str
    time: float | None = None
    page: int | None = None
    details: Details = NO_DETAILS
    score: float | None = None
    probability: float | None = None
    band: Band | None = None
    similar: tuple[Photo, ...] = ()
    text: str | None = None
    label: str | None = None

    @property
    def relative(self) -> str:
        """The path relative to the folder."""
        return self.path[len(self.folder.rstrip("/")) + 1 :]

    @property
    def name(self) -> str:
        """The path from the name of the folder on: "Pictures/2019/dog.jpg"."""
        top = os.path.basename(self.folder) if self.label is None else self.label
        return f"{top}/{self.relative}" if top else self.relative

    @property
    def picture(self) -> str:
        """The path with its frame or page, as `open_photo` reads it: "clip.mp4#t=12.5"."""
        if self.page is not None:
            return f"{self.path}#page={self.page}"
        return f"{self.path}#t={self.time:g}" if self.time else self.path


def name_folders(folders: Iterable[str]) -> dict[str, str]:
    """The name of each folder, with as much of its path as no other one ends in.

    >>> name_folders(["/home/ann/Pictures", "/media/disk/Pictures", "/home/ann/Camera"]).values()
    dict_values(['ann/Pictures', 'disk/Pictures', 'Camera'])
    """
    parts = {folder: folder.strip("/").split("/") for folder in folders}
    ends = Counter("/".join(path[-n:]) for path in parts.values() for n in range(1, len(path) + 1))
    names = {}
    for folder, path in parts.items():
        ways = ("/".join(path[-n:]) for n in range(1, len(path) + 1))
        names[folder] = next((way for way in ways if ends[way] == 1), "/".join(path))
    return names


def replace_undecodable(path: str) -> str:
    """A file name as valid text: bytes that are not text become question marks."""
    return path.encode("utf8", "replace").decode("utf8")


def make_photos(
    rows: Sequence[tuple[Any, ...]], folders: Iterable[str], scores: Mapping[int, float] | None = None
) -> list[Photo]:
    """The photos of what a database has of them (row, id, path, path of its folder, kind, details), with the
    scores of their rows. Raises ValueError if one is outside of its folder.

    folders : all folders of the library
    """
    labels = name_folders(folders)
    photos = []
    for row, id, path, folder, kind, *details in rows:
        if not path.startswith(folder.rstrip(b"/") + b"/") or _ODD_PATH.search(path):
            raise ValueError("a photo is outside of its folder")
        name, top = os.fsdecode(path), os.fsdecode(folder)
        place = split_place(name) if kind in SEVERAL else Place(name)
        photos.append(
            Photo(
                id=id,
                path=place.file,
                folder=top,
                time=place.time,
                page=place.page,
                details=Details(*details),
                score=None if scores is None else scores[row],
                label=labels.get(top),
            )
        )
    return photos
