"""The files of a library on this machine: a SQLite database, and one file of points that only grows.

`library.sqlite` (write-ahead log) holds folders, paths, stamps, details, the hash of each content and its row
in `points-G.f32` with the checksum of its bytes. A change appends points at the end of the file, flushes them
to disk, and only then commits the transaction that refers to them: a crash at any moment leaves the old state
or the new one. SQLite lets one process change the files at a time; a lock per folder keeps two updates of the
same folder apart.

A process that is killed during its commit leaves it open whether it has happened: other processes go on
without it, but if they are killed too before their own next commit, SQLite recovers it from its log. So
nothing that a commit may refer to is ever overwritten: what is beyond the last committed row stays and is
listed as dead, and each new file of points has a name of its own.

Rows whose photos are gone are listed as dead and not found any more, but stay recognizable for some weeks: a
photo that was moved to another folder is not encoded again. When many rows are older, the others are copied
to the next generation G + 1 of the file, and the switch is one transaction again. A reader uses one snapshot
for a whole search; the file that it has mapped does not change.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
import zlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from fishermix.errors import FishermixError

from fishermix_photos.database import (
    DATABASE,
    WRITE_PHOTO,
    Database,
    Entry,
    LocalDatabase,
    Row,
    State,
    connect,
    today,
)
from fishermix_photos.disk import (
    LOCKS_MISSING,
    DiskFull,
    create_private_file,
    explain_os_error,
    has_locks,
    make_private_folder,
    transaction,
)
from fishermix_photos.nearest import build_codes
from fishermix_photos.results import LibraryBusy

OWN_FILE = re.compile(
    r"library\.sqlite(-wal|-shm|-journal)?|points-\d+\.f32|codes-\d+-\d+\.(i8|\d+\.tmp)"
    r"|folder-[0-9a-f]{16}\.lock"
)
FEWEST_DEAD_TO_COMPACT = 1_000
DAYS_DEAD = 30  # for so long, a deleted photo is recognized if it turns up again
ROWS_PER_COPY = 65_536
MOST_UNUSED_ROWS = 1_000_000  # that killed writers leave; each leaves some dozen
NUMBERS_PER_GENERATION = 2**24
RULES = {
    "photos refer to a missing point.": "SELECT count(*) FROM photos WHERE row IS NOT NULL "
    "AND row NOT IN (SELECT row FROM contents)",
    "photos refer to a missing folder.": "SELECT count(*) FROM photos WHERE folder NOT IN "
    "(SELECT id FROM folders)",
    "points belong to no photo and are not listed as dead.": "SELECT count(*) FROM contents WHERE row NOT IN "
    "(SELECT row FROM photos WHERE row IS NOT NULL) AND row NOT IN (SELECT row FROM dead)",
    "dead points belong to a photo.": "SELECT count(*) FROM dead WHERE row IN "
    "(SELECT row FROM photos WHERE row IS NOT NULL)",
    "photos have no names, or names have no photo.": "SELECT (SELECT count(*) FROM photos) - count(p.number) "
    "+ count(*) - count(p.number) FROM names n LEFT JOIN photos p ON p.number = n.rowid",
    "content hashes do not have 32 bytes.": "SELECT count(*) FROM contents WHERE length(sha256) != 32",
}
HOLES = (
    "SELECT coalesce(max(row) + 1, 0) - count(*) FROM (SELECT row FROM contents UNION SELECT row FROM dead)"
)


class Store(Database):
    """How SQLite and PostgreSQL are changed, in the same SQL."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Any]:
        """A change, all or nothing: one process at a time; the others wait."""

    @abstractmethod
    def _add_content(self, entry: Entry) -> int:
        """Store the vector of a new content, and return its row."""

    @abstractmethod
    def _drop_dead(self) -> None:
        """Drop the points that are listed as dead."""

    def _start_again(self) -> None:
        """Forget the points of all contents, whose rows are gone."""

    def _execute(self, query: str, *values: Any) -> None:
        self._ask(tuple, query, *values)

    def adopt(self, model_key: str, dimension: int) -> bool:
        """Make this the library of a model and drop the photos of any other. True if some were dropped."""
        with self._writing():
            state = self.state()
            if (state.model_key, state.dimension) == (model_key, dimension):
                return False
            ((photos,),) = self._ask(tuple[int], "SELECT count(*) FROM photos")
            for table in ("names", "photos", "dead", "contents"):
                self._execute(f"DELETE FROM {table}")
            self._execute("UPDATE state SET model_key = ?, dimension = ?", model_key, dimension)
            self._start_again()
        return photos > 0

    def add_folder(self, folder: str, inner: Sequence[str] = ()) -> None:
        """Add a folder, and make the photos of those inside it its own."""
        with self._writing():
            query = "INSERT INTO folders (path) VALUES (?) ON CONFLICT DO NOTHING"
            self._execute(query, os.fsencode(folder))
            number = self._find_folder(folder)
            for path in inner:
                old = self._find_folder(path)
                self._execute("UPDATE photos SET folder = ? WHERE folder = ?", number, old)
                self._execute("DELETE FROM folders WHERE id = ?", old)
            if inner:
                self._rename(folder)

    def remove_folder(self, folder: str) -> None:
        """Remove a folder and its photos, and the points that belong to no other photo."""
        with self._writing():
            number = self._find_folder(folder)
            query = "SELECT DISTINCT row FROM photos WHERE folder = ? AND row IS NOT NULL"
            rows = [row for (row,) in self._ask(tuple[Row], query, number)]
            self._delete_photos("folder", number)
            self._execute("DELETE FROM folders WHERE id = ?", number)
            self._bury(rows)
        self._drop_dead()

    def write(self, folder: str, entries: Sequence[Entry], removed: Sequence[str] = ()) -> list[str]:
        """Store photos of a folder and delete the removed paths, in one transaction.

        Returns the paths that were not stored: they came without a vector, and another process has just
        dropped the one of their content.
        """
        with self._writing():
            number = self._find_folder(folder)
            missing: list[str] = []
            left: set[int] = set()
            for entry in entries:
                row = None
                if entry.reason is None and (row := self._find_row(entry.sha256)) is None:
                    if entry.vector is None:
                        missing.append(entry.path)
                        continue
                    row = self._add_content(entry)
                left |= self._rows_of_path(entry.path)
                ((photo,),) = self._ask(tuple[int], WRITE_PHOTO, *entry.values(number, row))
                self._write_names(photo, entry.path, folder, entry.details)
                self._execute("DELETE FROM dead WHERE row = ?", row)
            for path in removed:
                left |= self._rows_of_path(path)
                self._delete_photos("path", os.fsencode(path))
            self._bury(left)
        return missing

    def _delete_photos(self, column: str, value: Any) -> None:
        """Delete photos and their names, for which SQLite allows no trigger."""
        photos = f"FROM photos WHERE {column} = ?"
        self._execute(f"DELETE FROM names WHERE rowid IN (SELECT number {photos})", value)
        self._execute(f"DELETE {photos}", value)

    def _rows_of_path(self, path: str) -> set[int]:
        query = "SELECT row FROM photos WHERE path = ? AND row IS NOT NULL"
        return {row for (row,) in self._ask(tuple[Row], query, os.fsencode(path))}

    def _bury(self, rows: Iterable[int]) -> None:
        """List those of the rows as dead that have no photo any more."""
        for row in rows:
            if not self._ask(tuple[int], "SELECT 1 FROM photos WHERE row = ? LIMIT 1", row):
                query = "INSERT INTO dead (row, day) VALUES (?, ?) ON CONFLICT DO NOTHING"
                self._execute(query, row, today())

    def _check_rules(self) -> list[str]:
        """A sentence for each rule that the tables break."""
        counts = {rule: self._ask(tuple[int], query)[0][0] for rule, query in RULES.items()}
        return [f"{count} {rule}" for rule, count in counts.items() if count]


class LocalStore(LocalDatabase, Store):
    """The library in a directory of this machine, which is created by the first change."""

    def _create(self) -> None:
        """Create the directory and the database, unless they exist."""
        if self._exists():
            return
        try:
            if self.folder.is_dir() and any(not OWN_FILE.fullmatch(name) for name in os.listdir(self.folder)):
                raise FishermixError(
                    f"{self.folder} is not empty and contains no photo library. Name an empty directory."
                )
            make_private_folder(self.folder)
            if not has_locks(self.folder):  # SQLite would wait a minute for each
                raise FishermixError(f"The photo library cannot be kept in {self.folder}. {LOCKS_MISSING}")
            create_private_file(self._file)
        except OSError as error:
            raise FishermixError(
                f"The photo library in {self.folder} cannot be created. {explain_os_error(error)} "
                "FISHERMIX_HOME names another place."
            ) from error
        with self._explain_damage():
            connect(self._file).close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        self._create()
        with self._explain_damage(), transaction(self._connection):
            self._appended: list[bytes] = []
            self._connection.execute("UPDATE state SET version = version + 1")
            yield self._connection
            if self._appended:
                state = self.state()
                start = self._first * state.dimension * 4
                _append(self._point_file(state.generation), start, b"".join(self._appended))

    @contextmanager
    def updating(self, folders: Sequence[str]) -> Iterator[None]:
        """Hold the locks of folders; raises `LibraryBusy` if another process holds one."""
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
                        f"locked. {reason}"
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

    # Points

    def _start_again(self) -> None:
        self._execute("UPDATE state SET generation = ?", next_generation(self.state().generation))

    def remove_folder(self, folder: str) -> None:
        try:
            super().remove_folder(folder)
        except DiskFull:
            self._remove_codes()  # they can be made again, and take a quarter of the space of the points
            super().remove_folder(folder)

    def _drop_dead(self) -> None:
        with suppress(DiskFull, OSError):  # then the points stay, and are listed as dead
            with self._writing() as connection:
                self._compact(connection, today() + 1)
            self._remove_stale_files()

    def _add_content(self, entry: Entry) -> int:
        if not self._appended:
            self._first = self._find_end()
        row = self._first + len(self._appended)
        self._appended.append(np.ascontiguousarray(entry.vector, "<f4").tobytes())
        values = row, entry.sha256, zlib.crc32(self._appended[-1]), entry.fingerprint
        self._execute("INSERT INTO contents VALUES (?, ?, ?, ?)", *values)
        return row

    def _find_end(self) -> int:
        """The first row after all that was ever written. Rows that no commit refers to are listed as dead."""
        state = self.state()
        file, width = self._point_file(state.generation), state.dimension * 4
        size = file.stat().st_size if file.is_file() else 0
        end = max(state.n_rows, -(-size // width)) if width else state.n_rows
        if size < state.n_rows * width:  # else the missing points would be zeros from now on
            raise self._damaged(f"is damaged: {file.name} is missing or too short")
        if end - state.n_rows > MOST_UNUSED_ROWS:
            raise self._damaged(f"is damaged: {file.name} is much longer than the database says")
        for row in range(state.n_rows, end):
            self._execute("INSERT INTO dead (row, day) VALUES (?, 0)", row)
        return end

    # Files

    def tidy(self) -> None:
        """Remove what a killed writer left, and drop points that have been dead for long if they are many."""
        with self._writing() as connection:
            latest = today() - DAYS_DEAD
            query = "SELECT count(*) FROM dead WHERE day <= ?"
            dead = connection.execute(query, (latest,)).fetchone()[0]
            if dead >= max(FEWEST_DEAD_TO_COMPACT, self.state().n_rows // 4):
                self._compact(connection, latest)
        self._remove_stale_files()

    def _compact(self, connection: sqlite3.Connection, latest: int) -> None:
        """Copy the points, without those that died by the day `latest`, to a file of the next generation."""
        state = self.state()
        points = self._points(state)
        query = "DELETE FROM contents WHERE row IN (SELECT row FROM dead WHERE day <= ?)"
        if not connection.execute(query, (latest,)).rowcount:
            return
        connection.execute("DELETE FROM dead WHERE day <= ?", (latest,))
        kept = self._ask_rows(points, "SELECT row FROM contents ORDER BY row").tolist()
        generation = next_generation(state.generation)
        target = self._point_file(generation)
        try:
            for start in range(0, len(kept), ROWS_PER_COPY):
                block = points[kept[start : start + ROWS_PER_COPY]]
                _append(target, start * block.shape[1] * 4, block.astype("<f4").tobytes())
        except OSError:
            target.unlink(missing_ok=True)  # a full disk
            raise
        # In ascending order, a row never moves to one that is still in use.
        moves = [(new, old) for new, old in enumerate(kept) if new != old]
        for table in ("contents", "photos", "dead"):
            connection.executemany(f"UPDATE {table} SET row = ? WHERE row = ?", moves)
        connection.execute("UPDATE state SET generation = ?", (generation,))

    def _remove_stale_files(self) -> None:
        """Remove points and codes of earlier generations; a later one may yet be recovered, see above."""
        with self._explain_damage(), transaction(self._connection):
            current = self.state().generation
            for path in [*self.folder.glob("points-*"), *self.folder.glob("codes-*")]:
                if not OWN_FILE.fullmatch(path.name) or path.is_dir():
                    continue
                generation = int(path.name.split("-")[1].removesuffix(".f32"))
                if generation != current and generation // NUMBERS_PER_GENERATION <= (
                    current // NUMBERS_PER_GENERATION
                ):
                    with suppress(PermissionError):  # Windows: a search has it open
                        path.unlink(missing_ok=True)

    def tune(self) -> None:
        """Write the codes of the points of a large library."""
        with self._snapshot():
            state = self.state()
            points = self._points(state)
        build_codes(self.folder, state.generation, points)
        self._codes.clear()

    def _remove_codes(self) -> None:
        self._codes.clear()
        for path in self.folder.glob("codes-*"):
            if OWN_FILE.fullmatch(path.name) and not path.is_dir():
                with suppress(OSError):
                    path.unlink()

    def verify(self) -> list[str]:
        """A sentence for each rule that the database, its references or a checksum breaks."""
        with self._snapshot() as connection:
            lines = [line for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]
            if lines:
                return [f"The database is damaged: {line}." for line in lines]
            state = self.state()
            self.photos()  # raises
            ((holes,),) = self._ask(tuple[int], HOLES)
            problems = [f"{holes} rows of the points are neither alive nor dead."] if holes else []
            problems += self._check_rules() + self._find_damaged_points(state)
            codes = None if problems else self._point_codes(state)
            if codes and not codes.match(self._points(state)):
                problems.append(f"A codes file in {self.folder} does not match the points. Delete it.")
            return problems

    def _find_damaged_points(self, state: State) -> list[str]:
        """A sentence if points differ from their checksums."""
        expected = self._ask(tuple[Row, int], "SELECT row, crc32 FROM contents ORDER BY row")
        path, width, damaged = self._point_file(state.generation), state.dimension * 4, 0
        if not expected:
            return []
        if not path.is_file():
            return [f"{path} is missing."]
        with open(path, "rb") as file:
            for row, checksum in expected:
                file.seek(row * width)
                data = file.read(width)
                is_sound = len(data) == width and zlib.crc32(data) == checksum
                damaged += not (is_sound and np.isfinite(np.frombuffer(data, "<f4")).all())
        return [f"{damaged} points in {path} do not match their checksums."] if damaged else []


def next_generation(generation: int) -> int:
    """The number of a new generation, which no other process chooses."""
    return (generation // NUMBERS_PER_GENERATION + 1) * NUMBERS_PER_GENERATION + secrets.randbelow(
        NUMBERS_PER_GENERATION
    )


def _append(path: Path, offset: int, data: bytes) -> None:
    """Write at `offset` and flush to disk. A link is an error: a library that somebody made must not choose a
    file of yours to write to.
    """
    create_private_file(path)
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "r+b") as file:
        file.seek(offset)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
