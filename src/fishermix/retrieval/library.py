"""All indexes of this machine as one library.

A photo that is in any index is recognized by its content in every other one: a renamed or moved folder, a
copy, a second mount. A folder inside an indexed folder is searched in that index. The indexes in the data
directory are the library; nothing is stored besides them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fishermix.disk import create_private_file
from fishermix.errors import FishermixError
from fishermix.retrieval.photo_files import default_index, list_indexes

if TYPE_CHECKING:
    from fishermix.retrieval.sqlite_store import LocalStore

FOLDER_FILE = "folder.txt"  # in the directory of an index: the path of its photo folder


@dataclass(frozen=True)
class IndexedFolder:
    """An index in the data directory, and its photo folder; None: 0.1 did not write it down."""

    place: Path
    folder: Path | None

    @property
    def is_orphan(self) -> bool:
        """Whether the photo folder is gone, for example renamed, deleted or on a disk that is not mounted."""
        return self.folder is not None and not self.folder.is_dir()


def list_library() -> list[IndexedFolder]:
    """The indexes in the data directory."""
    places = [place for place in list_indexes() if (place / "index.sqlite").is_file()]
    return [IndexedFolder(place, read_folder(place)) for place in places]


def read_folder(place: Path) -> Path | None:
    """The photo folder of an index; None if it is not known."""
    try:
        return Path(os.fsdecode((place / FOLDER_FILE).read_bytes()))
    except (OSError, ValueError):
        return None


def write_folder(place: Path, folder: Path) -> None:
    """Write down which photo folder an index is of. A disk that refuses is no reason to stop."""
    with suppress(OSError):
        if read_folder(place) != folder:
            create_private_file(place / FOLDER_FILE)
            (place / FOLDER_FILE).write_bytes(os.fsencode(folder))


def find_named_index(name: str) -> Path | None:
    """The directory of an index by its own name, as `fishermix index list` prints it."""
    return next((one.place for one in list_library() if name in (one.place.name, str(one.place))), None)


def find_parent(folder: Path, model_key: str | None = None) -> Path | None:
    """The nearest folder above `folder` with an index that covers it; None if `folder` has its own index or
    there is no such folder.

    model_key : only an index of this model
    """
    from fishermix.retrieval.ignore import is_skipped_below

    if (default_index(folder) / "index.sqlite").is_file():
        return None
    for parent in folder.parents:
        place = default_index(parent)
        if (
            (place / "index.sqlite").is_file()
            and not is_skipped_below(parent, folder)
            and (model_key is None or _read_model_key(place) == model_key)
        ):
            return parent
    return None


def _read_model_key(place: Path) -> str | None:
    from fishermix.retrieval.sqlite_store import LocalStore

    try:
        store = LocalStore(place)
    except FishermixError:
        return None
    try:
        return store.model_key()
    except FishermixError:
        return None
    finally:
        store.close()


class OtherIndexes:
    """The indexes of the same model in the data directory, except for one; they are only read."""

    def __init__(self, except_for: str, model_key: str):
        self._except_for, self._model_key = except_for, model_key
        self._stores: list[LocalStore] | None = None

    def find_vectors(self, hashes: Sequence[bytes]) -> dict[bytes, np.ndarray]:
        """The vectors of photos that one of the indexes has, by the hash of their content."""
        found: dict[bytes, np.ndarray] = {}
        for store in self._open() if hashes else ():
            missing = [digest for digest in hashes if digest not in found]
            with suppress(FishermixError):  # a damaged index has nothing to offer
                found |= store.vectors_of(missing)
        return found

    def _open(self) -> list[LocalStore]:
        if self._stores is None:
            from fishermix.retrieval.sqlite_store import LocalStore

            self._stores = []
            for one in list_library():
                if str(one.place) == self._except_for:
                    continue
                with suppress(FishermixError):
                    store = LocalStore(one.place)
                    self._stores.append(store)
                    if store.model_key() != self._model_key:
                        self._stores.pop().close()
        return self._stores

    def close(self) -> None:
        for store in self._stores or ():
            store.close()
        self._stores = None
