"""The feature cache: image features on disk, keyed by content. A killed extraction resumes where it stopped.

One SQLite file holds the features. The key of a row is the SHA-256 of an image's bytes and the `key` of the
encoder, so the same photo is never encoded twice, whatever its name. The hash of a file is stored with its
size and times, so an unchanged file is not even read twice. Rows are committed every few seconds.
"""

from __future__ import annotations

import hashlib
import io
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fishermix.disk import (
    DAMAGED,
    create_private_file,
    explain_os_error,
    explain_sqlite_error,
    make_private_folder,
)
from fishermix.errors import FishermixError
from fishermix.progress import progress
from fishermix.schemas import DATABASE_ERRORS, select, select_keys
from fishermix.storage import write_atomically
from fishermix.vision.encoders import ImageEncoder
from fishermix.vision.pixel_limit import read_bytes
from fishermix.vision.unreadable import UnreadableImage

FILE = "features.sqlite"
VERSION = 1
SECONDS_BETWEEN_COMMITS = 3.0  # what a kill can lose; a commit takes milliseconds
SECONDS_TO_WAIT_FOR_ANOTHER_PROCESS = 60.0
# A file changed this recently may change again within the resolution of its time: its hash is not stored.
UNSETTLED_NANOSECONDS = 2_000_000_000
TABLES = (
    "CREATE TABLE vectors (encoder TEXT, content BLOB, vector BLOB NOT NULL, PRIMARY KEY (encoder, content))",
    "CREATE TABLE failures (encoder TEXT, content BLOB, max_pixels INTEGER, reason TEXT NOT NULL, "
    "PRIMARY KEY (encoder, content, max_pixels))",
    "CREATE TABLE files (path BLOB PRIMARY KEY, stamp TEXT NOT NULL, content BLOB NOT NULL)",
)


@dataclass(frozen=True)
class FeatureResult:
    """The result of an extraction: row i of `features` (n, d) belongs to path i, and is NaN if that failed.

    failed : the reason, by path; encoded : the number of images that were not in the cache
    """

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
    """The features of the images at `paths`, taken from the cache in `folder` where it has them.

    An unreadable image is reported in `failed`, with the reason; the extraction continues.

    Parameters
    ----------
    paths : sequence of paths
        The photos.
    encoder : ImageEncoder
        The encoder.
    folder : path
        The folder of the cache.
    """
    begun = time.perf_counter()
    names = [os.fspath(path) for path in paths]
    try:
        with closing(_FeatureCache(Path(folder), encoder)) as cache:
            encoded = cache.fill(cache.list_missing(names))
            features, failed = cache.collect(names)
    except DATABASE_ERRORS as error:
        reason = explain_sqlite_error(error, Path(folder)) if isinstance(error, sqlite3.Error) else DAMAGED
        if reason == DAMAGED:
            reason = "The file is damaged: remove it and extract again."
        raise FishermixError(
            f"Cannot use the feature cache {Path(folder) / FILE} ({error}). {reason}"
        ) from error
    return FeatureResult(features, failed, encoded, time.perf_counter() - begun)


def write_table(folder: str | os.PathLike, names: Sequence[str], features: np.ndarray) -> None:
    """Write `features.npy` and `images.txt`, which has the name of one image per row."""
    buffer = io.BytesIO()
    np.save(buffer, features)
    write_atomically(Path(folder) / "features.npy", buffer.getvalue(), private=True)
    listed = "".join(f"{name}\n" for name in names)
    write_atomically(Path(folder) / "images.txt", listed.encode(), private=True)


class _FeatureCache:
    """The rows of one encoder in the SQLite file."""

    def __init__(self, folder: Path, encoder: ImageEncoder):
        self.encoder, self.key, self.max_pixels = encoder, encoder.key, encoder.max_pixels_
        self._of_encoder = self.key, self.max_pixels
        self.known: set[bytes] = set()  # contents with a vector, or that could not be read
        self.contents: dict[str, bytes] = {}  # of the files met so far
        self.unreadable: dict[str, str] = {}
        self.new_vectors: list[tuple] = []
        self.new_failures: list[tuple] = []
        self.new_files: list[tuple] = []
        self.committed = time.monotonic()
        try:
            make_private_folder(folder)
            create_private_file(folder / FILE)
        except OSError as error:
            raise FishermixError(
                f"Cannot create the feature folder {folder} ({error.strerror}). {explain_os_error(error)}"
            ) from error
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
                raise FishermixError(
                    "The feature cache was written by a newer version of fishermix. Upgrade fishermix."
                )
            if version == 0:
                for table in TABLES:
                    self.database.execute(table)
                self.database.execute(f"PRAGMA user_version = {VERSION}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.database.execute("COMMIT")
        except BaseException:
            if self.database.in_transaction:  # SQLite itself rolls back when the disk is full
                self.database.execute("ROLLBACK")
            raise

    def close(self) -> None:
        self.database.close()

    def list_missing(self, names: Sequence[str]) -> list[str]:
        """The files whose images the cache lacks, or may lack: those that are new or have changed."""
        keys = {name: _make_path_key(name) for name in names}
        query = "SELECT path, stamp, content FROM files WHERE path IN"
        rows = select_keys(self.database, tuple[bytes, str, bytes], query, keys.values())
        stored = {path: (stamp, content) for path, stamp, content in rows}
        for name, key in keys.items():
            with suppress(OSError):
                stamp, content = stored.get(key, ("", b""))
                if stamp == _make_stamp(os.stat(name)):
                    self.contents[name] = content
        query = (
            "SELECT content FROM vectors WHERE encoder = ?1 UNION ALL "
            "SELECT content FROM failures WHERE encoder = ?1 AND max_pixels = ?2"
        )
        self.known = {content for (content,) in select(self.database, tuple[bytes], query, *self._of_encoder)}
        return [name for name in keys if self.contents.get(name) not in self.known]

    def fill(self, names: Sequence[str]) -> int:
        """Encode the images of these files that the cache lacks; returns how many images were encoded.

        Progress counts files whose result is saved: an interruption does not lose what it shows.
        """
        submitted: list[bytes] = []
        encoded = files_read = files_saved = 0

        def read_new() -> Iterator[bytes]:
            nonlocal files_read
            for name in names:
                files_read += 1
                data = self._read(name)
                if data is None or (content := self.contents[name]) in self.known:
                    continue
                self.known.add(content)
                submitted.append(content)
                yield data

        with progress("encoding photos", len(names)) as bar:
            for position, vector in self.encoder.stream(read_new()):
                content = submitted[position]
                if isinstance(vector, UnreadableImage):
                    self.new_failures.append((self.key, content, self.max_pixels, vector.reason))
                else:
                    self.new_vectors.append((self.key, content, vector.astype("<f4").tobytes()))
                    encoded += 1
                if time.monotonic() - self.committed > SECONDS_BETWEEN_COMMITS:
                    self._commit()
                    files_in_flight = len(submitted) - position - 1
                    bar.advance(files_read - files_in_flight - files_saved)
                    files_saved = files_read - files_in_flight
            self._commit()
            bar.advance(len(names) - files_saved)
        return encoded

    def _read(self, name: str) -> bytes | None:
        """The bytes of a file, with their hash stored; None, with the reason stored, if it is unreadable."""
        try:
            status = os.stat(name)
            data = read_bytes(name, self.max_pixels)
        except (OSError, UnreadableImage) as error:
            self.unreadable[name] = error.reason if isinstance(error, UnreadableImage) else _explain(error)
            return None
        self.contents[name] = hashlib.sha256(data).digest()
        if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > UNSETTLED_NANOSECONDS:
            self.new_files.append((_make_path_key(name), _make_stamp(status), self.contents[name]))
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
        """The vectors of these files, NaN for those that failed, and the reasons."""
        n_features = self.encoder.n_features
        features = np.full((len(names), n_features), np.nan, np.float32)
        failed, rows_of = dict(self.unreadable), defaultdict[bytes, list[int]](list)
        for row, name in enumerate(names):
            if name not in failed:
                rows_of[self.contents[name]].append(row)
        query = "SELECT content, vector FROM vectors WHERE encoder = ? AND content IN"
        found = select_keys(self.database, tuple[bytes, bytes], query, list(rows_of), self.key)
        for content, vector in found:
            if len(vector) != 4 * n_features:
                raise sqlite3.DatabaseError(f"a vector has {len(vector)} bytes")
            # A damaged database may answer with a row twice, or with another.
            features[rows_of.pop(content, [])] = np.frombuffer(vector, "<f4")
        query = "SELECT content, reason FROM failures WHERE encoder = ? AND max_pixels = ? AND content IN"
        reasons = dict(select_keys(self.database, tuple[bytes, str], query, rows_of, *self._of_encoder))
        for content, rows in rows_of.items():
            failed |= {names[row]: reasons.get(content) or "not encoded" for row in rows}
        return features, failed


def _explain(error: OSError) -> str:
    return error.strerror or str(error)


def _make_stamp(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _make_path_key(name: str) -> bytes:
    return os.fsencode(os.path.abspath(name))
