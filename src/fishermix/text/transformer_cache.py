"""Vectors of a sentence transformer on disk: a training that starts again, or the next variant of a table,
does not encode the same captions again.

One SQLite file holds the vectors. The key of a row is the `key` of the transformer and the sentence.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from fishermix.disk import DAMAGED, create_private_file, explain_os_error, explain_sqlite_error
from fishermix.errors import FishermixError
from fishermix.schemas import DATABASE_ERRORS, select_keys
from fishermix.text.transformer import SentenceTransformer

FILE = "sentences.sqlite"
SECONDS_TO_WAIT_FOR_ANOTHER_PROCESS = 60.0
TABLE = (
    "CREATE TABLE IF NOT EXISTS vectors "
    "(transformer TEXT, sentence BLOB, vector BLOB NOT NULL, PRIMARY KEY (transformer, sentence))"
)
INSERT = "INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)"
SELECT = "SELECT sentence, vector FROM vectors WHERE transformer = ? AND sentence IN"


class WrongSize(sqlite3.DatabaseError):
    """A stored vector has another length than the transformer's."""


class CachedTransformer(SentenceTransformer):
    """A `SentenceTransformer` that keeps its vectors in the file `sentences.sqlite` of a folder.

    A pickled copy, such as a worker of a cluster gets, is the transformer without the file.
    """

    def __init__(self, transformer: SentenceTransformer, cache: str | os.PathLike):
        super().__init__(transformer.folder)
        self.transformer, self.file = transformer, Path(cache) / FILE

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        """Unit vectors (n, n_features) of sentences; those that the file lacks are computed and saved."""
        try:
            create_private_file(self.file)
            with closing(sqlite3.connect(self.file, timeout=SECONDS_TO_WAIT_FOR_ANOTHER_PROCESS)) as database:
                return self._encode(sentences, database)
        except OSError as error:
            raise FishermixError(
                f"Cannot create {self.file} ({error.strerror}). {explain_os_error(error)}"
            ) from error
        except DATABASE_ERRORS as error:
            reason = explain_sqlite_error(error, self.file) if isinstance(error, sqlite3.Error) else DAMAGED
            if reason == DAMAGED or isinstance(error, WrongSize):
                reason = "The file is damaged: remove it and start again."
            raise FishermixError(f"Cannot use {self.file} ({error}). {reason}") from error

    def _encode(self, sentences: Sequence[str], database: sqlite3.Connection) -> np.ndarray:
        with database:
            database.execute(TABLE)
        keys = {text: _to_key(text) for text in sentences}
        found = dict(select_keys(database, tuple[bytes, bytes], SELECT, keys.values(), self.key))
        width = 4 * self.n_features
        if wrong := [len(data) for data in found.values() if len(data) != width]:
            raise WrongSize(f"a vector has {wrong[0]} bytes")
        missing = [text for text, key in keys.items() if key not in found]
        if missing:
            made = self.transformer.encode(missing).astype("<f4")
            new = {keys[text]: vector.tobytes() for text, vector in zip(missing, made)}
            with database:
                database.executemany(INSERT, [(self.key, *pair) for pair in new.items()])
            found |= new
        out = np.empty((len(sentences), self.n_features), np.float32)
        for row, text in enumerate(sentences):
            out[row] = np.frombuffer(found[keys[text]], "<f4")
        return out

    def __reduce__(self):
        return SentenceTransformer, (self.folder,)


def _to_key(text: str) -> bytes:
    """The sentence as bytes: SQLite does not store a lone surrogate as text."""
    return text.encode("utf8", "surrogatepass")
