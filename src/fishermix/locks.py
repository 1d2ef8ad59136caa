"""Locks on folders: two processes that write the same files would mix them."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from fishermix.errors import FishermixError
from fishermix.storage import LOCK

_held = threading.local()


@contextmanager
def hold_folder(folder: str | os.PathLike, option: str) -> Iterator[None]:
    """Hold the lock of a folder, which is created if it does not exist; the lock ends with the process.

    It is an exclusive transaction of SQLite, which works on every platform. A thread that holds the folder
    may hold it again. `option` is the option or parameter that names another folder.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = folder.resolve()
    except OSError as error:
        if isinstance(error, FileExistsError):
            raise FishermixError(f"{folder} is a file. Name a folder with {option}.") from error
        raise FishermixError(f"Cannot create the folder {folder} ({error.strerror}).") from error
    except ValueError as error:
        raise FishermixError(f"{str(folder)!r} cannot be the name of a folder ({error}).") from error
    mine: set[Path] = _held.__dict__.setdefault("folders", set())
    if place in mine:
        yield
        return
    with closing(_lock(folder, option)):
        mine.add(place)
        try:
            yield
        finally:
            mine.discard(place)


def _lock(folder: Path, option: str) -> sqlite3.Connection:
    lock: sqlite3.Connection | None = None
    try:
        lock = sqlite3.connect(folder / LOCK, timeout=0, isolation_level=None)
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        if lock is not None:
            lock.close()
        if "locked" not in str(error):
            raise FishermixError(f"Cannot lock the folder {folder} ({error}).") from error
        raise FishermixError(
            f"Another fishermix is working in {folder}. Wait until it has finished, or name another folder "
            f"with {option}."
        ) from error
    return lock


_without_system_locks = threading.RLock()


@contextmanager
def wait_for_folder(folder: Path) -> Iterator[Path]:
    """Hold an existing folder for a moment; whoever else wants to hold it waits.

    On POSIX the system locks the folder itself, for all processes, and without a file. Where it cannot
    (Windows, some network drives), only the threads of this process wait for each other.
    """
    try:
        import fcntl
    except ImportError:
        with _without_system_locks:
            yield folder
        return
    while True:
        handle = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            if _is_still(folder, handle):
                yield folder
                return
        finally:
            os.close(handle)
        folder.mkdir(parents=True, exist_ok=True)


def _is_still(folder: Path, handle: int) -> bool:
    """Whether the folder is that of the handle; another process may have removed it."""
    try:
        return os.path.samestat(os.stat(folder), os.fstat(handle))
    except FileNotFoundError:
        return False
