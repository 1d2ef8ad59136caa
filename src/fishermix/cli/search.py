"""`fishermix search`: photos of a folder that a sentence describes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fishermix.cli import app
from fishermix.cli.common import IndexOption, ModelOption, open_index, open_model, say, shown_path, tell
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
            help="A sentence or a photo, or several with + and - between; then the folder, if not this one.",
            show_default=False,
        ),
    ],
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="At most this many photos.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of paths and scores.")] = False,
    paths_only: Annotated[bool, typer.Option("-f", "--files", help="Print paths only, for pipes.")] = False,
    null: Annotated[
        bool, typer.Option("-0", "--null", help="Print paths only, each ended by a zero byte, for xargs -0.")
    ] = False,
    min_score: Annotated[
        str | None,
        typer.Option(
            "--min-score", help="Leave out photos below this score; auto: a cut made for the query."
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a contact sheet, a single HTML file.")
    ] = None,
    update: Annotated[bool, typer.Option("--update/--no-update", help="Look for new photos first.")] = True,
    index: IndexOption = None,
    model: ModelOption = None,
) -> None:
    """Find the photos of a folder that a sentence describes.

    The first search of a folder looks at every photo once; later ones only at what is new. Nothing leaves
    this machine. The higher the score, the better the match: 0 is none, above 0.3 is rare without one.
    """
    from fishermix.retrieval.query import query_vector, terms_of_arguments

    limit = _score_limit(min_score)
    terms, folder = _terms_and_folder(query)
    parsed = terms_of_arguments(terms)
    loaded = open_model(model)
    for term in parsed:
        if term.kind == "text" and (unknown := loaded.unknown_words(term.value)):
            tell(f"left out, since the model does not know it: {', '.join(unknown)}")
    vector = query_vector(parsed, loaded)
    with open_index(folder, index, loaded, update) as photos:
        hits = photos.search(vector, number, limit)
        if not hits:
            tell(_why_nothing(photos.store.summary().photos, folder))
        if html:
            _write_sheet(html, " ".join(terms), photos, folder, hits)
    if as_json:
        found = [{"path": shown_path(folder, hit.path), "score": round(hit.score, 6)} for hit in hits]
        say(json.dumps(found, indent=1))
        return
    for hit in hits:
        path = shown_path(folder, hit.path)
        if null:
            say(path, end="\0")
        else:
            say(path if paths_only else f"{hit.score:.3f}  {path}")


def _terms_and_folder(arguments: list[str]) -> tuple[list[str], Path]:
    """The last argument is the folder if it is one and a query stands before it."""
    *before, last = arguments
    if not before and Path(last).expanduser().is_dir():
        what = f'to search in the folder {last}, say what for: fishermix search "two dogs" {last}'
        if last in (".", "..") or "/" in last:
            raise FishermixError(what)
        tell(f"looking for '{last}' in this folder; {what}")
    if before and before[-1] not in ("+", "-"):
        if Path(last).expanduser().is_dir():
            return before, Path(last).expanduser()
        if last.endswith("/") or last.startswith(("/", "~", "./", "../")):
            raise FishermixError(f"{last} is not a folder: name the folder that holds your photos")
    return arguments, Path(".")


def _score_limit(text: str | None) -> float | str | None:
    if text is None or text == "auto":
        return text
    try:
        limit = float(text)
    except ValueError:
        limit = float("nan")
    if not -1 <= limit <= 1:
        raise FishermixError(f"--min-score is a number between -1 and 1, or auto; not '{text}'")
    return limit


def _why_nothing(photos: int, folder: Path) -> str:
    if not photos:
        return f"there are no photos in {folder}"
    return f"none of the {photos} photos scores high enough; leave out --min-score to see the nearest"


def _write_sheet(out: Path, query: str, photos, folder: Path, hits) -> None:
    from fishermix.retrieval.contact_sheet import contact_sheet, write_contact_sheet

    cards = [(photos.path(hit), shown_path(folder, hit.path), hit.score, "") for hit in hits]
    write_contact_sheet(out, contact_sheet(query, cards, f"{len(hits)} photos found by fishermix"))
    tell(f"wrote {out}")
