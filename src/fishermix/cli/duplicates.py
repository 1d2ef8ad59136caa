"""`fishermix duplicates`: find equal and nearly equal photos."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import (
    ExcludeOption,
    IndexOption,
    MaxPixelsOption,
    ModelOption,
    explain_empty,
    format_path,
    open_index,
    open_model,
    say,
    tell,
)

if TYPE_CHECKING:
    from fishermix.retrieval.details import Details


@app.command(
    epilog="Examples: fishermix duplicates ~/Pictures · "
    "fishermix duplicates ~/Pictures --exact --omit-first -0 | xargs -0 mv -t copies/"
)
def duplicates(
    folder: Annotated[Path, typer.Argument(help="The folder that contains the photos.")] = Path("."),
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

    with open_index(folder, index, open_model(model), update, exclude) as photos:
        groups = find_duplicates(photos, exact)
        details = photos.store.details() if as_json else {}
        is_empty = not photos.store.summary().photos
        nothing = explain_empty(photos, folder, index) if is_empty else "No duplicates found."
    start = 1 if omit_first else 0
    if as_json:
        listed = [(group, group.paths[start:]) for group in groups]
        described = [
            {"exact": group.is_exact, "photos": [_describe(folder, path, details) for path in paths]}
            for group, paths in listed
        ]
        say(json.dumps(described, indent=1))
        return
    for number, group in enumerate(groups):
        if number and not null and not omit_first:
            say()
        for path in group.paths[start:]:
            say(format_path(folder, path), end="\0" if null else "\n")
    count = sum(len(group.paths) for group in groups)
    noun = "group" if len(groups) == 1 else "groups"
    tell(f"{len(groups):,} {noun} with {count:,} photos." if groups else nothing)


def _describe(folder: Path, path: str, details: Mapping[str, Details]) -> dict[str, str | float | int]:
    known = details[path].as_json() if path in details else {}
    return {"path": format_path(folder, path), **known}
