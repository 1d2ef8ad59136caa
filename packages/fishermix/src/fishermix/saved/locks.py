"""Locks of folders: two processes that write the same files would mix them.

The system locks an empty file for a process. The lock ends with the process, also with one that is killed,
and whoever holds it last removes the file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fishermix.errors import FishermixError
from fishermix.saved.files import make_folder

if TYPE_CHECKING:
    from filelock import BaseFileLock

LOCK = "work.lock"  # held while a folder is written


@contextmanager
def hold_folder(folder: str | os.PathLike, option: str | None = None) -> Iterator[Path]:
    """Hold a folder, which is created if it does not exist; a thread that holds it may hold it again.

    Whoever finds it held waits; or, if the `option` that names another folder is given, gets an error. A file
    system without locks is an error with an option only: a save takes a moment, work takes hours.
    """
    folder = Path(folder)
    while True:
        make_folder(folder)
        try:
            lock = _acquire(folder / LOCK, option)
            break
        except FileNotFoundError:  # another process has removed the folder meanwhile
            if folder.is_dir():
                raise
    try:
        yield folder
    finally:
        if lock is not None:
            _release(lock, folder / LOCK)


def _acquire(path: Path, option: str | None) -> BaseFileLock | None:
    from filelock import FileLock, Timeout  # a search does not save

    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise FishermixError(
            f"Cannot lock {path.parent}: {path} is not a file. Move it away.", code="cannot_lock"
        )
    lock = FileLock(path, is_singleton=True, poll_interval=0.01)
    try:
        lock.acquire(timeout=-1 if option is None else 0)
    except Timeout as error:
        raise FishermixError(
            f"Another fishermix is working in {path.parent}. Wait until it has finished, or name another "
            f"folder with {option}.",
            code="in_use",
        ) from error
    except FileNotFoundError:
        raise
    except OSError as error:
        # Some network drives have no locks.
        no_locks = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)
        if option is None and error.errno in no_locks:
            return None
        raise FishermixError(
            f"Cannot lock {path.parent} ({error.strerror}). If {path} is not yours or cannot be written, "
            "remove it.",
            code="cannot_lock",
        ) from error
    return lock


def _release(lock: BaseFileLock, path: Path) -> None:
    """Release a lock; whoever held it once removes its file, unless someone has written into it."""
    if lock.lock_counter == 1:
        with suppress(OSError):  # Windows keeps a file that is locked
            if path.stat().st_size == 0:
                path.unlink()
    lock.release()
