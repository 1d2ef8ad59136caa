"""What every SQLite database of fishermix needs: errors in sentences, transactions, rows that are checked.

SQLite itself stores any type in any column, so whatever is read is converted to bounded types.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from fishermix.errors import FishermixError
from msgspec import Meta

from fishermix_photos.disk import (
    DAMAGED,
    FAULTY,
    FULL,
    NO_LOCKS,
    find_obstacle,
    has_locks,
    is_full,
)

T = TypeVar("T")
Row = Annotated[int, Meta(ge=0, le=2**40)]  # of a table

# What sqlite3 raises for a damaged file; its own messages may quote bytes that are not UTF-8.
DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
KEYS_PER_QUERY = 500  # SQLite accepts at least 999 values in one query
LONGEST_VALUE = 1 << 20  # bytes of a row; a path has at most some thousand
# SQLite's codes; the lowest byte of an extended code is its kind.
_BUSY, _READ_ONLY, _IO, _CORRUPT, _FULL, _CANNOT_OPEN, _PROTOCOL, _NOT_A_DATABASE = (
    5,
    8,
    10,
    11,
    13,
    14,
    15,
    26,
)
_PERM, _TOO_BIG = 3, 18
# I/O errors of locks and of the shared memory that replaces them: UNLOCK, RDLOCK, CHECKRESERVEDLOCK, LOCK,
# SHMOPEN, SHMSIZE, SHMLOCK, SHMMAP
_LOCK_ERRORS = {_IO | number << 8 for number in (8, 9, 14, 15, 18, 19, 20, 21)}


def explain_sqlite_error(error: sqlite3.Error, folder: Path) -> str:
    """What an error of a database in `folder` means. One code has several causes, so the disk is asked."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    kind = code & 0xFF
    if kind in (_CORRUPT, _NOT_A_DATABASE, _TOO_BIG):
        return DAMAGED
    if kind == _FULL or (kind in (_IO, _CANNOT_OPEN, _BUSY) and is_full(folder)):
        return FULL
    if kind in (_READ_ONLY, _CANNOT_OPEN, _PERM):
        return find_obstacle(folder) or f"The system reports: {error}."
    if code in _LOCK_ERRORS or kind == _PROTOCOL or (kind == _BUSY and not has_locks(folder)):
        return NO_LOCKS
    if kind == _IO:
        return FAULTY
    if kind == _BUSY:
        return "Another process is using it. Wait until it has finished."
    return f"SQLite reports: {error}."


@contextmanager
def transaction(connection: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """All changes of the block, or none."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite itself rolls back when the disk is full
            connection.execute("ROLLBACK")
        raise


def select(connection: sqlite3.Connection, row: type[T], query: str, *values: Any) -> list[T]:
    """The rows that `query` finds, each a tuple type of bounded types; a wrong one is a `DatabaseError`."""
    found = connection.execute(query, values).fetchall()
    try:
        # Text is not bytes: without their names, msgspec would decode it as base64.
        return msgspec.convert(found, list[row], builtin_types=(bytes,))  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        raise sqlite3.DatabaseError(f"a value has a wrong type: {error}") from error


def select_keys(
    connection: sqlite3.Connection, row: type[T], query: str, keys: Iterable[Any], *values: Any
) -> Iterator[T]:
    """The rows that a query, which ends in IN, finds for these keys; some hundred keys at a time."""
    distinct = list(dict.fromkeys(keys))
    for start in range(0, len(distinct), KEYS_PER_QUERY):
        chunk = distinct[start : start + KEYS_PER_QUERY]
        marks = ", ".join("?" * len(chunk))
        yield from select(connection, row, f"{query} ({marks})", *values, *chunk)


class Schema(NamedTuple):
    """The tables of a database: what it is, the version of the tables, and the statements that make them."""

    name: str
    version: int
    statements: str


def connect(file: Path, schema: Schema) -> sqlite3.Connection:
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
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        if kind == "?mode=rw":
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            if not _read_schema(connection):
                _create_tables(connection, schema)
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > schema.version:
            raise FishermixError(
                f"The {schema.name} in {file.parent} was made by a newer fishermix. Upgrade, or name another "
                "place."
            )
        if version < schema.version:
            raise sqlite3.DatabaseError("it was made by an earlier version of fishermix")
        if _read_schema(connection) != _expected_schema(schema):
            raise sqlite3.DatabaseError(f"the database has other tables than a {schema.name}")
    except BaseException:
        connection.close()
        raise
    return connection


def _create_tables(connection: sqlite3.Connection, schema: Schema) -> None:
    """Create the tables in one transaction, unless another process has just done so."""
    with transaction(connection):
        if not _read_schema(connection):
            for statement in schema.statements.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {schema.version}")


def _read_schema(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Tables, indexes, views and triggers with their definitions."""
    return set(connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall())


@cache
def _expected_schema(schema: Schema) -> set[tuple[str, str, str]]:
    return _read_schema(open_empty(schema))


def open_empty(schema: Schema) -> sqlite3.Connection:
    """An empty database, in memory: what can be read before the first change."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _create_tables(connection, schema)
    return connection
