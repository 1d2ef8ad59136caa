"""`fishermix caption`, `annotate` and `explain`: sentences for photos."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from fishermix.errors import FishermixError

from fishermix_photos.cli import QueryCommand, app, options
from fishermix_photos.cli.common import (
    open_library,
    require_captioner,
    say,
    say_json,
    tell,
)

if TYPE_CHECKING:
    from fishermix_photos.model.captioner.consensus import Description
    from fishermix_photos.model.explain import Explanation

BAR = 20  # characters of the longest bar


@app.command(examples=["fishermix caption photo.jpg", "fishermix caption ~/Pictures --json"])
def caption(
    photos: options.Photos,
    as_json: options.Json = False,
    max_pixels: options.MaxPixels = None,
    model: options.Model = None,
) -> None:
    """Write a caption for each photo.

    "(unsure)" means that the caption matches the photo barely better than a random caption.

    Photos that cannot be read are reported, and the exit code is then 1.
    """
    photos = _list_photos(photos)
    with open_library(None, model) as library:
        require_captioner(library.model)

        def describe(photo: Path) -> tuple[dict[str, Any], list[str]]:
            found = library.describe(library.encode_photo(photo), photo)
            entry = {"sentence": found.sentence, "confidence": found.confidence, "unsure": found.unsure}
            name = f"{photo}: " if len(photos) > 1 else ""
            return entry, [f"{name}{format_caption(found)}"]

        _describe_each(photos, describe, as_json)


def format_caption(found: Description) -> str:
    return f"{found.sentence} (unsure)" if found.unsure else found.sentence


@app.command(
    examples=["fishermix annotate photo.jpg", "fishermix annotate *.jpg --sentences captions.txt -n 3 --json"]
)
def annotate(
    photos: options.Photos,
    sentences: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Text file with one sentence per line. Default: the sentences in the model."
        ),
    ] = None,
    number: Annotated[
        int, typer.Option("-n", "--number", min=1, help="Print this many sentences per photo.")
    ] = 5,
    as_json: options.Json = False,
    max_pixels: options.MaxPixels = None,
    model: options.Model = None,
) -> None:
    """Find the sentences that describe a photo best, with their scores.

    Photos that cannot be read are reported, and the exit code is then 1.
    """
    from fishermix_photos.model.sentences import read_sentences

    photos = _list_photos(photos)
    candidates = read_sentences(sentences) if sentences else None
    with open_library(None, model) as library:

        def rank(photo: Path) -> tuple[dict[str, Any], list[str]]:
            ranked = library.annotate(library.encode_photo(photo), number, candidates)
            entries = [{"sentence": text, "score": score} for text, score in ranked]
            name = [str(photo)] if len(photos) > 1 else []
            return {"sentences": entries}, name + [f"{score:.3f}  {text}" for text, score in ranked]

        _describe_each(photos, rank, as_json)


def _list_photos(places: list[Path]) -> list[Path]:
    """The photos among these, and those in folders among these."""
    from fishermix_photos.index.scan import scan_folder

    photos: list[Path] = []
    for place in places:
        found = [place / path for path in scan_folder(place).photos] if place.is_dir() else [place]
        if not found:
            raise FishermixError(f"There are no photos in {place}.", code="no_photos")
        photos += found
    if len(photos) == 1:
        _check_photo(photos[0])  # before the model is loaded
    return photos


def _check_photo(photo: Path) -> None:
    if not photo.exists():
        raise FishermixError(f"{photo} does not exist. Name a photo.", code="not_found")
    if not photo.is_file():
        raise FishermixError(f"{photo} is not a file. Name a photo.", code="wrong_file")


def _describe_each(
    photos: list[Path], describe: Callable[[Path], tuple[dict[str, Any], list[str]]], as_json: bool
) -> None:
    """Print what is said of each photo at once, or a JSON list at the end.

    Photos that cannot be read are reported; a single one is a mistake.
    """
    entries = []
    for photo in photos:
        try:
            _check_photo(photo)
            entry, lines = describe(photo)
        except FishermixError as error:
            if len(photos) == 1:
                raise
            tell(str(error))
            continue
        entries.append({"path": str(photo), **entry})
        if not as_json:
            say(*lines)
    if as_json:
        say_json(entries)
    if len(entries) < len(photos):
        raise FishermixError(
            f"{len(photos) - len(entries)} of {len(photos)} photos could not be read.",
            code="unreadable_photos",
        )


@app.command(
    cls=QueryCommand,
    examples=[
        'fishermix explain "two dogs run on a beach" photo.jpg',
        "fishermix explain beach - people photo.jpg",
    ],
)
def explain(
    query: Annotated[
        list[str],
        typer.Argument(metavar="QUERY...", help="A sentence, or several with + and -."),
    ],
    photo: Annotated[Path, typer.Argument(help="A photo file.")],
    as_json: options.Json = False,
    max_pixels: options.MaxPixels = None,
    model: options.Model = None,
) -> None:
    """Show why a photo matches a query: what each word contributes to the score.

    A word contributes what the score would lose without it. Dates and photos in the query are ignored. What
    it subtracts, as in "beach - people" or "a beach without people", is listed with what the score loses for
    it.
    """
    from fishermix_photos.cli.wording import word_notes
    from fishermix_photos.search.reading import explain_unknown
    from fishermix_photos.search.results import Query
    from fishermix_photos.search.terms import parse_arguments

    _check_photo(photo)
    asked = Query(parse_arguments(query))
    with open_library(None, model) as library:
        library.check(asked)  # before the image network is opened, which takes seconds
        explanation = library.explain(asked, library.encode_photo(photo))
        corrections = [note for note in library.read(asked).notes if note.kind == "corrected"]
        unknown = explain_unknown(explanation.out_of_vocabulary, library.model, asked.terms)
        tell(*word_notes([*corrections, *unknown]))
    if as_json:
        say_json(asdict(explanation))
    else:
        say(*format_explanation(explanation))


def format_explanation(explanation: Explanation) -> list[str]:
    """An explanation as lines of text."""
    widest = max(len(part.word) for part in explanation.words)
    most = max(1e-6, *(abs(part.drop) for part in explanation.words))
    lost = sum(part.drop for part in explanation.subtracted)
    before = f" = {explanation.score + lost:.3f} - {lost:.3f}" if explanation.subtracted else ""
    lines = [f"score {explanation.score:.3f}{before}", "", "words: what the score would lose without each"]
    for part in explanation.words:
        bar = ("█" if part.drop > 0 else "░") * round(BAR * abs(part.drop) / most)
        bar = "not in the vocabulary" if part.word in explanation.out_of_vocabulary else bar
        lines.append(f"  {part.word:<{widest}}  {part.drop:+.3f}  {bar}".rstrip())
    if explanation.subtracted:
        lines += ["", "subtracted: what the score loses for each"]
        lines += [f"  {-part.drop:+.3f}  {part.sentence}" for part in explanation.subtracted]
    return lines
