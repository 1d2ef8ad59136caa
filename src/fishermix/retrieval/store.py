"""What an index keeps, whatever keeps it: one interface for the local store and for a shared PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fishermix.errors import FishermixError


class StoreLocked(FishermixError):
    """Another process is changing the index."""


@dataclass(frozen=True)
class Stamp:
    """What a directory listing tells of a file: enough to see that it has not changed."""

    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Entry:
    """One photo to be stored, by its path relative to the folder.

    A readable photo carries the hash of its content and its point; the point may be None where the store
    already holds one for this content (a moved, copied or touched file). An unreadable one carries the
    reason instead.
    """

    path: str
    stamp: Stamp
    sha256: bytes | None = None
    vector: np.ndarray | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Hit:
    """A photo found: its opaque id, its path relative to the folder, and how well it matches the query."""

    id: str
    path: str
    score: float


@dataclass(frozen=True)
class Summary:
    """How much an index holds; `unreadable` maps paths to reasons."""

    photos: int
    contents: int
    unreadable: dict[str, str]
    model_key: str
    dimension: int
    bytes: int


class Store(Protocol):
    """Paths, stamps and joint-space points of one folder. Readers never wait; there is one writer at a
    time.
    """

    name: str

    def writing(self) -> AbstractContextManager[None]:
        """Be the one writer; raises `StoreLocked` at once if another process is."""

    def adopt(self, model_key: str, dimension: int) -> bool:
        """Make this the store of a model; points of any other model are dropped. True if some were."""

    def stamps(self) -> dict[str, Stamp]: ...

    def known_contents(self, hashes: Sequence[bytes]) -> set[bytes]: ...

    def write(self, entries: Sequence[Entry], removed: Sequence[str] = ()) -> None:
        """Store the entries and forget the removed paths: all of it or nothing."""

    def tune(self) -> None:
        """Prepare for searching, after all changes are written."""

    def nearest(self, queries: np.ndarray, n: int) -> list[list[Hit]]:
        """The n best photos, best first, of each row of `queries` (m, d): largest dot product first."""

    def sample_scores(self, query: np.ndarray, at_most: int) -> np.ndarray:
        """Scores of one query (d,) against photos spread evenly over the index."""

    def model_key(self) -> str: ...

    def path_of(self, photo: str) -> str | None: ...

    def id_of(self, path: str) -> str | None: ...

    def vector_of(self, photo: str) -> np.ndarray | None: ...

    def summary(self) -> Summary: ...

    def verify(self) -> list[str]:
        """Everything that is wrong with what is stored, in words; empty if nothing is."""

    def delete(self) -> None: ...

    def close(self) -> None: ...
