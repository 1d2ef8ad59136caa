"""What every SQLite database of fishermix needs: errors in sentences, transactions, rows that are checked.

SQLite itself stores any type in any column, so whatever is read is converted to bounded types.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from fishermix_photos.disk import DAMAGED, FAULTY, FULL, NO_LOCKS, find_obstacle, has_locks, is_full

T = TypeVar("T")
Row = Annotated[int, Meta(ge=0, le=2**40)]  # of a table

# What sqlite3 raises for a damaged file; its own messages may quote bytes that are not UTF-8.
DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
KEYS_PER_QUERY = 500  # SQLite accepts at least 999 values in one query
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


def select_one(connection: sqlite3.Connection, row: type[T], query: str, *values: Any) -> T:
    """The only row that `query` finds."""
    found = select(connection, row, query, *values)
    if len(found) != 1:
        raise sqlite3.DatabaseError(f"there are {len(found)} rows instead of one")
    return found[0]
