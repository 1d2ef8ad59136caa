"""What an index stores: one interface for the local store and for a shared PostgreSQL database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from fishermix.errors import FishermixError
from fishermix.retrieval.details import Details
from fishermix.vision.formats import locate_part


class StoreLocked(FishermixError):
    """Another process is updating the index."""


@dataclass(frozen=True)
class Stamp:
    """What a directory listing shows of a file: enough to see that it has not changed."""

    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Entry:
    """One photo to store, by its path relative to the folder.

    A readable photo has the hash of its content and its vector; the vector may be None if the store already
    holds one for this content (a moved, copied or touched file). An unreadable photo has the reason instead.
    """

    path: str
    stamp: Stamp
    sha256: bytes | None = None
    vector: np.ndarray | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Hit:
    """A photo that a search found: its opaque id, its path relative to the folder, and its score.

    The path of a frame of a video or of a page ends in its part, for example `clip.mp4#t=12.5`.

    Parameters
    ----------
    id : str
        Identifies the photo in its index.
    path : str
        The path relative to the folder of the index; of a frame or a page, with its part:
        `clip.mp4#t=12.5`.
    score : float
        The score.
    """

    id: str
    path: str
    score: float

    @cached_property
    def _part(self) -> tuple[str, float | None, int | None]:
        return locate_part(self.path)

    @property
    def file(self) -> str:
        """The path of the file, without a part."""
        return self._part[0]

    @property
    def time(self) -> float | None:
        """The time of a frame in its video, in seconds; None if the file is no video."""
        return self._part[1]

    @property
    def page(self) -> int | None:
        """The page of a TIFF file, if it is not the first one."""
        return self._part[2]


@dataclass(frozen=True)
class Summary:
    """How much an index holds.

    photos : the number of files that could be read: photos, videos and TIFF files
    contents : the number of photos that differ
    unreadable : reasons by path
    pictures : the number of photos, with every frame of a video and every page of a TIFF file
    """

    photos: int
    contents: int
    unreadable: dict[str, str]
    model_key: str
    dimension: int
    bytes: int
    pictures: int = 0


class Store(Protocol):
    """Paths, stamps and vectors of the photos of one folder. Readers never wait; there is one writer."""

    name: str

    @property
    def root(self) -> Path | None:
        """The folder that the index is of, if that is a larger one."""

    def remember_folder(self, folder: Path) -> None:
        """Note which folder the index is of."""

    def writing(self) -> AbstractContextManager[None]:
        """Hold the writer's lock; raises `StoreLocked` at once if another process holds it."""

    def adopt(self, model_key: str, dimension: int) -> bool:
        """Make this the store of a model and drop the photos of any other. True if some were dropped."""

    def stamps(self) -> dict[str, Stamp]: ...

    def known_contents(self, hashes: Sequence[bytes]) -> set[bytes]: ...

    def write(self, entries: Sequence[Entry], removed: Sequence[str] = ()) -> None:
        """Store the entries and delete the removed paths, in one transaction."""

    def paths_without_details(self) -> list[str]:
        """The readable photos whose details are not stored, for example because an older version wrote
        them.
        """

    def write_details(self, details: Mapping[str, Details]) -> None:
        """Store the details of photos by path, in one transaction."""

    def details(self, paths: Sequence[str] | None = None) -> dict[str, Details]:
        """The details of photos (None: of all that have some), by path."""

    def tune(self) -> None:
        """Prepare for searching after all changes are written."""

    def nearest(self, queries: np.ndarray, n: int) -> list[list[Hit]]:
        """The n photos with the largest dot products with each row of `queries` (m, d), best first."""

    def sample_scores(self, query: np.ndarray, at_most: int) -> np.ndarray:
        """Scores of one query (d,) with at most `at_most` photos, spread evenly over the index."""

    def contents(self) -> tuple[list[list[str]], np.ndarray]:
        """The paths of the photos of each distinct content, and its vectors (n, d)."""

    def model_key(self) -> str: ...

    def path_of(self, photo: str) -> str | None: ...

    def id_of(self, path: str) -> str | None: ...

    def vector_of(self, photo: str) -> np.ndarray | None: ...

    def summary(self) -> Summary: ...

    def verify(self) -> list[str]:
        """A sentence for each problem of the index; empty if there is none."""

    def delete(self) -> None:
        """Delete the index under the writer's lock; the photos are not changed."""

    def close(self) -> None: ...
