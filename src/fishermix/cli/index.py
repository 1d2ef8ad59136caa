"""`fishermix index`: create, update, check and delete the index of a photo folder."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fishermix.cli import app
from fishermix.cli.common import (
    ExcludeOption,
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
    exclude: ExcludeOption = None,
    index: IndexOption = None,
    max_pixels: MaxPixelsOption = None,
    model: ModelOption = None,
) -> None:
    """Index a folder: encode all photos in it and in its subfolders, once.

    Photos that another index of this machine has are recognized by their content and not encoded again.
    """
    _update(folder, index, model, exclude)


@index_app.command(epilog="Example: fishermix index update ~/Pictures")
def update(
    folder: Folder,
    exclude: ExcludeOption = None,
    index: IndexOption = None,
    max_pixels: MaxPixelsOption = None,
    model: ModelOption = None,
) -> None:
    """Update the index of a folder: look for new, changed, moved and deleted photos."""
    _open_existing(folder, index).close()
    _update(folder, index, model, exclude)


@index_app.command("list", epilog="Example: fishermix index list --json")
def list_all(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """List the indexes in your data directory: the number of photos, the folder and whether it is gone."""
    from fishermix.retrieval.library import list_library

    found = []
    for one in list_library():
        photos, problem = _count_photos(one.place)
        known = one.folder is not None
        folder, exists = (str(one.folder), not one.is_orphan) if known else (None, None)
        entry: dict[str, Any] = {"index": one.place.name, "folder": folder, "folder_exists": exists}
        found.append(entry | {"photos": photos, "problem": problem})
    if as_json:
        say(json.dumps(found, indent=1))
        return
    counts = [entry["problem"] or format(entry["photos"], ",") for entry in found]
    width = 0
    if sys.stdout.isatty() and found:  # programs that read lines get no header
        width = max(map(len, ["photos", *counts]))
        say(f"{'photos':>{width}}  folder")
    for entry, count in zip(found, counts):
        place = entry["folder"] or f"unknown folder; the index is called {entry['index']}"
        gone = "  (gone)" if entry["folder_exists"] is False else ""
        line = f"{count:>{width}}  {place}{gone}"
        say(line.replace("\n", "?").replace("\r", "?"))  # a line is an index; JSON has the name as it is
    if not found:
        tell("There is no index yet. A search creates one.")


def _count_photos(place: Path) -> tuple[int | None, str | None]:
    """The number of photos of an index, or that it cannot be used."""
    from fishermix.retrieval.sqlite_store import LocalStore

    try:
        store = LocalStore(place)
    except FishermixError:
        return None, "damaged"
    try:
        return store.summary().photos, None
    except FishermixError:
        return None, "damaged"
    finally:
        store.close()


@index_app.command(epilog="Example: fishermix index remove ~/Pictures")
def remove(folder: Folder, index: IndexOption = None) -> None:
    """Delete the index of a folder, which may be gone. The photos are not changed.

    Instead of the folder, you may name the index as `fishermix index list` prints it.
    """
    from fishermix.retrieval.open import delete_store

    place, named = folder.expanduser().resolve(), None
    if index is None and not place.is_dir():
        from fishermix.retrieval.library import find_named_index

        named = find_named_index(str(folder))
    tell(f"Deleted the index {delete_store(place, index or named)}.")


@index_app.command(epilog="Example: fishermix index info ~/Pictures --json")
def info(
    folder: Folder,
    index: IndexOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Show what the index of a folder contains, and which files could not be read or were skipped."""
    from fishermix.vision.formats import explain_skipped

    store = _open_existing(folder, index, folder_must_exist=False)
    summary, listing = store.summary(), _scan(folder, store.root)
    store.close()
    unreadable = {**summary.unreadable, **listing.unreadable}
    if as_json:
        found = {"unreadable": unreadable, "skipped": dict(listing.skipped)}
        say(json.dumps({"index": store.name, **vars(summary), **found}, indent=1))
        return
    say(f"index       {store.name}")
    say(f"photos      {summary.photos:,} ({summary.contents:,} distinct)")
    if summary.pictures != summary.photos:
        say(f"pictures    {summary.pictures:,} (with all video frames and TIFF pages)")
    say(f"model       {summary.model_key or 'none yet'}")
    say(f"size        {summary.bytes / 1e6:,.1f} MB")
    say(f"unreadable  {len(unreadable):,}")
    for path, reason in unreadable.items():
        say(f"  {path}: {reason}")
    say(f"skipped     {sum(listing.skipped.values()):,}")
    for sentence in explain_skipped(listing.skipped):
        say(f"  {sentence}")
    for sentence in listing.explain_left_out():
        say(sentence)


def _scan(folder: Path, root: Path | None):
    """What is in the folder now; nothing if it is gone."""
    from fishermix.retrieval.photo_files import Listing, scan_folder

    place = folder.expanduser().resolve()
    return scan_folder(place, root=root) if place.is_dir() else Listing()


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
        place = f" --index {shlex.quote(index)}" if index is not None else ""
        command = f"fishermix index remove {shlex.quote(str(folder))}{place}"
        raise FishermixError(
            f"{' '.join(problems)} Delete the index with `{command}`; the next search builds it again."
        )
    say(f"No problems found in {store.name}: {photos:,} photos.")


def _open_existing(folder: Path, index: str | Path | None, folder_must_exist: bool = True):
    from fishermix.retrieval.open import open_store, resolve_folder

    # An index can outlive its folder; it can still be checked and deleted.
    if index is None and not folder_must_exist and not folder.expanduser().is_dir():
        from fishermix.retrieval.library import find_named_index

        index = find_named_index(str(folder))
    place = resolve_folder(folder) if folder_must_exist else folder.expanduser().resolve()
    return open_store(place, index, must_exist=True)


def _update(folder: Path, index: str | None, model: Path | None, exclude: list[str] | None) -> None:
    from fishermix.retrieval.index import PhotoIndex

    with PhotoIndex(folder, open_model(model), index, exclude=exclude or ()) as photos:
        changes = photos.update()
        summary = photos.store.summary()
    folders = {path for path in changes.unreadable if path.endswith("/")}
    if changes.found_nothing:
        tell(f"There are no photos in {folder}.")
    else:
        say(
            f"{summary.photos:,} photos in the index: {changes.encoded:,} encoded, "
            f"{changes.recognised:,} recognized by content, {changes.removed:,} removed, "
            f"{len(folders.union(summary.unreadable)):,} unreadable."
        )
    for path, reason in changes.unreadable.items():
        tell(f"{path}: {reason}")
    tell_skipped(changes.skipped)
    for sentence in changes.left_out:
        tell(sentence)
