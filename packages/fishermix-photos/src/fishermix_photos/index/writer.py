"""Changes of a library on this machine: one transaction each, after its embeddings are on the disk."""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from typing import Any

import numpy as np
from fishermix.errors import FishermixError

from fishermix_photos.disk import (
    FULL_BELOW,
    LOCKS_MISSING,
    DiskFull,
    create_private_file,
    explain_os_error,
    has_locks,
    make_private_folder,
    sync_folder,
    transaction,
)
from fishermix_photos.index.connection import DATABASE, connect
from fishermix_photos.index.embeddings import OWN_FILE, next_generation
from fishermix_photos.index.errors import LibraryBusy
from fishermix_photos.index.names import find_name_words
from fishermix_photos.index.nearest import build_codes
from fishermix_photos.index.reader import LocalReader
from fishermix_photos.index.schema import COLUMNS, RowNumber
from fishermix_photos.index.values import Entry, State, today
from fishermix_photos.photos.details import NO_DETAILS, Details

FEWEST_TO_COMPACT = 1_000  # orphaned embeddings; fewer are not worth a copy of the others
DAYS_ORPHANED = 30  # for so long, a deleted photo is recognized if it turns up again
MOST_UNUSED_ROWS = 1_000_000  # that killed writers leave; each leaves some dozen


class LocalIndex(LocalReader):
    """The library in a directory of this machine, which is created by the first change."""

    def _create(self) -> None:
        """Create the directory and the database, unless they exist."""
        if self._connections.exists():
            return
        try:
            if self.folder.is_dir() and any(not OWN_FILE.fullmatch(name) for name in os.listdir(self.folder)):
                raise FishermixError(
                    f"{self.folder} is not empty and contains no photo library. Name an empty directory.",
                    code="wrong_folder",
                )
            make_private_folder(self.folder)
            if not has_locks(self.folder):  # SQLite would wait a minute for each
                raise FishermixError(
                    f"The photo library cannot be kept in {self.folder}. {LOCKS_MISSING}", code="cannot_lock"
                )
            create_private_file(self._connections.file)
            sync_folder(self.folder)
        except OSError as error:
            raise FishermixError(
                f"The photo library in {self.folder} cannot be created. {explain_os_error(error)} "
                "FISHERMIX_HOME names another place.",
                code="cannot_write",
            ) from error
        with self._connections.explain_damage():
            connect(self._connections.file).close()

    @contextmanager
    def change(self) -> Iterator[LocalChange]:
        self._create()
        with self._connections.explain_damage(), transaction(self._connections.writing):
            change = LocalChange(self)
            yield change
            change.finish()

    @contextmanager
    def updating(self, folders: Sequence[str]) -> Iterator[None]:
        from filelock import FileLock, Timeout  # a search that changes nothing does not wait for it

        self._create()
        with ExitStack() as held:
            for folder in sorted(set(folders)):
                path = self.folder / f"folder-{sha256(os.fsencode(folder)).hexdigest()[:16]}.lock"
                try:
                    held.enter_context(FileLock(path, timeout=0, mode=0o600))
                except Timeout as error:
                    raise LibraryBusy(
                        f"Another process is updating {folder}. Wait until it has finished.", folder=folder
                    ) from error
                except (OSError, NotImplementedError) as error:
                    reason = explain_os_error(error) if isinstance(error, OSError) else LOCKS_MISSING
                    raise FishermixError(
                        f"The photo library in {self.folder} cannot be changed, because {path} cannot be "
                        f"locked. {reason}",
                        code="cannot_lock",
                    ) from error
            yield

    def delete(self) -> None:
        """Delete the files of the library, damaged or not, and its directory if nothing else is in it. Raises
        `LibraryBusy` if a process is updating a folder.
        """
        from filelock import FileLock, Timeout

        self.close()
        with ExitStack() as held:
            for path in sorted(self.folder.glob("folder-*.lock")):
                try:
                    held.enter_context(FileLock(path, timeout=0))
                except Timeout as error:
                    raise LibraryBusy(
                        f"Another process is updating the photo library in {self.folder}."
                    ) from error
                except OSError:
                    continue  # a lock that nobody can hold
            # The database first: without it, a directory with only files of ours counts as empty.
            for path in sorted(self.folder.glob("*"), key=lambda path: path.name != DATABASE):
                if OWN_FILE.fullmatch(path.name) and not path.is_dir():
                    path.unlink(missing_ok=True)
        with suppress(OSError):  # other files are in it
            self.folder.rmdir()

    def write_texts(self, texts: Sequence[tuple[bytes, str, str]]) -> None:
        query = (
            "INSERT INTO texts (rowid, words, text) SELECT c.row, ?, ? FROM contents c WHERE c.sha256 = ? "
            "AND c.row IN (SELECT row FROM photos) AND c.row NOT IN (SELECT rowid FROM texts)"
        )
        with self._connections.explain_damage(), transaction(self._connections.writing):
            for sha256, words, text in texts:
                self._connection.execute(query, (words, text, sha256))

    def remove_folder(self, folder: str) -> None:
        try:
            super().remove_folder(folder)
            return
        except DiskFull:
            self._codes.clear()
            self._embeddings.remove_codes()
        try:
            super().remove_folder(folder)
        except DiskFull as error:
            # SQLite keeps what a change replaces until it is committed: at most the whole database once more.
            needed = FULL_BELOW + self._connections.file.stat().st_size
            raise DiskFull(
                f"{folder} cannot be removed from the photo library in {self.folder}: the disk is full. Free "
                f"{needed / 1e6:.1f} MB on it and run the command again.",
                needed=needed,
            ) from error

    def compact(self, all_orphaned: bool = False) -> None:
        """Remove what a killed writer left, and the embeddings that have been orphaned for weeks if they are
        many or, if so asked, all that are orphaned.
        """
        if not all_orphaned:
            self._compact(today() - DAYS_ORPHANED, FEWEST_TO_COMPACT)
            self._remove_stale_files()
            return
        with suppress(DiskFull, OSError):  # then the embeddings stay, and are listed as orphaned
            self._compact(today() + 1)
            self._remove_stale_files()

    def _compact(self, latest: int, fewest: int | None = None) -> None:
        """Copy the embeddings to a file of the next generation, without those that are orphaned since the day
        `latest` or longer; with `fewest`, only if these are many.
        """
        with self.change() as change:
            state = self.state()
            query = "SELECT count(*) FROM orphaned WHERE day <= ?"
            orphaned = self._ask(tuple[int], query, latest)[0][0]
            if fewest is None or orphaned >= max(fewest, state.n_rows // 4):
                change.compact(state, latest)

    def _remove_stale_files(self) -> None:
        with self._connections.explain_damage(), transaction(self._connection):
            self._embeddings.remove_stale(self.state().generation)

    def tune(self) -> None:
        """Write the codes of the embeddings of a large library."""
        with self._snapshot():
            state = self.state()
            embeddings = self._open_embeddings(state)
        build_codes(self.folder, state.generation, embeddings)
        self._codes.clear()


class LocalChange:
    """The steps of a change. New embeddings are flushed at its end, before it is committed."""

    def __init__(self, index: LocalIndex):
        self._index = index
        self._ask = index._ask
        self._appended: list[bytes] = []
        self._first = 0  # the row of the first of them
        self._left: set[int] = set()  # rows that a photo referred to
        self._run("UPDATE state SET version = version + 1")

    def _run(self, query: str, *values: Any) -> sqlite3.Cursor:
        return self._index._connection.execute(query, values)

    def finish(self) -> None:
        """List rows without a photo as orphaned, and flush the new embeddings to the disk."""
        for row in self._left:
            if not self._ask(tuple[int], "SELECT 1 FROM photos WHERE row = ? LIMIT 1", row):
                self._run(
                    "INSERT INTO orphaned (row, day) VALUES (?, ?) ON CONFLICT DO NOTHING", row, today()
                )
                self._run("DELETE FROM texts WHERE rowid = ?", row)
        if self._appended:
            state = self._index.state()
            data = b"".join(self._appended)
            self._index._embeddings.append(state.generation, self._first, state.dimension, data)

    # Folders

    def find_folder(self, path: str) -> int:
        found = self._ask(tuple[int], "SELECT id FROM folders WHERE path = ?", os.fsencode(path))
        if not found:
            raise FishermixError(
                f"Another process has removed {path} from the photo library. Run the command again.",
                code="removed_meanwhile",
            )
        return found[0][0]

    def add_folder(self, path: str) -> int:
        self._run("INSERT INTO folders (path) VALUES (?) ON CONFLICT DO NOTHING", os.fsencode(path))
        return self.find_folder(path)

    def take_over(self, folder: int, path: str, inner: Sequence[str]) -> None:
        for other in map(self.find_folder, inner):
            self._run("UPDATE photos SET folder = ? WHERE folder = ?", folder, other)
            self._run("DELETE FROM folders WHERE id = ?", other)
        query = "SELECT number, path, place, region FROM photos WHERE folder = ?"
        row = tuple[int, bytes, str | None, str | None]
        for number, photo, place, region in self._ask(row, query, folder):
            self._write_names(number, os.fsdecode(photo), path, Details(place=place, region=region))

    def delete_folder(self, folder: int) -> None:
        query = "SELECT DISTINCT row FROM photos WHERE folder = ? AND row IS NOT NULL"
        self._left.update(row for (row,) in self._ask(tuple[RowNumber], query, folder))
        self._delete_photos("folder", folder)
        self._run("DELETE FROM folders WHERE id = ?", folder)

    # Photos

    def find_content(self, sha256: bytes | None) -> int | None:
        found = self._ask(tuple[RowNumber], "SELECT row FROM contents WHERE sha256 = ?", sha256)
        return found[0][0] if found else None

    def add_content(self, entry: Entry) -> int:
        if not self._appended:
            self._first = self._find_end()
        row = self._first + len(self._appended)
        self._appended.append(np.ascontiguousarray(entry.vector, "<f4").tobytes())
        values = row, entry.sha256, zlib.crc32(self._appended[-1]), entry.fingerprint
        self._run("INSERT INTO contents (row, sha256, crc32, fingerprint) VALUES (?, ?, ?, ?)", *values)
        return row

    def put_photo(self, folder: int, folder_path: str, entry: Entry, row: int | None) -> None:
        columns = entry.columns(folder, row)
        self._note_row(entry.path)
        ((number,),) = self._ask(tuple[int], PUT_PHOTO, *(columns[name] for name in COLUMNS))
        self._write_names(number, entry.path, folder_path, entry.details or NO_DETAILS)
        self._run("DELETE FROM orphaned WHERE row = ?", row)

    def delete_photo(self, path: str) -> None:
        self._note_row(path)
        self._delete_photos("path", os.fsencode(path))

    def _note_row(self, path: str) -> None:
        """Remember the row of a photo that is about to be replaced or deleted."""
        query = "SELECT row FROM photos WHERE path = ? AND row IS NOT NULL"
        self._left.update(row for (row,) in self._ask(tuple[RowNumber], query, os.fsencode(path)))

    def _delete_photos(self, column: str, value: Any) -> None:
        """Delete photos and their names, for which SQLite allows no trigger."""
        photos = f"FROM photos WHERE {column} = ?"
        self._run(f"DELETE FROM names WHERE rowid IN (SELECT number {photos})", value)
        self._run(f"DELETE {photos}", value)

    def _write_names(self, number: int, path: str, folder: str, details: Details) -> None:
        self._run("DELETE FROM names WHERE rowid = ?", number)
        words = find_name_words(path, folder, details)
        self._run("INSERT INTO names (rowid, file, folders, place) VALUES (?, ?, ?, ?)", number, *words)

    # Embeddings

    def start_over(self, model_key: str, dimension: int) -> None:
        for table in ("names", "texts", "photos", "orphaned", "contents"):
            self._run(f"DELETE FROM {table}")
        generation = next_generation(self._index.state().generation)
        query = "UPDATE state SET model_key = ?, dimension = ?, generation = ?"
        self._run(query, model_key, dimension, generation)

    def compact(self, state: State, latest: int) -> None:
        """Copy the embeddings to the file of the next generation, without those orphaned by this day."""
        embeddings = self._index._open_embeddings(state)
        query = "DELETE FROM contents WHERE row IN (SELECT row FROM orphaned WHERE day <= ?)"
        if not self._run(query, latest).rowcount:
            return
        self._run("DELETE FROM orphaned WHERE day <= ?", latest)
        kept = self._index._ask_rows(embeddings, "SELECT row FROM contents ORDER BY row").tolist()
        generation = next_generation(state.generation)
        self._index._embeddings.copy(embeddings, kept, generation)
        # In ascending order, a row never moves to one that is still in use.
        moves = [(new, old) for new, old in enumerate(kept) if new != old]
        for table in ("contents", "photos", "orphaned"):
            self._index._connection.executemany(f"UPDATE {table} SET row = ? WHERE row = ?", moves)
        self._index._connection.executemany("UPDATE texts SET rowid = ? WHERE rowid = ?", moves)
        self._run("UPDATE state SET generation = ?", generation)

    def _find_end(self) -> int:
        """The first row after all that was ever written; rows that no commit refers to become orphaned."""
        state = self._index.state()
        files = self._index._embeddings
        name = files.path(state.generation).name
        if state.n_rows and not files.has_rows(state.generation, state.n_rows, state.dimension):
            # else the missing embeddings would be zeros from now on
            raise self._index._connections.damaged(f"is damaged: {name} is missing or too short")
        end = max(state.n_rows, files.count_rows(state.generation, state.dimension))
        if end - state.n_rows > MOST_UNUSED_ROWS:
            raise self._index._connections.damaged(
                f"is damaged: {name} is much longer than the database says"
            )
        for row in range(state.n_rows, end):
            self._run("INSERT INTO orphaned (row, day) VALUES (?, 0)", row)
        return end


PUT_PHOTO = (  # or replace what is known of its path, except its id
    f"INSERT INTO photos ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) "
    "ON CONFLICT (path) DO UPDATE SET "
    f"{', '.join(f'{name} = excluded.{name}' for name in COLUMNS if name not in ('id', 'path'))} "
    "RETURNING number"
)
