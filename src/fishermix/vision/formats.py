"""The table of formats: which files look like photos, which package reads them, what installs it.

This module imports no decoder: a search of an indexed folder looks at file names only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from fishermix.extras import install_command


class PictureProblem(ValueError):
    """Why a file that is not damaged cannot be read as a photo, in words for the user."""


@dataclass(frozen=True)
class Format:
    """suffixes : the lower-case endings of file names
    module : the module that reads the format; None if nothing in fishermix does
    extra : the extra of fishermix that installs the module; None if it is always installed
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
RAW, VIDEO = FORMATS[-2:]
# Pictures that fishermix does not read: they are counted, so that nobody looks for them in vain.
UNSUPPORTED = Format(
    "unsupported",
    (".jp2", ".j2k", ".psd", ".psb", ".xcf", ".exr", ".hdr", ".tga", ".ico", ".svg", ".eps", ".wmv", ".mpg")
    + (".crw", ".mrw", ".x3f", ".3fr", ".iiq", ".erf", ".kdc", ".dcr", ".sr2", ".rwl", ".gpr"),
    None,
)
_BY_SUFFIX = {suffix: one for one in (*FORMATS, UNSUPPORTED) for suffix in one.suffixes}
_PART = re.compile(r"(.+)#(t|page)=(\d+(?:\.\d+)?)", re.DOTALL)


@cache
def _has_module(name: str) -> bool:
    return find_spec(name) is not None


def suffix_of(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def find_format(name: str) -> Format | None:
    """The format that the suffix of a file name announces; None if it is no picture."""
    return _BY_SUFFIX.get(suffix_of(name))


def get_format(name: str) -> Format:
    return next(one for one in FORMATS if one.name == name)


def is_photo_name(name: str) -> bool:
    """Whether the suffix of a file name announces a format that this installation reads."""
    found = find_format(name)
    return found is not None and found.is_installed


def explain_skipped(counts: Mapping[str, int]) -> list[str]:
    """A sentence for each suffix of files that look like photos and are not read, with what to install."""
    sentences = []
    for suffix, count in sorted(counts.items()):
        found = _BY_SUFFIX[suffix]
        files = f"1 {suffix} file was" if count == 1 else f"{count:,} {suffix} files were"
        sentences.append(f"{files} skipped: {explain_missing(found)}.")
    return sentences


def explain_missing(found: Format) -> str:
    """What to do to read a format that is not installed."""
    if found.module is None:
        return "fishermix does not read this format"
    if found.extra is None:
        return f"pip install {found.module.replace('_', '-')}"
    return install_command(found.extra)


def list_formats() -> str:
    """The names of all formats that this installation reads."""
    return ", ".join(one.name for one in FORMATS if one.is_installed)


# Parts: a frame of a video is named `clip.mp4#t=12.5` (seconds), a page of a TIFF file `scan.tif#page=2`.
# The first frame and the first page have the name of the file.


def split_part(path: str) -> tuple[str, str, float]:
    """The file, the kind of part ("t", "page" or "") and the time in seconds or the page, counted from 1."""
    if "#" in path and (found := _PART.fullmatch(path)):
        file, kind, number = found.groups()
        announced = find_format(file)
        if announced is not None and announced.name == {"t": "video", "page": "TIFF"}[kind]:
            return file, kind, float(number)
    return path, "", 0.0


def is_part(path: str) -> bool:
    """Whether a path is that of a later frame of a video or of a later page, not that of a file."""
    return split_part(path)[0] != path


def may_have_parts(path: str) -> bool:
    """Whether a file may be several photos: the frames of a video or the pages of a TIFF file."""
    found = find_format(path)
    return found is not None and found.name in ("video", "TIFF")


def locate_part(path: str) -> tuple[str, float | None, int | None]:
    """The file, the time in seconds if it is a video, and the page of a TIFF file if it is not the first."""
    file, part, number = split_part(path)
    is_video = find_format(file) is VIDEO
    return file, number if is_video else None, int(number) if part == "page" else None
