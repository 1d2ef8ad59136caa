"""The index on this machine: SQLite for what and where, one file of points that only ever grows.

`index.sqlite` (write-ahead log) holds paths, stamps, hashes and, per point, its row in `vectors-G.f32` and
the checksum of its bytes. A change appends points behind the last committed row, flushes them to the disk,
and only then commits the transaction that names them: a crash at any moment leaves the old state or the new
one, and bytes behind the last committed row mean nothing. Rows whose photos are gone are listed as dead;
when they are many, the living ones are copied to the next generation G + 1 of the file and the switch is
again one transaction. A reader takes one snapshot for the whole of a search, and its mapped file stays what
it was.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fishermix.errors import FishermixError
from fishermix.retrieval.exact_search import nearest_rows
from fishermix.retrieval.faiss_index import Shortlist, build_shortlist, open_shortlist
from fishermix.retrieval.sqlite_schema import migrate
from fishermix.retrieval.store import Entry, Hit, Stamp, StoreLocked, Summary

EXACT_UP_TO = 1_000_000
FEWEST_DEAD_TO_COMPACT = 1_000


class LocalStore:
    def __init__(self, folder: str | os.PathLike, exact_up_to: int = EXACT_UP_TO):
        self.folder, self.exact_up_to = Path(folder), exact_up_to
        self.name = str(self.folder)
        self._threads, self._connections = threading.local(), list[sqlite3.Connection]()
        self._shortlists: dict[int, Shortlist | None] = {}
        self._mapped: tuple[int, np.ndarray] = (-1, np.empty((0, 0), np.float32))
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise FishermixError(
                f"the index cannot be kept in {self.folder} ({error.strerror}): "
                "name another place with --index, or set FISHERMIX_HOME"
            ) from error
        with self._damage_explained():
            migrate(self._connection, self.name)

    # Connections, transactions, the writer's lock

    @property
    def _connection(self) -> sqlite3.Connection:
        """This thread's connection: threads that search at once do not share a snapshot."""
        connection = getattr(self._threads, "connection", None)
        if connection is None:
            connection = sqlite3.connect(
                self.folder / "index.sqlite", timeout=60, isolation_level=None, check_same_thread=False
            )
            self._threads.connection = connection
            self._connections.append(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        return connection

    @contextmanager
    def _damage_explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise FishermixError(
                f"the index in {self.folder} cannot be used ({error}): if it is damaged, "
                "`fishermix index remove FOLDER` deletes it and the next search builds it anew"
            ) from error

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        with self._damage_explained():
            connection = self._connection
            connection.execute(f"BEGIN {kind}")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the writer's lock: an exclusive transaction on a file of its own, which ends with the
        process.
        """
        lock = sqlite3.connect(self.folder / "writer.lock", timeout=0, isolation_level=None)
        try:
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError as error:
                raise StoreLocked(
                    f"another fishermix is changing the index in {self.folder}: wait until it has finished"
                ) from error
            self._remove_stale_files()
            yield
        finally:
            lock.close()

    def _remove_stale_files(self) -> None:
        generation = self._meta(self._connection)[0]
        for path in [*self.folder.glob("vectors-*.f32"), *self.folder.glob("faiss-*")]:
            if path.stem.split("-")[1] != str(generation):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._threads = threading.local()

    def delete(self) -> None:
        self.close()
        shutil.rmtree(self.folder)

    # State

    @staticmethod
    def _meta(connection: sqlite3.Connection) -> tuple[int, str, int]:
        return connection.execute("SELECT generation, model_key, dimension FROM state").fetchone()

    @staticmethod
    def _row_count(connection: sqlite3.Connection) -> int:
        """Committed rows of the file: each is either alive (vectors) or dead."""
        alive, dead = (
            connection.execute(f"SELECT coalesce(max(row), -1) FROM {table}").fetchone()[0]
            for table in ("vectors", "dead")
        )
        return max(alive, dead) + 1

    def _vector_file(self, generation: int) -> Path:
        return self.folder / f"vectors-{generation}.f32"

    def _vectors(self, connection: sqlite3.Connection) -> np.ndarray:
        """All committed rows (N, d), memory-mapped; rows never change once committed, so a mapping can be
        kept.
        """
        generation, _, dimension = self._meta(connection)
        rows = self._row_count(connection)
        mapped_generation, vectors = self._mapped
        if mapped_generation != generation or len(vectors) < rows:
            vectors = np.empty((0, dimension), np.float32)
            if rows:
                path = self._vector_file(generation)
                try:
                    vectors = np.memmap(path, np.float32, "r", shape=(rows, dimension))
                except (OSError, ValueError) as error:
                    raise FishermixError(
                        f"{path} is missing or too short: `fishermix index remove FOLDER` deletes the "
                        "damaged index and the next search builds it anew"
                    ) from error
            self._mapped = generation, vectors
        return vectors[:rows]

    def model_key(self) -> str:
        with self._transaction("DEFERRED") as connection:
            return self._meta(connection)[1]

    def adopt(self, model_key: str, dimension: int) -> bool:
        with self._transaction("IMMEDIATE") as connection:
            _, old_key, old_dimension = self._meta(connection)
            if (old_key, old_dimension) == (model_key, dimension):
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

    def stamps(self) -> dict[str, Stamp]:
        with self._transaction("DEFERRED") as connection:
            rows = connection.execute("SELECT path, size, mtime_ns FROM photos")
            return {os.fsdecode(path): Stamp(size, mtime_ns) for path, size, mtime_ns in rows}

    def known_contents(self, hashes: Sequence[bytes]) -> set[bytes]:
        with self._transaction("DEFERRED") as connection:
            return {digest for digest in hashes if _row_of(connection, digest) is not None}

    def write(self, entries: Sequence[Entry], removed: Sequence[str] = ()) -> None:
        with self._transaction("IMMEDIATE") as connection:
            first = self._row_count(connection)
            appended: list[bytes] = []
            orphans: set[int | None] = set()
            for entry in entries:
                row = None
                if entry.reason is None and (row := _row_of(connection, entry.sha256)) is None:
                    if entry.vector is None:
                        raise ValueError(f"no point is given or stored for {entry.path}")
                    row = first + len(appended)
                    appended.append(np.ascontiguousarray(entry.vector, "<f4").tobytes())
                    connection.execute(
                        "INSERT INTO vectors (row, sha256, crc32) VALUES (?, ?, ?)",
                        (row, entry.sha256, zlib.crc32(appended[-1])),
                    )
                path = os.fsencode(entry.path)
                orphans |= _rows_of_path(connection, path)
                connection.execute(
                    "INSERT INTO photos (id, path, size, mtime_ns, row, reason) VALUES (?, ?, ?, ?, ?, ?) "
                    "ON CONFLICT (path) DO UPDATE SET size = excluded.size, mtime_ns = excluded.mtime_ns, "
                    "row = excluded.row, reason = excluded.reason",
                    (secrets.token_hex(8), path, entry.stamp.size, entry.stamp.mtime_ns, row, entry.reason),
                )
            for name in removed:
                orphans |= _rows_of_path(connection, os.fsencode(name))
                connection.execute("DELETE FROM photos WHERE path = ?", (os.fsencode(name),))
            for row in orphans - {None}:
                if not connection.execute("SELECT 1 FROM photos WHERE row = ? LIMIT 1", (row,)).fetchone():
                    connection.execute("DELETE FROM vectors WHERE row = ?", (row,))
                    connection.execute("INSERT INTO dead (row) VALUES (?)", (row,))
            if appended:
                generation, _, dimension = self._meta(connection)
                _append(self._vector_file(generation), first * dimension * 4, b"".join(appended))
        if removed:
            self._compact()

    def _compact(self) -> None:
        """Copy the living rows to a new file once a quarter of a large file is dead."""
        with self._transaction("IMMEDIATE") as connection:
            dead = connection.execute("SELECT count(*) FROM dead").fetchone()[0]
            if dead < max(FEWEST_DEAD_TO_COMPACT, self._row_count(connection) // 4):
                return
            generation = self._meta(connection)[0]
            vectors = self._vectors(connection)
            alive = [row for (row,) in connection.execute("SELECT row FROM vectors ORDER BY row")]
            target = self._vector_file(generation + 1)
            target.unlink(missing_ok=True)
            for start in range(0, len(alive), 65_536):
                block = vectors[alive[start : start + 65_536]]
                _append(target, start * block.shape[1] * 4, block.astype("<f4").tobytes())
            # Ascending, a row never moves onto one that is still in use.
            moves = [(new, old) for new, old in enumerate(alive) if new != old]
            connection.execute("DELETE FROM dead")
            connection.executemany("UPDATE vectors SET row = ? WHERE row = ?", moves)
            connection.executemany("UPDATE photos SET row = ? WHERE row = ?", moves)
            connection.execute("UPDATE state SET generation = generation + 1")
        self._remove_stale_files()

    # Beyond what exact search does in good time

    def tune(self) -> None:
        """Above `exact_up_to` points, build the shortlist of `faiss`, where that is installed."""
        with self._transaction("DEFERRED") as connection:
            generation, vectors = self._meta(connection)[0], self._vectors(connection)
        if len(vectors) > self.exact_up_to and not self._shortlist(generation, len(vectors)):
            build_shortlist(self.folder, generation, vectors)
            self._shortlists.clear()

    def _shortlist(self, generation: int, rows: int) -> Shortlist | None:
        if rows <= self.exact_up_to:
            return None
        if generation not in self._shortlists:
            self._shortlists = {generation: open_shortlist(self.folder, generation)}
        shortlist = self._shortlists[generation]
        return shortlist if shortlist and shortlist.covers(rows) else None

    # Reading

    def nearest(self, queries: np.ndarray, n: int) -> list[list[Hit]]:
        with self._transaction("DEFERRED") as connection:
            vectors = self._vectors(connection)
            dead = [row for (row,) in connection.execute("SELECT row FROM dead")]
            queries = np.ascontiguousarray(queries, np.float32)
            if shortlist := self._shortlist(self._meta(connection)[0], len(vectors)):
                found = shortlist.nearest(vectors, queries, n, dead)
            else:
                rows, scores = nearest_rows(vectors, queries, n, dead)
                found = list(zip(rows.tolist(), scores.tolist()))
            return [_hits(connection, *pair)[:n] for pair in found]

    def sample_scores(self, query: np.ndarray, at_most: int) -> np.ndarray:
        with self._transaction("DEFERRED") as connection:
            vectors = self._vectors(connection)
            alive = np.ones(len(vectors), bool)
            alive[[row for (row,) in connection.execute("SELECT row FROM dead")]] = False
            rows = np.flatnonzero(alive)
            step = max(1, -(-len(rows) // at_most))
            return vectors[rows[::step]] @ np.asarray(query, np.float32)

    def path_of(self, photo: str) -> str | None:
        with self._transaction("DEFERRED") as connection:
            found = connection.execute("SELECT path FROM photos WHERE id = ?", (photo,)).fetchone()
            return os.fsdecode(found[0]) if found else None

    def id_of(self, path: str) -> str | None:
        with self._transaction("DEFERRED") as connection:
            found = connection.execute(
                "SELECT id FROM photos WHERE path = ?", (os.fsencode(path),)
            ).fetchone()
            return found[0] if found else None

    def vector_of(self, photo: str) -> np.ndarray | None:
        with self._transaction("DEFERRED") as connection:
            found = connection.execute("SELECT row FROM photos WHERE id = ?", (photo,)).fetchone()
            return None if not found or found[0] is None else np.array(self._vectors(connection)[found[0]])

    def summary(self) -> Summary:
        with self._transaction("DEFERRED") as connection:
            _, model_key, dimension = self._meta(connection)
            readable = connection.execute("SELECT count(*) FROM photos WHERE row IS NOT NULL").fetchone()[0]
            contents = connection.execute("SELECT count(*) FROM vectors").fetchone()[0]
            failed = connection.execute(
                "SELECT path, reason FROM photos WHERE reason IS NOT NULL ORDER BY path"
            )
            unreadable = {os.fsdecode(path): reason for path, reason in failed}
        size = sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file())
        return Summary(readable, contents, unreadable, model_key, dimension, size)

    def verify(self) -> list[str]:
        from fishermix.retrieval.sqlite_check import problems

        with self._transaction("DEFERRED") as connection:
            generation, _, dimension = self._meta(connection)
            return problems(connection, self._vector_file(generation), dimension)


def _row_of(connection: sqlite3.Connection, digest: bytes | None) -> int | None:
    found = connection.execute("SELECT row FROM vectors WHERE sha256 = ?", (digest,)).fetchone()
    return found[0] if found else None


def _rows_of_path(connection: sqlite3.Connection, path: bytes) -> set[int | None]:
    return {row for (row,) in connection.execute("SELECT row FROM photos WHERE path = ?", (path,))}


def _hits(connection: sqlite3.Connection, rows: list[int], scores: list[float]) -> list[Hit]:
    select = "SELECT id, path FROM photos WHERE row = ? ORDER BY path"
    return [
        Hit(photo, os.fsdecode(path), score)
        for row, score in zip(rows, scores)
        for photo, path in connection.execute(select, (row,))
    ]


def _append(path: Path, offset: int, data: bytes) -> None:
    """Write at `offset`, over whatever a killed writer left there, and flush to the disk."""
    with open(path, "r+b" if path.exists() else "w+b") as file:
        file.seek(offset)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
