"""What commands share: options, opening the model and the index, and printing."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fishermix.errors import FishermixError, FishermixWarning

if TYPE_CHECKING:
    from fishermix.model.model import ImageTextModel
    from fishermix.retrieval.index import PhotoIndex
    from fishermix.retrieval.update import Changes

ModelOption = Annotated[
    Path | None, typer.Option("--model", help="Folder of a trained model. Default: the model in the package.")
]
FoldersArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[FOLDER...]",
        help="The folders that contain the photos. Default: the current folder.",
        show_default=False,
    ),
]


def _check_index(index: str | None) -> str | None:
    if index is not None and not index.strip():
        raise FishermixError("--index is empty. Name a directory or a postgresql:// address, or omit it.")
    return index


IndexOption = Annotated[
    str | None,
    typer.Option(
        "--index",
        callback=_check_index,
        help="Where the index is kept: a directory, or postgresql://HOST/DATABASE#NAME. "
        "Default: a folder in your data directory.",
    ),
]


def _set_max_pixels(pixels: int | None) -> int | None:
    if pixels is not None:
        from fishermix.vision.pixel_limit import set_default_max_pixels

        set_default_max_pixels(pixels)
    return pixels


MaxPixelsOption = Annotated[
    int | None,
    typer.Option(
        "--max-pixels",
        min=1,
        callback=_set_max_pixels,
        help="Reject images that take more pixels than this in memory. Default: depends on RAM.",
        show_default=False,
    ),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        metavar="GLOB",
        help="Neither encode nor find photos and folders that match: '*.gif', 'raw/'. May be repeated. "
        "A file .fishermixignore has such patterns for good.",
        show_default=False,
    ),
]
SentencesOption = Annotated[
    Path | None,
    typer.Option(
        "--sentences",
        help="Text file with one sentence per line. Default: the sentences in the model.",
    ),
]


def tell_unknown_words(words: list[str], model: ImageTextModel) -> None:
    """Report out-of-vocabulary words of a query, and what the model makes of them."""
    if words and model.reads_unknown_words:
        tell(f"Not in the model's vocabulary, guessed from their letters: {', '.join(words)}.")
    elif words:
        tell(f"Ignored, not in the model's vocabulary: {', '.join(words)}.")


def open_model(folder: Path | None) -> ImageTextModel:
    import warnings

    from fishermix.model.model import ImageTextModel

    # The commands report these themselves, with the photo or the words concerned.
    warnings.filterwarnings("ignore", message=".*(known word|vocabulary)", category=FishermixWarning)
    return ImageTextModel.load(folder)


def open_index(
    folder: Path, index: str | None, model, update: bool = True, exclude: Sequence[str] | None = None
) -> PhotoIndex:
    """Open the index of a folder and update it; problems are reported on standard error."""
    from fishermix.retrieval.index import PhotoIndex
    from fishermix.retrieval.store import StoreLocked

    with ExitStack() as on_failure:
        photos = on_failure.enter_context(PhotoIndex(folder, model, index, exclude=exclude or ()))
        if not update:
            _check_model(photos, folder)
        else:
            try:
                tell_changes(photos.update(), photos, folder, index)
            except StoreLocked as locked:
                if photos.store.model_key() != model.key:
                    raise
                tell(f"{locked} The search uses the index as it is now.")
        on_failure.pop_all()
        return photos


def drop_covered(folders: list[Path], exclude: Sequence[str], update: bool) -> list[Path]:
    """The folders without those that the index of another one covers, so that each photo is found once."""
    if len(folders) == 1:
        return folders
    from fishermix.retrieval.open import resolve_folder
    from fishermix.retrieval.several_folders import drop_inner_folders

    by_place = {resolve_folder(folder): folder for folder in reversed(folders)}
    return [by_place[place] for place in drop_inner_folders(reversed(by_place), exclude, update)]


def _check_model(photos: PhotoIndex, folder: Path) -> None:
    """Raise if an index cannot be searched as it is."""
    if not (key := photos.store.model_key()):
        raise FishermixError(f"{folder} has no index yet. Omit --no-update to create it.")
    if key != photos.model.key:
        raise FishermixError("The index was made with another model. Omit --no-update to build it again.")


def explain_empty(photos: PhotoIndex, folder: Path, index: str | None) -> str:
    """Why an index has no photos."""
    from fishermix.retrieval.photo_files import scan_folder

    if not scan_folder(photos.folder, photos.exclude, photos.store.root).photos:
        besides = " besides those that --exclude names" if photos.exclude else ""
        return f"There are no photos in {folder}{besides}."
    place = f" --index {shlex.quote(index)}" if index is not None else ""
    return (
        f"The index of {folder} is empty, because indexing has not finished. Finish it with "
        f"`fishermix index add {shlex.quote(str(folder))}{place}`, or omit --no-update."
    )


def tell_changes(changes: Changes, photos: PhotoIndex, folder: Path, index: str | None) -> None:
    """Report what an update could not read."""
    if changes.another_model:
        tell("The index was made with another model. All photos were encoded again.")
    if changes.unreadable:
        first = next(iter(changes.unreadable))
        place = f" --index {shlex.quote(index)}" if index is not None else ""
        number = len({**photos.store.summary().unreadable, **changes.unreadable})
        tell(
            f"New unreadable files: {len(changes.unreadable):,}, for example {first}. {number:,} in all: "
            f"`fishermix index info {shlex.quote(str(folder))}{place}` lists them."
        )
    if changes.skipped:
        tell_skipped(changes.skipped)


def tell_skipped(skipped: Mapping[str, int]) -> None:
    """Report the files that look like photos and are not read, by suffix."""
    from fishermix.vision.formats import explain_skipped

    for sentence in explain_skipped(skipped):
        tell(sentence)


def check_photo(photo: Path) -> None:
    """Raise if there is no such file."""
    if not photo.is_file():
        raise FishermixError(f"{photo} is not a file. Name a photo.")


def expect_folder_of(*files: Path | None) -> None:
    """Raise, before hours of work, if a file could not be written at the end."""
    for file in files:
        if file is not None and not file.absolute().parent.is_dir():
            raise FishermixError(
                f"There is no folder {file.parent} to write {file.name} to. Create it first."
            )
        if file is not None and file.is_dir():
            raise FishermixError(f"{file} is a folder. Name a file.")


def tell(message: str) -> None:
    """Print a remark on standard error, unless --quiet is given."""
    from fishermix.progress import is_shown

    if is_shown():
        print(f"fishermix: {message}", file=sys.stderr)


def say(text: str = "", end: str = "\n") -> None:
    """Print a line of the result. A file name that is not valid text is written as its bytes. On a terminal,
    control characters become question marks.
    """
    if sys.stdout.isatty():
        text = "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)
    try:
        print(text, end=end, flush=True)
    except UnicodeEncodeError:
        sys.stdout.flush()
        sys.stdout.buffer.write(os.fsencode(text + end))


def format_part(time: float | None, page: int | None) -> str:
    """The place of a hit in its file: the time in a video, in seconds, or the page."""
    if time is not None:
        minutes, seconds = divmod(int(time), 60)
        return f"  at {minutes}:{seconds:02}"
    return f"  page {page}" if page is not None else ""


def format_path(folder: Path, path: str) -> str:
    """The path of a photo as other programs can use it: below the folder as the user named it."""
    if str(folder) != ".":
        return os.path.join(folder, path)
    return f"./{path}" if path.startswith("-") else path  # so that no program takes it for an option
