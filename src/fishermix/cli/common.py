"""What the photo commands share: the options that name a model and an index, and opening them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fishermix.errors import FishermixError

if TYPE_CHECKING:
    from fishermix.model.model import ImageTextModel
    from fishermix.retrieval.index import PhotoIndex

ModelOption = Annotated[
    Path | None, typer.Option("--model", help="Folder of a model of your own; the shipped one if left out.")
]
IndexOption = Annotated[
    str | None,
    typer.Option("--index", help="Where the index is kept: a directory, or postgresql://HOST/DATABASE#NAME."),
]
SentencesOption = Annotated[
    Path | None,
    typer.Option("--sentences", help="Text file with one sentence a line; plain everyday ones if left out."),
]


def open_model(folder: Path | None) -> ImageTextModel:
    import warnings

    from fishermix.model.model import ImageTextModel

    # The commands say themselves, and better, what to do about it.
    warnings.filterwarnings("ignore", message=".*hold no known word")
    warnings.filterwarnings("ignore", message=".*decompression bomb")
    return ImageTextModel.load(folder)


def open_index(folder: Path, index: str | None, model, update: bool = True) -> PhotoIndex:
    """The index of a folder, brought up to date; what happened is told on standard error."""
    from fishermix.retrieval.index import PhotoIndex
    from fishermix.retrieval.store import StoreLocked

    photos = PhotoIndex(folder, model, index)
    if not update:
        if not photos.store.model_key():
            raise FishermixError(f"{folder} has no index yet: leave out --no-update to make one")
        if photos.store.model_key() != model.key:
            raise FishermixError(
                "the index was made with another model: leave out --no-update to make it anew"
            )
        return photos
    try:
        changes = photos.update()
    except StoreLocked as locked:
        if photos.store.model_key() != model.key:
            raise
        tell(f"{locked}; searching what it holds now")
        return photos
    if changes.another_model:
        tell("the index was made with another model: all photos were encoded anew")
    if changes.unreadable:
        first = next(iter(changes.unreadable))
        tell(
            f"{len(changes.unreadable)} could not be read, {first} among them; "
            f"`fishermix index info {folder}` lists all"
        )
    return photos


def photo_files(photos: list[Path]) -> list[Path]:
    """The photos named, if they are all there."""
    for photo in photos:
        if not photo.is_file():
            raise FishermixError(f"{photo} is not a file: name a photo")
    return photos


def expect_folder_of(*files: Path | None) -> None:
    """Before hours of work: the folders are there in which files will be written at the end."""
    for file in files:
        if file is not None and not file.absolute().parent.is_dir():
            raise FishermixError(f"there is no folder {file.parent} to write {file.name} in: make it first")
        if file is not None and file.is_dir():
            raise FishermixError(f"{file} is a folder: name a file")


def tell(message: str) -> None:
    """A remark beside the results: on standard error, and not with --quiet."""
    from fishermix import progress

    if progress.is_shown():
        print(f"fishermix: {message}", file=sys.stderr)


def say(text: str = "", end: str = "\n") -> None:
    """A line of the result; a file name's bytes that are no text go out as they are, but a terminal gets a
    question mark for every character that would steer it.
    """
    if sys.stdout.isatty():
        text = "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)
    try:
        print(text, end=end, flush=True)
    except UnicodeEncodeError:
        sys.stdout.flush()
        sys.stdout.buffer.write(os.fsencode(text + end))


def shown_path(folder: Path, path: str) -> str:
    """A photo's path as the user can use it: with the folder in front as it was named."""
    if str(folder) != ".":
        return os.path.join(folder, path)
    return f"./{path}" if path.startswith("-") else path  # no program takes it for an option
