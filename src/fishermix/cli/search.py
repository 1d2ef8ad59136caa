"""`fishermix search`: find the photos of a folder that a sentence describes."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from fishermix.cli import app
from fishermix.cli.common import (
    ExcludeOption,
    IndexOption,
    MaxPixelsOption,
    ModelOption,
    drop_covered,
    expect_folder_of,
    explain_empty,
    format_part,
    format_path,
    open_index,
    open_model,
    say,
    tell,
    tell_unknown_words,
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

if TYPE_CHECKING:
    from fishermix.model.model import ImageTextModel
    from fishermix.retrieval.details import Details, Filter
    from fishermix.retrieval.index import PhotoIndex
    from fishermix.retrieval.query import Query
    from fishermix.retrieval.store import Hit

USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]  # click's, of which typer may have a copy
NOTHING = "Nothing here looks like this. The nearest:"
AFTER_DASHES = ("-n", "-f", "-0", "-h")  # the short options: after a lone -- they would be words


class SearchCommand(TyperCommand):
    """Explains a minus without a space, which the command line takes for options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, list(args))
        except USAGE_ERROR:
            word = next((one for one in args if re.fullmatch(r"-[^\W\d_][\w\s'-]+", one)), None)
            if word is None:
                raise
            terms = [part for one in args for part in (("-", one[1:]) if one == word else (one,))]
            raise FishermixError(
                f"{word} was read as options. To subtract a word, put a space after the minus: "
                f"`fishermix search {shlex.join(terms)}`."
            ) from None


@app.command(
    cls=SearchCommand,
    epilog='Examples: fishermix search "two dogs run on a beach" ~/Pictures · '
    'fishermix search beach - people -n 5 · fishermix search photo.jpg + "at night" --html night.html · '
    'fishermix search "a red car" -0 --min-score auto | xargs -0 cp -t cars/',
)
def search(
    query: Annotated[
        list[str],
        typer.Argument(
            metavar="QUERY... [FOLDER...]",
            help="A sentence or a photo, or several with + and - between them; then the folders. "
            "2:dog counts twice. Default: the current folder.",
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
            help="Print only photos with at least this score. auto: only photos that may be right.",
        ),
    ] = None,
    after: AfterOption = None,
    before: BeforeOption = None,
    in_folder: InOption = None,
    camera: CameraOption = None,
    near: NearOption = None,
    portrait: PortraitOption = None,
    exclude: ExcludeOption = None,
    sort: SortOption = SortBy.score,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Also write a contact sheet: one HTML file with the photos in it."),
    ] = None,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show the photos in the terminal (Kitty, iTerm2, sixel).")
    ] = False,
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
    The higher the score, the better the match. On a terminal, headings say which photos are likely right
    (probability 0.5 or more) and which may be (0.2 or more).
    With --sort date, only these are printed, the newest first.
    """
    from fishermix.retrieval.index import MOST_SORTED_BY_DATE
    from fishermix.retrieval.query import combine_filters, encode_terms, parse_arguments

    limit = _parse_min_score(min_score)
    shape = None if portrait is None else ("portrait" if portrait else "landscape")
    only = _make_filter(after, before, in_folder, camera, near, shape)
    if html:
        expect_folder_of(html)
    terms, folders = _split_folders(query)
    if index is not None and len(folders) > 1:
        raise FishermixError("--index names the index of one folder. Name one folder.")
    folders = drop_covered(folders, exclude or [], update)
    parsed = parse_arguments(terms)
    loaded = open_model(model)
    encoded = encode_terms(parsed, loaded, dates=after is None and before is None)
    _tell_remarks(encoded, loaded)
    with ExitStack() as stack:
        opened: dict[Path, PhotoIndex] = {}
        found: list[Found] = []
        problems: dict[Path, FishermixError] = {}
        by_date = sort is SortBy.date
        most = MOST_SORTED_BY_DATE if by_date else number
        at_least = "auto" if by_date and limit is None else limit
        for folder in folders:
            try:
                photos = stack.enter_context(open_index(folder, index, loaded, update, exclude))
                found += [Found(folder, photos, hit) for hit in photos.search(encoded, most, at_least, only)]
                opened[folder] = photos
            except FishermixError as error:
                problems[folder] = error
        _tell_problems(problems, bool(opened))
        if not found and at_least is not limit:  # nothing may be right
            found = [
                Found(folder, photos, hit)
                for folder, photos in opened.items()
                for hit in photos.search(encoded, number, None, only)
            ]
            found = sorted(found, key=lambda one: -one.hit.score)[:number]
            if found:
                tell(NOTHING)
        found = list({one.photos.path(one.hit): one for one in found}.values())  # folders may overlap
        if not paths_only and not null:
            found = _judge(found, encoded)
        by_date = by_date or not encoded.has_terms
        if as_json or by_date:
            found = _read_details(found)
        if by_date:
            found.sort(key=lambda one: one.details.get("taken", ""), reverse=True)
        elif len(folders) > 1:
            found.sort(key=lambda one: -one.hit.score)
        found = found[:number]
        if not found:
            conditions = combine_filters(encoded.only, only)
            count = sum(photos.store.summary().photos for photos in opened.values())
            if count:
                tell(_explain_nothing(count, conditions, limit is not None))
            else:
                tell(" ".join(explain_empty(photos, folder, index) for folder, photos in opened.items()))
        if html:
            _write_contact_sheet(html, " ".join(terms), found)
    if as_json:
        say(json.dumps([_describe(one) for one in found], indent=1))
        return
    if null or paths_only:
        for one in found:
            say(format_path(one.folder, one.hit.file), end="\0" if null else "\n")
        return
    _print_lines(found, encoded.has_terms, not by_date, _find_protocol() if preview else None)


def _tell_problems(problems: dict[Path, FishermixError], is_any_left: bool) -> None:
    """Report the folders that cannot be searched; raises if there are no others."""
    if not is_any_left:
        if len(problems) == 1:
            raise next(iter(problems.values()))
        raise FishermixError(" ".join(map(str, problems.values())))
    for folder, error in problems.items():
        tell(f"{folder} is skipped. {error}")


@dataclass(frozen=True)
class Found:
    """A photo that a search found, the folder as the user named it, and its index."""

    folder: Path
    photos: PhotoIndex
    hit: Hit
    details: dict[str, str | float | int] = field(default_factory=dict)
    probability: float | None = None


def _judge(found: list[Found], query: Query) -> list[Found]:
    """The same photos with the probability that they are right, if the model says so."""
    judged = []
    for photos in {id(one.photos): one.photos for one in found}.values():
        some = [one for one in found if one.photos is photos]
        if (judge := photos.judge(query)) is not None:
            chances = judge.find_probabilities([one.hit.score for one in some])
            some = [replace(one, probability=chance) for one, chance in zip(some, chances)]
        judged += some
    return judged


def _print_lines(found: list[Found], has_scores: bool, divided: bool, protocol: str | None) -> None:
    """Print scores and paths. On a terminal, headings say which photos are likely right and which may be,
    if the photos are `divided`.
    """
    from fishermix.retrieval.index import LIKELY, MAYBE
    from fishermix.vision.formats import locate_part

    chances = [one.probability for one in found if one.probability is not None]
    nothing = divided and bool(chances) and max(chances) < MAYBE
    if nothing:
        tell(NOTHING)
    heading = ""
    places = [locate_part(one.hit.path) for one in found]
    for one, (file, time, page) in zip(found, places):
        if one.probability is not None and divided and not nothing and sys.stdout.isatty():
            kind = (
                "Likely" if one.probability >= LIKELY else "Maybe" if one.probability >= MAYBE else "Unlikely"
            )
            if kind != heading:
                say(f"{kind}:")
                heading = kind
        score = f"{one.hit.score:.3f}  " if has_scores else ""
        say(f"{score}{format_path(one.folder, file)}{format_part(time, page)}")
        if protocol:
            from fishermix.cli.terminal import show_photo

            show_photo(one.photos.path(one.hit), protocol)


def _find_protocol() -> str | None:
    """How this terminal shows pictures; if it does not, a remark says so."""
    from fishermix.cli.terminal import find_protocol

    if (protocol := find_protocol()) is None:
        tell("This terminal does not say that it can show pictures. --html writes a page with them.")
    return protocol


def _read_details(found: list[Found]) -> list[Found]:
    """The same photos with their date, camera, place and size."""
    known: dict[tuple[int, str], Details] = {}
    for photos in {id(one.photos): one.photos for one in found}.values():
        paths = [one.hit.path for one in found if one.photos is photos]
        known |= {(id(photos), path): details for path, details in photos.store.details(paths).items()}
    keys = [(id(one.photos), one.hit.path) for one in found]
    return [
        replace(one, details=known[key].as_json()) if key in known else one for one, key in zip(found, keys)
    ]


def _tell_remarks(query: Query, model: ImageTextModel) -> None:
    """Report the words that the model does not know, and what was read into the others."""
    tell_unknown_words(query.out_of_vocabulary, model)
    for remark in query.remarks:
        tell(remark)


def _describe(one: Found) -> dict[str, str | float | int]:
    """A hit as a JSON object; `time` is in seconds."""
    parts = {name: value for name in ("time", "page") if (value := getattr(one.hit, name)) is not None}
    path, score = format_path(one.folder, one.hit.file), round(one.hit.score, 6)
    chance = {} if one.probability is None else {"probability": round(one.probability, 4)}
    return {"path": path, "score": score, **chance, **parts, **one.details}


def _split_folders(arguments: list[str]) -> tuple[list[str], list[Path]]:
    """The query and the folders: the last arguments that are folders, if a query precedes them."""
    for argument in arguments:
        if argument in AFTER_DASHES or argument.startswith("--"):
            raise FishermixError(f"{argument} comes after --, where options end. Put it before the query.")
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
            folders = [Path(folder)]
            while (
                len(before) > 1
                and before[-2] not in ("+", "-")
                and os.path.isdir(other := os.path.expanduser(before[-1]))
            ):
                folders.insert(0, Path(other))
                before.pop()
            return before, folders
        is_folder_missing = (
            len(before) > 1 and before[-2] not in ("+", "-") and os.path.isdir(os.path.expanduser(before[-1]))
        )
        if is_folder_missing or last.endswith("/") or last.startswith(("/", "~", "./", "../")):
            raise FishermixError(f"{last} is not a folder. Name the folder that contains your photos.")
    return arguments, [Path(".")]


def _make_filter(*conditions: str | None):
    """The photos that the search considers; None: all of them."""
    if all(condition is None for condition in conditions):
        return None
    from fishermix.retrieval.details import Filter

    only = Filter(*conditions)
    only.check()
    only.check_order()
    return only


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


def _explain_nothing(photos: int, conditions: Filter | None, limited: bool) -> str:
    if conditions:
        given = {name for name, value in vars(conditions).items() if value is not None}
        if len(given) == 1 or given == {"after", "before"}:
            return f"None of the {photos:,} photos meets the condition. Omit it to see the best ones."
        return f"None of the {photos:,} photos meets all conditions. Omit one of them."
    if not limited:
        return f"--exclude excludes all {photos:,} photos. Omit it to see the best ones."
    return f"Nothing in {photos:,} photos looks like this. Omit --min-score to see the nearest ones."


def _write_contact_sheet(out: Path, query: str, found: list[Found]) -> None:
    from fishermix.retrieval.contact_sheet import render_contact_sheet, write_contact_sheet

    cards = [
        (
            one.photos.path(one.hit),
            f"{format_path(one.folder, one.hit.file)}{format_part(one.hit.time, one.hit.page)}",
            one.hit.score,
            "",
        )
        for one in found
    ]
    write_contact_sheet(out, render_contact_sheet(query, cards, f"{len(found)} photos found by fishermix"))
    tell(f"Wrote {out}.")
