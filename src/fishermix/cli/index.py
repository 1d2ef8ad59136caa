"""`fishermix index`: the index of a photo folder, by its own verbs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import IndexOption, ModelOption, open_model, say, tell
from fishermix.errors import FishermixError

index_app = typer.Typer(no_args_is_help=True, help="Make, look after and remove the index of a photo folder.")
app.add_typer(index_app, name="index")

Folder = Annotated[Path, typer.Argument(help="The folder that holds the photos.", show_default=False)]


@index_app.command(epilog="Example: fishermix index add ~/Pictures")
def add(folder: Folder, index: IndexOption = None, model: ModelOption = None) -> None:
    """Index a folder: look at every photo in it and below it, once."""
    _update(folder, index, model)


@index_app.command(epilog="Example: fishermix index update ~/Pictures")
def update(folder: Folder, index: IndexOption = None, model: ModelOption = None) -> None:
    """Bring the index of a folder up to date: new, changed, moved and deleted photos."""
    _open(folder, index).close()
    _update(folder, index, model)


@index_app.command(epilog="Example: fishermix index remove ~/Pictures")
def remove(folder: Folder, index: IndexOption = None) -> None:
    """Delete the index of a folder. The photos stay as they are."""
    store = _open(folder, index, folder_must_exist=False)
    with store.writing():
        pass
    store.delete()
    tell(f"deleted the index {store.name}")


@index_app.command(epilog="Example: fishermix index info ~/Pictures --json")
def info(
    folder: Folder,
    index: IndexOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Say what the index of a folder holds, and which files could not be read."""
    store = _open(folder, index, folder_must_exist=False)
    summary = store.summary()
    store.close()
    if as_json:
        say(json.dumps({"index": store.name, **vars(summary)}, indent=1))
        return
    say(f"index       {store.name}")
    say(f"photos      {summary.photos:,} ({summary.contents:,} different)")
    say(f"model       {summary.model_key or 'none yet'}, {summary.dimension} dimensions")
    say(f"size        {summary.bytes / 1e6:,.1f} MB")
    say(f"unreadable  {len(summary.unreadable):,}")
    for path, reason in summary.unreadable.items():
        say(f"  {path}: {reason}")


@index_app.command(epilog="Example: fishermix index verify ~/Pictures && echo sound")
def verify(folder: Folder, index: IndexOption = None) -> None:
    """Check every part of the index of a folder; exit code 1 if something is wrong."""
    store = _open(folder, index, folder_must_exist=False)
    problems = store.verify()
    photos = store.summary().photos if not problems else 0
    store.close()
    if problems:
        raise FishermixError(
            "; ".join(problems)
            + f"; `fishermix index remove {folder}` deletes the index, the next search makes it anew"
        )
    say(f"{store.name} is sound: {photos:,} photos")


def _open(folder: Path, index: str | None, folder_must_exist: bool = True):
    from fishermix.retrieval.index import open_store
    from fishermix.retrieval.photo_files import photo_folder

    # An index can outlive its folder, and must still be found to be looked at or deleted.
    place = photo_folder(folder) if folder_must_exist else folder.expanduser().resolve()
    return open_store(place, index, must_exist=True)


def _update(folder: Path, index: str | None, model: Path | None) -> None:
    from fishermix.retrieval.index import PhotoIndex

    with PhotoIndex(folder, open_model(model), index) as photos:
        changes = photos.update()
        summary = photos.store.summary()
    say(
        f"{summary.photos:,} photos in the index: {changes.encoded:,} encoded, "
        f"{changes.recognised:,} recognised by content, "
        f"{changes.removed:,} removed; {len(summary.unreadable):,} files are unreadable"
    )
    for path, reason in changes.unreadable.items():
        tell(f"{path}: {reason}")
