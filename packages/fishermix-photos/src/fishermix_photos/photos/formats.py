"""Which files look like photos, which package reads each format, and what a photo in a file is called.

This module imports no decoder: a search of a library that is up to date looks at file names only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

from fishermix.errors import FishermixError, install_command


class UnreadableImage(FishermixError):
    """An image that cannot be decoded; `reason` says why in words for its owner.

    may_change : whether the same bytes may be readable later: with a higher limit, or another package
    code : the kind of reason, such as "too_large"
    """

    def __init__(self, reason: str, name: str = "the image", may_change: bool = False, code: str = "damaged"):
        super().__init__(f"Cannot read {name}: {reason}.", code=code)
        self.reason, self.may_change = reason, may_change


@dataclass(frozen=True)
class Format:
    """suffixes : the lower-case endings of file names
    module : the module that reads the format; None if nothing in fishermix does
    extra : the extra of fishermix-photos that installs the module; None if it is always installed
    """

    name: str
    suffixes: tuple[str, ...]
    module: str | None = "PIL"
    extra: str | None = None

    @property
    def is_installed(self) -> bool:
        return self.module is not None and (self.module == "PIL" or _has_module(self.module))


FORMATS = (
    Format("JPEG", (".jpg", ".jpeg", ".jpe", ".jfif", ".mpo")),
    Format("PNG", (".png", ".apng")),
    Format("WebP", (".webp",)),
    Format("GIF", (".gif",)),
    Format("BMP", (".bmp", ".dib")),
    Format("TIFF", (".tif", ".tiff")),
    Format("PPM", (".ppm", ".pgm", ".pbm", ".pnm")),
    Format("AVIF", (".avif",)),
    Format("HEIC", (".heic", ".heif", ".hif"), "pillow_heif"),
    Format("JPEG XL", (".jxl",), "pillow_jxl", "jxl"),
    Format(
        "RAW",
        (".dng", ".cr2", ".cr3", ".nef", ".nrw", ".arw", ".raf", ".orf", ".rw2", ".pef", ".srw"),
        "rawpy",
        "raw",
    ),
    Format("video", (".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi", ".3gp"), "av", "video"),
)
# Pictures that fishermix does not read: they are counted, so that nobody looks for them in vain.
UNSUPPORTED = Format(
    "unsupported",
    (".jp2", ".j2k", ".psd", ".psb", ".xcf", ".exr", ".hdr", ".tga", ".ico", ".svg", ".eps", ".wmv", ".mpg")
    + (".crw", ".mrw", ".x3f", ".3fr", ".iiq", ".erf", ".kdc", ".dcr", ".sr2", ".rwl", ".gpr"),
    None,
)
_BY_SUFFIX = {suffix: format for format in (*FORMATS, UNSUPPORTED) for suffix in format.suffixes}
_BY_NAME = {format.name: format for format in FORMATS}
RAW, VIDEO, TIFF = _BY_NAME["RAW"], _BY_NAME["video"], _BY_NAME["TIFF"]


@cache
def _has_module(name: str) -> bool:
    return find_spec(name) is not None


def suffix_of(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def find_format(name: str) -> Format | None:
    """The format that the suffix of a file name announces; None if it is no picture."""
    return _BY_SUFFIX.get(suffix_of(name))


def check_installed(name: str) -> None:
    """Raise if the package that reads the format with this name is not installed."""
    if not _BY_NAME[name].is_installed:
        reason = f"reading {name} needs another package: {explain_missing(_BY_NAME[name])}"
        raise UnreadableImage(reason, may_change=True, code="missing_package")


def count_photos(number: int) -> str:
    return f"{number:,} photo" if number == 1 else f"{number:,} photos"


def explain_skipped(counts: Mapping[str, int]) -> list[str]:
    """A sentence for each suffix of files that look like photos and are not read, with what to install."""
    sentences = []
    for suffix, count in sorted(counts.items()):
        files = f"1 {suffix} file was" if count == 1 else f"{count:,} {suffix} files were"
        sentences.append(f"{files} skipped: {explain_missing(_BY_SUFFIX[suffix])}.")
    return sentences


def explain_missing(format: Format) -> str:
    """What to do to read a format that is not installed."""
    if format.module is None:
        return "fishermix does not read this format"
    if format.extra is None:
        return "reinstall fishermix-photos"
    return install_command(f"fishermix-photos[{format.extra}]")


def list_formats() -> str:
    """The names of all formats that this installation reads."""
    return ", ".join(format.name for format in FORMATS if format.is_installed)


# A file may hold several photos: the frames of a video and the pages of a TIFF file.


class Place(NamedTuple):
    """Where a photo is: its file, and in it the time of a frame in seconds or the page of a TIFF file.

    time : None if the file is not a video
    page : None if it is the first page, or the file has no pages
    """

    file: str
    time: float | None = None
    page: int | None = None


_PLACE = re.compile(r"(.+)#(t|page)=(\d{1,9}(?:\.\d{1,9})?)", re.DOTALL)


def split_place(place: str) -> Place:
    """`clip.mp4#t=12.5` is a frame of clip.mp4, `scan.tif#page=2` a page of scan.tif.

    The first frame and the first page have the name of the file.
    """
    if "#" in place and (found := _PLACE.fullmatch(place)):
        file, kind, number = found.groups()
        format = find_format(file)
        if kind == "t" and format is VIDEO:
            return Place(file, time=float(number))
        if kind == "page" and format is TIFF and number.isdecimal():
            return Place(file, page=int(number))
    return Place(place, time=0.0 if find_format(place) is VIDEO else None)


def may_hold_several(file: str) -> bool:
    """Whether a file may hold several photos: a video or a TIFF file."""
    return find_format(file) in (VIDEO, TIFF)


def is_whole_file(place: str) -> bool:
    """Whether a place is a file, not a later frame or page of one."""
    return split_place(place).file == place
