"""`fishermix index`: create, update, check and delete the index of a photo folder."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import (
    IndexOption,
    MaxPixelsOption,
    ModelOption,
    open_model,
    say,
    tell,
    tell_skipped,
)
from fishermix.errors import FishermixError

index_app = typer.Typer(
    no_args_is_help=True, help="Create, update, check and delete the index of a photo folder."
)
app.add_typer(index_app, name="index")

Folder = Annotated[Path, typer.Argument(help="The folder that contains the photos.", show_default=False)]


@index_app.command(epilog="Example: fishermix index add ~/Pictures")
def add(
    folder: Folder,
    index: IndexOption = None,
    max_pixels: MaxPixelsOption = None,
    model: ModelOption = None,
) -> None:
    """Index a folder: encode all photos in it and in its subfolders, once."""
    _update(folder, index, model)


@index_app.command(epilog="Example: fishermix index update ~/Pictures")
def update(
    folder: Folder,
    index: IndexOption = None,
    max_pixels: MaxPixelsOption = None,
    model: ModelOption = None,
) -> None:
    """Update the index of a folder: look for new, changed, moved and deleted photos."""
    _open_existing(folder, index).close()
    _update(folder, index, model)


@index_app.command(epilog="Example: fishermix index remove ~/Pictures")
def remove(folder: Folder, index: IndexOption = None) -> None:
    """Delete the index of a folder. The photos are not changed."""
    store = _open_existing(folder, index, folder_must_exist=False)
    with store.writing():
        pass
    store.delete()
    tell(f"Deleted the index {store.name}.")


@index_app.command(epilog="Example: fishermix index info ~/Pictures --json")
def info(
    folder: Folder,
    index: IndexOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Show what the index of a folder contains, and which files could not be read or were skipped."""
    from fishermix.vision.formats import explain_skipped

    store = _open_existing(folder, index, folder_must_exist=False)
    summary, listing = store.summary(), _scan(folder)
    store.close()
    unreadable = {**summary.unreadable, **listing.unreadable}
    if as_json:
        found = {"unreadable": unreadable, "skipped": dict(listing.skipped)}
        say(json.dumps({"index": store.name, **vars(summary), **found}, indent=1))
        return
    say(f"index       {store.name}")
    say(f"photos      {summary.photos:,} ({summary.contents:,} distinct)")
    say(f"model       {summary.model_key or 'none yet'}")
    say(f"size        {summary.bytes / 1e6:,.1f} MB")
    say(f"unreadable  {len(unreadable):,}")
    for path, reason in unreadable.items():
        say(f"  {path}: {reason}")
    say(f"skipped     {sum(listing.skipped.values()):,}")
    for sentence in explain_skipped(listing.skipped):
        say(f"  {sentence}")


def _scan(folder: Path):
    """What is in the folder now; nothing if it is gone."""
    from fishermix.retrieval.photo_files import Listing, scan_folder

    place = folder.expanduser().resolve()
    return scan_folder(place) if place.is_dir() else Listing()


@index_app.command(epilog="Example: fishermix index verify ~/Pictures && echo OK")
def verify(folder: Folder, index: IndexOption = None) -> None:
    """Check the index of a folder.

    This reads the database, every reference and every checksum. The exit code is 1 if one is wrong.
    """
    store = _open_existing(folder, index, folder_must_exist=False)
    problems = store.verify()
    photos = store.summary().photos if not problems else 0
    store.close()
    if problems:
        command = f"fishermix index remove {shlex.quote(str(folder))}"
        raise FishermixError(
            f"{' '.join(problems)} Delete the index with `{command}`; the next search builds it again."
        )
    say(f"No problems found in {store.name}: {photos:,} photos.")


def _open_existing(folder: Path, index: str | None, folder_must_exist: bool = True):
    from fishermix.retrieval.index import open_store, resolve_folder

    # An index can outlive its folder; it can still be checked and deleted.
    place = resolve_folder(folder) if folder_must_exist else folder.expanduser().resolve()
    return open_store(place, index, must_exist=True)


def _update(folder: Path, index: str | None, model: Path | None) -> None:
    from fishermix.retrieval.index import PhotoIndex

    with PhotoIndex(folder, open_model(model), index) as photos:
        changes = photos.update()
        summary = photos.store.summary()
    say(
        f"{summary.photos:,} photos in the index: {changes.encoded:,} encoded, "
        f"{changes.recognised:,} recognized by content, {changes.removed:,} removed, "
        f"{len(summary.unreadable):,} unreadable."
    )
    for path, reason in changes.unreadable.items():
        tell(f"{path}: {reason}")
    tell_skipped(changes.skipped)
