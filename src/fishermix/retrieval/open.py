"""Opens the store of a photo folder: its own index, that of a folder above it, or a shared database."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from fishermix.errors import FishermixError
from fishermix.retrieval.photo_files import default_index
from fishermix.retrieval.store import Store


def resolve_folder(folder: str | os.PathLike) -> Path:
    """The absolute path of an existing folder."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise FishermixError(f"{folder} is not a folder. Name the folder that contains your photos.")
    return path.resolve()


def open_store(
    folder: Path,
    index: str | os.PathLike | None = None,
    must_exist: bool = False,
    model_key: str | None = None,
) -> Store:
    """Open the store of a folder: in `index` (a directory or a postgresql:// address), or else in the default
    place. A folder without its own index that lies in an indexed one is opened there.

    model_key : the index of a folder above is used only if it is one of this model
    """
    if _is_address(index):
        from fishermix.retrieval.postgres_store import PostgresStore

        return PostgresStore(str(index))
    from fishermix.retrieval.sqlite_store import LocalStore

    place = Path(index).expanduser() if index is not None else default_index(folder)
    if not os.path.isfile(place / "index.sqlite"):
        if index is None and (store := _open_above(folder, model_key)) is not None:
            return store
        if must_exist:
            raise FishermixError(_explain_no_index(folder, index, place))
    if place.is_dir() and any(place.iterdir()) and not (place / "index.sqlite").exists():
        raise FishermixError(
            f"{place} is not empty and contains no index. Name a new or empty directory with --index."
        )
    return LocalStore(place)


def delete_store(folder: Path, index: str | os.PathLike | None = None) -> str:
    """Delete the store of a folder, damaged or not, and return its name. The photos are not changed."""
    place = Path(index).expanduser() if index is not None else default_index(folder)
    if _is_address(index) or not os.path.isfile(place / "index.sqlite"):
        store = open_store(folder, index, must_exist=True)  # the index of a folder above says why not
        store.delete()
        return store.name
    from fishermix.retrieval.index_files import delete_files

    delete_files(place)
    return str(place)


def _is_address(index: str | os.PathLike | None) -> bool:
    return index is not None and str(index).startswith(("postgresql://", "postgres://"))


def _open_above(folder: Path, model_key: str | None) -> Store | None:
    """The store of a folder in the index of one above it; None if there is none."""
    from fishermix.retrieval.library import find_parent

    if (parent := find_parent(folder, model_key)) is None:
        return None
    from fishermix.retrieval.sqlite_store import LocalStore
    from fishermix.retrieval.subfolder_store import SubfolderStore

    return SubfolderStore(LocalStore(default_index(parent)), parent, folder)


def _explain_no_index(folder: Path, index: str | os.PathLike | None, place: Path) -> str:
    if not folder.is_dir():
        return f"There is no folder {folder}, and no index of it in {place}."
    where = f" --index {shlex.quote(str(index))}" if index is not None else ""
    command = f"fishermix index add {shlex.quote(str(folder))}{where}"
    return f"{folder} has no index yet. Create it with `{command}`."
