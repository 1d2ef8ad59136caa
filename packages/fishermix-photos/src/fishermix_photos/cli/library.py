"""`fishermix library`: add folders to the library, update, list, check and remove them."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

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
    tell_skipped,
)
from fishermix_photos.cli.output import say, say_json, tell

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
    _update_folders(folders, exclude, library, model)


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
        raise FishermixError("Your library is empty. Add a folder with `fishermix library add FOLDER`.")
    _update_folders(folders or known, exclude, library, model)


@library_app.command("list", epilog="Example: fishermix library list --json")
def list_folders(as_json: JsonOption = False, library: LibraryOption = None) -> None:
    """List the folders of the library with their numbers of photos."""
    with open_library(library, None) as photos:
        folders = photos.folders()
    if as_json:
        say_json(
            [
                {"folder": str(status.folder), "photos": status.photos, "exists": status.exists}
                for status in folders
            ]
        )
        return
    width = 0
    if sys.stdout.isatty() and folders:  # programs that read lines get no header
        width = max(len("photos"), *(len(f"{status.photos:,}") for status in folders))
        say(f"{'photos':>{width}}  folder")
    for status in folders:
        say(f"{status.photos:>{width},}  {status.folder}{'' if status.exists else '  (away)'}")
    if not folders:
        tell("Your library is empty. Add a folder with `fishermix library add FOLDER`.")


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
            values = {"library": photos.place, **asdict(photos.summary())}
            values["folders"] = len(photos.folders())
        else:
            status = photos.status(folder)
    if folder is None:
        _show_library(values, as_json)
        return
    if as_json:
        say_json({**asdict(status), "folder": str(status.folder)})
        return
    say(f"folder      {status.folder}{'' if status.exists else '  (away)'}")
    say(f"photos      {status.photos:,}")
    say(f"unreadable  {len(status.unreadable):,}")
    for path, reason in status.unreadable.items():
        say(f"  {path}: {reason}")
    from fishermix_photos.vision.formats import explain_skipped

    say(f"skipped     {sum(status.skipped.values()):,}")
    for sentence in explain_skipped(status.skipped):
        say(f"  {sentence}")
    for remark in status.remarks:
        say(remark)


def _show_library(values: dict[str, str | int], as_json: bool) -> None:
    if as_json:
        say_json(values)
        return
    say(f"library   {values['library']}")
    say(f"folders   {values['folders']:,}")
    say(f"photos    {values['photos']:,}")
    say(f"pictures  {values['pictures']:,} (with all video frames and TIFF pages)")
    say(f"distinct  {values['contents']:,}")
    say(f"model     {values['model_key'] or 'none yet'}")
    say(f"size      {int(values['bytes']) / 1e6:,.1f} MB")


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
    """Check the database, every reference and every checksum. The exit code is 1 if one is wrong."""
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


def _update_folders(
    folders: list[Path], exclude: list[str] | None, library: str | None, model: Path | None
) -> None:
    """Update folders and print what changed."""
    with open_library(library, model) as photos:
        changes = photos.update(folders, exclude or ())
        number = photos.count(folders)
    say(
        f"{number:,} photos: {changes.encoded:,} encoded, {changes.recognized:,} recognized by content, "
        f"{changes.removed:,} removed, {len(changes.unreadable):,} unreadable."
    )
    for folder, problem in changes.problems.items():
        tell(f"{folder} is not updated. {problem}")
    for path, reason in changes.unreadable.items():
        tell(f"{path}: {reason}")
    tell_skipped(changes.skipped)
    for remark in changes.remarks:
        tell(remark)
