"""`fishermix search`: find the photos that a sentence describes."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fishermix.errors import FishermixError

from fishermix_photos.cli import QueryCommand, app, options
from fishermix_photos.cli.common import (
    check_output_file,
    open_library,
    say,
    say_json,
    say_paths,
    tell,
)
from fishermix_photos.cli.filters import add_filter_options
from fishermix_photos.photos.formats import count_photos, explain_skipped

if TYPE_CHECKING:
    from fishermix_photos.index.changes import Changes
    from fishermix_photos.index.photo import Photo
    from fishermix_photos.library import PhotoLibrary
    from fishermix_photos.search.pipeline import PreparedQuery
    from fishermix_photos.search.results import Query, Results

BEST = 10  # photos that are printed by default


@app.command(
    cls=QueryCommand,
    examples=[
        'fishermix search "two dogs run on a beach" ~/Pictures',
        "fishermix search beach - people -n 5",
        'fishermix search photo.jpg + "at night" --html night.html',
        'fishermix search "a red car" -0 --min-score auto | xargs -0 cp -t cars/',
    ],
)
@add_filter_options
def search(
    query: options.Query,
    number: options.Number = None,
    as_json: options.Json = False,
    paths_only: options.Files = False,
    null: options.Null = False,
    min_score: options.MinScore = None,
    filter: Any = None,
    html: options.Html = None,
    update: options.Update = True,
    library: options.Library = None,
    max_pixels: options.MaxPixels = None,
    model: options.Model = None,
) -> None:
    """Find the photos that a sentence describes.

    The first search of a folder encodes every photo, on this machine; later searches encode only new ones.

    The higher the score, the better the match. "likely" is a probability of 0.5 or more, "maybe" of 0.2 or
    more. Near copies of a picture share one line.
    """
    from fishermix_photos.search.results import Query
    from fishermix_photos.search.terms import parse_arguments

    check_output_file(html)
    with open_library(library, model) as photos:
        words, folders = _split_folders(query, photos)
        asked = Query(
            **_parse_min_score(min_score),
            filter=filter,
            terms=parse_arguments(words),
            folders=choose_folders(photos, folders),
            n=number or BEST,
            merge_copies=not (null or paths_only),  # another program gets all files
        )
        results, remarks = _find(photos, asked, update, is_limited=number is not None)
    names = PathNames(asked.folders)
    if html:
        _write_contact_sheet(html, " ".join(words), results, names)
    tell(*remarks)
    if as_json:
        say_json([_describe_photo(photo, names) for photo in results.photos])
    elif null or paths_only:
        say_paths([names.write(photo.path) for photo in results.photos], "\0" if null else "\n")
    else:
        _print_lines(results, names)


def _find(library: PhotoLibrary, query: Query, update: bool, is_limited: bool) -> tuple[Results, list[str]]:
    """What a search finds after an update of its folders, how it was understood, and why nothing was found.

    is_limited : False: a query that is only a date or a name finds all photos
    """
    from fishermix_photos.cli.wording import word_notes
    from fishermix_photos.search.notes import REASONS

    prepared = library.prepare(query)
    if update:
        update_folders(library, query.folders, prepared)
    results = library.search(prepared)
    if results.more and results.total is not None and not is_limited:
        results = library.search(replace(query, n=results.total))
    remarks = word_notes(results.notes)
    if not results.photos and not any(note.kind in REASONS for note in results.notes):
        count = library.count(query.folders)
        nothing = _explain_nothing(count, query) if count else explain_empty(library, query.folders, update)
        remarks.append(nothing)
    return results, remarks


def _print_lines(results: Results, names: PathNames) -> None:
    """Print scores, bands and paths; on a terminal, the bands as headings."""
    has_headings = sys.stdout.isatty()
    band = results.photos[0].band if results.verdict else None
    lines = []
    for photo in results.photos:
        if has_headings and photo.band not in (None, band):
            band = photo.band
            lines.append(f"{photo.band.capitalize()}:")
        columns = ["" if photo.score is None else f"{photo.score:.3f}", names.describe(photo)]
        if photo.band and not has_headings:
            columns.insert(1, f"{photo.band:8}")
        if photo.text:
            columns.append(f"(text in the photo: {photo.text})")
        if photo.similar:
            columns.append(f"(and {len(photo.similar)} similar)")
        lines.append("  ".join(filter(None, columns)))
    if results.verdict:
        tell(results.verdict)
    say(*lines)


def _describe_photo(photo: Photo, names: PathNames) -> dict[str, Any]:
    """A photo as a JSON object; `time` is in seconds."""
    values = {
        "path": names.write(photo.path),
        "score": photo.score,
        "probability": photo.probability,
        "band": photo.band,
        "similar": [names.write(copy.path) for copy in photo.similar] or None,
        "time": photo.time,
        "page": photo.page,
        "text": photo.text,
    }
    return {name: value for name, value in values.items() if value is not None} | photo.details.as_json()


def _split_folders(arguments: list[str], library: PhotoLibrary) -> tuple[list[str], list[Path]]:
    """The words of the query and the folders: the last arguments that are folders, if words precede them."""

    def is_folder(argument: str) -> bool:
        """Whether there is such a folder, or the library has it from a disk that is away."""
        place = os.path.expanduser(argument)
        return os.path.isdir(place) or (os.path.isabs(place) and library.covering(place) is not None)

    folders: list[Path] = []
    words = list(arguments)
    while len(words) > 1 and words[-2] not in ("+", "-") and is_folder(words[-1]):
        folders.insert(0, Path(words.pop()).expanduser())
    if not folders:
        _check_last(words)
    return words, folders


def _check_last(words: list[str]) -> None:
    """Raise if the last word of a query without a folder looks as if it were one."""
    *before, last = words
    place = os.path.expanduser(last)
    is_path = last in (".", "..") or last.endswith("/") or last.startswith(("/", "~", "./", "../"))
    if not before and is_path and os.path.isdir(place):
        example = f'fishermix search "two dogs" {shlex.quote(last)}'
        raise FishermixError(
            f"{last} is a folder. Say what to search for, for example `{example}`.", code="wrong_query"
        )
    follows_folder = len(before) > 1 and os.path.isdir(os.path.expanduser(before[-1]))
    if before and before[-1] not in ("+", "-") and (follows_folder or is_path):
        problem = "is not a folder" if os.path.exists(place) else "does not exist"
        raise FishermixError(
            f"{last} {problem}. Name the folder that contains your photos.", code="wrong_folder"
        )


def _parse_min_score(text: str | None) -> dict[str, Any]:
    """The condition of a query that --min-score means."""
    if text is None:
        return {}
    if text == "auto":
        from fishermix_photos.search.calibration import MAYBE

        return {"min_probability": MAYBE}
    try:
        score = float(text)
    except ValueError:
        score = float("nan")
    if not -1 <= score <= 1:
        raise FishermixError(
            f"--min-score must be a number between -1 and 1, or auto, not '{text}'.", code="wrong_parameter"
        )
    return {"min_score": score}


def _explain_nothing(count: int, query: Query) -> str:
    """Why a search of photos found none."""
    if not query.filter and (query.min_score is not None or query.min_probability is not None):
        return f"Nothing in {count_photos(count)} looks like this. Omit --min-score to see the closest ones."
    return f"None of {count_photos(count)} meets all conditions together."


def _write_contact_sheet(out: Path, query: str, results: Results, names: PathNames) -> None:
    from fishermix_photos.contact_sheet import write_contact_sheet

    subtitle = results.verdict or f"{count_photos(len(results.photos))} found by fishermix"
    write_contact_sheet(out, query, subtitle, results.photos, names.describe)
    tell(f"Wrote {out}.")


# What other commands that read folders of the library share with a search


def choose_folders(library: PhotoLibrary, named: Sequence[Path]) -> tuple[Path, ...]:
    """The named folders, or else the current one if the library has it, or else none: the whole library."""
    if named:
        return tuple(named)
    if library.covering(Path.cwd()) is not None:
        return (Path("."),)
    if not library.folders():
        library.expect_there()
        raise FishermixError(
            "Your library is empty. Name the folder that contains your photos, for example ~/Pictures.",
            code="empty_library",
        )
    return ()


def update_folders(
    library: PhotoLibrary, folders: Sequence[Path], query: PreparedQuery | None = None
) -> None:
    """Update folders and report problems; the photos of a folder that is away or busy stay in the library."""
    if not folders:
        return
    _announce(library, folders, query)
    try:
        tell_changes(library, library.update(folders, query=query))
    except FishermixError as error:
        if error.code not in ("library_busy", "folder_away"):
            raise
        tell(f"Not updated. {error}")


def _announce(library: PhotoLibrary, folders: Sequence[Path], query: PreparedQuery | None) -> None:
    """Say which folders an update will add, unless it will refuse the query."""
    from fishermix_photos.index.scan import resolve, scan_folder

    for folder in folders:
        place = resolve(folder)
        photos = scan_folder(place).photos if library.covering(place) is None and place.is_dir() else {}
        if photos and query is not None:
            library.check(query, {os.path.basename(path).lower() for path in photos})
        if photos:
            tell(f"Adding {count_photos(len(photos))} of {folder} to your library first.")


def tell_changes(library: PhotoLibrary, changes: Changes) -> None:
    """Report what an update could not read."""
    remarks = [f"{folder} is not updated. {problem}" for folder, problem in changes.problems.items()]
    if changes.unreadable:
        first = next(iter(changes.unreadable))
        place = library.covering(os.path.dirname(first.rstrip("/"))) or "FOLDER"
        remarks.append(
            f"New unreadable files: {len(changes.unreadable):,}, for example {first}. "
            f"`fishermix library list {shlex.quote(str(place))}` lists all of them."
        )
    if changes.skipped:
        remarks += explain_skipped(changes.skipped)
    tell(*remarks)


def explain_empty(library: PhotoLibrary, folders: Sequence[Path], updated: bool) -> str:
    """Why there are no photos in folders."""
    library.expect_there()
    unknown = [folder for folder in folders if library.covering(folder) is None]
    if unknown and not updated:
        return f"{unknown[0]} is not in your library yet. Omit --no-update to add it."
    return f"There are no photos in {', '.join(map(str, folders)) or 'your library'}."


class PathNames:
    """Writes paths as the user wrote their folder: "photos/a.jpg" for the folder "photos"."""

    def __init__(self, folders: Sequence[Path]):
        places = {os.path.join(os.path.realpath(folder.expanduser()), ""): folder for folder in folders}
        self._folders = sorted(places.items(), key=lambda pair: -len(pair[0]))  # the innermost first

    def write(self, path: str) -> str:
        """The path of a file, as other programs can use it."""
        for place, folder in self._folders:
            if path.startswith(place):
                inside = path[len(place) :]
                if str(folder) != ".":
                    return os.path.join(folder, inside)
                return f"./{inside}" if inside.startswith("-") else inside  # or it looks like an option
        return path

    def describe(self, photo: Photo) -> str:
        """The path of a photo with the time of a video frame or the page of a TIFF file."""
        part = "" if photo.page is None else f"  page {photo.page}"
        if photo.time is not None:
            minutes, seconds = divmod(int(photo.time), 60)
            part = f"  at {minutes}:{seconds:02}"
        return self.write(photo.path) + part
