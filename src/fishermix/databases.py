"""Rows of a SQLite file as values of a schema: SQLite itself stores any type in any column."""

from __future__ import annotations

import sqlite3
from typing import Annotated, Any, TypeVar

import msgspec

T = TypeVar("T")
# What sqlite3 raises for a damaged file; its own messages may quote bytes that are not UTF-8.
ERRORS = (sqlite3.Error, UnicodeDecodeError)
Row = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


def select(connection: sqlite3.Connection, row: type[T], query: str, *values: Any) -> list[T]:
    """The rows that `query` finds, each a tuple type of bounded types; a wrong one is a `DatabaseError`."""
    found = connection.execute(query, values).fetchall()
    try:
        return msgspec.convert(found, list[row])  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        raise sqlite3.DatabaseError(f"a value has a wrong type: {error}") from error


def select_one(connection: sqlite3.Connection, row: type[T], query: str, *values: Any) -> T:
    """The only row that `query` finds."""
    found = select(connection, row, query, *values)
    if len(found) != 1:
        raise sqlite3.DatabaseError(f"there are {len(found)} rows instead of one")
    return found[0]
