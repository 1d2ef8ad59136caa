"""The words of files, folders and places, as an index stores them and a search looks for them."""

from __future__ import annotations

import os
import re
import unicodedata
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from fishermix_photos.photos.formats import split_place

if TYPE_CHECKING:  # it imports numpy; the help of a command needs none
    from fishermix_photos.photos.details import Details

# What has words: the columns of the names, and the text that was read in the photo.
NameColumn = Literal["file", "folders", "place", "text"]
NAMES: tuple[NameColumn, ...] = get_args(NameColumn)
_WORD = re.compile(r"[^\W\d_]+|\d+")


class NameCounts(NamedTuple):
    """The numbers of photos whose files, folders and places have a name, and that show it as text."""

    files: int = 0
    folders: int = 0
    places: int = 0
    texts: int = 0

    def __str__(self) -> str:
        found = self._asdict().items()
        return " and ".join(f"{count:,} in {kind}" for kind, count in found if count)


def fold(text: str) -> str:
    """The words and numbers of a text in lower case without accents, with spaces between them."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return " ".join(_WORD.findall(plain.casefold()))


def find_name_words(path: str, folder: str, details: Details) -> tuple[str, str, str]:
    """The words of the columns of names of a photo, from the name of the library's folder on."""
    folders, _, file = split_place(path).file[len(os.path.dirname(folder)) :].rpartition("/")
    return fold(file), fold(folders), fold(f"{details.place or ''} {details.region or ''}")
