"""The tables of a library: their columns and their rules, from which both kinds of index make their own.

folders     the folders of the library
photos      their files, frames and pages by path; each has the row of its content, or a reason why it
            could not be read. Equal contents have the same row
contents    the rows: hash, fingerprint and checksum of the embedding, or the embedding itself
orphaned    rows that no photo refers to any more, with the day since 1970 on which that began
names       the words of the names of a photo's file, folders and place, by the number of the photo
texts       the text in a photo and its words, by the row of its content; a content without one is unread
state       one row: the model whose embeddings these are, and the number of changes so far
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from fishermix.saved import Text
from msgspec import Meta

from fishermix_photos.photos.details import DETAILS, Details

VERSION = 5  # of the tables; an older library is migrated
RowNumber = Annotated[int, Meta(ge=0, le=2**40)]
UNIQUE = "UNIQUE"


@dataclass(frozen=True, kw_only=True)
class PhotoColumns(Details):
    """The columns of `photos`, besides its number: name, type and, if it is unique, UNIQUE."""

    id: Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}\Z"), UNIQUE]
    path: Annotated[bytes, UNIQUE]
    folder: RowNumber
    is_file: bool
    kind: Text
    size: int
    mtime_ns: int
    row: RowNumber | None
    reason: str | None


COLUMNS: Any = get_type_hints(PhotoColumns, include_extras=True)  # types by name
# What is read of a photo: its row, id and path, the path of its folder, its kind and its details.
FOUND = f"p.row, p.id, p.path, f.path, p.kind, {', '.join(f'p.{name}' for name in DETAILS)}"
FOUND_IN = "photos p JOIN folders f ON f.id = p.folder"
_FOUND_TYPES: Any = (RowNumber, COLUMNS["id"], bytes, bytes, Text, *(COLUMNS[name] for name in DETAILS))
FoundPhoto: Any = tuple[_FOUND_TYPES]
# What is read of a photo before its text; of files of several pictures, the first page, and no videos.
UNREAD = (
    "SELECT c.sha256, p.path, p.size, p.mtime_ns, p.kind, p.camera, p.width, p.height "
    "FROM photos p JOIN contents c ON c.row = p.row WHERE p.is_file AND p.kind != 'video' AND {where} "
    "AND p.row NOT IN (SELECT rowid FROM texts) ORDER BY p.row, p.path"
)
UnreadPhoto: Any = tuple[bytes, bytes, int, int, Text, str | None, int | None, int | None]
Fingerprint: Any = Annotated[bytes, Meta(min_length=32, max_length=32)] | None

# Each counts what must not be there.
RULES = {
    "photos refer to a missing embedding.": "SELECT count(*) FROM photos WHERE row IS NOT NULL "
    "AND row NOT IN (SELECT row FROM contents)",
    "photos refer to a missing folder.": "SELECT count(*) FROM photos WHERE folder NOT IN "
    "(SELECT id FROM folders)",
    "embeddings belong to no photo and are not listed as orphaned.": "SELECT count(*) FROM contents WHERE "
    "row NOT IN (SELECT row FROM photos WHERE row IS NOT NULL) AND row NOT IN (SELECT row FROM orphaned)",
    "orphaned embeddings belong to a photo.": "SELECT count(*) FROM orphaned WHERE row IN "
    "(SELECT row FROM photos WHERE row IS NOT NULL)",
    "photos have no names, or names have no photo.": "SELECT (SELECT count(*) FROM photos) - count(p.number) "
    "+ count(*) - count(p.number) FROM names n LEFT JOIN photos p ON p.number = n.rowid",
    "texts belong to no photo.": "SELECT count(*) FROM texts WHERE rowid NOT IN "
    "(SELECT row FROM photos WHERE row IS NOT NULL)",
    "content hashes do not have 32 bytes.": "SELECT count(*) FROM contents WHERE length(sha256) != 32",
}


def define_photo_columns(sql_types: Mapping[type, str]) -> str:
    """The definitions of the columns of `photos`, with the types of a database."""
    definitions = []
    for name, hint in COLUMNS.items():
        kind, is_optional = _find_type(hint)
        unique = UNIQUE if UNIQUE in getattr(hint, "__metadata__", ()) else ""
        definitions.append(
            " ".join(filter(None, (name, sql_types[kind], "" if is_optional else "NOT NULL", unique)))
        )
    return ", ".join(definitions)


def _find_type(hint: Any) -> tuple[type, bool]:
    """The type of a value without its bounds, and whether it may be missing."""
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin is Annotated:
        return _find_type(arguments[0])
    if origin in (Union, types.UnionType):
        return _find_type(arguments[0])[0], True
    return (str if origin is Literal else hint), False
