"""What is stored in an index, and what it says of itself."""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from fishermix.saved import Count, Text
from msgspec import Meta

from fishermix_photos.index.errors import OtherModel
from fishermix_photos.index.scan import Stamp
from fishermix_photos.index.schema import PhotoColumns, RowNumber
from fishermix_photos.photos.details import NO_DETAILS, Details, find_kind
from fishermix_photos.photos.formats import split_place


class Scope(NamedTuple):
    """Where a search looks: the beginnings of paths, none for all photos, in this version of the library."""

    version: int
    model_key: str
    prefixes: tuple[str, ...]

    def expect_model(self, key: str) -> None:
        """Raise if the embeddings are not of the model with this key."""
        if self.model_key not in ("", key):
            raise OtherModel("The photo library was made with another model. Update it.")


class State(NamedTuple):
    """What a library says of itself.

    version : the number of changes so far
    last : the last committed row of the embeddings
    folders : the folders of the library, by path
    """

    generation: Count
    model_key: Text
    dimension: Annotated[int, Meta(ge=0, le=2**20)]
    version: Count
    last: RowNumber | None = None
    folders: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        """The number of committed rows of the file of embeddings."""
        return 0 if self.last is None else self.last + 1


@dataclass(frozen=True)
class Entry:
    """One photo to store, by its absolute path.

    A readable photo has the hash of its content, its details, its vector and its fingerprint; the last two
    may be None if the index already holds them for this content. An unreadable photo has the reason instead.
    """

    path: str
    stamp: Stamp
    sha256: bytes | None = None
    vector: np.ndarray | None = None
    reason: str | None = None
    details: Details | None = None
    fingerprint: bytes | None = None

    def columns(self, folder: int, row: int | None) -> dict[str, object]:
        """What the tables have of a photo of this folder with this row: a value for each column."""
        file = split_place(self.path).file
        columns = PhotoColumns(
            id=secrets.token_hex(8),
            path=os.fsencode(self.path),
            folder=folder,
            is_file=file == self.path,
            kind=find_kind(file),
            size=self.stamp.size,
            mtime_ns=self.stamp.mtime_ns,
            row=row,
            reason=self.reason,
            **vars(self.details or NO_DETAILS),
        )
        return vars(columns)


class Unread(NamedTuple):
    """A photo whose text has not been read: the hash of its content, its path and stamp, and its details."""

    sha256: bytes
    path: str
    stamp: Stamp
    kind: str
    camera: str | None
    width: int | None
    height: int | None


class Picture(NamedTuple):
    """The content of a photo: its row, which equal contents share, its fingerprint (see `duplicates`; None of
    plain surfaces, videos and TIFF files) and its embedding (d,).
    """

    row: int
    fingerprint: bytes | None
    embedding: np.ndarray


def today() -> int:
    """The number of days since 1970."""
    return int(time.time() // 86_400)
