"""Small copies of photos, kept on disk next to the index: private, bounded, and removed with their photos.

One SQLite file holds them. It is a cache: when it cannot be used (a full or read-only disk, damage), they are
made again, and nothing else is lost. `secure_delete` overwrites a removed thumbnail with zeros.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fishermix.disk import create_private_file, make_private_folder
from fishermix.paths import data_folder
from fishermix.retrieval.store import Stamp, Store

FILE = "thumbnails.sqlite"
MOST_BYTES = 256 << 20  # about 10,000 thumbnails
KEEP_AFTER_EVICTION = 0.9  # of the bound, so that not every new thumbnail evicts one
SCHEMA = """
    CREATE TABLE IF NOT EXISTS thumbnails (
        photo TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
        used INTEGER NOT NULL, jpeg BLOB NOT NULL
    );
    CREATE INDEX IF NOT EXISTS by_use ON thumbnails (used);
"""


def find_whole(store: Store) -> Store:
    """The store of the whole index, if this one shows only a subfolder: thumbnails belong to the index."""
    return getattr(store, "whole", store)


def choose_place(store: Store) -> Path:
    """The folder of a local index; for a database server, a folder in the data folder."""
    folder = getattr(find_whole(store), "folder", None)
    if isinstance(folder, Path):
        return folder
    return data_folder() / "thumbnails" / hashlib.sha256(store.name.encode()).hexdigest()[:12]


class Thumbnails:
    """Thumbnails by photo id. A thumbnail counts only for the file that it was made of, by its stamp."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES):
        self.file, self.most_bytes = folder / FILE, most_bytes
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        with suppress(OSError, sqlite3.Error):
            self._open()

    def _open(self) -> None:
        make_private_folder(self.file.parent)
        try:
            self._connect()
        except sqlite3.DatabaseError:  # damaged: thumbnails can be made again
            self.file.unlink(missing_ok=True)
            self._connect()

    def _connect(self) -> None:
        create_private_file(self.file)
        connection = sqlite3.connect(self.file, timeout=2, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA auto_vacuum = FULL")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA journal_mode = TRUNCATE")
            connection.execute("PRAGMA synchronous = OFF")  # a cache that a crash damages is made again
            connection.executescript(SCHEMA)
            used, self._bytes = connection.execute(
                "SELECT coalesce(max(used), 0), coalesce(sum(length(jpeg)), 0) FROM thumbnails"
            ).fetchone()
        except sqlite3.Error:
            connection.close()
            raise
        self._used, self._connection = used, connection

    def get(self, photo: str, stamp: Stamp, make: Callable[[], bytes]) -> bytes:
        """The thumbnail of a photo; `make` makes it if it is not stored."""
        if (found := self._read(photo, stamp)) is None:
            found = make()
            self._write(photo, stamp, found)
        return found

    def _read(self, photo: str, stamp: Stamp) -> bytes | None:
        with self._lock, suppress(sqlite3.Error):
            if self._connection is None:
                return None
            found = self._connection.execute(
                "SELECT jpeg FROM thumbnails WHERE photo = ? AND size = ? AND mtime_ns = ?",
                (photo, stamp.size, stamp.mtime_ns),
            ).fetchone()
            if found is not None and isinstance(found[0], bytes):
                return found[0]
        return None

    def _write(self, photo: str, stamp: Stamp, jpeg: bytes) -> None:
        with self._lock, suppress(sqlite3.Error):
            if self._connection is None:
                return
            self._remove("photo = ?", photo)
            self._used += 1
            self._connection.execute(
                "INSERT OR REPLACE INTO thumbnails VALUES (?, ?, ?, ?, ?)",
                (photo, stamp.size, stamp.mtime_ns, self._used, jpeg),
            )
            self._bytes += len(jpeg)
            if self._bytes > self.most_bytes:
                self._evict()

    def _evict(self) -> None:
        """Remove the oldest thumbnails."""
        assert self._connection is not None
        excess, last = self._bytes - KEEP_AFTER_EVICTION * self.most_bytes, 0
        rows = self._connection.execute("SELECT used, length(jpeg) FROM thumbnails ORDER BY used").fetchall()
        for used, length in rows:
            if excess <= 0:
                break
            excess, last = excess - length, used
        self._remove("used <= ?", last)

    def _remove(self, condition: str, value: str | int) -> None:
        assert self._connection is not None
        (freed,) = self._connection.execute(
            f"SELECT coalesce(sum(length(jpeg)), 0) FROM thumbnails WHERE {condition}", (value,)
        ).fetchone()
        if freed:
            self._connection.execute(f"DELETE FROM thumbnails WHERE {condition}", (value,))
            self._bytes -= freed

    def remove_stale(self, stamp_of: Callable[[str], Stamp | None]) -> None:
        """Remove the thumbnails of photos that were deleted or changed; `stamp_of` gives the stamp of the
        file of a photo by its id.
        """
        with self._lock, suppress(sqlite3.Error):
            if self._connection is None:
                return
            rows = self._connection.execute("SELECT photo, size, mtime_ns FROM thumbnails").fetchall()
            for photo, size, mtime_ns in rows:
                if stamp_of(photo) != Stamp(size, mtime_ns):
                    self._remove("photo = ?", photo)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
