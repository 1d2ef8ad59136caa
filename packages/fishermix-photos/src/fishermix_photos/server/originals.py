"""The original files of photos: one for download or playing, or several in a zip file that is made while it
is sent.
"""

from __future__ import annotations

import asyncio
import os
import stat
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastapi import Response
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from fishermix_photos.results import Photo, replace_undecodable
from fishermix_photos.vision.formats import suffix_of

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


def find_inside(photo: Photo) -> Path | None:
    """The file of a photo without links; None if it is gone or now leads out of its folder."""
    try:
        path = Path(photo.path).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):  # RuntimeError: links that lead to each other
        return None
    return path if path.is_relative_to(photo.folder) else None


def stat_inside(photo: Photo) -> os.stat_result | None:
    """The status of the file of a photo; None as for `find_inside`."""
    path = find_inside(photo)
    try:
        return path.stat() if path is not None else None
    except OSError:
        return None


def open_original(photo: Photo) -> Original | None:
    """Open the file of a photo; None if it is gone, no regular file, or now leads out of its folder."""
    path = find_inside(photo)
    if path is None:
        return None
    # A link that replaced the file in the meantime is not followed; a pipe does not block.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except OSError:
        return None
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        return None
    return Original(path, handle, status)


def has_any_file(photos: Iterable[Photo]) -> bool:
    """Whether the file of one of the photos is still there, and can be read."""
    for photo in photos:
        if (original := open_original(photo)) is not None:
            os.close(original.handle)
            return True
    return False


def find_type(name: str) -> str | None:
    """The media type of a file that browsers show; None for others."""
    return SHOWN.get(suffix_of(name))


TOO_MANY_DOWNLOADS = JSONResponse(
    {"detail": "Too many downloads at once. Try again in a moment."}, 503, {"Retry-After": "2"}
)


class Download(Response):
    """A response that takes one of a few places until it is sent, or the client goes away."""

    def __init__(self, places: asyncio.Semaphore, response: Response, original: Original | None = None):
        super().__init__()
        self._places, self._response, self._original = places, response, original

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if self._places.locked():
                await TOO_MANY_DOWNLOADS(scope, receive, send)
            else:
                async with self._places:
                    await self._response(scope, receive, send)
        finally:
            if self._original is not None:
                os.close(self._original.handle)


def send_file(places: asyncio.Semaphore, original: Original, download: bool) -> Download:
    """The file, or the part of it that a `Range` header asks for."""
    kind = find_type(original.path.name)
    response = FileResponse(
        original.place,
        media_type=kind or "application/octet-stream",
        filename=replace_undecodable(original.path.name),
        stat_result=original.status,
        content_disposition_type="inline" if kind and not download else "attachment",
        headers={"Cache-Control": "private, no-cache"},
    )
    return Download(places, response, original)


def send_zip(places: asyncio.Semaphore, photos: Sequence[Photo]) -> Download:
    """A zip file of the files of these photos."""
    headers = {"Content-Disposition": 'attachment; filename="photos.zip"'}
    return Download(
        places, StreamingResponse(zip_files(photos), media_type="application/zip", headers=headers)
    )


class _Pieces(list[bytes]):
    """A file to write to, whose content is taken piece by piece."""

    def write(self, data: bytes, /) -> int:
        self.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is kept back."""

    def take(self) -> bytes:
        data = b"".join(self)
        self.clear()
        return data


def zip_files(photos: Sequence[Photo]) -> Iterator[bytes]:
    """A zip file with these files, not compressed: photos are. Files that are gone are skipped."""
    pieces, names = _Pieces(), set[str]()
    with zipfile.ZipFile(pieces, "w", zipfile.ZIP_STORED) as archive:  # type: ignore[call-overload]
        for number, photo in enumerate(photos, 1):
            original = open_original(photo)
            if original is None:
                continue
            name = replace_undecodable(photo.name)
            if name in names:  # two folders of the library may have the same name
                name = f"{number}/{name}"
            names.add(name)
            # Times that a zip file cannot hold become the nearest that it can.
            entry = zipfile.ZipInfo.from_file(original.place, name, strict_timestamps=False)
            entry.external_attr = 0o600 << 16
            with (
                os.fdopen(original.handle, "rb") as file,
                archive.open(entry, "w", force_zip64=True) as target,
            ):
                while data := file.read(PIECE):
                    target.write(data)
                    yield pieces.take()
    yield pieces.take()
