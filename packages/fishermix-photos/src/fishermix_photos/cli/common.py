"""What commands share: options, the library and its updates, and paths as the user wrote them."""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from fishermix.errors import FishermixError, FishermixWarning

from fishermix_photos.cli.output import tell

if TYPE_CHECKING:
    from fishermix.caption.captioner import Captioner

    from fishermix_photos.library import PhotoLibrary
    from fishermix_photos.model import ImageTextModel
    from fishermix_photos.results import Changes, Photo


def _check_library(library: str | None) -> str | None:
    if library is not None and not library.strip():
        raise FishermixError("--library is empty. Name a directory, or omit it.")
    return library


def _set_max_pixels(pixels: int | None) -> int | None:
    if pixels is not None:
        from fishermix_photos.vision.limits import set_default_max_pixels

        set_default_max_pixels(pixels)
    return pixels


ModelOption = Annotated[
    Path | None, typer.Option("--model", help="Folder of a trained model. Default: the model in the package.")
]
FoldersArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FOLDER",
        help="Folders of photos, which are added to your library. Default: the current folder if your "
        "library has it, otherwise the whole library.",
        show_default=False,
    ),
]
LibraryOption = Annotated[
    str | None,
    typer.Option(
        "--library",
        metavar="PLACE",
        callback=_check_library,
        help="Use the library in this place. Default: the one in your data folder.",
    ),
]
MaxPixelsOption = Annotated[
    int | None,
    typer.Option(
        "--max-pixels",
        min=1,
        callback=_set_max_pixels,
        help="Reject images with more pixels than this. Default: depends on RAM.",
        show_default=False,
    ),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        metavar="GLOB",
        help="Skip photos and folders that match: '*.gif', 'raw/'. May be repeated. "
        "To skip them always, write the globs into a file .fishermixignore.",
        show_default=False,
    ),
]
UpdateOption = Annotated[
    bool, typer.Option("--update/--no-update", help="Look for new, changed and deleted photos first.")
]
NullOption = Annotated[
    bool, typer.Option("-0", "--null", help="Print paths only, each ending in a zero byte, for xargs -0.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SentencesOption = Annotated[
    Path | None,
    typer.Option(
        "--sentences",
        help="Text file with one sentence per line. Default: the sentences in the model.",
    ),
]


def open_model(folder: Path | None) -> ImageTextModel:
    from fishermix_photos.model import ImageTextModel

    hide_model_warnings()
    return ImageTextModel.load(folder)


def open_library(place: str | None, model: Path | None) -> PhotoLibrary:
    from fishermix_photos.library import PhotoLibrary

    hide_model_warnings()
    return PhotoLibrary(place, model)


def hide_model_warnings() -> None:
    """Unknown words are reported by the commands themselves, with the photo or the query concerned."""
    warnings.filterwarnings("ignore", message=".*(known word|vocabulary)", category=FishermixWarning)


def choose_folders(library: PhotoLibrary, named: Sequence[Path]) -> tuple[Path, ...]:
    """The folders that a command is about: those that are named, or else the current folder if the library
    has it, or else none, which means the whole library.
    """
    if named:
        return tuple(named)
    if library.covering(Path.cwd()) is not None:
        return (Path("."),)
    if not library.folders():
        raise FishermixError(
            "Your library is empty. Name the folder that contains your photos, for example ~/Pictures."
        )
    return ()


def update_folders(library: PhotoLibrary, folders: Sequence[Path], exclude: Sequence[str] | None) -> None:
    """Update folders, and report what could not be read. Of a folder that is away or that another process
    updates, the library has photos all the same.
    """
    if not folders:
        return
    try:
        tell_changes(library, library.update(folders, exclude or ()))
    except FishermixError as error:
        if error.code not in ("library_busy", "folder_away"):
            raise
        tell(f"Not updated. {error}")


def tell_changes(library: PhotoLibrary, changes: Changes) -> None:
    """Report what an update could not read."""
    for folder, problem in changes.problems.items():
        tell(f"{folder} is not updated. {problem}")
    if changes.unreadable:
        first = next(iter(changes.unreadable))
        place = library.covering(os.path.dirname(first.rstrip("/"))) or "FOLDER"
        tell(
            f"New unreadable files: {len(changes.unreadable):,}, for example {first}. "
            f"`fishermix library info {shlex.quote(str(place))}` lists all of them."
        )
    tell_skipped(changes.skipped)


def tell_skipped(skipped: Mapping[str, int]) -> None:
    """Report the files that look like photos and are not read, by suffix."""
    from fishermix_photos.vision.formats import explain_skipped

    for sentence in explain_skipped(skipped):
        tell(sentence)


def explain_empty(
    library: PhotoLibrary, folders: Sequence[Path], exclude: Sequence[str] | None, updated: bool
) -> str:
    """Why there are no photos in folders."""
    unknown = [folder for folder in folders if library.covering(folder) is None]
    if unknown and not updated:
        return f"{unknown[0]} is not in your library yet. Omit --no-update to add it."
    besides = " besides those that --exclude names" if exclude else ""
    return f"There are no photos in {', '.join(map(str, folders)) or 'your library'}{besides}."


def tell_unknown_words(words: Sequence[str], model: ImageTextModel) -> None:
    """Report out-of-vocabulary words of a query, and what the model makes of them."""
    if words:
        kind = "Unknown words, matched by spelling" if model.reads_unknown_words else "Unknown words, ignored"
        tell(f"{kind}: {', '.join(words)}.")


def require_captioner(model: ImageTextModel) -> Captioner:
    """The captioner of a model; raises if it has none."""
    if model.captioner is None:
        raise FishermixError(
            "This model has no captioner. Train one with `fishermix captioner train --model MODEL`."
        )
    return model.captioner


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
                return (
                    f"./{inside}" if inside.startswith("-") else inside
                )  # no program takes it for an option
        return path

    def describe(self, photo: Photo) -> str:
        """The path of a photo with the time of a video frame or the page of a TIFF file."""
        return self.write(photo.path) + photo.place.removeprefix(photo.path)
