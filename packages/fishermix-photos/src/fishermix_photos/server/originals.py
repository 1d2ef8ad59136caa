"""The files of photos: small copies of them, and the originals for download or playing."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import time
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from fishermix_photos.contact_sheet import make_thumbnail
from fishermix_photos.index.scan import Stamp, read_stamp
from fishermix_photos.library import REMEMBERED_UPLOADS
from fishermix_photos.photos.formats import suffix_of
from fishermix_photos.search.results import Photo, replace_undecodable

SMALL_SIDE, LARGE_SIDE = 480, 1600
PIECE = 1 << 18  # bytes of a file that are read at once
THUMBNAILS_IN_MEMORY = 2000  # about 50 MB
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


@dataclass(frozen=True)
class Original:
    """An open file of a folder. Whoever gets it closes it."""

    path: Path
    handle: int
    status: os.stat_result

    @property
    def place(self) -> str | Path:
        """The file by its descriptor: what the path leads to may have changed since it was opened."""
        return f"/dev/fd/{self.handle}" if os.name == "posix" else self.path


def find_inside(photo: Photo) -> tuple[Path, os.stat_result] | None:
    """The file of a photo without links; None if it is gone or now leads out of its folder."""
    try:
        path = Path(photo.path).resolve(strict=True)
        return (path, path.stat()) if path.is_relative_to(photo.folder) else None
    except (OSError, ValueError, RuntimeError):  # RuntimeError: links that lead to each other
        return None


def make_picture(photo: Photo, size: str) -> bytes | None:
    """A photo as JPEG, small or large; None if its file is gone or leads out of its folder."""
    found = find_inside(photo)
    if found is None:
        return None
    picture = f"{found[0]}{photo.picture.removeprefix(photo.path)}"
    if size == "large":
        return make_thumbnail(picture, LARGE_SIDE)
    return _make_small(picture, read_stamp(found[1]))


@lru_cache(THUMBNAILS_IN_MEMORY)
def _make_small(picture: str, stamp: Stamp) -> bytes:
    """A small copy of the file that has this stamp."""
    return make_thumbnail(picture, SMALL_SIDE)


class Uploads:
    """Small copies of the last photos that were sent, by the ids that the library gives them; several threads
    may keep some at the same time.
    """

    def __init__(self) -> None:
        self._pictures: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def keep(self, id: str, photo: bytes) -> None:
        if id in self._pictures:
            return
        picture = make_thumbnail(photo, SMALL_SIDE)
        with self._lock:
            self._pictures[id] = picture
            if len(self._pictures) > REMEMBERED_UPLOADS:
                del self._pictures[next(iter(self._pictures))]

    def find(self, id: str) -> bytes | None:
        """The photo as JPEG; None if it is not kept, or not any more."""
        return self._pictures.get(id)


def open_original(photo: Photo) -> Original | None:
    """Open the file of a photo; None if it is gone, no regular file, or now leads out of its folder."""
    found = find_inside(photo)
    if found is None:
        return None
    # A link that replaced the file is not followed; a pipe does not block. Windows has neither flag.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(found[0], flags | getattr(os, "O_BINARY", 0))
    except OSError:
        return None
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        return None
    return Original(found[0], handle, status)


def find_type(name: str) -> str | None:
    """The media type of a file that browsers show; None for others."""
    return SHOWN.get(suffix_of(name))


TOO_MANY_DOWNLOADS = JSONResponse(
    {"detail": "Too many downloads at once. Try again in a moment."}, 503, {"Retry-After": "2"}
)


class Download(FileResponse):
    """The file, or the part of it that a `Range` header asks for.

    It takes one of a few places until it is sent, or the client goes away.
    """

    def __init__(self, places: asyncio.Semaphore, original: Original, download: bool):
        kind = find_type(original.path.name)
        super().__init__(
            original.place,
            media_type=kind or "application/octet-stream",
            filename=replace_undecodable(original.path.name),
            stat_result=original.status,
            content_disposition_type="inline" if kind and not download else "attachment",
            headers={"Cache-Control": "private, no-cache"},
        )
        self._places, self._original = places, original

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if self._places.locked():
                await TOO_MANY_DOWNLOADS(scope, receive, send)
            else:
                async with self._places:
                    await super().__call__(scope, receive, send)
        finally:
            os.close(self._original.handle)


class Archive(StreamingResponse):
    """The files of photos as one ZIP, made while it is sent. It takes one of the places of downloads."""

    def __init__(self, places: asyncio.Semaphore, photos: Iterable[Photo]):
        headers = {"Content-Disposition": 'attachment; filename="photos.zip"', "Cache-Control": "no-store"}
        super().__init__(zip_photos(photos), media_type="application/zip", headers=headers)
        self._places = places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._places.locked():
            await TOO_MANY_DOWNLOADS(scope, receive, send)
        else:
            async with self._places:
                await super().__call__(scope, receive, send)


class _Pipe:
    """What a ZIP file is written to, and taken from. It cannot be sought."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: bytes) -> int:
        self._written += data
        return len(data)

    def flush(self) -> None:
        """Do nothing: nothing is held back."""

    def take(self) -> bytes:
        """All that was written since the last time."""
        taken, self._written = bytes(self._written), bytearray()
        return taken


def zip_photos(photos: Iterable[Photo]) -> Iterator[bytes]:
    """The files of photos as one ZIP, piece by piece, uncompressed; those that cannot be read are listed."""
    pipe = _Pipe()
    names = set[str]()
    missing = list[str]()
    with ZipFile(pipe, "w") as archive:  # type: ignore[call-overload]  # it only writes
        for photo in photos:
            name = find_free_name(replace_undecodable(photo.name), names)
            original = open_original(photo)
            if original is None:
                missing.append(name)
                continue
            names.add(name)
            with os.fdopen(original.handle, "rb") as file:
                taken = max(time.localtime(original.status.st_mtime)[:6], (1980, 1, 1, 0, 0, 0))
                entry = ZipInfo(name, taken)
                entry.external_attr = 0o644 << 16
                with archive.open(entry, "w", force_zip64=True) as out:
                    while piece := file.read(PIECE):
                        out.write(piece)
                        yield pipe.take()
        if missing:
            archive.writestr("could not be read.txt", "\n".join([*missing, ""]))
    yield pipe.take()


def find_free_name(name: str, taken: Container[str]) -> str:
    """A name that is not taken: "dog.jpg", "dog (2).jpg"."""
    stem, suffix = os.path.splitext(name)
    number = 1
    free = name
    while free in taken:
        number += 1
        free = f"{stem} ({number}){suffix}"
    return free
