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
from fishermix_photos.photo_files import Stamp, read_stamp
from fishermix_photos.results import Photo, UnknownPhoto
from fishermix_photos.server.originals import find_inside, stat_inside

THUMBNAILS_FILE = "thumbnails.sqlite"
MOST_THUMBNAIL_BYTES = 256 << 20  # about 10,000 thumbnails
SMALL_SIDE, LARGE_SIDE = 480, 1600
TABLE = "thumbnails (photo TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, jpeg BLOB)"
SETTINGS = {
    "auto_vacuum": "FULL",
    "secure_delete": "ON",
    "journal_mode": "TRUNCATE",
    "synchronous": "OFF",  # a cache that a crash damages is made again
}
EVICT = "DELETE FROM thumbnails WHERE rowid IN (SELECT rowid FROM thumbnails ORDER BY rowid LIMIT ?)"


class Thumbnails:
    """Thumbnails by photo id. A thumbnail counts only for the file that it was made of, by its stamp."""

    def __init__(self, folder: Path, most_bytes: int = MOST_THUMBNAIL_BYTES):
        self.file, self.most_bytes = folder / THUMBNAILS_FILE, most_bytes
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(":memory:")
        self._connection.close()  # without a file, each use fails and nothing is stored
        with suppress(OSError, sqlite3.Error):
            make_private_folder(folder)
            try:
                self._connect()
            except sqlite3.DatabaseError:  # damaged: thumbnails can be made again
                self.file.unlink(missing_ok=True)
                self._connect()

    @classmethod
    def of_library(cls, library: PhotoLibrary) -> Thumbnails:
        """In the folder of a library; of one on a database server, in the data folder."""
        if "://" not in library.place:
            return cls(Path(library.place))
        digest = hashlib.sha256(library.place.encode()).hexdigest()
        return cls(data_folder() / "thumbnails" / digest[:12])

    def make_picture(self, photo: Photo, size: str) -> bytes | None:
        """A photo as JPEG, small or large; None if its file is gone or leads out of its folder."""
        file, status = find_inside(photo), stat_inside(photo)
        if file is None or status is None:
            return None
        picture = f"{file}{photo.picture.removeprefix(photo.path)}"
        if size != "small":
            return make_thumbnail(picture, LARGE_SIDE)
        return self.get(photo.id, read_stamp(status), lambda: make_thumbnail(picture, SMALL_SIDE))

    def _connect(self) -> None:
        if self.file.is_symlink():  # to a database of another program
            self.file.unlink()
        create_private_file(self.file)
        connection = sqlite3.connect(self.file, timeout=2, isolation_level=None, check_same_thread=False)
        try:
            for name, value in SETTINGS.items():
                connection.execute(f"PRAGMA {name} = {value}")
            connection.execute(f"CREATE TABLE IF NOT EXISTS {TABLE}")
            connection.execute("SELECT photo, size, mtime_ns, jpeg FROM thumbnails LIMIT 1")
        except sqlite3.Error:
            connection.close()
            raise
        self._connection = connection

    def get(self, photo: str, stamp: Stamp, make: Callable[[], bytes]) -> bytes:
        """The thumbnail of a photo; `make` makes it if it is not stored."""
        query = "SELECT jpeg FROM thumbnails WHERE photo = ? AND size = ? AND mtime_ns = ?"
        for (stored,) in self._run(query, photo, stamp.size, stamp.mtime_ns):
            if isinstance(stored, bytes):
                return stored
        made = make()
        values = photo, stamp.size, stamp.mtime_ns, made
        self._run("INSERT OR REPLACE INTO thumbnails VALUES (?, ?, ?, ?)", *values)
        while self._is_too_large():  # the oldest tenth goes, so that not every new thumbnail evicts one
            self._run(EVICT, self._read_number("SELECT count(*) FROM thumbnails") // 10 + 1)
        return made

    def _is_too_large(self) -> bool:
        used = self._read_number("PRAGMA page_count") * self._read_number("PRAGMA page_size")
        return used > self.most_bytes and self._read_number("SELECT count(*) FROM thumbnails") > 1

    def _read_number(self, query: str) -> int:
        return next((number for (number,) in self._run(query)), 0)

    def _run(self, query: str, *values: object) -> list[tuple]:
        """The rows that a query finds; none if the file cannot be used."""
        with self._lock, suppress(sqlite3.Error):
            return self._connection.execute(query, values).fetchall()
        return []

    def remove_stale(self, library: PhotoLibrary) -> None:
        """Remove the thumbnails of photos that were deleted or changed; not of a folder that is away."""
        for photo, *stamp in self._run("SELECT photo, size, mtime_ns FROM thumbnails"):
            if _is_stale(library, photo, Stamp(*stamp)):
                self._run("DELETE FROM thumbnails WHERE photo = ?", photo)

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def _is_stale(library: PhotoLibrary, id: str, stamp: Stamp) -> bool:
    try:
        photo = library.photo(id)
    except UnknownPhoto:
        return True
    status = stat_inside(photo)
    return status is not None and read_stamp(status) != stamp
