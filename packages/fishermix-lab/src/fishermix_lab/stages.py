"""Finished stages of a training on disk: a training that is started again skips them.

The key of a stage is the hash of all that it computes from: contents of files, parameters, keys of the stages
before it, and its version. A stage with the same key is not computed again.

The vectors of a sentence transformer are kept too, each by itself, in the file `sentence_vectors.sqlite`: the
next variant of a table does not encode the same captions again.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from fishermix.errors import FishermixError
from fishermix.progress import is_shown
from fishermix.saved import hash_values, hold_folder, read_kind
from fishermix_photos.disk import make_private_folder
from fishermix_photos.model.network import PREPARATION
from fishermix_photos.model.transformer import SentenceTransformer

from fishermix_lab.features import open_cache

Stage = TypeVar("Stage")
# Increase the version of a stage when it computes other numbers than before: its results are then computed
# again, and the figures in results/ that depend on it are marked as stale. A test compares each stage with
# numbers recorded for its version.
VERSIONS = {
    "image features": PREPARATION,
    "sentence transformer": 1,
    "whitening": 1,
    "mixture": 2,
    "sentence vectors": 1,
    "joint space": 1,
    "ranks": 1,
    "captions": 2,  # 1 did not look at the rarest word of a candidate
}
SENTENCES_FILE = "sentence_vectors.sqlite"


def make_key(stage: str, *inputs: Any) -> str:
    """The key of a stage.

    inputs : JSON values and arrays that determine the result, among them the keys of earlier stages
    """
    return hash_values(stage, VERSIONS[stage], *inputs)


class Stages:
    """A folder of finished stages, each named by its key, and the seconds spent on each."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        try:
            make_private_folder(self.folder)  # it holds points of photos
        except OSError as error:
            raise FishermixError(
                f"Cannot create the work folder {folder} ({error.strerror}).", code="wrong_folder"
            ) from error
        self.seconds: dict[str, float] = {}

    def hold(self) -> AbstractContextManager[Path]:
        """Keep other processes out of the folder; the same thread may hold it again."""
        return hold_folder(self.folder, "--work")

    @contextmanager
    def clock(self, name: str) -> Iterator[None]:
        """Add the time of the block to `seconds`, and report it if progress is shown."""
        start = time.monotonic()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start
        if is_shown():
            print(f"{name}: {self.seconds[name]:.1f} s", file=sys.stderr)

    def load_or_make(
        self,
        name: str,
        key: str,
        make: Callable[[], Stage],
        save: Callable[[Stage, Path], None],
        load: Callable[[Path], Stage],
    ) -> Stage:
        """The result of a stage: loaded if it was finished before, else made and saved."""
        folder = self.folder / f"{re.sub('[^a-z0-9]+', '-', name)}-{key[:16]}"
        with self.clock(name):
            if read_kind(folder) is not None:
                return load(folder)
            result = make()
            save(result, folder)
            return result


@contextmanager
def open_stages(work: Stages | str | os.PathLike | None) -> Iterator[Stages]:
    """Stages in this folder, or in a temporary one."""
    if isinstance(work, Stages):
        yield work
    elif work is not None:
        yield Stages(work)
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Stages(folder)


class CachedTransformer(SentenceTransformer):
    """A `SentenceTransformer` that keeps its vectors in the file `sentence_vectors.sqlite` of a folder."""

    def __init__(self, transformer: SentenceTransformer, cache: str | os.PathLike):
        super().__init__(transformer.folder)
        self.transformer = transformer
        self.file = Path(cache) / SENTENCES_FILE

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        """Unit vectors (n, n_features) of sentences; those that the file lacks are computed and saved."""
        version = f"{self.key} {VERSIONS['sentence transformer']}"
        # As bytes: SQLite does not store a lone surrogate as text.
        keys = {text: text.encode("utf8", "surrogatepass") for text in sentences}
        with open_cache(self.file, version, self.n_features) as cache:
            found = cache.find(keys.values())
            missing = [text for text, key in keys.items() if key not in found]
            if missing:
                new = {keys[text]: vector for text, vector in zip(missing, self.transformer.encode(missing))}
                cache.add(new)
                found |= new
        out = np.empty((len(sentences), self.n_features), np.float32)
        for row, text in enumerate(sentences):
            out[row] = found[keys[text]]
        return out
