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
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np
from fishermix.errors import FishermixError

from fishermix_photos.database import (
    READABLE,
    RULES,
    Entry,
    Record,
    RecordRow,
    State,
    bury,
    connect,
    expect_points,
    expect_readable,
    find_damaged_points,
    find_excluded,
    find_folder,
    find_photos,
    find_row,
    limit_to,
    make_records,
    open_empty,
    read_state,
    rows_of_path,
    today,
    write_photo,
)
from fishermix_photos.disk import (
    DAMAGED,
    NO_LOCKS,
    create_private_file,
    explain_os_error,
    has_locks,
    make_private_folder,
)
from fishermix_photos.nearest import PointCodes, build_codes, find_nearest, open_codes
from fishermix_photos.photo_files import Stamp
from fishermix_photos.results import LibraryBusy, LibraryDamaged
from fishermix_photos.sqlite import Row, explain_sqlite_error, select, select_keys
from fishermix_photos.vision.formats import is_whole_file

T = TypeVar("T")
DATABASE = "library.sqlite"
OWN_FILE = re.compile(
    r"(library|thumbnails)\.sqlite(-wal|-shm|-journal)?|points-\d+\.f32|codes-\d+-\d+\.(i8|\d+\.tmp)"
    r"|folder-[0-9a-f]{16}\.lock"
)
FEWEST_DEAD_TO_COMPACT = 1_000
DAYS_DEAD = 30  # for so long, a deleted photo is recognized if it turns up again
ROWS_PER_COPY = 65_536
NUMBERS_PER_GENERATION = 2**24


class _ThreadConnection:
    """A connection that is closed when its thread ends: servers start threads again and again."""

    def __init__(self, file: Path | None):
        self.is_empty = file is None
        self.connection = open_empty() if file is None else connect(file)

    def close(self) -> None:
        self.connection.close()

    def __del__(self) -> None:
        if hasattr(self, "connection"):
            self.close()


class LocalStore:
    """The library in a directory of this machine, which is created by the first change."""

    def __init__(self, place: str | os.PathLike):
        self.folder = Path(place)
        self.name = str(self.folder)
        self._file = self.folder / DATABASE
        self._threads, self._connections = threading.local(), WeakSet[_ThreadConnection]()
        self._codes: dict[int, PointCodes | None] = {}
        self._mapped: tuple[int, np.ndarray] = (-1, np.empty((0, 0), np.float32))

    # Connections and transactions

    def _exists(self) -> bool:
        try:
            return self._file.stat().st_size > 0
        except OSError:
            return False

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
                raise FishermixError(f"The photo library cannot be kept in {self.folder}. {NO_LOCKS}")
            create_private_file(self._file)
        except OSError as error:
            raise FishermixError(
                f"The photo library in {self.folder} cannot be created. {explain_os_error(error)} "
                "FISHERMIX_HOME names another place."
            ) from error
        with self._explain_damage():
            connect(self._file).close()

    @property
    def _connection(self) -> sqlite3.Connection:
        """This thread's connection: threads that search at the same time do not share a snapshot."""
        held = getattr(self._threads, "held", None)
        if held is None or (held.is_empty and self._exists()):
            held = self._threads.held = _ThreadConnection(self._file if self._exists() else None)
            self._connections.add(held)
        return held.connection

    @contextmanager
    def _explain_damage(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            reason = DAMAGED
            if isinstance(error, sqlite3.Error) and hasattr(error, "sqlite_errorcode"):
                # SQLite's own; the others are values that nobody wrote
                reason = explain_sqlite_error(error, self.folder)
            if reason == DAMAGED:
                raise self._damaged(f"cannot be used ({error})") from error
            raise FishermixError(f"The photo library in {self.folder} cannot be used. {reason}") from error

    def _damaged(self, problem: str) -> LibraryDamaged:
        return LibraryDamaged(
            f"The photo library in {self.folder} {problem}. Delete it, and add your folders again.",
            place=self.name,
        )

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        with self._explain_damage():
            connection = self._connection
            connection.execute(f"BEGIN {kind}")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # SQLite itself rolls back when the disk is full
                    connection.execute("ROLLBACK")
                raise

    def _reading(self) -> Any:
        return self._transaction("DEFERRED")

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A change: one process at a time; the others wait."""
        self._create()
        with self._transaction("IMMEDIATE") as connection:
            connection.execute("UPDATE state SET version = version + 1")
            yield connection

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
                    reason = explain_os_error(error) if isinstance(error, OSError) else NO_LOCKS
                    raise FishermixError(
                        f"The photo library in {self.folder} cannot be changed, because {path} cannot be "
                        f"locked. {reason}"
                    ) from error
            yield

    def delete(self) -> None:
        """Delete the files of the library."""
        self.close()
        delete_library(self.folder)

    def close(self) -> None:
        for held in list(self._connections):
            held.close()
        self._connections.clear()
        self._threads = threading.local()

    # State and folders

    def state(self) -> State:
        with self._reading() as connection:
            return read_state(connection)

    def adopt(self, model_key: str, dimension: int) -> bool:
        """Make this the library of a model and drop the photos of any other. True if some were dropped."""
        with self._writing() as connection:
            state = read_state(connection)
            if (state.model_key, state.dimension) == (model_key, dimension):
                return False
            had_photos = connection.execute("SELECT EXISTS (SELECT 1 FROM photos)").fetchone()[0]
            for table in ("photos", "contents", "dead"):
                connection.execute(f"DELETE FROM {table}")
            connection.execute(
                "UPDATE state SET generation = ?, model_key = ?, dimension = ?",
                (next_generation(state.generation), model_key, dimension),
            )
        self._remove_stale_files()
        return bool(had_photos)

    def folders(self) -> list[str]:
        """The folders of the library, by path."""
        with self._reading() as connection:
            rows = select(connection, tuple[bytes], "SELECT path FROM folders ORDER BY path")
            folders = [os.fsdecode(path) for (path,) in rows]
        if odd := [folder for folder in folders if os.path.abspath(folder) != folder]:
            raise self._damaged(f"is damaged: {odd[0]!r:.100} is not the path of a folder")
        return folders

    def add_folder(self, folder: str, inner: Sequence[str] = ()) -> None:
        """Add a folder, and make the photos of those inside it its own."""
        with self._writing() as connection:
            connection.execute("INSERT OR IGNORE INTO folders (path) VALUES (?)", (os.fsencode(folder),))
            number = find_folder(connection, folder)
            for path in inner:
                old = find_folder(connection, path)
                connection.execute("UPDATE photos SET folder = ? WHERE folder = ?", (number, old))
                connection.execute("DELETE FROM folders WHERE id = ?", (old,))

    def remove_folder(self, folder: str) -> None:
        """Remove a folder and its photos, and the points that belong to no other photo."""
        with self._writing() as connection:
            number = find_folder(connection, folder)
            query = "SELECT DISTINCT row FROM photos WHERE folder = ? AND row IS NOT NULL"
            rows = [row for (row,) in select(connection, tuple[Row], query, number)]
            connection.execute("DELETE FROM photos WHERE folder = ?", (number,))
            connection.execute("DELETE FROM folders WHERE id = ?", (number,))
            bury(connection, rows)
            self._compact(connection, today() + 1)
        self._remove_stale_files()

    # Changes

    def stamps(self, prefix: str) -> dict[str, Stamp]:
        """The stamps of the files below `prefix`, which ends in a slash, by path."""
        where, bounds = limit_to([prefix])
        query = f"SELECT path, size, mtime_ns FROM photos p WHERE {where}"
        with self._reading() as connection:
            rows = select(connection, tuple[bytes, int, int], query, *bounds)
            return {os.fsdecode(path): Stamp(size, mtime_ns) for path, size, mtime_ns in rows}

    def known_contents(self, hashes: Sequence[bytes]) -> set[bytes]:
        """Those of the hashes for which the store has points."""
        with self._reading() as connection:
            query = "SELECT sha256 FROM contents WHERE sha256 IN"
            found = {digest for (digest,) in select_keys(connection, tuple[bytes], query, hashes)}
        return found.intersection(hashes)

    def _find_end(self, connection: sqlite3.Connection, state: State) -> int:
        """The first row after all that was ever written. Rows that no commit refers to are listed as dead."""
        file, width = self._point_file(state.generation), state.dimension * 4
        size = file.stat().st_size if file.is_file() else 0
        end = max(state.n_rows, -(-size // width)) if width else state.n_rows
        unused = [(row,) for row in range(state.n_rows, end)]
        connection.executemany("INSERT INTO dead (row, day) VALUES (?, 0)", unused)
        return end

    def write(self, folder: str, entries: Sequence[Entry], removed: Sequence[str] = ()) -> list[str]:
        """Store photos of a folder and delete the removed paths, in one transaction.

        Returns the paths that were not stored: they came without a vector, and another process has just
        dropped the one of their content.
        """
        with self._writing() as connection:
            state, number = read_state(connection), find_folder(connection, folder)
            end = self._find_end(connection, state) if entries else 0
            appended: list[bytes] = []
            missing: list[str] = []
            left: set[int] = set()
            for entry in entries:
                row = None
                if entry.reason is None and (row := find_row(connection, entry.sha256)) is None:
                    if entry.vector is None:
                        missing.append(entry.path)
                        continue
                    row = end + len(appended)
                    appended.append(np.ascontiguousarray(entry.vector, "<f4").tobytes())
                    values = row, entry.sha256, zlib.crc32(appended[-1])
                    connection.execute("INSERT INTO contents (row, sha256, crc32) VALUES (?, ?, ?)", values)
                left |= rows_of_path(connection, entry.path)
                write_photo(connection, entry, number, row)
            for path in removed:
                left |= rows_of_path(connection, path)
                connection.execute("DELETE FROM photos WHERE path = ?", (os.fsencode(path),))
            bury(connection, left)
            if appended:
                offset = end * state.dimension * 4
                _append(self._point_file(state.generation), offset, b"".join(appended))
        return missing

    def tidy(self) -> None:
        """Remove what a killed writer left, and drop points that have been dead for long if they are many."""
        with self._writing() as connection:
            latest = today() - DAYS_DEAD
            query = "SELECT count(*) FROM dead WHERE day <= ?"
            dead = connection.execute(query, (latest,)).fetchone()[0]
            if dead >= max(FEWEST_DEAD_TO_COMPACT, read_state(connection).n_rows // 4):
                self._compact(connection, latest)
        self._remove_stale_files()

    def _compact(self, connection: sqlite3.Connection, latest: int) -> None:
        """Copy the points, without those that died by the day `latest`, to a file of the next generation."""
        state = read_state(connection)
        points = self._points(state)
        query = "DELETE FROM contents WHERE row IN (SELECT row FROM dead WHERE day <= ?)"
        if not connection.execute(query, (latest,)).rowcount:
            return
        connection.execute("DELETE FROM dead WHERE day <= ?", (latest,))
        kept = [row for (row,) in select(connection, tuple[Row], "SELECT row FROM contents ORDER BY row")]
        expect_points(kept, points)
        generation = next_generation(state.generation)
        target = self._point_file(generation)
        for start in range(0, len(kept), ROWS_PER_COPY):
            block = points[kept[start : start + ROWS_PER_COPY]]
            _append(target, start * block.shape[1] * 4, block.astype("<f4").tobytes())
        # In ascending order, a row never moves to one that is still in use.
        moves = [(new, old) for new, old in enumerate(kept) if new != old]
        for table in ("contents", "photos", "dead"):
            connection.executemany(f"UPDATE {table} SET row = ? WHERE row = ?", moves)
        connection.execute("UPDATE state SET generation = ?", (generation,))

    def _remove_stale_files(self) -> None:
        """Remove points and codes of earlier generations; a later one may yet be recovered, see above."""
        with self._transaction("IMMEDIATE") as connection:
            current = read_state(connection).generation
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
        with self._reading() as connection:
            state = read_state(connection)
            points = self._points(state)
        build_codes(self.folder, state.generation, points)
        self._codes.clear()

    # Points

    def _point_file(self, generation: int) -> Path:
        return self.folder / f"points-{generation}.f32"

    def _points(self, state: State) -> np.ndarray:
        """All committed rows (N, d), memory-mapped. Committed rows never change, so the mapping is kept."""
        rows, dimension = state.n_rows, state.dimension
        generation, points = self._mapped
        if generation != state.generation or len(points) < rows or points.shape[1] != dimension:
            points = np.empty((0, dimension), np.float32)
            if rows:
                path = self._point_file(state.generation)
                if not dimension or not path.is_file() or path.stat().st_size < rows * dimension * 4:
                    raise self._damaged(f"is damaged: {path.name} is missing or too short")
                expect_readable(path)
                points = np.memmap(path, np.float32, "r", shape=(rows, dimension))
            self._mapped = state.generation, points
        return points[:rows]

    def _point_codes(self, state: State) -> PointCodes | None:
        if state.generation not in self._codes:
            found = open_codes(self.folder, state.generation, state.dimension, state.n_rows)
            self._codes = {state.generation: found}
        found = self._codes.get(state.generation)  # another thread may have cleared them
        return found if found and found.n_rows <= state.n_rows else None

    def _read_points(self, read: Callable[[sqlite3.Connection, State], T]) -> T:
        """What `read` finds in one snapshot. It is read again if a writer has just replaced the points."""
        for is_last in (False, True):
            try:
                with self._reading() as connection:
                    return read(connection, read_state(connection))
            except (LibraryDamaged, FileNotFoundError):
                if is_last:
                    raise
        raise AssertionError

    def points(self, rows: Sequence[int]) -> np.ndarray:
        """The vectors (n, d) of rows."""

        def read(connection: sqlite3.Connection, state: State) -> np.ndarray:
            points = self._points(state)
            expect_points(rows, points)
            return points[list(rows)]

        return self._read_points(read)

    def nearest(
        self, query: np.ndarray, n: int, prefixes: Sequence[str] = (), rows: np.ndarray | None = None
    ) -> list[tuple[Record, float]]:
        """The n photos with the largest dot products with the query (d,), best first.

        prefixes : only photos whose paths begin with one of them
        rows : only photos with one of these rows
        """

        def read(connection: sqlite3.Connection, state: State) -> list[tuple[Record, float]]:
            points = self._points(state)
            excluded = find_excluded(connection, points, prefixes, rows)
            vector = np.ascontiguousarray(query[None], np.float32)
            found = find_nearest(points, vector, n, excluded, self._point_codes(state))
            return find_photos(connection, found[0][0].tolist(), found[1][0].tolist())

        found = self._read_points(read) if self.state().n_rows else []
        starts = tuple(prefixes) or ("",)
        return [pair for pair in found if pair[0].path.startswith(starts)][:n]

    def sample_scores(self, query: np.ndarray, at_most: int, prefixes: Sequence[str] = ()) -> np.ndarray:
        """Scores of a query (d,) with at most `at_most` contents, spread evenly over the library."""

        def read(connection: sqlite3.Connection, state: State) -> np.ndarray:
            points = self._points(state)
            alive = np.ones(len(points), bool)
            alive[find_excluded(connection, points, prefixes)] = False
            rows = np.flatnonzero(alive)
            step = max(1, -(-len(rows) // at_most))
            return points[rows[::step]] @ np.asarray(query, np.float32)

        return self._read_points(read) if self.state().n_rows else np.empty(0, np.float32)

    # Photos

    def records(self, prefixes: Sequence[str] = ()) -> list[Record]:
        """The readable photos, frames and pages below one of the prefixes."""
        where, bounds = limit_to(prefixes)
        with self._reading() as connection:
            return make_records(select(connection, RecordRow, f"{READABLE} AND {where}", *bounds))

    def find(self, ids: Sequence[str]) -> list[Record]:
        """The photos with these ids."""
        with self._reading() as connection:
            return make_records(list(select_keys(connection, RecordRow, f"{READABLE} AND p.id IN", ids)))

    def unreadable(self, prefixes: Sequence[str] = ()) -> dict[str, str]:
        """Why files could not be read, by path."""
        where, bounds = limit_to(prefixes)
        query = f"SELECT path, reason FROM photos p WHERE reason IS NOT NULL AND {where} ORDER BY path"
        with self._reading() as connection:
            rows = select(connection, tuple[bytes, str], query, *bounds)
            return {os.fsdecode(path): reason for path, reason in rows}

    def count(self, prefixes: Sequence[str] = ()) -> tuple[int, int, int]:
        """The number of files that can be read, of their contents, and of files, frames and pages."""
        where, bounds = limit_to(prefixes)
        with self._reading() as connection:
            query = f"SELECT count(row), count(DISTINCT row) FROM photos p WHERE {where}"
            pictures, contents = connection.execute(query, bounds).fetchone()
            query = f"SELECT row, path FROM photos p WHERE row IS NOT NULL AND instr(path, x'23') AND {where}"
            named = select(connection, tuple[Row, bytes], query, *bounds)  # with a #
            parts = [row for row, path in named if not is_whole_file(os.fsdecode(path))]
        return pictures - len(parts), contents - len(set(parts)), pictures  # no part has a file's content

    def size(self) -> int:
        """The number of bytes of the files."""
        return sum(path.stat().st_size for path in self.folder.glob("*") if path.is_file())

    def verify(self) -> list[str]:
        """A sentence for each rule that the database, its references or a checksum breaks."""
        with self._reading() as connection:
            lines = [line for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]
            if lines:
                return [f"The database is damaged: {line}." for line in lines]
            state = read_state(connection)
            make_records(select(connection, RecordRow, READABLE))  # raises
            counts = {rule: connection.execute(query).fetchone()[0] for rule, query in RULES.items()}
            problems = [f"{count} {rule}" for rule, count in counts.items() if count]
            problems += find_damaged_points(connection, self._point_file(state.generation), state.dimension)
            codes = None if problems else self._point_codes(state)
            if codes and not codes.match(self._points(state)):
                problems.append(f"A codes file in {self.folder} does not match the points. Delete it.")
            return problems


def delete_library(place: str | os.PathLike) -> None:
    """Delete the files of a library, damaged or not, and its directory if nothing else is in it. No photo is
    changed. Raises `LibraryBusy` if a process is updating a folder.
    """
    from filelock import FileLock, Timeout

    folder = Path(place)
    with ExitStack() as held:
        for path in sorted(folder.glob("folder-*.lock")):
            try:
                held.enter_context(FileLock(path, timeout=0))
            except Timeout as error:
                raise LibraryBusy(f"Another process is updating the photo library in {folder}.") from error
            except OSError:
                continue  # a lock that nobody can hold
        # The database first: without it, a directory with only files of ours counts as empty.
        for path in sorted(folder.glob("*"), key=lambda path: path.name != DATABASE):
            if OWN_FILE.fullmatch(path.name) and not path.is_dir():
                path.unlink(missing_ok=True)
    with suppress(OSError):  # other files are in it
        folder.rmdir()


def next_generation(generation: int) -> int:
    """The number of a new generation, which no other process chooses."""
    return (generation // NUMBERS_PER_GENERATION + 1) * NUMBERS_PER_GENERATION + secrets.randbelow(
        NUMBERS_PER_GENERATION
    )


def _append(path: Path, offset: int, data: bytes) -> None:
    """Write at `offset` and flush to disk."""
    create_private_file(path)
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
