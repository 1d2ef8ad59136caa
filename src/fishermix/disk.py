"""What the disk refuses, in sentences that name the remedy; and files that only their owner can read."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
OTHER_USERS = 0o077  # the permissions of everyone but the owner
FULL_BELOW = 128 << 10  # bytes; the smallest index needs more

FULL = "The disk is full. Free some space and run the command again; completed steps are kept."
READ_ONLY = "The place is read-only. Name another one, or make it writable."
FORBIDDEN = "You have no permission to write there. Name another place, or change its permissions."
NO_LOCKS = (
    "Its file system has no working locks (some network drives do not). Keep the index on a local disk: name "
    "another directory with --index or FISHERMIX_HOME."
)
FAULTY = "The disk reports a read or write error. Check the disk and its connection; copy what you can."
DAMAGED = "The file is damaged."

_BY_ERRNO = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: "Your disk quota is used up. Free some space and run the command again.",
    errno.EROFS: READ_ONLY,
    errno.EACCES: FORBIDDEN,
    errno.EPERM: FORBIDDEN,
    errno.ENOLCK: NO_LOCKS,
    errno.EOPNOTSUPP: NO_LOCKS,
    errno.EIO: FAULTY,
    errno.EMFILE: "This process has too many open files. Raise the limit with `ulimit -n 4096`.",
    errno.ENAMETOOLONG: "The name is too long for this file system. Choose a shorter one.",
}
# SQLite's codes; the lowest byte of an extended code is its kind.
_BUSY, _READ_ONLY, _IO, _CORRUPT, _FULL, _CANNOT_OPEN, _PROTOCOL, _NOT_A_DATABASE = (
    5,
    8,
    10,
    11,
    13,
    14,
    15,
    26,
)
_PERM = 3
# I/O errors of locks and of the shared memory that replaces them: UNLOCK, RDLOCK, CHECKRESERVEDLOCK, LOCK,
# SHMOPEN, SHMSIZE, SHMLOCK, SHMMAP
_LOCK_ERRORS = {_IO | number << 8 for number in (8, 9, 14, 15, 18, 19, 20, 21)}


def explain_os_error(error: OSError) -> str:
    """A sentence about the cause, and one about the remedy if there is a usual one."""
    return _BY_ERRNO.get(error.errno or 0, f"The system reports: {error.strerror or error}.")


def is_known_os_error(error: OSError) -> bool:
    """Whether `explain_os_error` has a remedy."""
    return error.errno in _BY_ERRNO


def explain_sqlite_error(error: sqlite3.Error, folder: Path) -> str:
    """The same for a database in `folder`. One code of SQLite has several causes, so the disk is asked."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    kind = code & 0xFF
    if kind in (_CORRUPT, _NOT_A_DATABASE):
        return DAMAGED
    if kind == _FULL or (kind in (_IO, _CANNOT_OPEN, _BUSY) and is_full(folder)):
        return FULL
    if kind in (_READ_ONLY, _CANNOT_OPEN, _PERM):
        return _find_obstacle(folder) or f"The system reports: {error}."
    if code in _LOCK_ERRORS or kind == _PROTOCOL or (kind == _BUSY and not has_locks(folder)):
        return NO_LOCKS
    if kind == _IO:
        return FAULTY
    if kind == _BUSY:
        return "Another process is using it. Wait until it has finished."
    return f"SQLite reports: {error}."


def is_busy(error: sqlite3.Error, folder: Path) -> bool:
    """Whether another process holds a lock: not if the disk is full, or there are no locks."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    return code & 0xFF == _BUSY and has_locks(folder)


def is_full(folder: Path) -> bool:
    with suppress(OSError):
        return shutil.disk_usage(folder).free < FULL_BELOW
    return False


def has_locks(folder: Path) -> bool:
    """Whether files in `folder` can be locked."""
    try:
        import fcntl
    except ImportError:  # Windows always locks
        return True
    from tempfile import TemporaryFile  # a search does not wait for it

    try:
        with TemporaryFile(dir=folder) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)
    return True


def _find_obstacle(folder: Path) -> str | None:
    """Why no file can be written in `folder`; None if one can."""
    from tempfile import TemporaryFile

    try:
        with TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return explain_os_error(error)


# Private files


def make_private_folder(folder: Path) -> None:
    """Create a folder, and the missing ones above it, that only their owner can enter. The umask does not
    matter; a folder that exists keeps its permissions.
    """
    if folder.is_dir():
        return
    make_private_folder(folder.parent)
    with suppress(FileExistsError):
        os.mkdir(folder, PRIVATE_FOLDER)
        os.chmod(folder, PRIVATE_FOLDER)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def create_private_file(path: Path) -> None:
    """Create an empty file that only its owner can read, unless it exists."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
        os.chmod(path, PRIVATE_FILE)


def find_open_paths(folder: Path) -> list[Path]:
    """What other users of this machine can read of a folder: nothing if they cannot enter it."""
    if os.name != "posix" or not folder.stat().st_mode & OTHER_USERS:
        return []
    return [folder, *(path for path in folder.iterdir() if path.stat().st_mode & OTHER_USERS)]
