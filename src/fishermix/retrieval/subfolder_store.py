"""The index of a folder, seen from one of its subfolders: `search QUERY mixed/coco` uses that of `mixed`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.retrieval.details import Details
from fishermix.retrieval.sqlite_store import LocalStore
from fishermix.retrieval.store import Entry, Hit, Stamp, Summary


class SubfolderStore:
    """The `Store` of a subfolder: paths are relative to it; photos outside are neither seen nor changed."""

    def __init__(self, whole: LocalStore, root: Path, folder: Path):
        self.whole, self.root = whole, root
        self.prefix = f"{folder.relative_to(root).as_posix()}/"
        self.name = whole.name

    def remember_folder(self, folder: Path) -> None:
        self.whole.remember_folder(self.root)

    def writing(self) -> AbstractContextManager[None]:
        return self.whole.writing()

    def adopt(self, model_key: str, dimension: int) -> bool:
        return self.whole.adopt(model_key, dimension)

    def stamps(self) -> dict[str, Stamp]:
        return self._inside(self.whole.stamps(self.prefix))

    def known_contents(self, hashes: Sequence[bytes]) -> set[bytes]:
        return self.whole.known_contents(hashes)

    def write(self, entries: Sequence[Entry], removed: Sequence[str] = ()) -> None:
        longer = [replace(entry, path=self.prefix + entry.path) for entry in entries]
        self.whole.write(longer, [self.prefix + path for path in removed])

    def paths_without_details(self) -> list[str]:
        return list(self._inside(dict.fromkeys(self.whole.paths_without_details())))

    def write_details(self, details: Mapping[str, Details]) -> None:
        self.whole.write_details({self.prefix + path: one for path, one in details.items()})

    def details(self, paths: Sequence[str] | None = None) -> dict[str, Details]:
        asked = None if paths is None else [self.prefix + path for path in paths]
        return self._inside(self.whole.details(asked))

    def tune(self) -> None:
        self.whole.tune()

    def nearest(self, queries: np.ndarray, n: int) -> list[list[Hit]]:
        found = self.whole.nearest(queries, n, self.prefix)
        return [[replace(hit, path=hit.path.removeprefix(self.prefix)) for hit in hits] for hits in found]

    def sample_scores(self, query: np.ndarray, at_most: int) -> np.ndarray:
        return self.whole.sample_scores(query, at_most, self.prefix)

    def contents(self) -> tuple[list[list[str]], np.ndarray]:
        contents, vectors = self.whole.contents()
        inside = [list(self._inside(dict.fromkeys(paths))) for paths in contents]
        kept = [row for row, paths in enumerate(inside) if paths]
        return [inside[row] for row in kept], vectors[kept]

    def model_key(self) -> str:
        return self.whole.model_key()

    def path_of(self, photo: str) -> str | None:
        path = self.whole.path_of(photo)
        return path.removeprefix(self.prefix) if path and path.startswith(self.prefix) else None

    def id_of(self, path: str) -> str | None:
        return self.whole.id_of(self.prefix + path)

    def vector_of(self, photo: str) -> np.ndarray | None:
        return self.whole.vector_of(photo) if self.path_of(photo) is not None else None

    def summary(self) -> Summary:
        summary = self.whole.summary(self.prefix)
        return replace(summary, unreadable=self._inside(summary.unreadable))

    def verify(self) -> list[str]:
        return self.whole.verify()

    def delete(self) -> None:
        raise FishermixError(
            f"{self.root / self.prefix} has no index of its own. Its photos are in the index of {self.root}: "
            f"`fishermix index remove {shlex.quote(str(self.root))}` deletes that."
        )

    def close(self) -> None:
        self.whole.close()

    def _inside(self, by_path: Mapping[str, Any]) -> dict[str, Any]:
        """The entries of the subfolder, with paths relative to it."""
        length = len(self.prefix)
        return {path[length:]: value for path, value in by_path.items() if path.startswith(self.prefix)}
