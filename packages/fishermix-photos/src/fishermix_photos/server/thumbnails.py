"""Small copies of photos, kept on disk next to the library: private, bounded, and removed with their photos.

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

from fishermix_photos.contact_sheet import make_thumbnail
from fishermix_photos.disk import create_private_file, data_folder, make_private_folder
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.photo_files import Stamp
from fishermix_photos.results import Photo, UnknownPhoto
from fishermix_photos.server.originals import find_inside, stat_inside

THUMBNAILS_FILE = "thumbnails.sqlite"
MOST_THUMBNAIL_BYTES = 256 << 20  # about 10,000 thumbnails
SMALL_SIDE, LARGE_SIDE = 480, 1600
KEEP_AFTER_EVICTION = 0.9  # of the bound, so that not every new thumbnail evicts one
TABLES = """
    CREATE TABLE IF NOT EXISTS thumbnails (
        photo TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
        used INTEGER NOT NULL, jpeg BLOB NOT NULL
    );
    CREATE INDEX IF NOT EXISTS by_use ON thumbnails (used);
"""


class Thumbnails:
    """Thumbnails by photo id. A thumbnail counts only for the file that it was made of, by its stamp."""

    def __init__(self, folder: Path, most_bytes: int = MOST_THUMBNAIL_BYTES):
        self.file, self.most_bytes = folder / THUMBNAILS_FILE, most_bytes
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        with suppress(OSError, sqlite3.Error):
            self._open()

    @classmethod
    def of_library(cls, library: PhotoLibrary) -> Thumbnails:
        """In the folder of a library; of one on a database server, in the data folder."""
        if "://" not in library.place:
            return cls(Path(library.place))
        digest = hashlib.sha256(library.place.encode()).hexdigest()
        return cls(data_folder() / "thumbnails" / digest[:12])

    def make_picture(self, photo: Photo, size: str) -> bytes | None:
        """A photo as JPEG, small or large; None if its file is gone or leads out of its folder."""
        file = find_inside(photo)
        status = stat_inside(photo)
        if file is None or status is None:
            return None
        picture = f"{file}{photo.picture.removeprefix(photo.path)}"
        if size != "small":
            return make_thumbnail(picture, LARGE_SIDE)
        stamp = Stamp(status.st_size, status.st_mtime_ns)
        return self.get(photo.id, stamp, lambda: make_thumbnail(picture, SMALL_SIDE))

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
            connection.executescript(TABLES)
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

    def remove_stale(self, library: PhotoLibrary) -> None:
        """Remove the thumbnails of photos that were deleted or changed; not of a folder that is away."""
        with self._lock, suppress(sqlite3.Error):
            if self._connection is None:
                return
            rows = self._connection.execute("SELECT photo, size, mtime_ns FROM thumbnails").fetchall()
        # Others are served while files are looked at.
        stale = [photo for photo, *stamp in rows if _is_stale(library, photo, Stamp(*stamp))]
        with self._lock, suppress(sqlite3.Error):
            for photo in stale:
                self._remove("photo = ?", photo)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def _is_stale(library: PhotoLibrary, id: str, stamp: Stamp) -> bool:
    try:
        photo = library.photo(id)
    except UnknownPhoto:
        return True
    status = stat_inside(photo)
    return status is not None and Stamp(status.st_size, status.st_mtime_ns) != stamp
