"""`fishermix library`: add folders to the library, update, list, check and remove them."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from fishermix.errors import FishermixError

from fishermix_photos.cli import App, app
from fishermix_photos.cli.common import (
    ExcludeOption,
    JsonOption,
    LibraryOption,
    MaxPixelsOption,
    ModelOption,
    open_library,
    say,
    say_json,
    tell,
)

if TYPE_CHECKING:
    from fishermix_photos.library import PhotoLibrary

EMPTY = "Your library is empty. Add a folder with `fishermix library add FOLDER`."

library_app = App(
    help="Add, update, list and remove the folders of your photo library.\n\n"
    "The library is in your data folder. --library PLACE uses another directory, or "
    "postgresql://HOST/DATABASE, a library that several machines share. The environment variable "
    "FISHERMIX_HOME selects another data folder."
)
app.add_typer(library_app, name="library")


@library_app.command(epilog="Example: fishermix library add ~/Pictures /mnt/camera")
def add(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER", help="Folders of photos.", show_default=False)
    ],
    exclude: ExcludeOption = None,
    library: LibraryOption = None,
    max_pixels: MaxPixelsOption = None,
    model: ModelOption = None,
) -> None:
    """Add folders: encode all photos in them and in their subfolders, once.

    Photos that the library has already are recognized by their content and not encoded again.
    """
    with open_library(library, model) as photos:
        _update_folders(photos, folders, exclude)


@library_app.command(epilog="Example: fishermix library update ~/Pictures")
def update(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FOLDER", help="Folders of the library. Default: all of them.", show_default=False
        ),
    ] = None,
    exclude: ExcludeOption = None,
    library: LibraryOption = None,
    max_pixels: MaxPixelsOption = None,
    model: ModelOption = None,
) -> None:
    """Look for new, changed, moved and deleted photos."""
    with open_library(library, model) as photos:
        for folder in folders or ():
            photos.status(folder)  # raises if the library does not have it
        known = [status.folder for status in photos.folders() if status.exists]
        if not known:
            raise FishermixError(EMPTY)
        _update_folders(photos, folders or known, exclude)


@library_app.command("list", epilog="Example: fishermix library list --json")
def list_folders(as_json: JsonOption = False, library: LibraryOption = None) -> None:
    """List the folders of the library with their numbers of photos."""
    with open_library(library, None) as photos:
        folders = photos.folders()
    if as_json:
        listed = [(str(status.folder), status.photos, status.exists) for status in folders]
        say_json([dict(zip(("folder", "photos", "exists"), values)) for values in listed])
        return
    for status in folders:
        say(f"{status.photos:,}  {status.folder}{'' if status.exists else '  (away)'}")
    if not folders:
        tell(EMPTY)
    away = [shlex.quote(str(status.folder)) for status in folders if not status.exists]
    if away:
        tell(
            "Folders that are away keep their photos in your library, in case their disk is not mounted. To "
            "forget one that is gone for good: "
            f"{', '.join(f'`fishermix library remove {name}`' for name in away)}."
        )


@library_app.command(epilog="Example: fishermix library info ~/Pictures --json")
def info(
    folder: Annotated[
        Path | None, typer.Argument(help="A folder of the library, or one inside.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
    library: LibraryOption = None,
) -> None:
    """Show how much the library has, or what it has of a folder, with the files that it could not read."""
    with open_library(library, None) as photos:
        if folder is None:
            _show_library(photos, as_json)
        else:
            _show_folder(photos, folder, as_json)


def _show_library(photos: PhotoLibrary, as_json: bool) -> None:
    summary, n_folders = photos.summary(), len(photos.folders())
    if as_json:
        say_json({"library": photos.place, **asdict(summary), "folders": n_folders})
        return
    say(
        f"library   {photos.place}",
        f"folders   {n_folders:,}",
        f"photos    {summary.photos:,}",
        f"pictures  {summary.pictures:,} (with all video frames and TIFF pages)",
        f"distinct  {summary.contents:,}",
        f"model     {summary.model_key or 'none yet'}",
        f"size      {summary.bytes / 1e6:,.1f} MB",
    )


def _show_folder(photos: PhotoLibrary, folder: Path, as_json: bool) -> None:
    from fishermix_photos.vision.formats import explain_skipped

    status = photos.status(folder)
    if as_json:
        say_json({**asdict(status), "folder": str(status.folder)})
        return
    say(
        f"folder      {status.folder}{'' if status.exists else '  (away)'}",
        f"photos      {status.photos:,}",
        f"unreadable  {len(status.unreadable):,}",
        *(f"  {path}: {reason}" for path, reason in status.unreadable.items()),
        f"skipped     {sum(status.skipped.values()):,}",
        *(f"  {sentence}" for sentence in explain_skipped(status.skipped)),
        *status.remarks,
    )


@library_app.command(epilog="Example: fishermix library remove /mnt/camera")
def remove(
    folder: Annotated[
        Path | None, typer.Argument(help="A folder of the library.", show_default=False)
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Delete the library, damaged or not, with all its folders.")
    ] = False,
    library: LibraryOption = None,
) -> None:
    """Remove a folder from the library, whether it still exists or not. No photo is changed or deleted."""
    if (folder is None) != everything:
        raise FishermixError("Name a folder of the library, or give --all to delete the library.")
    with open_library(library, None) as photos:
        if folder is None:
            photos.delete()
            tell(f"Deleted the library in {photos.place}. Your photos are unchanged.")
            return
        number = photos.remove(folder)
    tell(f"Removed {folder} with {number:,} photos from your library. The files are unchanged.")


@library_app.command(epilog="Example: fishermix library verify && echo OK")
def verify(library: LibraryOption = None) -> None:
    """Check the database, every reference and every checksum. The exit code is 1 if anything is wrong."""
    with open_library(library, None) as photos:
        problems = photos.verify()
        place = photos.place
        number = photos.count() if not problems else 0
    if problems:
        raise FishermixError(
            f"{' '.join(problems)} `fishermix library remove --all` deletes it; then add your folders "
            "again. Your photos are not in it."
        )
    say(f"No problems found in {place}: {number:,} photos.")


def _update_folders(photos: PhotoLibrary, folders: list[Path], exclude: list[str] | None) -> None:
    """Update folders and print what changed."""
    from fishermix_photos.vision.formats import explain_skipped

    changes = photos.update(folders, exclude or ())
    say(
        f"{photos.count(folders):,} photos: {changes.encoded:,} encoded, {changes.recognized:,} recognized "
        f"by content, {changes.removed:,} removed, {len(changes.unreadable):,} unreadable."
    )
    tell(
        *(f"{folder} is not updated. {problem}" for folder, problem in changes.problems.items()),
        *(f"{path}: {reason}" for path, reason in changes.unreadable.items()),
        *explain_skipped(changes.skipped),
        *changes.remarks,
    )
