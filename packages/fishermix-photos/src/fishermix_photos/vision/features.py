"""The feature cache: image features on disk, keyed by content. A killed extraction resumes where it stopped.

One SQLite file holds the features. The key of a row is the SHA-256 of an image's bytes and the `key` of the
encoder, so the same photo is never encoded twice, whatever its name. Rows are committed every few seconds.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fishermix.errors import FishermixError
from fishermix.progress import track

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
from fishermix_photos.vision.open import default_max_pixels, read_bytes

FEATURES_FILE = "features.sqlite"
SECONDS_BETWEEN_COMMITS = 3.0  # what a kill can lose; a commit takes milliseconds
SECONDS_TO_WAIT_FOR_ANOTHER_PROCESS = 60.0
TABLE = "vectors (encoder TEXT, content BLOB, vector BLOB NOT NULL, PRIMARY KEY (encoder, content))"


@contextmanager
def open_cache(file: Path, table: str) -> Iterator[sqlite3.Connection]:
    """A private SQLite file with this table; its errors say what to do about them."""
    try:
        make_private_folder(file.parent)
        create_private_file(file)
    except OSError as error:
        raise FishermixError(f"Cannot create {file} ({error.strerror}). {explain_os_error(error)}") from error
    try:
        with closing(
            sqlite3.connect(file, timeout=SECONDS_TO_WAIT_FOR_ANOTHER_PROCESS, isolation_level=None)
        ) as database:
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
    with open_cache(Path(folder) / FEATURES_FILE, TABLE) as database:
        contents, failed, encoded = fill_cache(database, names, encoder)
        return FeatureResult(collect_features(database, names, contents, encoder), failed, encoded)


def hash_photos(paths: Sequence[str | os.PathLike]) -> list[str]:
    """The SHA-256 of each photo, "" if its file cannot be read."""
    hashes = []
    for path in paths:
        try:
            hashes.append(hashlib.sha256(read_bytes(path, default_max_pixels())).hexdigest())
        except UnreadableImage:
            hashes.append("")
    return hashes


def fill_cache(
    database: sqlite3.Connection, names: Sequence[str], encoder: Any
) -> tuple[dict[str, bytes], dict[str, str], int]:
    """Encode the images that the cache lacks: the hash of each file, why some failed, how many were new."""
    query = "SELECT content FROM vectors WHERE encoder = ?"
    known = {content for (content,) in select(database, tuple[bytes], query, encoder.key)}
    contents: dict[str, bytes] = {}
    failed: dict[str, str] = {}
    damaged: dict[bytes, str] = {}
    submitted: list[bytes] = []
    vectors: list[tuple[str, bytes, bytes]] = []
    committed = time.monotonic()

    def commit() -> None:
        with transaction(database):
            database.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)", vectors)
        vectors.clear()

    def read_new() -> Iterator[bytes]:
        for name in track(dict.fromkeys(names), "encoding photos"):
            try:
                data = read_bytes(name, encoder.max_pixels_)
            except UnreadableImage as error:
                failed[name] = error.reason
                continue
            content = contents[name] = hashlib.sha256(data).digest()
            if content not in known:
                known.add(content)
                submitted.append(content)
                yield data

    for position, vector in encoder.stream(read_new()):
        content = submitted[position]
        if isinstance(vector, UnreadableImage):
            damaged[content] = vector.reason
        else:
            vectors.append((encoder.key, content, vector.astype("<f4").tobytes()))
        if time.monotonic() - committed > SECONDS_BETWEEN_COMMITS:
            commit()
            committed = time.monotonic()
    commit()
    failed |= {name: damaged[content] for name, content in contents.items() if content in damaged}
    return contents, failed, len(submitted) - len(damaged)


def collect_features(
    database: sqlite3.Connection, names: Sequence[str], contents: dict[str, bytes], encoder: Any
) -> np.ndarray:
    """The vectors (n, d) of these files, NaN for those that the cache lacks."""
    query = "SELECT content, vector FROM vectors WHERE encoder = ? AND content IN"
    found = dict(select_keys(database, tuple[bytes, bytes], query, contents.values(), encoder.key))
    n_features = encoder.n_features
    features = np.full((len(names), n_features), np.nan, np.float32)
    for row, name in enumerate(names):
        if (vector := found.get(contents.get(name, b""))) is not None:
            features[row] = read_vector(vector, n_features)
    return features
