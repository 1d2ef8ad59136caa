"""The feature cache: image features on disk, keyed by content. A killed extraction resumes where it stopped.

One SQLite file holds the features. The key of a row is the SHA-256 of an image's bytes and the `key` of the
encoder, so the same photo is never encoded twice, whatever its name. The hash of a file is stored with its
size and times, so an unchanged file is not even read twice. Rows are committed every few seconds.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fishermix.errors import FishermixError
from fishermix.progress import Bar, progress

from fishermix_photos.disk import (
    DAMAGED,
    DATABASE_ERRORS,
    create_private_file,
    explain_os_error,
    explain_sqlite_error,
    make_private_folder,
    select,
    select_keys,
    transaction,
)
from fishermix_photos.vision.formats import UnreadableImage
from fishermix_photos.vision.limits import read_bytes

FEATURES_FILE = "features.sqlite"
SECONDS_BETWEEN_COMMITS = 3.0  # what a kill can lose; a commit takes milliseconds
SECONDS_TO_WAIT_FOR_ANOTHER_PROCESS = 60.0
# A file changed this recently may change again within the resolution of its time: its hash is not stored.
UNSETTLED_NANOSECONDS = 2_000_000_000
FEATURES_TABLES = (
    "vectors (encoder TEXT, content BLOB, vector BLOB NOT NULL, PRIMARY KEY (encoder, content))",
    "files (path BLOB PRIMARY KEY, stamp TEXT NOT NULL, content BLOB NOT NULL)",
)


@contextmanager
def open_cache(file: Path, *tables: str) -> Iterator[sqlite3.Connection]:
    """A private SQLite file with these tables; its errors say what to do about them."""
    try:
        make_private_folder(file.parent)
        create_private_file(file)
    except OSError as error:
        raise FishermixError(f"Cannot create {file} ({error.strerror}). {explain_os_error(error)}") from error
    try:
        with closing(
            sqlite3.connect(file, timeout=SECONDS_TO_WAIT_FOR_ANOTHER_PROCESS, isolation_level=None)
        ) as database:
            with transaction(database):
                for table in tables:
                    database.execute(f"CREATE TABLE IF NOT EXISTS {table}")
            yield database
    except DATABASE_ERRORS as error:
        reason = explain_sqlite_error(error, file.parent) if isinstance(error, sqlite3.Error) else DAMAGED
        if reason == DAMAGED or isinstance(error, WrongSize):
            reason = "The file is damaged: remove it and start again."
        raise FishermixError(f"Cannot use {file} ({error}). {reason}") from error


class WrongSize(sqlite3.DatabaseError):
    """A stored vector has another length than those of its encoder."""


def read_vector(data: bytes, n_features: int) -> np.ndarray:
    """A stored vector."""
    if len(data) != 4 * n_features:
        raise WrongSize(f"a vector has {len(data)} bytes")
    return np.frombuffer(data, "<f4")


class FeatureResult(NamedTuple):
    """Features (n, d), NaN for photos that failed; why, by path; and how many were not in the cache."""

    features: np.ndarray
    failed: dict[str, str]
    encoded: int


def extract(paths: Sequence[str | os.PathLike], encoder: Any, folder: str | os.PathLike) -> FeatureResult:
    """The features of the images at `paths`, taken from the cache in `folder` where it has them."""
    names = [os.fspath(path) for path in paths]
    with open_cache(Path(folder) / FEATURES_FILE, *FEATURES_TABLES) as database:
        cache = _FeatureCache(database, encoder)
        encoded = cache.fill(cache.list_missing(names))
        return FeatureResult(*cache.collect(names), encoded)


def hash_photos(paths: Sequence[str | os.PathLike], encoder: Any, folder: str | os.PathLike) -> list[str]:
    """The SHA-256 of each photo, "" if its file cannot be read; unchanged files are not read again."""
    names = [os.fspath(path) for path in paths]
    with open_cache(Path(folder) / FEATURES_FILE, *FEATURES_TABLES) as database:
        cache = _FeatureCache(database, encoder)
        cache.find_contents(names)
        for name in names:
            if name not in cache.contents:
                cache.read(name)
        cache.commit()
    return [cache.contents.get(name, b"").hex() for name in names]


class _FeatureCache:
    """The rows of one encoder in the SQLite file."""

    def __init__(self, database: sqlite3.Connection, encoder: Any):
        self.database, self.encoder = database, encoder
        self.known: set[bytes] = set()  # contents with a vector, or that could not be read
        self.contents: dict[str, bytes] = {}  # of the files met so far
        self.unreadable: dict[str, str] = {}  # why a file could not be opened
        self.damaged: dict[bytes, str] = {}  # why a content could not be decoded
        self.new_vectors: list[tuple] = []
        self.new_files: list[tuple] = []
        self.committed = time.monotonic()

    def find_contents(self, names: Sequence[str]) -> None:
        """Find the stored hashes of the files that have not changed."""
        keys = {name: _make_path_key(name) for name in names}
        query = "SELECT path, stamp, content FROM files WHERE path IN"
        rows = select_keys(self.database, tuple[bytes, str, bytes], query, keys.values())
        stored = {(path, stamp): content for path, stamp, content in rows}
        for name, key in keys.items():
            with suppress(OSError, KeyError):  # a file that is gone or has changed
                self.contents[name] = stored[key, _make_stamp(os.stat(name))]

    def list_missing(self, names: Sequence[str]) -> list[str]:
        """The files whose images the cache lacks, or may lack: those that are new or have changed."""
        self.find_contents(names)
        query = "SELECT content FROM vectors WHERE encoder = ?"
        self.known = {content for (content,) in select(self.database, tuple[bytes], query, self.encoder.key)}
        return [name for name in dict.fromkeys(names) if self.contents.get(name) not in self.known]

    def fill(self, names: Sequence[str]) -> int:
        """Encode the images of these files that the cache lacks; returns how many images were encoded."""
        submitted: list[bytes] = []

        def read_new(bar: Bar) -> Iterator[bytes]:
            for name in names:
                data = self.read(name)
                if data is None or (content := self.contents[name]) in self.known:
                    bar.advance()
                    continue
                self.known.add(content)
                submitted.append(content)
                yield data

        with progress("encoding photos", len(names)) as bar:
            for position, vector in self.encoder.stream(read_new(bar)):
                content = submitted[position]
                if isinstance(vector, UnreadableImage):
                    self.damaged[content] = vector.reason
                else:
                    self.new_vectors.append((self.encoder.key, content, vector.astype("<f4").tobytes()))
                bar.advance()
                if time.monotonic() - self.committed > SECONDS_BETWEEN_COMMITS:
                    self.commit()
            self.commit()
        return len(submitted) - len(self.damaged)

    def read(self, name: str) -> bytes | None:
        """The bytes of a file, with their hash stored; None, with the reason stored, if it is unreadable."""
        try:
            status = os.stat(name)
            data = read_bytes(name, self.encoder.max_pixels_)
        except UnreadableImage as error:
            self.unreadable[name] = error.reason
            return None
        except OSError as error:
            self.unreadable[name] = error.strerror or str(error)
            return None
        self.contents[name] = hashlib.sha256(data).digest()
        if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > UNSETTLED_NANOSECONDS:
            self.new_files.append((_make_path_key(name), _make_stamp(status), self.contents[name]))
        return data

    def commit(self) -> None:
        with transaction(self.database):
            write = self.database.executemany
            write("INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)", self.new_vectors)
            write("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", self.new_files)
        self.new_vectors, self.new_files = [], []
        self.committed = time.monotonic()

    def collect(self, names: Sequence[str]) -> tuple[np.ndarray, dict[str, str]]:
        """The vectors of these files, NaN for those that failed, and the reasons."""
        n_features = self.encoder.n_features
        features = np.full((len(names), n_features), np.nan, np.float32)
        failed, rows_of = dict(self.unreadable), defaultdict[bytes, list[int]](list)
        for row, name in enumerate(names):
            if name not in failed:
                rows_of[self.contents[name]].append(row)
        query = "SELECT content, vector FROM vectors WHERE encoder = ? AND content IN"
        found = select_keys(self.database, tuple[bytes, bytes], query, list(rows_of), self.encoder.key)
        for content, vector in list(found):
            # A damaged database may answer with a row twice, or with another.
            features[rows_of.pop(content, [])] = read_vector(vector, n_features)
        for content, rows in rows_of.items():
            failed |= {names[row]: self.damaged.get(content, "not encoded") for row in rows}
        return features, failed


def _make_stamp(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _make_path_key(name: str) -> bytes:
    return os.fsencode(os.path.abspath(name))
