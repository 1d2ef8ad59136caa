"""`fishermix search`: find the photos of a folder that a sentence describes."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import (
    IndexOption,
    MaxPixelsOption,
    ModelOption,
    format_part,
    format_path,
    open_index,
    open_model,
    say,
    tell,
)
from fishermix.cli.filters import (
    AfterOption,
    BeforeOption,
    CameraOption,
    InOption,
    NearOption,
    PortraitOption,
    SortBy,
    SortOption,
)
from fishermix.errors import FishermixError


@app.command(
    epilog='Examples: fishermix search "two dogs run on a beach" ~/Pictures · '
    'fishermix search beach - people -n 5 · fishermix search photo.jpg + "at night" --html night.html · '
    'fishermix search "a red car" -0 --min-score auto | xargs -0 cp -t cars/'
)
def search(
    query: Annotated[
        list[str],
        typer.Argument(
            metavar="QUERY... [FOLDER]",
            help="A sentence or a photo, or several with + and - between them; then the folder. "
            "Default: the current folder.",
            show_default=False,
        ),
    ],
    number: Annotated[
        int, typer.Option("-n", "--number", min=1, help="Print at most this many photos.")
    ] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of paths and scores.")] = False,
    paths_only: Annotated[bool, typer.Option("-f", "--files", help="Print paths only, for pipes.")] = False,
    null: Annotated[
        bool, typer.Option("-0", "--null", help="Print paths only, each ending in a zero byte, for xargs -0.")
    ] = False,
    min_score: Annotated[
        str | None,
        typer.Option(
            "--min-score",
            metavar="SCORE|auto",
            help="Print only photos with at least this score. auto: estimate a threshold for the query.",
        ),
    ] = None,
    after: AfterOption = None,
    before: BeforeOption = None,
    in_folder: InOption = None,
    camera: CameraOption = None,
    near: NearOption = None,
    portrait: PortraitOption = None,
    sort: SortOption = SortBy.score,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Also write a contact sheet: one HTML file with the photos in it."),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update/--no-update", help="Look for new, changed and deleted photos first.")
    ] = True,
    index: IndexOption = None,
    max_pixels: MaxPixelsOption = None,
    model: ModelOption = None,
) -> None:
    """Find the photos of a folder that a sentence describes.

    The first search of a folder encodes every photo. Later searches encode only new photos.
    Nothing leaves this machine.
    The higher the score, the better the match. Unrelated photos usually score below 0.3.
    """
    from fishermix.retrieval.details import Filter
    from fishermix.retrieval.query import encode_terms, parse_arguments

    limit = _parse_min_score(min_score)
    shape = None if portrait is None else ("portrait" if portrait else "landscape")
    only = Filter(after, before, in_folder, camera, near, shape)
    only.check()
    terms, folder = _split_folder(query)
    parsed = parse_arguments(terms)
    loaded = open_model(model)
    encoded = encode_terms(parsed, loaded)
    if encoded.out_of_vocabulary:
        words = ", ".join(encoded.out_of_vocabulary)
        if loaded.reads_unknown_words:
            tell(f"Not in the model's vocabulary, guessed from their letters: {words}.")
        else:
            tell(f"Ignored, not in the model's vocabulary: {words}.")
    with open_index(folder, index, loaded, update) as photos:
        hits = photos.search(encoded, number, limit, only)
        details = photos.store.details([hit.path for hit in hits]) if as_json or sort is SortBy.date else {}
        if sort is SortBy.date:
            hits = sorted(hits, key=lambda hit: details[hit.path].taken or "" if hit.path in details else "")
        if not hits:
            tell(_explain_nothing(photos.store.summary().photos, folder, bool(only)))
        if html:
            _write_contact_sheet(html, " ".join(terms), photos, folder, hits)
    if as_json:
        say(json.dumps([_describe(folder, hit, details) for hit in hits], indent=1))
        return
    for hit in hits:
        path = format_path(folder, hit.file)
        if null:
            say(path, end="\0")
        else:
            say(path if paths_only else f"{hit.score:.3f}  {path}{format_part(hit)}")


def _describe(folder: Path, hit, details) -> dict[str, str | float | int]:
    """A hit as a JSON object; `time` is in seconds."""
    known = details[hit.path].as_json() if hit.path in details else {}
    parts = {name: value for name in ("time", "page") if (value := getattr(hit, name)) is not None}
    return {"path": format_path(folder, hit.file), "score": round(hit.score, 6), **parts, **known}


def _split_folder(arguments: list[str]) -> tuple[list[str], Path]:
    """The query and the folder: the last argument is the folder if it is one and a query precedes it."""
    *before, last = arguments
    folder = os.path.expanduser(last)
    is_folder = os.path.isdir(folder)
    if not before and is_folder:
        example = f'fishermix search "two dogs" {shlex.quote(last)}'
        if last in (".", "..") or "/" in last:
            raise FishermixError(f"{last} is a folder. Say what to search for, for example `{example}`.")
        tell(f"Searching for '{last}' in the current folder. To search in the folder {last}: `{example}`.")
    if before and before[-1] in ("+", "-") and is_folder:
        raise FishermixError(
            f"{last} is a folder, and '{before[-1]}' comes before it. To search in {last}, put a sentence or "
            f"a photo between them. To search for the word '{last}' in the current folder, add a dot: "
            f"`fishermix search {shlex.join(arguments)} .`."
        )
    if before and before[-1] not in ("+", "-"):
        if is_folder:
            return before, Path(folder)
        if last.endswith("/") or last.startswith(("/", "~", "./", "../")):
            raise FishermixError(f"{last} is not a folder. Name the folder that contains your photos.")
    return arguments, Path(".")


def _parse_min_score(text: str | None) -> float | str | None:
    if text is None or text == "auto":
        return text
    try:
        limit = float(text)
    except ValueError:
        limit = float("nan")
    if not -1 <= limit <= 1:
        raise FishermixError(f"--min-score must be a number between -1 and 1, or auto, not '{text}'.")
    return limit


def _explain_nothing(photos: int, folder: Path, filtered: bool) -> str:
    if not photos:
        return f"There are no photos in {folder}."
    if filtered:
        return f"None of the {photos:,} photos meets all conditions. Omit one of them."
    return f"None of the {photos:,} photos reaches the threshold. Omit --min-score to see the best ones."


def _write_contact_sheet(out: Path, query: str, photos, folder: Path, hits) -> None:
    from fishermix.retrieval.contact_sheet import render_contact_sheet, write_contact_sheet

    cards = [
        (photos.path(hit), f"{format_path(folder, hit.file)}{format_part(hit)}", hit.score, "")
        for hit in hits
    ]
    write_contact_sheet(out, render_contact_sheet(query, cards, f"{len(hits)} photos found by fishermix"))
    tell(f"Wrote {out}.")
