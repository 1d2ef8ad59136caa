"""Odd values in the rows of a photo library: SQLite stores any type in any column."""

import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass

from fishermix_photos.photos.details import DETAILS

from tests.fuzz.kind import Kind

NUMBERS = (0, -1, 1, 2**31 - 1, 2**40, 2**62, -(2**63), 0.5, -1e300, float("inf"), float("nan"))
TEXTS = ("", "x", "2014-99-99", "2014-05-06", "9" * 30, "../../x", "n" * 5000, "\u0661\u0662", "\ud7ff\uffff")
BLOBS = (b"", b"\0", b"../../x", b"\xff" * 40, b"x" * 32)
TABLES = {
    "photos": (*DETAILS, "id", "path", "folder", "size", "mtime_ns", "row", "reason", "kind"),
    "folders": ("id", "path"),
    "contents": ("row", "sha256", "crc32"),
    "state": ("generation", "model_key", "dimension", "version"),
    "orphaned": ("row", "day"),
}


@dataclass(frozen=True)
class Rows(Kind):
    """Replaces values of a SQLite file by odd ones, of any type."""

    def mutate(self, seed, rng):
        name = self.files[0]
        data = bytearray(seed[name])
        data[18:20] = b"\1\1"  # no write-ahead log, which a database in memory cannot have
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
            database.deserialize(bytes(data))
            database.execute("PRAGMA ignore_check_constraints = 1")
            for _ in range(rng.choice((1, 1, 2, 3))):
                table = rng.choice(("photos", "photos", *TABLES))
                value = rng.choice((None, *NUMBERS, *TEXTS, *BLOBS))
                key = "id" if table == "photos" else "rowid"
                row = f"{key} = (SELECT {key} FROM {table} LIMIT 1 OFFSET {rng.randrange(6)})"
                with suppress(sqlite3.Error):  # a rule of the table forbids it
                    database.execute(
                        f"UPDATE {table} SET {rng.choice(TABLES[table])} = ? WHERE {row}", (value,)
                    )
            return name, bytes(database.serialize())
