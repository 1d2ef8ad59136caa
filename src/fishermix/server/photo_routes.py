"""The routes of single photos: their pictures, details, original files and captions; and the export."""

# No `from __future__ import annotations` here: the types of the parameters below depend on the limits given.

import os
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Header, HTTPException, Query, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from fishermix.caption.consensus import Description
from fishermix.retrieval.photo_files import replace_undecodable
from fishermix.server.access import Access
from fishermix.server.catalog import kind_of
from fishermix.server.guards import Limits, Work
from fishermix.server.live import LiveFolder
from fishermix.server.messages import Caption, Details, describe_errors
from fishermix.server.originals import (
    SHOWN,
    Original,
    find_type,
    name_download,
    parse_range,
    read_pieces,
    zip_files,
)
from fishermix.server.photos import PhotoService
from fishermix.server.reveal import can_reveal, reveal
from fishermix.vision.formats import split_part

PhotoId = Annotated[str, Query(pattern="^[0-9a-f]{16}$", description="A photo's id, from a search.")]
BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
ORIGINAL: dict[int | str, dict[str, Any]] = {
    200: {"content": BINARY | {kind: {} for kind in SHOWN.values()}},
    206: {"description": "A part of the file", "content": BINARY | {kind: {} for kind in SHOWN.values()}},
    **describe_errors(404, 416),
}
EXPORT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/zip": BINARY["application/octet-stream"], "text/plain": {}}},
    **describe_errors(404),
}


class Slots:
    """A limit on the downloads at the same time: each has a file open."""

    def __init__(self, most: int):
        self.free = most  # changed by the event loop's thread only

    def take(self) -> None:
        if not self.free:
            raise HTTPException(
                503, "Too many downloads at once. Try again in a moment.", {"Retry-After": "2"}
            )
        self.free -= 1

    def give_back(self) -> None:
        self.free += 1


class Download(StreamingResponse):
    """A response that gives its slot back and closes its file, also if the client goes away."""

    def __init__(self, pieces: Iterator[bytes], finish: Callable[[], None], **options: Any):
        super().__init__(pieces, **options)
        self._finish = finish

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._finish()


def add_photo_routes(app: FastAPI, live: LiveFolder, work: Work, limits: Limits, access: Access) -> None:
    slots = Slots(limits.downloads)
    ids = Annotated[
        list[PhotoId],
        Query(min_length=1, max_length=limits.export, description="Ids of photos, from a search."),
    ]

    @app.get(
        "/api/photos/{id}",
        response_class=Response,
        responses={200: {"content": {"image/jpeg": {}}}, **describe_errors(404)},
    )
    async def photo(
        id: str,
        size: Literal["small", "large"] = "small",
        v: Annotated[
            str, Query(max_length=40, description="Ignored; gives a changed file another address.")
        ] = "",
    ) -> Response:
        """A photo as JPEG, its longest side at most 480 (small) or 1600 (large) pixels."""
        data = await work.run(live.service.make_picture, id, size)
        return Response(data, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=300"})

    @app.get("/api/photos/{id}/details", responses=describe_errors(404))
    async def details(id: str) -> Details:
        """What is known of a photo: when, where and with what it was taken, and where it is."""
        return await run_in_threadpool(describe_photo, live.service, id, access.local)

    @app.get("/api/photos/{id}/original", response_class=Response, responses=ORIGINAL)
    async def original(
        id: str, download: bool = False, range: Annotated[str | None, Header(include_in_schema=False)] = None
    ) -> Response:
        """The file itself, with everything that is in it. Formats that browsers show are shown."""
        slots.take()
        try:
            found = await run_in_threadpool(live.service.open_original, id)
        except BaseException:
            slots.give_back()
            raise

        def finish() -> None:
            found.file.close()
            slots.give_back()

        return send_original(found, range, download, finish)

    @app.post("/api/photos/{id}/reveal", status_code=204, responses=describe_errors(404))
    async def show_in_folder(id: str) -> Response:
        """Open the photo's folder in the file manager of this machine."""
        if not access.local or not can_reveal():
            raise HTTPException(
                403, "Only a server on this machine, with a screen, can open its file manager."
            )
        reveal(await run_in_threadpool(live.service.file_of, id))
        return Response(status_code=204)

    @app.get("/api/export", response_class=Response, responses=EXPORT)
    async def export(id: ids, kind: Literal["zip", "list"] = "zip") -> Response:
        """Several photos as a zip file of the originals, or the list of their paths, one per line."""
        service = live.service
        paths = await run_in_threadpool(find_paths, service, id)
        if not paths:
            raise HTTPException(404, "None of these photos is in the index.")
        if kind == "list":
            lines = [str(service.index.folder / path) if access.local else path for path in paths]
            text = replace_undecodable("".join(f"{line}\n" for line in lines))
            return PlainTextResponse(text, headers={"Content-Disposition": name_download("photos.txt")})
        if not await run_in_threadpool(has_any_file, service, paths):
            raise HTTPException(404, "The files of these photos are gone.")
        slots.take()
        return Download(
            zip_files(paths, service.open_file),
            slots.give_back,
            media_type="application/zip",
            headers={"Content-Disposition": name_download("photos.zip")},
        )


def send_original(found: Original, range: str | None, download: bool, finish: Callable[[], None]) -> Response:
    """The file, or the part of it that a `Range` header asks for; `finish` is called at the end."""
    try:
        part = parse_range(range, found.size)
    except ValueError:
        finish()
        headers = {"Content-Range": f"bytes */{found.size}"}
        raise HTTPException(416, "The file is not that long.", headers) from None
    start, end = part or (0, found.size)
    kind = find_type(found.name)
    headers = {
        "Content-Disposition": name_download(found.name, inline=bool(kind and not download)),
        "Content-Length": str(end - start),
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
    }
    if part:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{found.size}"
    return Download(
        read_pieces(found, start, end),
        finish,
        status_code=206 if part else 200,
        media_type=kind or "application/octet-stream",
        headers=headers,
    )


def find_paths(service: PhotoService, ids: list[str]) -> list[str]:
    """The files of photos, each once."""
    found = (service.index.store.path_of(photo) for photo in ids)
    return list(dict.fromkeys(split_part(path)[0] for path in found if path is not None))


def has_any_file(service: PhotoService, paths: list[str]) -> bool:
    """Whether one of the files is still there, and can be read."""
    for path in paths:
        if (found := service.open_file(path)) is not None:
            found.file.close()
            return True
    return False


def describe_photo(service: PhotoService, photo: str, local: bool) -> Details:
    path, known = service.path_of(photo), service.details_of(photo)
    file = service.index.folder / split_part(path)[0]
    return Details(
        **describe_item(service, photo, path, known),
        file=replace_undecodable(str(file)) if local else None,
        bytes=status.st_size if (status := _stat(service, split_part(path)[0])) else None,
        camera=known.camera,
        latitude=known.latitude,
        longitude=known.longitude,
        taken_from=known.taken_from,
        playable=find_type(file.name) is not None,
    )


def describe_item(service: PhotoService, photo: str, path: str, known: Any) -> dict[str, Any]:
    """The fields of `Item`."""
    file, part, number = split_part(path)
    kind = kind_of(path)
    return {
        "id": photo,
        "path": replace_undecodable(file),
        "kind": kind,
        "taken": known.taken if known else None,
        "width": known.width if known else None,
        "height": known.height if known else None,
        "version": f"{status.st_mtime_ns:x}" if (status := _stat(service, file)) else "",
        "time": number if kind == "video" else None,
        "page": int(number) if part == "page" else None,
    }


def make_caption(found: Description) -> Caption:
    return Caption(caption=found.sentence, confidence=found.confidence, unsure=found.unsure)


def _stat(service: PhotoService, relative: str) -> os.stat_result | None:
    """The status of a file of the folder; None if it is gone or leads out of the folder."""
    file = service.find_file(relative)
    try:
        return file.stat() if file is not None else None
    except OSError:
        return None
