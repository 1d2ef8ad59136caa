"""The tables of a SQLite library, how it is known to be one, and the way from each older version to this one.

A library has its own application id, and the version of its tables in `user_version`. 0.3, the first release,
had version 3 and no application id; a dump that was restored has neither. A change of the tables is one more
entry of `MIGRATIONS`, which is never changed afterwards, and a library of the version before it in
`tests/library`.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

from fishermix_photos.disk import transaction
from fishermix_photos.index.errors import OtherVersion
from fishermix_photos.index.schema import VERSION, define_photo_columns

APPLICATION_ID = int.from_bytes(b"FiMi")
OLDEST_VERSION = 3
SQL_TYPES = {bool: "INTEGER", int: "INTEGER", float: "REAL", str: "TEXT", bytes: "BLOB"}
TABLE_NAMES = ("state", "folders", "contents", "orphaned", "photos", "names", "texts")
TABLES = f"""
CREATE TABLE state (
    generation INTEGER NOT NULL, model_key TEXT NOT NULL, dimension INTEGER NOT NULL, version INTEGER NOT NULL
);
CREATE TABLE folders (id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE);
CREATE TABLE contents (
    row INTEGER PRIMARY KEY, sha256 BLOB NOT NULL UNIQUE, crc32 INTEGER NOT NULL, fingerprint BLOB
);
CREATE TABLE orphaned (row INTEGER PRIMARY KEY, day INTEGER NOT NULL);
CREATE TABLE photos (
    number INTEGER PRIMARY KEY,
    {define_photo_columns(SQL_TYPES)},
    CHECK ((row IS NULL) != (reason IS NULL))
);
CREATE INDEX photos_by_row ON photos (row);
CREATE INDEX photos_by_time ON photos (taken, row, is_file);  -- all that counting by year reads
CREATE INDEX photos_by_place ON photos (latitude, longitude);
CREATE VIRTUAL TABLE names USING fts5 (file, folders, place);
CREATE VIRTUAL TABLE texts USING fts5 (words, text UNINDEXED);
INSERT INTO state VALUES (0, '', 0, 0)
"""
# To each version from the one before it.
MIGRATIONS = {
    4: """
ALTER TABLE dead RENAME TO orphaned;
ALTER TABLE photos RENAME TO photos_of_3;
CREATE TABLE photos (
    number INTEGER PRIMARY KEY,
    taken TEXT, taken_from TEXT, camera TEXT, latitude REAL, longitude REAL, width INTEGER, height INTEGER,
    place TEXT, region TEXT,
    id TEXT NOT NULL UNIQUE, path BLOB NOT NULL UNIQUE, folder INTEGER NOT NULL, is_file INTEGER NOT NULL,
    kind TEXT NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, row INTEGER, reason TEXT,
    CHECK ((row IS NULL) != (reason IS NULL))
);
INSERT INTO photos
    SELECT number, taken, taken_from, camera, latitude, longitude, width, height, place, region,
        id, path, folder, is_file, kind, size, mtime_ns, row, reason FROM photos_of_3;
DROP TABLE photos_of_3;
CREATE INDEX photos_by_row ON photos (row);
CREATE INDEX photos_by_time ON photos (taken, row, is_file);
CREATE INDEX photos_by_place ON photos (latitude, longitude)
""",
    5: "CREATE VIRTUAL TABLE texts USING fts5 (words, text UNINDEXED)",
}
# The table and the column that each version has and those before it lack: a restored dump has no number.
MARKS = {3: ("dead", "row"), 4: ("orphaned", "row"), 5: ("texts", "words")}


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether a database has no tables."""
    return connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables in one transaction, unless another process has just done so."""
    with transaction(connection):
        if is_empty(connection):
            _run(connection, TABLES)
            _write_version(connection)


def find_version(connection: sqlite3.Connection, folder: Path) -> int:
    """The version of the tables of a library in `folder`; raises if this fishermix does not know it."""
    ((application,),) = connection.execute("PRAGMA application_id").fetchall()
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    if application not in (0, APPLICATION_ID):
        raise sqlite3.DatabaseError("the database is that of another program")
    if version == 0 or OLDEST_VERSION <= version <= VERSION:  # 0: a restored dump
        marked = [number for number, mark in MARKS.items() if _has_column(connection, *mark)]
        return max(marked, default=version or VERSION)  # the tables count, not a number that may be wrong
    age, remedy = ("a newer", "Update fishermix") if version > VERSION else ("an older", "Use that version")
    raise OtherVersion(
        f"The photo library in {folder} was made by {age} fishermix: its tables have version {version}, not "
        f"{VERSION}. {remedy}, or name another place with --library.",
        version=version,
    )


def migrate(connection: sqlite3.Connection, folder: Path) -> None:
    """Bring the tables to this version, in one transaction; another process may do the same."""
    _expect_no_code(connection)
    try:
        with transaction(connection):
            for version in range(find_version(connection, folder) + 1, VERSION + 1):
                _run(connection, MIGRATIONS[version])
            expect_tables(connection)
            _write_version(connection)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        raise sqlite3.DatabaseError(f"the database has other tables than a photo library: {error}") from error


def expect_tables(connection: sqlite3.Connection) -> None:
    """Raise unless the tables have the columns and keys of a library, and nothing runs when they are used.

    The rest is not compared: how a statement is written, further indexes and tables (ANALYZE adds some), and
    how FTS5 keeps its words.
    """
    _expect_no_code(connection)
    for table, (columns, keys) in _expected_tables().items():
        if _read_columns(connection, table) != columns or not _read_keys(connection, table) >= keys:
            raise sqlite3.DatabaseError("the database has other tables than a photo library")


def open_empty() -> sqlite3.Connection:
    """An empty library, in memory: what can be read before the first change."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    create_tables(connection)
    return connection


def _run(connection: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";"):
        connection.execute(statement)


def _write_version(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _expect_no_code(connection: sqlite3.Connection) -> None:
    query = "SELECT count(*) FROM sqlite_master WHERE type NOT IN ('table', 'index')"
    if connection.execute(query).fetchone() != (0,):  # triggers and views
        raise sqlite3.DatabaseError("the database has other tables than a photo library, or code")


@cache
def _expected_tables() -> dict[str, tuple[set[tuple], set[tuple]]]:
    """The columns and the keys of each table."""
    with closing(open_empty()) as empty:
        return {table: (_read_columns(empty, table), _read_keys(empty, table)) for table in TABLE_NAMES}


def _read_columns(connection: sqlite3.Connection, table: str) -> set[tuple]:
    """Name, type, place in the primary key and kind of each column; FTS5 has two hidden ones."""
    found = connection.execute(f"PRAGMA table_xinfo({table})").fetchall()
    return {(name, type.upper(), key, kind) for _, name, type, _, _, key, kind in found}


def _has_column(connection: sqlite3.Connection, table: str, column: str) -> bool:
    return any(name == column for name, *_ in _read_columns(connection, table))


def _read_keys(connection: sqlite3.Connection, table: str) -> set[tuple]:
    """The columns whose values are unique: a write replaces the photo of the same path."""
    indexes = connection.execute(f"PRAGMA index_list({table})").fetchall()
    query = "SELECT name FROM pragma_index_info(?) ORDER BY seqno"
    return {
        tuple(column for (column,) in connection.execute(query, (name,)))
        for _, name, is_unique, _, is_partial in indexes
        if is_unique and not is_partial
    }
