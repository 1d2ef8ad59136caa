"""The routes of the API. Each reads a request, asks the library once and shows the answer as JSON."""

# No `from __future__ import annotations` here: FastAPI reads the types of the parameters.

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi.responses import PlainTextResponse
from starlette.concurrency import run_in_threadpool

from fishermix_photos.index.filters import FILTERS, Filter
from fishermix_photos.model.captioner.consensus import Description
from fishermix_photos.model.explain import Explanation
from fishermix_photos.photos.worker import NetworkBytes
from fishermix_photos.search import results
from fishermix_photos.search.results import UnknownPhoto, replace_undecodable
from fishermix_photos.search.terms import parse_query
from fishermix_photos.server.access import Access
from fishermix_photos.server.guards import Work
from fishermix_photos.server.live import LiveLibrary
from fishermix_photos.server.messages import (
    DuplicatesMessage,
    PhotoMessage,
    ResultsMessage,
    show_duplicates,
    show_photo,
    show_results,
)
from fishermix_photos.server.originals import Archive, Download, Uploads, make_picture, open_original

MOST_LISTED = 1000
LONGEST_TEXT = 500
router = APIRouter(prefix="/api")


@dataclass(frozen=True)
class Site:
    """What the routes need: the library, the threads that compute, the files that are sent, the rules, and
    the photos that were sent.
    """

    live: LiveLibrary
    work: Work
    downloads: asyncio.Semaphore
    access: Access
    uploads: Uploads


async def get_site(request: Request) -> Site:
    return request.app.state.site


def make_filter_reader() -> Callable[..., Filter]:
    """A dependency whose parameters are the rows of `FILTERS`."""

    def read_filter(**conditions: Any) -> Filter:
        """The conditions that photos must meet."""
        return Filter(**conditions)

    parameters = []
    for kind in FILTERS:
        if kind.parameter is not None:
            default: bool | None = None
            rule = Query(alias=kind.parameter, pattern=kind.pattern, max_length=LONGEST_TEXT)
            annotation: Any = Annotated[str | None, rule]
            if kind.is_flag:
                default = False
                annotation = Annotated[bool, Query(alias=kind.parameter)]
            parameters.append(
                Parameter(kind.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            )
    read_filter.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return read_filter


async def read_photo(request: Request) -> NetworkBytes:
    """The photo in the body."""
    body = bytearray()  # one piece of memory, not one for each packet
    async for packet in request.stream():
        body += packet
    if not body:
        raise HTTPException(400, "The body is empty. Send a photo.")
    return NetworkBytes(body)


async def encode_upload(
    site: Annotated[Site, Depends(get_site)], photo: Annotated[NetworkBytes, Depends(read_photo)]
) -> np.ndarray:
    """The point of the photo in the body."""
    return await site.work.run(site.live.library.encode_photo, photo)


Here = Annotated[Site, Depends(get_site)]
Conditions = Annotated[Filter, Depends(make_filter_reader())]
Body = Annotated[NetworkBytes, Depends(read_photo)]
Upload = Annotated[np.ndarray, Depends(encode_upload)]
PhotoId = Annotated[str, Query(pattern="^[0-9a-f]{16}$")]
AtMost = Annotated[int, Query(ge=1, le=200)]
QueryText = Annotated[str, Query(min_length=1, max_length=LONGEST_TEXT, pattern=r"\S")]


# Lists of photos


@router.get("/search")
async def search_photos(
    site: Here,
    q: QueryText,
    filter: Conditions,
    n: AtMost = 30,
    offset: Annotated[int, Query(ge=0, le=10_000)] = 0,
    sort: Literal["score", "date"] = "score",
) -> ResultsMessage:
    """Find the photos that a sentence, or a combination of sentences and photos, describes."""
    query = results.Query(parse_query(q), site.live.folders, filter, sort, n, offset)
    return await site.work.run(lambda: show_results(site.live.library.search(query)))


@router.get("/browse")
async def browse_photos(
    site: Here,
    filter: Conditions,
    n: AtMost = 60,
    offset: Annotated[int, Query(ge=0, le=100_000_000)] = 0,
    sort: Literal["date", "oldest", "name"] = "date",
) -> ResultsMessage:
    """List photos without a query."""
    query = results.Query((), site.live.folders, filter, sort, n, offset)
    return await site.work.run(lambda: show_results(site.live.library.browse(query)))


@router.get("/facets")
async def count_facets(site: Here) -> results.Facets:
    """The years, folders and kinds of the photos, with their numbers."""
    return await site.work.run(site.live.library.facets, site.live.folders)


@router.get("/duplicates")
async def find_duplicates(site: Here) -> DuplicatesMessage:
    """Groups of photos that are the same picture. Nothing is deleted."""
    return await site.work.run(lambda: show_duplicates(site.live.library.duplicates(site.live.folders)))


@router.get("/topics")
async def find_topics(site: Here) -> list[str]:
    """Words that the photos are about, the most typical first."""
    return await site.work.run(site.live.library.topics, site.live.folders)


# A photo of the library, or the one in the body


@router.get("/similar")
async def find_similar(site: Here, id: PhotoId, n: AtMost = 12) -> ResultsMessage:
    """Find photos that are similar to one of the library."""
    return await show_similar(site, await find_any(site, id), n)


@router.post("/similar")
async def similar_to_upload(site: Here, point: Upload, n: AtMost = 12) -> ResultsMessage:
    """Find photos that are similar to the one in the body."""
    return await show_similar(site, point, n)


@router.get("/caption")
async def caption_photo(site: Here, id: PhotoId) -> Description:
    """Write a sentence for a photo of the library, or one that was sent."""
    known = await find_any(site, id)
    return await site.work.run(site.live.library.describe, known, site.uploads.find(known))


@router.post("/caption")
async def caption_upload(site: Here, photo: Body, point: Upload) -> Description:
    """Write a sentence for the photo in the body."""
    return await site.work.run(site.live.library.describe, point, photo)


@router.get("/explain")
async def explain_photo(site: Here, q: QueryText, id: PhotoId) -> Explanation:
    """Show how much each word contributes to a score."""
    photo = await find_photo(site, id)
    query = results.Query(parse_query(q), site.live.folders)
    return await site.work.run(site.live.library.explain, query, photo.id)


@dataclass(frozen=True)
class UploadMessage:
    """The id of a photo that was sent: queries can name it as `photo:ID` until 32 others have come."""

    id: str


@router.post("/uploads")
async def keep_upload(site: Here, photo: Body) -> UploadMessage:
    """Keep the photo in the body for a while, so that searches can use it together with words."""
    id = await site.work.run(site.live.library.keep_photo, photo)
    await site.work.run(site.uploads.keep, id, photo)
    return UploadMessage(id)


async def find_any(site: Site, id: str) -> str:
    """The id of a photo that is served, or that was sent."""
    return id if site.uploads.find(id) else (await find_photo(site, id)).id


async def find_photo(site: Site, id: str) -> results.Photo:
    return await run_in_threadpool(site.live.photo, id)


async def show_similar(site: Site, photo: str | np.ndarray, n: int) -> ResultsMessage:
    live = site.live
    return await site.work.run(lambda: show_results(live.library.similar(photo, n, live.folders)))


# Pictures and files


@router.get("/photos/{id}", response_class=Response)
async def send_picture(
    site: Here,
    id: str,
    size: Literal["small", "large"] = "small",
    v: Annotated[str, Query(max_length=40)] = "",  # ignored; gives a changed file another address
) -> Response:
    """A photo as JPEG, its longest side at most 480 (small) or 1600 (large) pixels."""
    if sent := site.uploads.find(id):
        return Response(sent, media_type="image/jpeg", headers={"Cache-Control": "no-store"})
    data = await site.work.run(make_picture, await find_photo(site, id), size)
    if data is None:
        raise UnknownPhoto(id)
    return Response(data, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=300"})


@router.get("/photos/{id}/details")
async def describe_photo(site: Here, id: str) -> PhotoMessage:
    """What is known of a photo: when, where and with what it was taken, and where it is."""
    return await run_in_threadpool(show_photo, await find_photo(site, id), site.access.local)


@router.get("/photos/{id}/original", response_class=Response)
async def send_original(site: Here, id: str, download: bool = False) -> Response:
    """The file itself, with everything that is in it. Formats that browsers show are shown."""
    found = await run_in_threadpool(open_original, await find_photo(site, id))
    if found is None:
        raise UnknownPhoto(id)
    return Download(site.downloads, found, download)


@router.get("/zip", response_class=Response)
async def send_archive(
    site: Here, id: Annotated[list[PhotoId], Query(min_length=1, max_length=MOST_LISTED)]
) -> Archive:
    """The files of several photos as one ZIP. Photos that are not served are left out."""
    photos = []
    for known in dict.fromkeys(id):
        with suppress(UnknownPhoto):
            photos.append(await find_photo(site, known))
    if not photos:
        raise HTTPException(404, "None of these photos is in the library.")
    return Archive(site.downloads, photos)


@router.get("/export")
def list_paths(
    site: Here, id: Annotated[list[PhotoId], Query(min_length=1, max_length=MOST_LISTED)]
) -> PlainTextResponse:
    """The paths of several photos, one per line. Photos that are not served are left out."""
    paths: dict[str, None] = {}  # each once
    for known in id:
        with suppress(UnknownPhoto):
            photo = site.live.photo(known)
            paths[photo.path if site.access.local else photo.name] = None
    if not paths:
        raise HTTPException(404, "None of these photos is in the library.")
    headers = {"Content-Disposition": 'attachment; filename="photos.txt"'}
    return PlainTextResponse(replace_undecodable("\n".join([*paths, ""])), headers=headers)
