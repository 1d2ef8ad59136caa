"""The feature cache: image features on disk, keyed by content. A killed extraction resumes where it stopped.

One SQLite file holds the features. The key of a row is the SHA-256 of an image's bytes and the `key` of the
encoder, so the same photo is never encoded twice, whatever its name. Rows are committed every few seconds.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fishermix.errors import FishermixError
from fishermix.progress import progress
from fishermix_photos.disk import (
    DAMAGED,
    DATABASE_ERRORS,
    create_private_file,
    diagnose,
    explain_os_error,
    make_private_folder,
    select,
    select_keys,
    transaction,
)
from fishermix_photos.photos.formats import UnreadableImage
from fishermix_photos.photos.open import default_max_pixels, read_bytes

FEATURES_FILE = "features.sqlite"
SECONDS_BETWEEN_COMMITS = 3.0  # what a kill can lose; a commit takes milliseconds


class WrongSize(sqlite3.DatabaseError):
    """A stored vector has another length than those of its encoder."""


class VectorCache:
    """The float32 vectors (n_features,) of one encoder in an open database, each by a key."""

    def __init__(self, database: sqlite3.Connection, encoder: str, n_features: int):
        self.database, self.encoder, self.n_features = database, encoder, n_features
        table = "vectors (encoder TEXT, content BLOB, vector BLOB NOT NULL, PRIMARY KEY (encoder, content))"
        database.execute(f"CREATE TABLE IF NOT EXISTS {table}")

    def list_keys(self) -> set[bytes]:
        query = "SELECT content FROM vectors WHERE encoder = ?"
        return {key for (key,) in select(self.database, tuple[bytes], query, self.encoder)}

    def find(self, keys: Iterable[bytes]) -> dict[bytes, np.ndarray]:
        """The vectors that are there."""
        query = "SELECT content, vector FROM vectors WHERE encoder = ? AND content IN"
        found = dict(select_keys(self.database, tuple[bytes, bytes], query, keys, self.encoder))
        for data in found.values():
            if len(data) != 4 * self.n_features:
                raise WrongSize(f"a vector has {len(data)} bytes")
        return {key: np.frombuffer(data, "<f4") for key, data in found.items()}

    def add(self, vectors: Mapping[bytes, np.ndarray]) -> None:
        rows = [(self.encoder, key, vector.astype("<f4").tobytes()) for key, vector in vectors.items()]
        with transaction(self.database):
            self.database.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)", rows)


@contextmanager
def open_cache(file: Path, encoder: str, n_features: int) -> Iterator[VectorCache]:
    """The cache in a private SQLite file; its errors say what to do about them."""
    try:
        make_private_folder(file.parent)
        create_private_file(file)
    except OSError as error:
        raise FishermixError(
            f"Cannot create {file} ({error.strerror}). {explain_os_error(error)}", code="wrong_folder"
        ) from error
    try:
        patience = 60.0  # seconds, while another process writes
        with closing(sqlite3.connect(file, timeout=patience, isolation_level=None)) as database:
            yield VectorCache(database, encoder, n_features)
    except DATABASE_ERRORS as error:
        reason = DAMAGED
        if isinstance(error, sqlite3.Error):
            reason = diagnose(error, file.parent, lambda: sqlite3.connect(file))
        if reason == DAMAGED or isinstance(error, WrongSize):
            reason = "The file is damaged: remove it and start again."
        raise FishermixError(f"Cannot use {file} ({error}). {reason}", code="wrong_folder") from error


class FeatureResult(NamedTuple):
    """Features (n, d), NaN for photos that failed; why, by path; and how many were not in the cache."""

    features: np.ndarray
    failed: dict[str, str]
    encoded: int


def extract(paths: Sequence[str | os.PathLike], encoder: Any, folder: str | os.PathLike) -> FeatureResult:
    """The features of the images at `paths`, taken from the cache in `folder` where it has them."""
    names = [os.fspath(path) for path in paths]
    features = np.full((len(names), encoder.n_features), np.nan, np.float32)
    with open_cache(Path(folder) / FEATURES_FILE, encoder.key, encoder.n_features) as cache:
        contents, failed, encoded = fill_cache(cache, names, encoder)
        found = cache.find(contents.values())
    for row, name in enumerate(names):
        if (vector := found.get(contents.get(name, b""))) is not None:
            features[row] = vector
    return FeatureResult(features, failed, encoded)


def fill_cache(
    cache: VectorCache, names: Sequence[str], encoder: Any
) -> tuple[dict[str, bytes], dict[str, str], int]:
    """Encode the images that the cache lacks: the hash of each file, why some failed, how many were new."""
    known = cache.list_keys()
    contents: dict[str, bytes] = {}
    failed: dict[str, str] = {}
    damaged: dict[bytes, str] = {}
    submitted: list[bytes] = []
    vectors: dict[bytes, np.ndarray] = {}
    committed = time.monotonic()

    def read_new() -> Iterator[bytes]:
        for name in dict.fromkeys(names):
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

    with progress("encoding photos", len(set(names))) as bar:
        for position, vector in encoder.stream(read_new()):
            content = submitted[position]
            if isinstance(vector, UnreadableImage):
                damaged[content] = vector.reason
            else:
                vectors[content] = vector
            if time.monotonic() - committed > SECONDS_BETWEEN_COMMITS:
                cache.add(vectors)
                vectors.clear()
                bar.advance(len(contents) + len(failed) - bar.done)
                committed = time.monotonic()
        cache.add(vectors)
        bar.advance(len(contents) + len(failed) - bar.done)
    failed |= {name: damaged[content] for name, content in contents.items() if content in damaged}
    return contents, failed, len(submitted) - len(damaged)


def hash_photos(paths: Sequence[str | os.PathLike]) -> list[str]:
    """The SHA-256 of each photo, "" if its file cannot be read."""
    hashes = []
    for path in paths:
        try:
            hashes.append(hashlib.sha256(read_bytes(path, default_max_pixels())).hexdigest())
        except UnreadableImage:
            hashes.append("")
    return hashes
