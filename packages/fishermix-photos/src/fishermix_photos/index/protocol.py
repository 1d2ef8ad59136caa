"""What every index of photos can do; `LocalIndex` has files on this machine, `PostgresIndex` a server.

A new kind of index writes the abstract methods. A change is one transaction: `Change` has its steps.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from fishermix_photos.index.filters import NO_FILTER, Filter
from fishermix_photos.index.names import NameCounts
from fishermix_photos.index.photo import Photo
from fishermix_photos.index.scan import Stamp, add_slash, resolve
from fishermix_photos.index.values import Entry, Picture, Scope, State, Unread


class Change(Protocol):
    """The steps of a transaction. Rows that no photo refers to any more are listed as orphaned at its end."""

    def find_folder(self, path: str) -> int:
        """The number of a folder; raises if another process has removed it."""
        ...

    def add_folder(self, path: str) -> int:
        """The number of a folder, which is added if it is new."""
        ...

    def take_over(self, folder: int, path: str, inner: Sequence[str]) -> None:
        """Make the photos of other folders those of this one, with its names, and remove the others."""
        ...

    def delete_folder(self, folder: int) -> None:
        """Delete a folder with its photos."""
        ...

    def find_content(self, sha256: bytes | None) -> int | None:
        """The row of a content, if it is known."""
        ...

    def add_content(self, entry: Entry) -> int:
        """Store the vector of a new content, and return its row."""
        ...

    def put_photo(self, folder: int, folder_path: str, entry: Entry, row: int | None) -> None:
        """Store a photo, or replace what is known of its path."""
        ...

    def delete_photo(self, path: str) -> None:
        """Delete a photo, if there is one of this path."""
        ...

    def start_over(self, model_key: str, dimension: int) -> None:
        """Delete all photos and contents, and make this the library of another model."""
        ...


class PhotoIndex(ABC):
    """The photos of folders with their embeddings. `prefixes` are beginnings of paths, none for all photos.

    name : where the library is, for people
    """

    name: str

    # What it has

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is a library; the first change makes one."""

    @abstractmethod
    def state(self) -> State:
        """What the library says of itself."""

    @abstractmethod
    def stamps(self, prefix: str) -> dict[str, Stamp]:
        """The stamps of the files below `prefix`, which ends in a slash, by path."""

    @abstractmethod
    def known_contents(self, hashes: Sequence[bytes]) -> set[bytes]:
        """Those of the hashes for which there are embeddings."""

    @abstractmethod
    def photos(self, prefixes: Sequence[str] = (), filter: Filter = NO_FILTER) -> list[Photo]:
        """The readable photos, frames and pages below one of the prefixes that meet a filter."""

    @abstractmethod
    def find(self, ids: Sequence[str]) -> list[Photo]:
        """The photos with these ids."""

    @abstractmethod
    def files(self, prefixes: Sequence[str] = ()) -> list[tuple[str, bytes, bytes, str | None]]:
        """Id, path, folder and, if there is one of its own, date of the readable files below the prefixes."""

    @abstractmethod
    def list_files(
        self, prefixes: Sequence[str], filter: Filter, order: str, n: int, offset: int
    ) -> list[Photo]:
        """Some of the files that meet a filter, in an order ("date", "oldest" or "name")."""

    @abstractmethod
    def count_years(self, prefixes: Sequence[str], filter: Filter) -> dict[tuple[bool, str], int]:
        """The number of files that meet a filter, by whether their dates are doubtful and by their years. The
        year of photos without a date of their own is empty.
        """

    @abstractmethod
    def count(self, prefixes: Sequence[str] = ()) -> tuple[int, int, int]:
        """The number of files that can be read, of their contents, and of files, frames and pages."""

    @abstractmethod
    def unreadable(self, prefixes: Sequence[str] = ()) -> dict[str, str]:
        """Why files could not be read, by path."""

    @abstractmethod
    def count_names(self, phrases: Iterable[str], prefixes: Sequence[str] = ()) -> dict[str, NameCounts]:
        """The number of files that have these words in the names of the file, its folders and its place."""

    @abstractmethod
    def unread(self, prefixes: Sequence[str] = ()) -> list[Unread]:
        """The photos below the prefixes whose text has not been read, those of the same content in a row."""

    @abstractmethod
    def texts(self, ids: Sequence[str]) -> dict[str, str]:
        """The text in photos, by id; without those that show none."""

    @abstractmethod
    def write_texts(self, texts: Sequence[tuple[bytes, str, str]]) -> None:
        """Store the words and the text that were read in the photos of a content, by its hash, in one
        transaction. They are lost with the last of these photos. The number of changes stays: photos and
        embeddings are the same.
        """

    @abstractmethod
    def places(self, prefixes: Sequence[str] = ()) -> list[tuple[str, float, float]]:
        """Name, mean latitude and mean longitude of the places of photos; of the most photos first."""

    # Its embeddings

    @abstractmethod
    def pictures(self, ids: Sequence[str]) -> Mapping[str, Picture]:
        """The contents of photos, by id."""

    @abstractmethod
    def nearest(
        self, query: np.ndarray, n: int, prefixes: Sequence[str] = (), filter: Filter = NO_FILTER
    ) -> list[Photo]:
        """The n photos below one of the prefixes that meet a filter with the largest dot products with the
        query (d,), best first; photos of the same content by their paths.
        """

    @abstractmethod
    def sample_scores(self, query: np.ndarray, at_most: int, prefixes: Sequence[str] = ()) -> np.ndarray:
        """Scores of a query (d,) with at most `at_most` contents, spread evenly over the library."""

    # Its care

    @abstractmethod
    def change(self) -> AbstractContextManager[Change]:
        """A change, all or nothing: one process at a time; the others wait."""

    @abstractmethod
    def updating(self, folders: Sequence[str]) -> AbstractContextManager[None]:
        """Hold the locks of folders; raises `LibraryBusy` if another process holds one."""

    @abstractmethod
    def compact(self, all_orphaned: bool = False) -> None:
        """Drop embeddings that have been orphaned for weeks or, if so asked, all that are orphaned."""

    @abstractmethod
    def tune(self) -> None:
        """Prepare fast searches, after an update."""

    @abstractmethod
    def verify(self) -> list[str]:
        """A sentence for each rule that the tables, their references or a checksum breaks."""

    @abstractmethod
    def size(self) -> int:
        """The number of bytes that the library takes."""

    @abstractmethod
    def delete(self) -> None:
        """Delete the library, damaged or not. Raises `LibraryBusy` if a process is updating a folder."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections; the next call opens them again."""

    # What follows from it

    def folders(self) -> tuple[str, ...]:
        """The folders of the library, by path."""
        return self.state().folders

    def scope(self, folders: Iterable[str | os.PathLike[str]], model_key: str | None = None) -> Scope:
        """Where the photos of folders are; raises if their embeddings are not of the model with this key."""
        state = self.state()
        prefixes = tuple(map(add_slash, map(resolve, folders)))
        known = list(map(add_slash, state.folders))
        if known and all(path.startswith(prefixes) for path in known):
            prefixes = ()
        scope = Scope(state.version, state.model_key, prefixes)
        if model_key is not None:
            scope.expect_model(model_key)
        return scope

    def nearest_files(
        self, query: np.ndarray, n: int, prefixes: Sequence[str] = (), filter: Filter = NO_FILTER
    ) -> list[Photo]:
        """The n best files: of a video, its best frame; of a TIFF file, its best page. See `nearest`."""
        asked = n
        while True:
            found = self.nearest(query, asked, prefixes, filter)
            best: dict[str, Photo] = {}
            for photo in found:
                best.setdefault(photo.path, photo)
            if len(best) >= n or len(found) < asked:
                return list(best.values())[:n]
            asked *= 4

    def adopt(self, model_key: str, dimension: int) -> bool:
        """Make this the library of a model and drop the photos of any other. True if some were dropped."""
        with self.change() as change:
            state = self.state()
            if (state.model_key, state.dimension) == (model_key, dimension):
                return False
            had_photos = self.count()[2] > 0 or bool(self.unreadable())
            change.start_over(model_key, dimension)
        return had_photos

    def add_folder(self, folder: str, inner: Sequence[str] = ()) -> None:
        """Add a folder, and make the photos of those inside it its own."""
        with self.change() as change:
            number = change.add_folder(folder)
            if inner:
                change.take_over(number, folder, inner)

    def remove_folder(self, folder: str) -> None:
        """Remove a folder and its photos, and the embeddings that belong to no other photo."""
        with self.change() as change:
            change.delete_folder(change.find_folder(folder))
        self.compact(all_orphaned=True)

    def write(self, folder: str, entries: Sequence[Entry], removed: Sequence[str] = ()) -> list[str]:
        """Store photos of a folder and delete the removed paths, in one transaction.

        Returns the paths that were not stored: they came without a vector, and another process has just
        dropped the one of their content.
        """
        missing: list[str] = []
        with self.change() as change:
            number = change.find_folder(folder)
            for entry in entries:
                row = None
                if entry.reason is None and (row := change.find_content(entry.sha256)) is None:
                    if entry.vector is None:
                        missing.append(entry.path)
                        continue
                    row = change.add_content(entry)
                change.put_photo(number, folder, entry, row)
            for path in removed:
                change.delete_photo(path)
        return missing
