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
from fishermix.schemas import DATABASE_ERRORS, select
from fishermix.text.transformer import SentenceTransformer

FILE = "sentences.sqlite"
SECONDS_TO_WAIT_FOR_ANOTHER_PROCESS = 60.0
TABLE = (
    "CREATE TABLE IF NOT EXISTS vectors "
    "(transformer TEXT, sentence BLOB, vector BLOB NOT NULL, PRIMARY KEY (transformer, sentence))"
)
INSERT = "INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)"
SELECT = "SELECT vector FROM vectors WHERE transformer = ? AND sentence = ?"


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
        found = {text: self._find(text, database) for text in dict.fromkeys(sentences)}
        missing = [text for text, vector in found.items() if vector is None]
        if missing:
            made = self.transformer.encode(missing).astype("<f4")
            rows = [(self.key, _to_key(text), vector.tobytes()) for text, vector in zip(missing, made)]
            with database:
                database.executemany(INSERT, rows)
            found |= dict(zip(missing, made))
        out = np.empty((len(sentences), self.n_features), np.float32)
        for row, text in enumerate(sentences):
            out[row] = found[text]
        return out

    def _find(self, text: str, database: sqlite3.Connection) -> np.ndarray | None:
        rows = select(database, tuple[bytes], SELECT, self.key, _to_key(text))
        if not rows:
            return None
        if len(rows[0][0]) != 4 * self.n_features:
            raise WrongSize(f"a vector has {len(rows[0][0])} bytes")
        return np.frombuffer(rows[0][0], "<f4")

    def __reduce__(self):
        return SentenceTransformer, (self.folder,)


def _to_key(text: str) -> bytes:
    """The sentence as bytes: SQLite does not store a lone surrogate as text."""
    return text.encode("utf8", "surrogatepass")
