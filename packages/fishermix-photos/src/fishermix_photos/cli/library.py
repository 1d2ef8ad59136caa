"""`fishermix library`: add folders to the library, update, list and remove them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from fishermix.errors import FishermixError

from fishermix_photos.cli import App, app, options
from fishermix_photos.cli.common import open_library, say, say_json, tell
from fishermix_photos.cli.search import tell_changes
from fishermix_photos.photos.formats import count_photos, explain_skipped

if TYPE_CHECKING:
    from fishermix_photos.library import PhotoLibrary
    from fishermix_photos.search.results import FolderStatus

EMPTY = "Your library is empty. Add a folder with `fishermix library add FOLDER`."

library_app = App(
    help="Add, update, list and remove the folders of your photo library.\n\n"
    "The library is in your data folder. --library PLACE uses another directory, or "
    "postgresql://HOST/DATABASE, a library that several machines share. The environment variable "
    "FISHERMIX_HOME selects another data folder."
)
app.add_typer(library_app, name="library")


@library_app.command(examples=["fishermix library add ~/Pictures /mnt/camera"])
def add(
    folders: options.Folders,
    library: options.Library = None,
    max_pixels: options.MaxPixels = None,
    model: options.Model = None,
) -> None:
    """Add folders with their subfolders, and encode all photos in them.

    Photos that are already in the library are recognized by their content and not encoded again.
    """
    with open_library(library, model) as photos:
        _update_folders(photos, folders)


@library_app.command(examples=["fishermix library update ~/Pictures"])
def update(
    folders: options.KnownFolders = None,
    library: options.Library = None,
    max_pixels: options.MaxPixels = None,
    model: options.Model = None,
) -> None:
    """Look for new, changed, moved and deleted photos."""
    with open_library(library, model) as photos:
        for folder in folders or ():
            photos.status(folder)  # raises if the library does not have it
        known = [status.folder for status in photos.folders() if status.exists]
        if not known:
            photos.expect_there()
            raise FishermixError(EMPTY, code="empty_library")
        _update_folders(photos, folders or known)


@library_app.command("read-text", examples=["fishermix library read-text"])
def read_text(
    folders: options.KnownFolders = None,
    library: options.Library = None,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Read the text in photos, such as signs and screenshots: searches find its words, too.

    It takes a second per photo. If you interrupt it, the next call goes on. Photos that were added later are
    read by the next call.
    """
    from fishermix_photos.photos.text import expect_reader

    expect_reader()
    with open_library(library, None) as photos:
        photos.expect_there()
        for folder in folders or ():
            photos.status(folder)  # raises if the library does not have it
        found = photos.read_texts(folders or ())
    failed = f", {found.failed:,} could not be read" if found.failed else ""
    say(f"{count_photos(found.photos)} read: {found.with_text:,} with text{failed}.")


@library_app.command("list", examples=["fishermix library list", "fishermix library list ~/Pictures"])
def list_folders(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Show what the library has of this folder, with the files that it could not read.",
        ),
    ] = None,
    as_json: options.Json = False,
    library: options.Library = None,
) -> None:
    """List the folders of the library and how many photos they contain, or show one folder."""
    with open_library(library, None) as photos:
        photos.expect_there()
        folders = photos.folders() if folder is None else [photos.status(folder)]
        summary = photos.summary()
    if as_json:
        say_json([{**asdict(status), "folder": str(status.folder)} for status in folders])
    elif folder is not None:
        _show_folder(folders[0])
    elif not folders:
        tell(EMPTY)
    else:
        say(*(f"{status.photos:,}  {_name_folder(status)}" for status in folders))
        frames = f" with {summary.pictures:,} frames and pages" if summary.pictures > summary.photos else ""
        tell(f"{photos.place}: {count_photos(summary.photos)}{frames}, {summary.bytes / 1e6:,.1f} MB.")
        _tell_away(folders)


def _name_folder(status: FolderStatus) -> str:
    return f"{status.folder}{'' if status.exists else '  (away)'}"


def _tell_away(folders: Sequence[FolderStatus]) -> None:
    away = [shlex.quote(str(status.folder)) for status in folders if not status.exists]
    if away:
        tell(
            "Folders that are away keep their photos in your library, in case their disk is not mounted. To "
            "forget one that is gone for good: "
            f"{', '.join(f'`fishermix library remove {name}`' for name in away)}."
        )


def _show_folder(status: FolderStatus) -> None:
    say(
        f"folder      {_name_folder(status)}",
        f"photos      {status.photos:,}",
        f"unreadable  {len(status.unreadable):,}",
        *(f"  {path}: {reason}" for path, reason in status.unreadable.items()),
        f"skipped     {sum(status.skipped.values()):,}",
        *(f"  {sentence}" for sentence in explain_skipped(status.skipped)),
        *status.remarks,
    )


@library_app.command(examples=["fishermix library remove /mnt/camera"])
def remove(
    folder: Annotated[Path | None, typer.Argument(help="A folder of the library.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Delete the library, damaged or not, with all its folders.")
    ] = False,
    library: options.Library = None,
) -> None:
    """Remove a folder from the library, even if it no longer exists. Your photos stay as they are."""
    from fishermix_photos.search.results import NotInLibrary

    if (folder is None) != everything:
        raise FishermixError(
            "Name a folder of the library, or give --all to delete the library.", code="wrong_parameter"
        )
    with open_library(library, None) as photos:
        if folder is None:
            photos.delete()
            tell(f"Deleted the library in {photos.place}. Your photos are unchanged.")
            return
        try:
            number = photos.remove(folder)
        except NotInLibrary as error:
            raise FishermixError(
                f"{error} `fishermix library list` lists the folders.", code="unknown_folder"
            ) from None
    tell(f"Removed {folder} with {count_photos(number)} from your library. The files are unchanged.")


def _update_folders(photos: PhotoLibrary, folders: list[Path]) -> None:
    """Update folders and print what changed."""
    changes = photos.update(folders)
    say(
        f"{count_photos(photos.count(folders))}: {changes.encoded:,} encoded, {changes.recognized:,} "
        f"recognized by content, {changes.removed:,} removed, {len(changes.unreadable):,} unreadable."
    )
    tell_changes(photos, changes)
    tell(*changes.remarks)
