"""Changes of a local index, each within one transaction: points are appended, rows of photos written, and the
living points copied when many are dead.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fishermix.retrieval.index_files import append, expect_points
from fishermix.retrieval.store import Entry
from fishermix.schemas import Row, select

FEWEST_DEAD_TO_COMPACT = 1_000
ROWS_PER_COPY = 65_536


def write_entries(
    connection: sqlite3.Connection,
    entries: Sequence[Entry],
    removed: Sequence[str],
    points: Path,
    first: int,
    dimension: int,
) -> None:
    """Store the entries and delete the removed paths.

    points : the file of points, which grows from its row `first` on
    """
    appended: list[bytes] = []
    orphans: set[int | None] = set()
    for entry in entries:
        row = None
        if entry.reason is None and (row := find_row(connection, entry.sha256)) is None:
            if entry.vector is None:
                raise ValueError(f"There is no point for {entry.path}.")
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
            "row = excluded.row, reason = excluded.reason, taken = NULL",
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
        append(points, first * dimension * 4, b"".join(appended))


def has_many_dead(connection: sqlite3.Connection, n_rows: int) -> bool:
    """Whether a quarter of a large file of points is dead."""
    dead = connection.execute("SELECT count(*) FROM dead").fetchone()[0]
    return dead >= max(FEWEST_DEAD_TO_COMPACT, n_rows // 4)


def copy_living(connection: sqlite3.Connection, vectors: np.ndarray, target: Path) -> None:
    """Copy the living rows of `vectors` to the file `target` of the next generation, and refer to it."""
    alive = [row for (row,) in select(connection, tuple[Row], "SELECT row FROM vectors ORDER BY row")]
    expect_points(alive, vectors)
    target.unlink(missing_ok=True)
    for start in range(0, len(alive), ROWS_PER_COPY):
        block = vectors[alive[start : start + ROWS_PER_COPY]]
        append(target, start * block.shape[1] * 4, block.astype("<f4").tobytes())
    # In ascending order, a row never moves to one that is still in use.
    moves = [(new, old) for new, old in enumerate(alive) if new != old]
    connection.execute("DELETE FROM dead")
    connection.executemany("UPDATE vectors SET row = ? WHERE row = ?", moves)
    connection.executemany("UPDATE photos SET row = ? WHERE row = ?", moves)
    connection.execute("UPDATE state SET generation = generation + 1")


def find_row(connection: sqlite3.Connection, digest: bytes | None) -> int | None:
    found = select(connection, tuple[Row], "SELECT row FROM vectors WHERE sha256 = ?", digest)
    return found[0][0] if found else None


def _rows_of_path(connection: sqlite3.Connection, path: bytes) -> set[int | None]:
    found = select(connection, tuple[Row | None], "SELECT row FROM photos WHERE path = ?", path)
    return {row for (row,) in found}
