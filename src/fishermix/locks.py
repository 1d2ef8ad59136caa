"""A lock on a work folder: two commands that resume from the same files would mix them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fishermix.errors import FishermixError

LOCK = "work.lock"


@contextmanager
def hold_folder(folder: str | os.PathLike, option: str) -> Iterator[None]:
    """Hold the lock of a folder, which is created if it does not exist; the lock ends with the process.

    It is an exclusive transaction of SQLite, which works on every platform. `option` is the option of the
    command that names another folder.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FishermixError(f"Cannot create the folder {folder} ({error.strerror}).") from error
    with closing(sqlite3.connect(folder / LOCK, timeout=0, isolation_level=None)) as lock:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if "locked" not in str(error):
                raise FishermixError(f"Cannot lock the folder {folder} ({error}).") from error
            raise FishermixError(
                f"Another fishermix is working in {folder}. Wait until it has finished, or name another "
                f"folder with {option}."
            ) from error
        yield
