"""The index on this machine: a SQLite database, and one file of points that only grows.

`index.sqlite` (write-ahead log) holds paths, stamps, hashes and, for each point, its row in `vectors-G.f32`
and the checksum of its bytes. A change appends points after the last committed row, flushes them to disk,
and only then commits the transaction that refers to them: a crash at any moment leaves the old state or the
new one, and bytes after the last committed row have no meaning. Rows whose photos are gone are listed as
dead; when there are many, the living rows are copied to the next generation G + 1 of the file, and the
switch is one transaction again. A reader uses one snapshot for a whole search; the file that it has mapped
does not change.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple
from pathlib import Path
from typing import Annotated, NamedTuple
from weakref import WeakSet

import numpy as np
from msgspec import Meta

from fishermix.disk import (
    DAMAGED,
    FORBIDDEN,
    NO_LOCKS,
    READ_ONLY,
    create_private_file,
    explain_os_error,
    explain_sqlite_error,
    has_locks,
    make_private_folder,
)
from fishermix.errors import FishermixError
from fishermix.paths import data_folder
from fishermix.retrieval.details import COLUMNS, Details, DetailsRow
from fishermix.retrieval.exact_search import find_nearest
from fishermix.retrieval.faiss_index import FaissIndex, build_faiss_index, open_faiss_index
from fishermix.retrieval.index_files import (
    NO_UPDATE,
    delete_files,
    expect_points,
    hold_writer_lock,
    remove_stale_files,
)
from fishermix.retrieval.point_codes import PointCodes, build_codes, open_codes
from fishermix.retrieval.sqlite_schema import connect, migrate
from fishermix.retrieval.store import Entry, Hit, Stamp, Summary
from fishermix.schemas import Count, Row, Text, select, select_keys, select_one
from fishermix.vision.formats import is_part

EXACT_UP_TO = 1_000_000  # points; beyond them, faiss proposes candidates
STATE = """
    SELECT generation, model_key, dimension,
    (SELECT max(row) FROM (SELECT max(row) AS row FROM vectors UNION ALL SELECT max(row) FROM dead))
    FROM state
"""


class State(NamedTuple):
    """What an index says of itself, read once per transaction."""

    generation: Count
    model_key: Text
    dimension: Annotated[int, Meta(ge=0, le=2**20)]
    last: Row | None  # the last committed row; each row is alive (in `vectors`) or dead

    @property
    def n_rows(self) -> int:
        """The number of committed rows of the file of points."""
        return 0 if self.last is None else self.last + 1


class _ThreadConnection:
    """A connection that is closed when its thread ends: servers start threads again and again."""

    def __init__(self, file: Path):
        self.connection = connect(file)

    def close(self) -> None:
        self.connection.close()

    def __del__(self) -> None:
        if hasattr(self, "connection"):
            self.close()


class LocalStore:
    """The `Store` of one folder in a directory of this machine."""

    def __init__(self, folder: str | os.PathLike, exact_up_to: int = EXACT_UP_TO):
        self.folder, self.exact_up_to = Path(folder), exact_up_to
        self.name, self.root = str(self.folder), None
        self._threads, self._connections = threading.local(), WeakSet[_ThreadConnection]()
        self._faiss_indexes: dict[int, FaissIndex | None] = {}
        self._codes: dict[int, PointCodes | None] = {}
        self._mapped: tuple[int, np.ndarray] = (-1, np.empty((0, 0), np.float32))
        try:
            self._create_file()
        except OSError as error:
            raise FishermixError(
                f"The index directory {self.folder} cannot be created ({error.strerror}). "
                f"{explain_os_error(error)} --index and FISHERMIX_HOME name another place."
            ) from error
        try:
            with self._explain_damage():
                migrate(self._connection, self.name)
        except BaseException:
            self.close()
            raise

    def _create_file(self) -> None:
        """Create the folder and the database, unless it exists. Without locks, SQLite would wait a minute for
        each.
        """
        file = self.folder / "index.sqlite"
        if file.exists() and file.stat().st_size:
            return
        make_private_folder(self.folder)
        if not has_locks(self.folder):
            raise FishermixError(f"The index cannot be kept in {self.folder}. {NO_LOCKS}")
        create_private_file(file)

    # Connections, transactions, the writer's lock

    @property
    def _connection(self) -> sqlite3.Connection:
        """This thread's connection: threads that search at the same time do not share a snapshot."""
        held = getattr(self._threads, "held", None)
        if held is None:
            held = self._threads.held = _ThreadConnection(self.folder / "index.sqlite")
            self._connections.add(held)
        return held.connection

    @contextmanager
    def _explain_damage(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise FishermixError(self._explain(error)) from error

    def _explain(self, error: sqlite3.Error | UnicodeDecodeError) -> str:
        if isinstance(error, sqlite3.Error):
            reason = explain_sqlite_error(error, self.folder)
        else:
            reason = DAMAGED
        if reason == DAMAGED:
            reason = self._advise_removal()
        elif reason in (READ_ONLY, FORBIDDEN):
            reason += NO_UPDATE
        return f"The index in {self.folder} cannot be used ({error}). {reason}"

    def _advise_removal(self) -> str:
        from fishermix.retrieval.library import read_folder

        is_default = self.folder.parent == data_folder() / "indexes"
        place = "" if is_default else f" --index {shlex.quote(str(self.folder))}"
        folder = read_folder(self.folder)
        command = f"fishermix index remove {'FOLDER' if folder is None else shlex.quote(str(folder))}{place}"
        return f"Delete the damaged index with `{command}`; the next search builds it again."

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

    @contextmanager
    def writing(self) -> Iterator[None]:
        with hold_writer_lock(self.folder):
            yield

    def _remove_stale_files(self) -> None:
        remove_stale_files(self.folder, _read_state(self._connection).generation)

    def close(self) -> None:
        for held in list(self._connections):
            held.close()
        self._connections.clear()
        self._threads = threading.local()

    def delete(self) -> None:
        self.close()
        delete_files(self.folder)

    def delete_if_empty(self) -> None:
        """Delete the index if it has no photos and no other process is writing it."""

        def is_empty() -> bool:
            found = self.stamps()
            self.close()
            return not found

        with suppress(FishermixError):
            delete_files(self.folder, is_empty)

    # State

    def _vector_file(self, generation: int) -> Path:
        return self.folder / f"vectors-{generation}.f32"

    def _vectors(self, state: State) -> np.ndarray:
        """All committed rows (N, d), memory-mapped. Committed rows never change, so the mapping is kept."""
        rows, dimension = state.n_rows, state.dimension
        mapped_generation, vectors = self._mapped
        if mapped_generation != state.generation or len(vectors) < rows:
            vectors = np.empty((0, dimension), np.float32)
            if rows:
                path = self._vector_file(state.generation)
                if not dimension or not path.is_file() or path.stat().st_size < rows * dimension * 4:
                    raise FishermixError(f"{path} is missing or too short. {self._advise_removal()}")
                vectors = np.memmap(path, np.float32, "r", shape=(rows, dimension))
            self._mapped = state.generation, vectors
        return vectors[:rows]

    def remember_folder(self, folder: Path) -> None:
        if not (self.folder / "folder.txt").is_file():  # the directory's name is made from the folder's path
            from fishermix.retrieval.library import write_folder

            write_folder(self.folder, folder)

    def model_key(self) -> str:
        with self._transaction("DEFERRED") as connection:
            return _read_state(connection).model_key

    def adopt(self, model_key: str, dimension: int) -> bool:
        with self._transaction("IMMEDIATE") as connection:
            state = _read_state(connection)
            if (state.model_key, state.dimension) == (model_key, dimension):
                remove_stale_files(self.folder, state.generation)  # of a writer that was killed
                return False
            had_photos = connection.execute("SELECT EXISTS (SELECT 1 FROM photos)").fetchone()[0]
            for table in ("photos", "vectors", "dead"):
                connection.execute(f"DELETE FROM {table}")
            connection.execute(
                "UPDATE state SET generation = generation + 1, model_key = ?, dimension = ?",
                (model_key, dimension),
            )
        self._remove_stale_files()
        return bool(had_photos)

    # Writing

    def stamps(self, prefix: str = "") -> dict[str, Stamp]:
        where, bounds = _limit_to(prefix)
        query = f"SELECT path, size, mtime_ns FROM photos WHERE {where}"
        with self._transaction("DEFERRED") as connection:
            rows = select(connection, tuple[bytes, int, int], query, *bounds)
            return {os.fsdecode(path): Stamp(size, mtime_ns) for path, size, mtime_ns in rows}

    def known_contents(self, hashes: Sequence[bytes]) -> set[bytes]:
        with self._transaction("DEFERRED") as connection:
            query = "SELECT sha256 FROM vectors WHERE sha256 IN"
            found = {digest for (digest,) in select_keys(connection, tuple[bytes], query, hashes)}
        return found.intersection(hashes)

    def vectors_of(self, hashes: Sequence[bytes]) -> dict[bytes, np.ndarray]:
        """The vectors of photos, by the hash of their content; only those that agree with their checksums."""
        found = {}
        with self._transaction("DEFERRED") as connection:
            vectors = self._vectors(_read_state(connection))
            for digest in hashes:
                query = "SELECT row, crc32 FROM vectors WHERE sha256 = ?"
                for row, checksum in select(connection, tuple[Row, int], query, digest):
                    expect_points([row], vectors)
                    if zlib.crc32(np.ascontiguousarray(vectors[row], "<f4").tobytes()) == checksum:
                        found[digest] = np.array(vectors[row])
        return found

    def write(self, entries: Sequence[Entry], removed: Sequence[str] = ()) -> None:
        from fishermix.retrieval.sqlite_write import write_entries  # a search does not wait for it

        with self._transaction("IMMEDIATE") as connection:
            state = _read_state(connection)
            path = self._vector_file(state.generation)
            write_entries(connection, entries, removed, path, state.n_rows, state.dimension)
        if removed:
            self._compact()

    def paths_without_details(self) -> list[str]:
        with self._transaction("DEFERRED") as connection:
            rows = connection.execute("SELECT path FROM photos WHERE taken IS NULL AND row IS NOT NULL")
            return [os.fsdecode(path) for (path,) in rows]

    def write_details(self, details: Mapping[str, Details]) -> None:
        assignments = ", ".join(f"{name} = ?" for name in COLUMNS)
        with self._transaction("IMMEDIATE") as connection:
            connection.executemany(
                f"UPDATE photos SET {assignments} WHERE path = ?",
                [(*astuple(one), os.fsencode(path)) for path, one in details.items()],
            )

    def details(self, paths: Sequence[str] | None = None) -> dict[str, Details]:
        query = f"SELECT path, {', '.join(COLUMNS)} FROM photos WHERE taken IS NOT NULL"
        with self._transaction("DEFERRED") as connection:
            if paths is None:
                rows = select(connection, DetailsRow, query)
            else:
                wanted = [os.fsencode(path) for path in paths]
                rows = list(select_keys(connection, DetailsRow, f"{query} AND path IN", wanted))
        return {os.fsdecode(path): Details(*values) for path, *values in rows}

    def _compact(self) -> None:
        """Copy the living rows to a new file when a quarter of a large file is dead."""
        from fishermix.retrieval.sqlite_write import copy_living, has_many_dead

        with self._transaction("IMMEDIATE") as connection:
            state = _read_state(connection)
            if not has_many_dead(connection, state.n_rows):
                return
            copy_living(connection, self._vectors(state), self._vector_file(state.generation + 1))
        self._remove_stale_files()

    # Fast search of a large index

    def tune(self) -> None:
        """Write the codes of the points and, above `exact_up_to` points, the faiss index if that is there."""
        with self._transaction("DEFERRED") as connection:
            state = _read_state(connection)
            vectors = self._vectors(state)
        build_codes(self.folder, state.generation, vectors)
        self._codes.clear()
        if len(vectors) > self.exact_up_to and not self._faiss_index(state):
            build_faiss_index(self.folder, state.generation, vectors)
            self._faiss_indexes.clear()

    def _faiss_index(self, state: State) -> FaissIndex | None:
        if state.n_rows <= self.exact_up_to:
            return None
        if state.generation not in self._faiss_indexes:
            self._faiss_indexes = {state.generation: open_faiss_index(self.folder, state.generation)}
        found = self._faiss_indexes[state.generation]
        return found if found and found.covers(state.n_rows) else None

    def _point_codes(self, state: State) -> PointCodes | None:
        if state.generation not in self._codes:
            found = open_codes(self.folder, state.generation, state.dimension, state.n_rows)
            self._codes = {state.generation: found}
        found = self._codes.get(state.generation)  # another thread may have cleared them
        return found if found and found.n_rows <= state.n_rows else None

    # Reading

    def nearest(self, queries: np.ndarray, n: int, prefix: str = "") -> list[list[Hit]]:
        try:
            return self._find_nearest(queries, n, prefix)
        except (FishermixError, FileNotFoundError):
            # A writer may have replaced the file of points since the transaction began.
            return self._find_nearest(queries, n, prefix)

    def _find_nearest(self, queries: np.ndarray, n: int, prefix: str) -> list[list[Hit]]:
        """The n photos with the largest dot products, of those whose paths begin with `prefix`."""
        with self._transaction("DEFERRED") as connection:
            state, vectors, excluded = self._read_points(connection, prefix)
            faiss_index = self._faiss_index(state)
            queries = np.ascontiguousarray(queries, np.float32)
            if faiss_index and not prefix:
                found = faiss_index.find_nearest(vectors, queries, n, excluded)
            else:
                rows, scores = find_nearest(vectors, queries, n, excluded, self._point_codes(state))
                found = list(zip(rows.tolist(), scores.tolist()))
            hits = [_hits(connection, *pair) for pair in found]
        return [[hit for hit in some if hit.path.startswith(prefix)][:n] for some in hits]

    def _read_points(
        self, connection: sqlite3.Connection, prefix: str
    ) -> tuple[State, np.ndarray, np.ndarray]:
        """The state, all points (N, d), and the rows that no photo below `prefix` has; without a prefix, the
        dead rows.
        """
        where, bounds = _limit_to(prefix)
        inside = f"SELECT DISTINCT row FROM photos WHERE row IS NOT NULL AND {where}"
        state = select_one(connection, State, STATE)
        found = select(connection, tuple[Row], inside if prefix else "SELECT row FROM dead", *bounds)
        vectors, rows = self._vectors(state), np.array(found, np.int64).reshape(-1)
        if len(rows):
            expect_points(rows, vectors)
        if not prefix:
            return state, vectors, rows
        outside = np.ones(len(vectors), bool)
        outside[rows] = False
        return state, vectors, np.flatnonzero(outside)

    def sample_scores(self, query: np.ndarray, at_most: int, prefix: str = "") -> np.ndarray:
        with self._transaction("DEFERRED") as connection:
            _, vectors, excluded = self._read_points(connection, prefix)
            alive = np.ones(len(vectors), bool)
            alive[excluded] = False
            rows = np.flatnonzero(alive)
            step = max(1, -(-len(rows) // at_most))
            return vectors[rows[::step]] @ np.asarray(query, np.float32)

    def contents(self) -> tuple[list[list[str]], np.ndarray]:
        paths: dict[int, list[str]] = {}
        query = "SELECT row, path FROM photos WHERE row IS NOT NULL ORDER BY row, path"
        with self._transaction("DEFERRED") as connection:
            for row, path in select(connection, tuple[Row, bytes], query):
                paths.setdefault(row, []).append(os.fsdecode(path))
            vectors = self._vectors(_read_state(connection))
            expect_points(list(paths), vectors)
            return list(paths.values()), vectors[list(paths)]

    def path_of(self, photo: str) -> str | None:
        with self._transaction("DEFERRED") as connection:
            found = select(connection, tuple[bytes], "SELECT path FROM photos WHERE id = ?", photo)
            return os.fsdecode(found[0][0]) if found else None

    def id_of(self, path: str) -> str | None:
        with self._transaction("DEFERRED") as connection:
            query = "SELECT id FROM photos WHERE path = ?"
            found = select(connection, tuple[str], query, os.fsencode(path))
            return found[0][0] if found else None

    def vector_of(self, photo: str) -> np.ndarray | None:
        with self._transaction("DEFERRED") as connection:
            found = select(connection, tuple[Row | None], "SELECT row FROM photos WHERE id = ?", photo)
            if not found or found[0][0] is None:
                return None
            vectors, row = self._vectors(_read_state(connection)), found[0][0]
            expect_points([row], vectors)
            return np.array(vectors[row])

    def summary(self, prefix: str = "") -> Summary:
        where, bounds = _limit_to(prefix)
        counts = f"SELECT count(row), count(DISTINCT row) FROM photos WHERE {where}"
        with self._transaction("DEFERRED") as connection:
            state = _read_state(connection)
            pictures, contents = connection.execute(counts, bounds).fetchone()
            query = f"SELECT row, path FROM photos WHERE row IS NOT NULL AND instr(path, x'23') AND {where}"
            named = select(connection, tuple[Row, bytes], query, *bounds)  # with a #
            parts = [row for row, path in named if is_part(os.fsdecode(path))]
            query = "SELECT path, reason FROM photos WHERE reason IS NOT NULL ORDER BY path"
            failed = select(connection, tuple[bytes, str], query)
            unreadable = {os.fsdecode(path): reason for path, reason in failed}
        size = sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file())
        photos, contents = pictures - len(parts), contents - len(set(parts))  # no part has a file's content
        return Summary(photos, contents, unreadable, state.model_key, state.dimension, size, pictures)

    def verify(self) -> list[str]:
        from fishermix.retrieval.sqlite_check import find_problems

        with self._transaction("DEFERRED") as connection:
            state = _read_state(connection)
            found = find_problems(connection, self._vector_file(state.generation), state.dimension)
            codes = None if found else self._point_codes(state)
            if codes and not codes.match(self._vectors(state)):
                found.append(f"A codes file in {self.folder} does not match the points. Delete it.")
            return found


def _read_state(connection: sqlite3.Connection) -> State:
    return select_one(connection, State, STATE)


def _limit_to(prefix: str) -> tuple[str, tuple[bytes, ...]]:
    """A condition of SQL, and its values, for the paths that begin with `prefix`, which ends in a slash."""
    if not prefix:
        return "TRUE", ()
    start = os.fsencode(prefix)
    return "path >= ? AND path < ?", (start, start[:-1] + b"0")  # 0 follows the slash


def _hits(connection: sqlite3.Connection, rows: list[int], scores: list[float]) -> list[Hit]:
    """The photos of these rows, in their order; photos of the same content by their paths."""
    ranks = {row: rank for rank, row in enumerate(rows)}
    query = "SELECT row, id, path FROM photos WHERE row IN"
    found = list(select_keys(connection, tuple[int, str, bytes], query, rows))
    if foreign := {row for row, _, _ in found}.difference(ranks):
        raise sqlite3.DatabaseError(f"the row {min(foreign)} was found, but not asked for")
    found.sort(key=lambda photo: (ranks[photo[0]], photo[2]))
    return [Hit(photo, os.fsdecode(path), scores[ranks[row]]) for row, photo, path in found]
