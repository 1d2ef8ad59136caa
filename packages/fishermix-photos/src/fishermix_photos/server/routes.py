"""The routes of the API. Each reads a request, asks the library once and shows the answer as JSON."""

# No `from __future__ import annotations` here: FastAPI reads the types of the parameters.

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi.responses import PlainTextResponse
from fishermix.caption.consensus import Description
from starlette.concurrency import run_in_threadpool

from fishermix_photos import results
from fishermix_photos.describe import Explanation
from fishermix_photos.query import Filter, parse_query
from fishermix_photos.results import UnknownPhoto, replace_undecodable
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
from fishermix_photos.server.originals import Download, make_picture, open_original
from fishermix_photos.vision.formats import FORMATS
from fishermix_photos.vision.worker import NetworkBytes

MOST_LISTED = 1000
# A year, a month or a day that exists: February 29 in leap years only.
DAY = (
    r"^((19|20)[0-9]{2}(-(0[1-9]|1[0-2]))?"
    r"|(19|20)[0-9]{2}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
    r"|(19(0[48]|[2468][048]|[13579][26])|20([02468][048]|[13579][26]))-02-29)$"
)
KINDS = "|".join(format.name for format in FORMATS)
router = APIRouter(prefix="/api")


@dataclass(frozen=True)
class Site:
    """What the routes need: the library, the threads that compute, the files that are sent, the rules."""

    live: LiveLibrary
    work: Work
    downloads: asyncio.Semaphore
    access: Access


async def get_site(request: Request) -> Site:
    return request.app.state.site


async def read_filter(
    after: Annotated[str | None, Query(pattern=DAY)] = None,
    before: Annotated[str | None, Query(pattern=DAY)] = None,
    folder: Annotated[
        str | None, Query(alias="in", min_length=1, max_length=500, pattern=r"^/|[^/ ]")
    ] = None,
    near: Annotated[str | None, Query(min_length=3, max_length=100, pattern=r"\w")] = None,
    kind: Annotated[str | None, Query(pattern=f"^({KINDS})$")] = None,
) -> Filter:
    """The conditions that photos must meet."""
    return Filter(after=after, before=before, folder=folder, near=near, kind=kind)


async def read_upload(site: Annotated[Site, Depends(get_site)], request: Request) -> np.ndarray:
    """The point of the photo in the body."""
    library, data = site.live.library, await request.body()
    if not data:
        raise HTTPException(400, "The body is empty. Send a photo.")
    return await site.work.run(library.encode_photo, NetworkBytes(data))


Here = Annotated[Site, Depends(get_site)]
Conditions = Annotated[Filter, Depends(read_filter)]
Upload = Annotated[np.ndarray, Depends(read_upload)]
PhotoId = Annotated[str, Query(pattern="^[0-9a-f]{16}$")]
AtMost = Annotated[int, Query(ge=1, le=200)]
QueryText = Annotated[str, Query(min_length=1, max_length=500, pattern=r"\S")]


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
    query = results.Query(parse_query(q), site.live.folders, filter, sort, n, offset, merge_copies=True)
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
    return await show_similar(site, (await find_photo(site, id)).id, n)


@router.post("/similar")
async def similar_to_upload(site: Here, point: Upload, n: AtMost = 12) -> ResultsMessage:
    """Find photos that are similar to the one in the body."""
    return await show_similar(site, point, n)


@router.get("/caption")
async def caption_photo(site: Here, id: PhotoId) -> Description:
    """Write a sentence for a photo of the library."""
    return await site.work.run(site.live.library.describe, (await find_photo(site, id)).id)


@router.post("/caption")
async def caption_upload(site: Here, point: Upload) -> Description:
    """Write a sentence for the photo in the body."""
    return await site.work.run(site.live.library.describe, point)


@router.get("/explain")
async def explain_photo(site: Here, q: QueryText, id: PhotoId) -> Explanation:
    """Show how much each word contributes to a score."""
    photo = await find_photo(site, id)
    return await site.work.run(site.live.library.explain, q, photo.id)


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
