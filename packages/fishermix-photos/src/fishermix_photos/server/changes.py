"""What only the owner of this machine may do: list its folders, add one to the library, copy photos to one.

The owner is who opened the link of the terminal, on this machine. Nothing is deleted or overwritten.
"""

# No `from __future__ import annotations` here: FastAPI reads the types of the parameters.

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fishermix.errors import FishermixError
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from fishermix_photos.disk import explain_os_error
from fishermix_photos.photos.formats import find_format
from fishermix_photos.search.results import Photo, UnknownPhoto
from fishermix_photos.server.guards import find_port
from fishermix_photos.server.originals import open_original
from fishermix_photos.server.routes import MOST_LISTED, Here

MOST_FOLDERS = 2000  # of a list
FolderPath = Annotated[str, Field(min_length=1, max_length=4000)]


async def expect_owner(site: Here, request: Request) -> None:
    """Raise unless the request is the owner's."""
    if site.access.find_rights(request.headers, find_port(request.scope)) != "allowed":
        raise HTTPException(
            403, "Open the link that `fishermix serve` printed in its terminal: it allows this."
        )


router = APIRouter(prefix="/api", dependencies=[Depends(expect_owner)])


@dataclass(frozen=True)
class Subfolder:
    """A folder inside another."""

    name: str
    path: str


@dataclass(frozen=True)
class PlaceMessage:
    """A folder of this machine.

    parent : the folder that contains it; None for the root
    folders : those inside that are not hidden
    photos : the number of photos in the folder itself, by their names
    """

    path: str
    parent: str | None
    folders: tuple[Subfolder, ...]
    photos: int


class NewFolder(BaseModel):
    """A folder to add."""

    path: FolderPath


@dataclass(frozen=True)
class AddedFolder:
    """A folder that is being added, and its number of photos."""

    name: str
    photos: int


class CopyRequest(BaseModel):
    """Photos to copy, and the folder that gets them."""

    ids: Annotated[
        list[Annotated[str, Field(pattern="^[0-9a-f]{16}$")]], Field(min_length=1, max_length=MOST_LISTED)
    ]
    folder: FolderPath


@dataclass(frozen=True)
class CopyMessage:
    """How many files were copied, and how many could not be read."""

    copied: int
    left_out: int


@router.get("/places")
def list_place(path: Annotated[str, Query(max_length=4000)] = "") -> PlaceMessage:
    """The folders inside a folder of this machine; by default, of your home folder."""
    return look_at(parse_path(path or "~"))


@router.post("/folders")
async def add_folder(site: Here, folder: NewFolder) -> AddedFolder:
    """Add a folder to the library. Its photos can be found as soon as they are analyzed."""
    name, photos = await run_in_threadpool(site.live.add, parse_path(folder.path))
    return AddedFolder(name, photos)


@router.post("/copies")
async def copy_selection(site: Here, request: CopyRequest) -> CopyMessage:
    """Copy the files of photos to a folder of this machine. Existing files stay as they are."""
    photos = []
    for id in dict.fromkeys(request.ids):
        with suppress(UnknownPhoto):
            photos.append(await run_in_threadpool(site.live.photo, id))
    copied = await run_in_threadpool(copy_photos, photos, parse_path(request.folder))
    return CopyMessage(copied, len({*request.ids}) - copied)


def parse_path(text: str) -> Path:
    """The absolute path that a person typed."""
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:
        raise FishermixError(f"{text} names a user that does not exist.", code="wrong_folder") from error
    if not path.is_absolute() or "\0" in text:
        raise FishermixError(
            f"'{text}' is not a full path. Type one such as /home/me/Pictures or ~/Pictures.",
            code="wrong_folder",
        )
    return Path(os.path.normpath(path))


def look_at(place: Path) -> PlaceMessage:
    """What is in a folder. Hidden folders and links are left out: the library does not follow them."""
    folders = []
    photos = 0
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith(".") and entry.name.isprintable():
                        folders.append(Subfolder(entry.name, entry.path))
                elif find_format(entry.name) is not None:
                    photos += 1
    except OSError as error:
        raise FishermixError(f"{place} cannot be opened ({error.strerror}).", code="no_permission") from error
    folders.sort(key=lambda folder: folder.name.casefold())
    parent = None if place.parent == place else str(place.parent)
    return PlaceMessage(path=str(place), parent=parent, folders=tuple(folders[:MOST_FOLDERS]), photos=photos)


def copy_photos(photos: Sequence[Photo], folder: Path) -> int:
    """Copy the files of photos to a folder, which is created if only it is missing; returns their number."""
    if not os.path.isdir(folder):
        try:
            folder.mkdir()
        except OSError as error:
            raise FishermixError(
                f"The folder {folder} cannot be created ({error.strerror}).", code="cannot_write"
            ) from error
    copied = 0
    for photo in photos:
        original = open_original(photo)
        if original is None:
            continue
        with os.fdopen(original.handle, "rb") as file:
            try:
                copy_file(file, original.status, folder, os.path.basename(photo.path))
            except OSError as error:
                raise FishermixError(
                    f"{copied} files were copied to {folder}, then it failed. {explain_os_error(error)}",
                    code="cannot_write",
                ) from error
        copied += 1
    return copied


def copy_file(file, status: os.stat_result, folder: Path, name: str) -> None:
    """Write an open file under its name, or the next free one: "dog (2).jpg". It is whole, or not there."""
    stem, suffix = os.path.splitext(name)
    number = 1
    while True:
        target = folder / (name if number == 1 else f"{stem} ({number}){suffix}")
        try:
            with open(target, "xb") as out:  # never an existing file, nor through a link
                try:
                    shutil.copyfileobj(file, out, 1 << 20)
                except BaseException:
                    target.unlink()
                    raise
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
            return
        except FileExistsError:
            number += 1
