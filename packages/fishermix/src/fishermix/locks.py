"""Locks: two processes that write the same files would mix them.

A lock is an empty file that the system locks for a process (`filelock`). It ends with the process, also with
one that is killed, and its file is removed by whoever holds it last.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from fishermix.errors import FishermixError
from fishermix.storage import LOCK, make_folder

SECONDS_BETWEEN_TRIES = 0.01
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)  # some network drives


@contextmanager
def hold_folder(folder: str | os.PathLike, option: str | None = None) -> Iterator[Path]:
    """Hold a folder, which is created if it does not exist; a thread that holds it may hold it again.

    Whoever finds it held waits; or, if the `option` that names another folder is given, gets an error. A file
    system without locks is an error with an option only: a save takes a moment, work takes hours.
    """
    folder = Path(folder)
    busy = None
    if option is not None:
        busy = (
            f"Another fishermix is working in {folder}. Wait until it has finished, or name another folder "
            f"with {option}."
        )
    while True:
        make_folder(folder)
        try:
            lock = _acquire(folder / LOCK, busy)
            break
        except FileNotFoundError:  # another process has removed the folder meanwhile
            if folder.is_dir():
                raise
    try:
        yield folder
    finally:
        if lock is not None:
            _release(lock, folder / LOCK)


def _acquire(path: Path, busy: str | None) -> BaseFileLock | None:
    lock = FileLock(path, is_singleton=True, poll_interval=SECONDS_BETWEEN_TRIES)
    try:
        _check_file(path)
        lock.acquire(timeout=-1 if busy is None else 0)
    except Timeout as error:
        raise FishermixError(str(busy)) from error
    except FileNotFoundError:
        raise
    except OSError as error:
        if busy is None and error.errno in NO_LOCKS:
            return None
        raise FishermixError(
            f"Cannot lock {path.parent} ({error.strerror}). If {path} is not yours or cannot be written, "
            "remove it."
        ) from error
    return lock


def _release(lock: BaseFileLock, path: Path) -> None:
    """Release a lock; whoever held it once removes its file, unless someone has written into it."""
    if lock.lock_counter == 1:
        with suppress(OSError):  # Windows keeps a file that is locked
            if path.stat().st_size == 0:
                path.unlink()
    lock.release()


def _check_file(path: Path) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            raise FishermixError(f"Cannot lock {path.parent}: {path} is not a file. Move it away.")
