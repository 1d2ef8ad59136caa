"""`fishermix duplicates`: find equal and nearly equal photos."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import (
    ExcludeOption,
    FoldersArgument,
    IndexOption,
    MaxPixelsOption,
    ModelOption,
    drop_covered,
    explain_empty,
    format_path,
    open_index,
    open_model,
    say,
    tell,
)
from fishermix.errors import FishermixError

if TYPE_CHECKING:
    from fishermix.retrieval.details import Details


@app.command(
    epilog="Examples: fishermix duplicates ~/Pictures · fishermix duplicates ~/Pictures /mnt/backup · "
    "fishermix duplicates ~/Pictures --exact --omit-first -0 | xargs -0 mv -t copies/"
)
def duplicates(
    folders: FoldersArgument = None,
    exact: Annotated[bool, typer.Option("--exact", help="Find only files with the same bytes.")] = False,
    omit_first: Annotated[
        bool, typer.Option("--omit-first", help="Omit the first photo of each group, which is the largest.")
    ] = False,
    null: Annotated[
        bool, typer.Option("-0", "--null", help="Print paths only, each ending in a zero byte, for xargs -0.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of groups.")] = False,
    update: Annotated[
        bool, typer.Option("--update/--no-update", help="Look for new, changed and deleted photos first.")
    ] = True,
    exclude: ExcludeOption = None,
    index: IndexOption = None,
    max_pixels: MaxPixelsOption = None,
    model: ModelOption = None,
) -> None:
    """Find photos that are the same: equal files, and copies in another size, format or quality.

    Prints one path per line, an empty line between groups, and in each group the photo with the most pixels
    first; of equal ones, the one with a date of its camera, then the one that is not called a copy, then the
    oldest. No photo is changed or deleted.
    """
    from fishermix.retrieval.duplicates import find_duplicates
    from fishermix.retrieval.several_folders import SeveralFolders

    named = drop_covered(folders or [Path(".")], exclude or [], update)
    if index is not None and len(named) > 1:
        raise FishermixError("--index names the index of one folder. Name one folder.")
    loaded = open_model(model)
    with ExitStack() as stack:
        opened = [stack.enter_context(open_index(one, index, loaded, update, exclude)) for one in named]
        photos = opened[0] if len(opened) == 1 else SeveralFolders(opened)
        groups = find_duplicates(photos, exact)
        details = photos.store.details() if as_json else {}
        nothing = "No duplicates found."
        if not photos.store.summary().photos:
            nothing = " ".join(explain_empty(one, name, index) for name, one in zip(named, opened))
    names = dict(zip(map(id, opened), named))

    def write(path: str) -> str:
        part, inside = photos.part_of(path)
        return format_path(names[id(part)], inside)

    start = 1 if omit_first else 0
    if as_json:
        listed = [(group, group.paths[start:]) for group in groups]
        described = [
            {"exact": group.is_exact, "photos": [_describe(path, write(path), details) for path in paths]}
            for group, paths in listed
        ]
        say(json.dumps(described, indent=1))
        return
    for number, group in enumerate(groups):
        if number and not null and not omit_first:
            say()
        for path in group.paths[start:]:
            say(write(path), end="\0" if null else "\n")
    count = sum(len(group.paths) for group in groups)
    noun = "group" if len(groups) == 1 else "groups"
    tell(f"{len(groups):,} {noun} with {count:,} photos." if groups else nothing)


def _describe(path: str, written: str, details: Mapping[str, Details]) -> dict[str, str | float | int]:
    known = details[path].as_json() if path in details else {}
    return {"path": written, **known}
