"""The original files of photos: one for download or playing, several in a zip file that is made while it is
sent.
"""

from __future__ import annotations

import io
import os
import re
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from fishermix.vision.formats import suffix_of

PIECE = 256 << 10  # bytes read at once
# What browsers show themselves. Other files are only ever downloaded, whatever they contain.
SHOWN = {
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
    ".gif": "image/gif",
    ".avif": "image/avif",
    ".mp4": "video/mp4",
    ".m4v": "video/mp4",
    ".mov": "video/mp4",
    ".webm": "video/webm",
}
EARLIEST_IN_ZIP = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Original:
    """An open file of the folder. Whoever gets it closes it."""

    name: str
    file: BinaryIO
    size: int
    modified: float


def find_inside(folder: Path, relative: str) -> Path | None:
    """The path of a file of the folder without links; None if it is gone or now leads out of the folder."""
    try:
        path = (folder / relative).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):  # RuntimeError: links that lead to each other
        return None
    return path if path.is_relative_to(folder) else None


def open_original(folder: Path, relative: str) -> Original | None:
    """Open a file of the folder; None if it is gone, no regular file, or now leads out of the folder."""
    try:
        path = find_inside(folder, relative)
        if path is None:
            return None
        # A link that replaced the file in the meantime is not followed; a pipe does not block.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        handle = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError):
        return None
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        return None
    return Original(path.name, os.fdopen(handle, "rb"), status.st_size, status.st_mtime)


def find_type(name: str) -> str | None:
    """The media type of a file that browsers show; None for others."""
    return SHOWN.get(suffix_of(name))


def name_download(name: str, inline: bool = False) -> str:
    """The `Content-Disposition` of a file name (RFC 6266)."""
    name = name.encode("utf8", "replace").decode("utf8")
    plain = re.sub(r"[^A-Za-z0-9 ._()-]", "_", name)
    kind = "inline" if inline else "attachment"
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """The first byte and the one after the last of a `Range` header with one range. None: send everything, as
    the standard allows. Raises ValueError if no byte of the file is asked for.
    """
    found = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", header or "")
    if not found or found[1] == found[2] == "":
        return None
    if not found[1]:
        length = min(int(found[2]), size)
        if not length:
            raise ValueError
        return size - length, size
    start = int(found[1])
    if found[2] and int(found[2]) < start:
        return None  # not a valid range: ignored
    if start >= size:
        raise ValueError
    return start, min(int(found[2]) + 1, size) if found[2] else size


def read_pieces(original: Original, start: int, end: int) -> Iterator[bytes]:
    """The bytes from `start` to `end`; fewer if the file has become shorter."""
    with original.file as file:
        file.seek(start)
        while start < end and (data := file.read(min(PIECE, end - start))):
            start += len(data)
            yield data


class _Pieces(io.RawIOBase):
    """A file to write to, whose content is taken piece by piece."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data


def zip_files(paths: list[str], open_file: Callable[[str], Original | None]) -> Iterator[bytes]:
    """A zip file with these files, not compressed: photos are. Files that are gone are skipped."""
    pieces = _Pieces()
    with zipfile.ZipFile(pieces, "w", zipfile.ZIP_STORED) as archive:
        for path in paths:
            original = open_file(path)
            if original is None:
                continue
            entry = zipfile.ZipInfo(
                path.encode("utf8", "replace").decode("utf8"), _zip_time(original.modified)
            )
            entry.external_attr = 0o600 << 16
            with archive.open(entry, "w", force_zip64=True) as target:
                for data in read_pieces(original, 0, original.size):
                    target.write(data)
                    yield pieces.take()
    yield pieces.take()


def _zip_time(seconds: float) -> tuple[int, int, int, int, int, int]:
    with suppress(OSError, OverflowError, ValueError):
        moment = datetime.fromtimestamp(seconds)
        if 1980 <= moment.year < 2108:
            return (moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second)
    return EARLIEST_IN_ZIP
