"""All that the commands print passes through here.

A file name may contain escape sequences that change the terminal, or line breaks that forge a line. Each call
prints one line, in which such characters are question marks. Only paths for other programs (`-f`, `-0`) and
JSON keep their characters: JSON escapes them, and paths are exact unless a terminal shows them.
"""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TextIO

from fishermix.progress import is_shown

HARMLESS = ("Zs", "Co", "Cn")  # spaces of other widths, private and new characters: shown, though unusual


def clean(text: str) -> str:
    """The text on one line, with question marks in place of characters that control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or unicodedata.category(c) in HARMLESS else "?" for c in text)


def say(line: str = "") -> None:
    """Print a line of the result."""
    _write(sys.stdout, clean(line) + "\n")


def say_path(path: str, end: str = "\n") -> None:
    """Print a path for other programs: its bytes as they are, unless a terminal shows them."""
    _write(sys.stdout, (clean(path) if sys.stdout.isatty() else path) + end)


def say_json(value: object) -> None:
    """Print a value as JSON, in ASCII."""
    _write(sys.stdout, json.dumps(value, indent=1) + "\n")


def say_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> None:
    """Print a table with a frame."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        *columns,
        title=Text(clean(title)),
        title_justify="left",
        caption=caption or None,
        caption_justify="left",
    )
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    Console().print(table)


def tell(message: str) -> None:
    """Print a remark on standard error, unless --quiet is given."""
    if is_shown():
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
