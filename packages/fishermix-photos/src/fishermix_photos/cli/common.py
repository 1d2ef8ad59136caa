"""What commands share: opening the model and the library, and printing.

All that the commands print passes through here. A file name may contain escape sequences that change the
terminal, or line breaks that forge a line. Each call prints one line, in which such characters are question
marks. Only paths for other programs (`-f`, `-0`) and JSON keep their characters: JSON escapes them, and paths
are exact unless a terminal shows them.
"""

from __future__ import annotations

import json
import os
import sys
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from fishermix.errors import FishermixError, FishermixWarning
from fishermix.progress import is_shown

if TYPE_CHECKING:
    from fishermix_photos.library import PhotoLibrary
    from fishermix_photos.model.captioner.captioner import Captioner
    from fishermix_photos.model.model import ImageTextModel

HARMLESS = ("Zs", "Co", "Cn")  # spaces of other widths, private and new characters: shown, though unusual


def open_model(folder: Path | None) -> ImageTextModel:
    from fishermix_photos.model.model import ImageTextModel

    _hide_model_warnings()
    return ImageTextModel.load(folder)


def open_library(place: str | None, model: Path | None) -> PhotoLibrary:
    from fishermix_photos.library import PhotoLibrary

    if place is not None and not place.strip():
        raise FishermixError("--library is empty. Name a directory, or omit it.", code="wrong_parameter")
    _hide_model_warnings()
    return PhotoLibrary(place, model)


def set_max_pixels(pixels: int | None) -> int | None:
    """Apply the option --max-pixels."""
    if pixels is not None:
        from fishermix_photos.photos.open import set_default_max_pixels

        set_default_max_pixels(pixels)
    return pixels


def _hide_model_warnings() -> None:
    """Unknown words are reported by the commands themselves, with the photo or the query concerned."""
    warnings.filterwarnings("ignore", message=".*(known word|vocabulary)", category=FishermixWarning)


def require_captioner(model: ImageTextModel) -> Captioner:
    """The captioner of a model; raises if it has none."""
    if model.captioner is None:
        raise FishermixError(
            "This model has no captioner. Train one with `fishermix captioner train --model MODEL`.",
            code="missing_captioner",
        )
    return model.captioner


def check_output_file(file: Path | None) -> None:
    """Raise, before hours of work, if a file could not be written at the end."""
    if file is not None and not file.absolute().parent.is_dir():
        raise FishermixError(
            f"There is no folder {file.parent} to write {file.name} to. Create it first.", code="not_found"
        )
    if file is not None and file.is_dir():
        raise FishermixError(f"{file} is a folder. Name a file.", code="wrong_file")


# Printing


def clean(text: str) -> str:
    """The text on one line, with question marks in place of characters that control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or unicodedata.category(c) in HARMLESS else "?" for c in text)


def say(*lines: str) -> None:
    """Print lines of the result."""
    _write(sys.stdout, "".join(f"{clean(line)}\n" for line in lines))


def say_paths(paths: Iterable[str], end: str = "\n") -> None:
    """Print paths for other programs: their bytes as they are, unless a terminal shows them."""
    shown = map(clean, paths) if sys.stdout.isatty() else paths
    _write(sys.stdout, "".join(f"{path}{end}" for path in shown))


def say_json(value: object) -> None:
    """Print a value as JSON, in ASCII, with numbers of at most six decimals."""
    rounded = json.loads(json.dumps(value), parse_float=lambda number: round(float(number), 6))
    _write(sys.stdout, json.dumps(rounded, indent=1) + "\n")


def say_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table with a frame."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, title=Text(clean(title)), title_justify="left")
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    Console().print(table)


def tell(*messages: str) -> None:
    """Print remarks on standard error, unless --quiet is given."""
    if messages and is_shown():
        for message in messages:
            complain(message)


def complain(message: str) -> None:
    """Print a line on standard error, with --quiet too."""
    _write(sys.stderr, f"fishermix: {clean(message)}\n")


def _write(stream: TextIO, text: str) -> None:
    """Write text at once. A file name that is not valid text is written as its bytes."""
    try:
        stream.write(text)
        stream.flush()
    except UnicodeEncodeError:
        stream.flush()
        stream.buffer.write(os.fsencode(text))
        stream.buffer.flush()
