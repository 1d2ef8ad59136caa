"""The tables of a local index, as numbered migrations: an older index is brought up to date when it is
opened.
"""

from __future__ import annotations

import sqlite3

from fishermix.errors import FishermixError

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
    # Found rows are turned into photos through this.
    "CREATE INDEX photos_by_row ON photos (row);",
)


def migrate(connection: sqlite3.Connection, name: str) -> None:
    """Run the migrations this index has not seen, all in one transaction."""
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
            f"the index in {name} was written by a newer fishermix (version {version}; this one reads up to "
            f"{len(MIGRATIONS)}): upgrade fishermix, or name another place with --index"
        )
    return version
