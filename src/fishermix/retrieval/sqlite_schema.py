"""The schema of a local index: numbered migrations, and connections to a database that has seen them all."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from fishermix.errors import FishermixError

# The schema, as numbered migrations: opening an older index runs those that it has not seen.
MIGRATIONS = (
    """
    CREATE TABLE state (generation INTEGER NOT NULL, model_key TEXT NOT NULL, dimension INTEGER NOT NULL);
    INSERT INTO state VALUES (0, '', 0);
    CREATE TABLE vectors (row INTEGER PRIMARY KEY, sha256 BLOB NOT NULL UNIQUE, crc32 INTEGER NOT NULL);
    CREATE TABLE photos (
        id TEXT PRIMARY KEY,
        path BLOB NOT NULL UNIQUE,
        size INTEGER NOT NULL,
        mtime_ns INTEGER NOT NULL,
        row INTEGER,
        reason TEXT,
        CHECK ((row IS NULL) != (reason IS NULL))
    ) WITHOUT ROWID;
    CREATE TABLE dead (row INTEGER PRIMARY KEY);
    """,
    # A search looks up the photos of the rows that it found.
    "CREATE INDEX photos_by_row ON photos (row);",
    # Details are read when they are missing. What could not be read is tried again once: there are more
    # formats now.
    """
    ALTER TABLE photos ADD COLUMN taken TEXT;
    ALTER TABLE photos ADD COLUMN taken_from TEXT;
    ALTER TABLE photos ADD COLUMN camera TEXT;
    ALTER TABLE photos ADD COLUMN latitude REAL;
    ALTER TABLE photos ADD COLUMN longitude REAL;
    ALTER TABLE photos ADD COLUMN width INTEGER;
    ALTER TABLE photos ADD COLUMN height INTEGER;
    UPDATE photos SET mtime_ns = -1 WHERE reason IS NOT NULL;
    """,
)


def connect(file: Path) -> sqlite3.Connection:
    """A connection that writes or, in a read-only place, reads what was committed.

    SQLite needs its shared memory next to a database with a write-ahead log. Where it cannot create it, the
    database is opened as one that nobody changes, unless a log with newer content is there.
    """
    kind, name = "?mode=rw", file.absolute().as_uri()
    if not (os.access(file.parent, os.W_OK) and os.access(file, os.W_OK)):
        log = file.with_name(f"{file.name}-wal")
        kind = "?mode=ro" if log.exists() and log.stat().st_size else "?mode=ro&immutable=1"
    connection = sqlite3.connect(
        name + kind, timeout=60, isolation_level=None, check_same_thread=False, uri=True
    )
    try:
        if kind == "?mode=rw":
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def migrate(connection: sqlite3.Connection, name: str) -> None:
    """Run the migrations that this index has not seen, all in one transaction."""
    if _version(connection, name) == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for migration in MIGRATIONS[_version(connection, name) :]:
            for statement in migration.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection, name: str) -> int:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(MIGRATIONS):
        raise FishermixError(
            f"The index in {name} has version {version}; this fishermix reads up to {len(MIGRATIONS)}. "
            "Upgrade to a newer fishermix, or name another directory with --index."
        )
    return version
