"""Checks every rule that the writer of a local index keeps."""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path

import numpy as np

from fishermix.schemas import Row, select


def find_problems(connection: sqlite3.Connection, vector_file: Path, dimension: int) -> list[str]:
    """A sentence for each rule that is broken: by the database, its references or the checksum of a point."""
    found = [
        f"The database is damaged: {line}."
        for (line,) in connection.execute("PRAGMA integrity_check")
        if line != "ok"
    ]
    if found:
        return found
    rules = {
        "photos refer to a missing point.": "SELECT count(*) FROM photos WHERE row IS NOT NULL "
        "AND row NOT IN (SELECT row FROM vectors)",
        "points belong to no photo.": "SELECT count(*) FROM vectors WHERE row NOT IN "
        "(SELECT row FROM photos WHERE row IS NOT NULL)",
        "points are both alive and dead.": "SELECT count(*) FROM vectors JOIN dead USING (row)",
        "rows of the vector file are neither alive nor dead.": "SELECT coalesce(max(row) + 1, 0) - count(*) "
        "FROM (SELECT row FROM vectors UNION SELECT row FROM dead)",
        "content hashes do not have 32 bytes.": "SELECT count(*) FROM vectors WHERE length(sha256) != 32",
    }
    for rule, query in rules.items():
        if count := connection.execute(query).fetchone()[0]:
            found.append(f"{count} {rule}")
    return found + _damaged_points(connection, vector_file, dimension)


def _damaged_points(connection: sqlite3.Connection, vector_file: Path, dimension: int) -> list[str]:
    width = dimension * 4
    damaged = 0
    points = select(connection, tuple[Row, int], "SELECT row, crc32 FROM vectors ORDER BY row")
    if not points:
        return []
    if not vector_file.is_file():
        return [f"{vector_file} is missing."]
    with open(vector_file, "rb") as file:
        for row, checksum in points:
            file.seek(row * width)
            data = file.read(width)
            if (
                len(data) < width
                or zlib.crc32(data) != checksum
                or not np.isfinite(np.frombuffer(data, "<f4")).all()
            ):
                damaged += 1
    return [f"{damaged} points in {vector_file} do not match their checksums."] if damaged else []
