"""`fishermix duplicates`: find equal and nearly equal photos."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fishermix_photos.cli import app, options
from fishermix_photos.cli.common import open_library, say, say_json, say_paths, tell
from fishermix_photos.cli.search import PathNames, choose_folders, explain_empty, update_folders
from fishermix_photos.photos.formats import count_photos

if TYPE_CHECKING:
    from fishermix_photos.index.duplicates import DuplicateGroup

# Why the first photo of a group is the best one to keep.
REASONS = {
    "larger": "larger",
    "has_exif": "has date or camera",
    "less_compressed": "less compressed",
    "older": "older",
    "original_name": "not named as a copy",
}


@app.command(
    examples=[
        "fishermix duplicates ~/Pictures",
        "fishermix duplicates ~/Pictures /mnt/backup",
        "fishermix duplicates ~/Pictures --exact --omit-first -0 | xargs -0 mv -t copies/",
    ]
)
def duplicates(
    folders: options.ComparedFolders = None,
    exact: Annotated[bool, typer.Option("--exact", help="Find only identical files.")] = False,
    omit_first: Annotated[
        bool, typer.Option("--omit-first", help="Print only the copies: omit the first photo of each group.")
    ] = False,
    null: options.Null = False,
    as_json: options.Json = False,
    update: options.Update = True,
    library: options.Library = None,
    model: options.Model = None,
) -> None:
    """Find duplicate photos: identical files, and copies in another size, format or quality.

    Prints one path per line, with an empty line between groups. The best one to keep comes first: the photo
    with the most pixels, then one with a date or camera in its EXIF, then the one with more bytes per pixel,
    then the older file. A terminal also shows which of them decided, as does "reason" with --json. No photo
    is changed or deleted.
    """
    with open_library(library, model) as photos:
        chosen = choose_folders(photos, folders or [])
        if update:
            update_folders(photos, chosen)
        groups = photos.duplicates(chosen, exact)
        total = photos.count(chosen)
        nothing = f"No duplicates found among {count_photos(total)}."
        if not total:
            nothing = explain_empty(photos, chosen, update)
    names, start = PathNames(chosen), 1 if omit_first else 0

    def list_photos(group: DuplicateGroup) -> list[dict[str, Any]]:
        photos = group.photos[start:]
        return [{"path": names.write(photo.path), **photo.details.as_json()} for photo in photos]

    if as_json:
        say_json(
            [
                {"exact": group.is_exact, "reason": group.reason, "photos": list_photos(group)}
                for group in groups
            ]
        )
        return
    for number, group in enumerate(groups):
        if number and not null and not omit_first:
            say("")
        if not null and not omit_first and sys.stdout.isatty() and group.reason in REASONS:
            say(f"keep the first ({REASONS[group.reason]}):")
        paths = [names.write(photo.path) for photo in group.photos[start:]]
        say_paths(paths, end="\0" if null else "\n")
    count = sum(len(group.photos) for group in groups)
    tell(f"Groups: {len(groups):,}, with {count:,} of {count_photos(total)}." if groups else nothing)
