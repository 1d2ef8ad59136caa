"""Features on disk, by content: an extraction that can be killed at any moment and goes on where it was.

One SQLite file holds them. The key of a row is the SHA-256 of an image's bytes and the `key` of the encoder:
an unchanged photo is never encoded twice, whatever its name. The hash of a file is remembered with its size
and times: an unchanged file is not even read twice. Rows are committed every few seconds, all or none.
"""

from __future__ import annotations

import hashlib
import io
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fishermix.errors import FishermixError
from fishermix.progress import progress
from fishermix.storage import write_atomically
from fishermix.vision.encoders import ImageEncoder
from fishermix.vision.images import UnreadableImage, read_bytes

FILE = "features.sqlite"
VERSION = 1
SECONDS_BETWEEN_COMMITS = 3.0
SECONDS_TO_WAIT_FOR_ANOTHER_PROCESS = 60.0
# A file changed this recently may change again within the clock's resolution: its hash is not remembered.
UNSETTLED_NANOSECONDS = 2_000_000_000
TABLES = (
    "CREATE TABLE vectors (encoder TEXT, content BLOB, vector BLOB NOT NULL, PRIMARY KEY (encoder, content))",
    "CREATE TABLE failures (encoder TEXT, content BLOB, max_pixels INTEGER, reason TEXT NOT NULL, "
    "PRIMARY KEY (encoder, content, max_pixels))",
    "CREATE TABLE files (path BLOB PRIMARY KEY, stamp TEXT NOT NULL, content BLOB NOT NULL)",
)


@dataclass(frozen=True)
class FeatureResult:
    """What an extraction gave: row i of `features` (n, d) belongs to path i, and is NaN where it failed."""

    features: np.ndarray
    failed: dict[str, str]
    encoded: int
    seconds: float

    @property
    def images_per_second(self) -> float:
        return self.encoded / self.seconds if self.seconds else 0.0


def extract(
    paths: Sequence[str | os.PathLike], encoder: ImageEncoder, folder: str | os.PathLike
) -> FeatureResult:
    """The features of the images at `paths`, from the store in `folder` as far as it has them.

    An unreadable image is reported in `failed`, with the reason, and does not stop the others.
    """
    begun = time.perf_counter()
    names = [os.fspath(path) for path in paths]
    try:
        with closing(_Store(Path(folder), encoder)) as store:
            missing = [name for name in dict.fromkeys(names) if not store.knows(store.content_of(name))]
            encoded = store.fill(missing)
            features, failed = store.collect(names)
    except sqlite3.Error as error:
        raise FishermixError(
            f"{Path(folder) / FILE}: {error}; if the file is damaged, remove it and extract again"
        ) from error
    return FeatureResult(features, failed, encoded, time.perf_counter() - begun)


def write_table(folder: str | os.PathLike, names: Sequence[str], features: np.ndarray) -> None:
    """Write `features.npy` and, a line for each of its rows, `images.txt`."""
    buffer = io.BytesIO()
    np.save(buffer, features)
    write_atomically(Path(folder) / "features.npy", buffer.getvalue())
    write_atomically(Path(folder) / "images.txt", "".join(f"{name}\n" for name in names).encode())


class _Store:
    """The SQLite file, seen through one encoder."""

    def __init__(self, folder: Path, encoder: ImageEncoder):
        self.encoder, self.key, self.max_pixels = encoder, encoder.key, encoder.max_pixels_
        self.contents: dict[str, bytes] = {}  # of the files met so far
        self.unreadable: dict[str, str] = {}
        self.new_vectors: list[tuple] = []
        self.new_failures: list[tuple] = []
        self.new_files: list[tuple] = []
        self.committed = time.monotonic()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FishermixError(f"{folder} cannot be made a folder for features: {error}") from error
        self.database = sqlite3.connect(
            folder / FILE, timeout=SECONDS_TO_WAIT_FOR_ANOTHER_PROCESS, isolation_level=None
        )
        try:
            self._prepare_tables()
        except BaseException:
            self.database.close()
            raise

    def _prepare_tables(self) -> None:
        with self._transaction():
            (version,) = self.database.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise FishermixError("the feature store was written by a newer fishermix: upgrade fishermix")
            if version == 0:
                for table in TABLES:
                    self.database.execute(table)
                self.database.execute(f"PRAGMA user_version = {VERSION}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.database.execute("ROLLBACK")
            raise
        self.database.execute("COMMIT")

    def close(self) -> None:
        self.database.close()

    def content_of(self, name: str) -> bytes | None:
        """The hash of a file that has not changed since it was read, or None."""
        try:
            stamp = _stamp(os.stat(name))
        except OSError:
            return None
        found = self._one("SELECT content FROM files WHERE path = ? AND stamp = ?", _path_key(name), stamp)
        if found is not None:
            self.contents[name] = found
        return found

    def knows(self, content: bytes | None) -> bool:
        return content is not None and (self.vector(content) is not None or self.failure(content) is not None)

    def vector(self, content: bytes) -> bytes | None:
        return self._one("SELECT vector FROM vectors WHERE encoder = ? AND content = ?", self.key, content)

    def failure(self, content: bytes) -> str | None:
        question = "SELECT reason FROM failures WHERE encoder = ? AND content = ? AND max_pixels = ?"
        return self._one(question, self.key, content, self.max_pixels)

    def _one(self, question: str, *values: object):
        row = self.database.execute(question, values).fetchone()
        return row[0] if row else None

    def fill(self, names: Sequence[str]) -> int:
        """Encode what these files hold and the store does not; returns how many images were encoded."""
        under_way: list[bytes] = []
        encoded = 0
        with progress("encoding photos", len(names)) as bar:

            def unknown() -> Iterator[bytes]:
                started = set()
                for name in names:
                    bar.advance()
                    data = self._read(name)
                    if data is None or (content := self.contents[name]) in started or self.knows(content):
                        continue
                    started.add(content)
                    under_way.append(content)
                    yield data

            for position, vector in self.encoder.stream(unknown()):
                content = under_way[position]
                if isinstance(vector, UnreadableImage):
                    self.new_failures.append((self.key, content, self.max_pixels, vector.reason))
                else:
                    self.new_vectors.append((self.key, content, vector.astype("<f4").tobytes()))
                    encoded += 1
                if time.monotonic() - self.committed > SECONDS_BETWEEN_COMMITS:
                    self._commit()
        self._commit()
        return encoded

    def _read(self, name: str) -> bytes | None:
        """The file's bytes, their hash noted; None, the reason noted, if it cannot be read."""
        try:
            status = os.stat(name)
            data = read_bytes(name, self.max_pixels)
        except OSError as error:
            self.unreadable[name] = f"cannot be read: {error.strerror or error}"
            return None
        except UnreadableImage as error:
            self.unreadable[name] = error.reason
            return None
        self.contents[name] = hashlib.sha256(data).digest()
        if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > UNSETTLED_NANOSECONDS:
            self.new_files.append((_path_key(name), _stamp(status), self.contents[name]))
        return data

    def _commit(self) -> None:
        with self._transaction():
            write = self.database.executemany
            write("INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)", self.new_vectors)
            write("INSERT OR IGNORE INTO failures VALUES (?, ?, ?, ?)", self.new_failures)
            write("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", self.new_files)
        self.new_vectors, self.new_failures, self.new_files = [], [], []
        self.committed = time.monotonic()

    def collect(self, names: Sequence[str]) -> tuple[np.ndarray, dict[str, str]]:
        features = np.full((len(names), self.encoder.n_features), np.nan, np.float32)
        failed = dict(self.unreadable)
        for row, name in enumerate(names):
            if name in failed:
                continue
            content = self.contents[name]
            vector = self.vector(content)
            if vector is None:
                failed[name] = self.failure(content) or "not encoded"
            else:
                features[row] = np.frombuffer(vector, "<f4")
        return features, failed


def _stamp(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _path_key(name: str) -> bytes:
    return os.fsencode(os.path.abspath(name))
