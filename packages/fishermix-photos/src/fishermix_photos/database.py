"""The tables of a library, and what is read from and written to them; `store` and `postgres` use it.

A photo has the absolute path of its file and a row: equal contents have the same row, frames of a video and
pages of a TIFF file have their own. A photo that could not be read has a reason instead.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
import time
import zlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from fishermix.errors import FishermixError
from fishermix.storage import Count, Text
from msgspec import Meta

from fishermix_photos.details import DETAILS, Details, DetailsTypes
from fishermix_photos.photo_files import Stamp
from fishermix_photos.sqlite import Row, select, select_keys, select_one, transaction

SECONDS_PER_DAY = 86_400
VERSION = 1  # of the schema
LONGEST_VALUE = 1 << 20  # bytes of a row; a path has at most some thousand
SCHEMA = f"""
CREATE TABLE state (
    generation INTEGER NOT NULL, model_key TEXT NOT NULL, dimension INTEGER NOT NULL, version INTEGER NOT NULL
);
CREATE TABLE folders (id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE);
CREATE TABLE contents (row INTEGER PRIMARY KEY, sha256 BLOB NOT NULL UNIQUE, crc32 INTEGER NOT NULL);
CREATE TABLE dead (row INTEGER PRIMARY KEY, day INTEGER NOT NULL);
CREATE TABLE photos (
    id TEXT PRIMARY KEY,
    path BLOB NOT NULL UNIQUE,
    folder INTEGER NOT NULL,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    row INTEGER,
    reason TEXT,
    {", ".join(DETAILS)},
    CHECK ((row IS NULL) != (reason IS NULL))
) WITHOUT ROWID;
CREATE INDEX photos_by_row ON photos (row);
INSERT INTO state VALUES (0, '', 0, 0);
PRAGMA user_version = {VERSION}
"""
COLUMNS = f"p.row, p.id, p.path, f.path, {', '.join(f'p.{name}' for name in DETAILS)}"
READABLE = f"SELECT {COLUMNS} FROM photos p JOIN folders f ON f.id = p.folder WHERE p.row IS NOT NULL"
_ODD_PATH = re.compile(rb"\0|/\.{0,2}(?:/|\Z)")  # names that no listing gives
RecordRow: Any = tuple[(Row, Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}\Z")], bytes, bytes, *DetailsTypes)]


class State(NamedTuple):
    """What a library says of itself.

    version : the number of changes so far
    last : the last committed row of the points
    """

    generation: Count
    model_key: Text
    dimension: Annotated[int, Meta(ge=0, le=2**20)]
    version: Count
    last: Row | None = None

    @property
    def n_rows(self) -> int:
        """The number of committed rows of the file of points."""
        return 0 if self.last is None else self.last + 1


@dataclass(frozen=True)
class Entry:
    """One photo to store, by its absolute path.

    A readable photo has the hash of its content, its details and its vector; the vector may be None if the
    store already holds one for this content. An unreadable photo has the reason instead.
    """

    path: str
    stamp: Stamp
    sha256: bytes | None = None
    vector: np.ndarray | None = None
    reason: str | None = None
    details: Details | None = None


class Record(NamedTuple):
    """A readable photo of the library; equal contents have the same row."""

    row: int
    id: str
    path: str
    folder: str
    details: Details


def today() -> int:
    """The number of days since 1970."""
    return int(time.time() // SECONDS_PER_DAY)


def expect_points(rows: Sequence[int] | np.ndarray, points: np.ndarray) -> None:
    """Raise if a row of a damaged database is beyond the points."""
    if len(rows) and max(rows) >= len(points):
        raise sqlite3.DatabaseError(f"the point {max(rows)} is missing")


def expect_readable(file: Path) -> None:
    if not os.access(file, os.R_OK):
        raise FishermixError(f"You have no permission to read {file}. Correct its permissions.")


# Connections


def connect(file: Path) -> sqlite3.Connection:
    """A connection that writes or, in a read-only place, reads what was committed.

    SQLite needs its shared memory next to a database with a write-ahead log. Where it cannot create it, the
    database is opened as one that nobody changes, unless a log with newer content is there.
    """
    expect_readable(file)
    kind, name = "?mode=rw", file.absolute().as_uri()
    if not (os.access(file.parent, os.W_OK) and os.access(file, os.W_OK)):
        log = file.with_name(f"{file.name}-wal")
        kind = "?mode=ro" if log.exists() and log.stat().st_size else "?mode=ro&immutable=1"
    connection = sqlite3.connect(
        name + kind, timeout=60, isolation_level=None, check_same_thread=False, uri=True
    )
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        if kind == "?mode=rw":
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            if not _read_schema(connection):
                _create_tables(connection)
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise FishermixError(
                f"The photo library in {file.parent} was made by a newer fishermix. Upgrade, or name another "
                "place."
            )
        if _read_schema(connection) != _expected_schema():
            raise sqlite3.DatabaseError("the database has other tables than a photo library")
    except BaseException:
        connection.close()
        raise
    return connection


def _create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables in one transaction, unless another process has just done so."""
    with transaction(connection):
        if not _read_schema(connection):
            for statement in SCHEMA.split(";"):
                connection.execute(statement)


def _read_schema(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Tables, indexes, views and triggers with their definitions."""
    return set(connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall())


@cache
def _expected_schema() -> set[tuple[str, str, str]]:
    return _read_schema(open_empty())


def open_empty() -> sqlite3.Connection:
    """An empty library, in memory: what can be read before the first change."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _create_tables(connection)
    return connection


# Rows


def read_state(connection: sqlite3.Connection) -> State:
    columns = "generation, model_key, dimension, version"
    last = "SELECT max(row) FROM (SELECT max(row) AS row FROM contents UNION ALL SELECT max(row) FROM dead)"
    return select_one(connection, State, f"SELECT {columns}, ({last}) FROM state")


def find_folder(connection: sqlite3.Connection, folder: str) -> int:
    found = select(connection, tuple[int], "SELECT id FROM folders WHERE path = ?", os.fsencode(folder))
    if not found:
        raise FishermixError(
            f"Another process has removed {folder} from the photo library. Run the command again."
        )
    return found[0][0]


def find_row(connection: sqlite3.Connection, digest: bytes | None) -> int | None:
    found = select(connection, tuple[Row], "SELECT row FROM contents WHERE sha256 = ?", digest)
    return found[0][0] if found else None


def rows_of_path(connection: sqlite3.Connection, path: str) -> set[int]:
    query = "SELECT row FROM photos WHERE path = ? AND row IS NOT NULL"
    return {row for (row,) in select(connection, tuple[Row], query, os.fsencode(path))}


def write_photo(connection: sqlite3.Connection, entry: Entry, folder: int, row: int | None) -> None:
    """Insert a photo, or replace what is known of its path. Its point is alive."""
    columns = ("folder", "size", "mtime_ns", "row", "reason", *DETAILS)
    values = (folder, entry.stamp.size, entry.stamp.mtime_ns, row, entry.reason)
    connection.execute(
        f"INSERT INTO photos (id, path, {', '.join(columns)}) VALUES (?, ?{', ?' * len(columns)}) "
        f"ON CONFLICT (path) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in columns)}",
        (secrets.token_hex(8), os.fsencode(entry.path), *values, *astuple(entry.details or Details())),
    )
    connection.execute("DELETE FROM dead WHERE row = ?", (row,))


def bury(connection: sqlite3.Connection, rows: Sequence[int] | set[int]) -> None:
    """List those of the rows as dead that have no photo any more."""
    for row in rows:
        if not connection.execute("SELECT 1 FROM photos WHERE row = ? LIMIT 1", (row,)).fetchone():
            connection.execute("INSERT OR IGNORE INTO dead (row, day) VALUES (?, ?)", (row, today()))


def limit_to(prefixes: Sequence[str]) -> tuple[str, tuple[bytes, ...]]:
    """A condition of SQL, and its values, for the paths that begin with a prefix, which ends in a slash."""
    if not prefixes:
        return "TRUE", ()
    starts = [os.fsencode(prefix) for prefix in prefixes]
    bounds = tuple(bound for start in starts for bound in (start, start[:-1] + b"0"))  # 0 follows the slash
    return f"({' OR '.join(['p.path >= ? AND p.path < ?'] * len(starts))})", bounds


def find_excluded(
    connection: sqlite3.Connection,
    points: np.ndarray,
    prefixes: Sequence[str],
    rows: np.ndarray | None = None,
) -> np.ndarray:
    """The rows that a search must not find: those of no photo below the prefixes, or not among `rows`."""
    if not prefixes and rows is None:
        dead = np.array(select(connection, tuple[Row], "SELECT row FROM dead"), np.int64).reshape(-1)
        expect_points(dead, points)
        return dead
    if rows is None:
        where, bounds = limit_to(prefixes)
        query = f"SELECT DISTINCT row FROM photos p WHERE row IS NOT NULL AND {where}"
        rows = np.array(select(connection, tuple[Row], query, *bounds), np.int64).reshape(-1)
    expect_points(rows, points)
    outside = np.ones(len(points), bool)
    outside[rows] = False
    return np.flatnonzero(outside)


def find_photos(
    connection: sqlite3.Connection, rows: list[int], scores: list[float]
) -> list[tuple[Record, float]]:
    """The photos of these rows, in their order; photos of the same content by their paths."""
    ranks = {row: rank for rank, row in enumerate(rows)}
    found = make_records(list(select_keys(connection, RecordRow, f"{READABLE} AND p.row IN", rows)))
    if foreign := {record.row for record in found}.difference(ranks):
        raise sqlite3.DatabaseError(f"the row {min(foreign)} was found, but not asked for")
    found.sort(key=lambda record: (ranks[record.row], os.fsencode(record.path)))
    return [(record, scores[ranks[record.row]]) for record in found]


def make_records(rows: Sequence[tuple]) -> list[Record]:
    found = []
    for row, photo, path, folder, *details in rows:
        if not path.startswith(folder.rstrip(b"/") + b"/") or _ODD_PATH.search(path):
            raise sqlite3.DatabaseError("a photo is outside of its folder")
        found.append(Record(row, photo, os.fsdecode(path), os.fsdecode(folder), Details(*details)))
    return found


# Checks

RULES = {
    "photos refer to a missing point.": "SELECT count(*) FROM photos WHERE row IS NOT NULL "
    "AND row NOT IN (SELECT row FROM contents)",
    "photos refer to a missing folder.": "SELECT count(*) FROM photos WHERE folder NOT IN "
    "(SELECT id FROM folders)",
    "points belong to no photo and are not listed as dead.": "SELECT count(*) FROM contents WHERE row NOT IN "
    "(SELECT row FROM photos WHERE row IS NOT NULL) AND row NOT IN (SELECT row FROM dead)",
    "dead points belong to a photo.": "SELECT count(*) FROM dead WHERE row IN "
    "(SELECT row FROM photos WHERE row IS NOT NULL)",
    "rows of the points are neither alive nor dead.": "SELECT coalesce(max(row) + 1, 0) - count(*) "
    "FROM (SELECT row FROM contents UNION SELECT row FROM dead)",
    "content hashes do not have 32 bytes.": "SELECT count(*) FROM contents WHERE length(sha256) != 32",
}


def find_damaged_points(connection: sqlite3.Connection, path: Path, dimension: int) -> list[str]:
    """A sentence if points differ from their checksums."""
    expected = select(connection, tuple[Row, int], "SELECT row, crc32 FROM contents ORDER BY row")
    if not expected:
        return []
    if not path.is_file():
        return [f"{path} is missing."]
    width, damaged = dimension * 4, 0
    with open(path, "rb") as file:
        for row, checksum in expected:
            file.seek(row * width)
            data = file.read(width)
            is_sound = len(data) == width and zlib.crc32(data) == checksum
            damaged += not (is_sound and np.isfinite(np.frombuffer(data, "<f4")).all())
    return [f"{damaged} points in {path} do not match their checksums."] if damaged else []
