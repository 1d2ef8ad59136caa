"""The data folder, private files, SQLite databases, and what the disk refuses, with the remedy."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from fishermix.errors import FishermixError

T = TypeVar("T")

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
OTHER_USERS = 0o077  # the permissions of everyone but the owner
FULL_BELOW = 128 << 10  # bytes; the smallest library needs more

FULL = "The disk is full. Free some space and run the command again; completed steps are kept."
READ_ONLY = "The place is read-only. Name another one, or make it writable."
FORBIDDEN = "You have no permission to write there. Name another place, or change its permissions."
LOCKS_MISSING = (
    "Its file system has no working locks (some network drives do not). Keep the library on a local disk: "
    "name another directory with --library or FISHERMIX_HOME."
)
FAULTY = "The disk reports a read or write error. Check the disk and its connection; copy what you can."
READ_FAILED = (
    "A read from the disk failed, but the file is sound: it could be read a moment later. Check the disk and "
    "its connection, and run the command again."
)

UNREACHABLE = "Its network drive does not answer. Check the connection, mount it, and repeat the command."
OTHER_CAUSE = "Check the disk and its connection, and run the command again."

_BY_ERRNO = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: "Your disk quota is used up. Free some space and run the command again.",
    errno.EROFS: READ_ONLY,
    errno.EACCES: FORBIDDEN,
    errno.EPERM: FORBIDDEN,
    errno.ENOLCK: LOCKS_MISSING,
    errno.EOPNOTSUPP: LOCKS_MISSING,
    errno.EIO: FAULTY,
    errno.ESTALE: UNREACHABLE,
    errno.ETIMEDOUT: UNREACHABLE,
    errno.ENOMEM: "There is not enough memory. Close other programs and run the command again.",
    errno.EFBIG: "The file would be larger than its file system or `ulimit -f` allows. Name another place.",
    errno.ETXTBSY: "Another program is running it. Wait until it has finished.",
    errno.EBUSY: "Another program is using it. Wait until it has finished.",
    errno.EMFILE: "This process has too many open files. Raise the limit with `ulimit -n 4096`.",
    errno.ELOOP: "A file of it is a link, which is not followed. Replace it by the file.",
    errno.ENAMETOOLONG: "The name is too long for this file system. Choose a shorter one.",
}


class DiskFull(FishermixError):
    """There is no space left for a change."""

    code = "disk_full"


class ReadFailed(FishermixError):
    """A read failed that succeeded a moment later."""


def explain_os_error(error: OSError) -> str:
    """A sentence about the cause, and one about the remedy."""
    return _BY_ERRNO.get(error.errno or 0, f"The system reports: {error.strerror or error}. {OTHER_CAUSE}")


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


def find_obstacle(folder: Path) -> str | None:
    """Why no file can be written in `folder`; None if one can."""
    from tempfile import TemporaryFile

    try:
        with TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return explain_os_error(error)


def data_folder() -> Path:
    """The folder of the library and of added networks; `~` in FISHERMIX_HOME is the home folder."""
    if home := os.environ.get("FISHERMIX_HOME"):
        try:
            return Path(home).expanduser()
        except RuntimeError as error:
            raise FishermixError(
                f"FISHERMIX_HOME={home} names a user that does not exist.", code="not_found"
            ) from error
    from platformdirs import user_data_path  # a search in FISHERMIX_HOME does not wait for it

    return user_data_path("fishermix", appauthor=False)


def lacks_named_home() -> bool:
    """Whether FISHERMIX_HOME names a folder that does not exist: its disk may not be mounted."""
    return bool(os.environ.get("FISHERMIX_HOME")) and not data_folder().is_dir()


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


def sync_folder(folder: Path) -> None:
    """Make the names of new files in a folder durable, as Windows and some network drives do themselves."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def find_open_paths(folder: Path) -> list[Path]:
    """What other users of this machine can read of a folder: nothing if they cannot enter it."""
    if os.name != "posix" or not folder.stat().st_mode & OTHER_USERS:
        return []
    found = [folder]
    for path in folder.iterdir():
        with suppress(OSError):  # deleted meanwhile, or a link to nowhere
            if path.stat().st_mode & OTHER_USERS:
                found.append(path)
    return found


# SQLite

DAMAGED = "The file is damaged."
# What sqlite3 raises for a damaged file; its own messages may quote bytes that are not UTF-8.
DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
KEYS_PER_QUERY = 500  # SQLite accepts at least 999 values in one query
# SQLite's codes; the lowest byte of an extended code is its kind.
_PERM, _BUSY, _READ_ONLY, _IO, _CORRUPT = 3, 5, 8, 10, 11
_FULL, _CANNOT_OPEN, _PROTOCOL, _TOO_BIG, _NOT_A_DATABASE = 13, 14, 15, 18, 26
# I/O errors of locks and of the shared memory that replaces them: UNLOCK, RDLOCK, CHECKRESERVEDLOCK, LOCK,
# SHMOPEN, SHMLOCK, SHMMAP
_LOCK_ERRORS = {_IO | number << 8 for number in (8, 9, 14, 15, 18, 20, 21)}
_SHARED_MEMORY_SIZE = _IO | 19 << 8


def explain_sqlite_error(error: sqlite3.Error, folder: Path) -> str:
    """What an error of a database in `folder` means. One code has several causes, so the disk is asked."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    kind = code & 0xFF
    if kind in (_CORRUPT, _NOT_A_DATABASE, _TOO_BIG):
        return DAMAGED
    if kind == _FULL or (kind in (_IO, _CANNOT_OPEN, _BUSY) and is_full(folder)):
        return FULL
    if code == _SHARED_MEMORY_SIZE:  # a quota
        return FULL
    if kind in (_READ_ONLY, _CANNOT_OPEN, _PERM):
        return find_obstacle(folder) or f"The system reports: {error}. {OTHER_CAUSE}"
    if code in _LOCK_ERRORS or kind == _PROTOCOL or (kind == _BUSY and not has_locks(folder)):
        return LOCKS_MISSING
    if kind == _IO:
        return FAULTY
    if kind == _BUSY:
        return "Another process is using it. Wait until it has finished."
    return f"SQLite reports: {error}."


def _may_be_damage(error: sqlite3.Error) -> bool:
    kind = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    is_missing = any(words in str(error) for words in ("vtable constructor failed", "no such table"))
    return is_missing or kind in (_CORRUPT, _NOT_A_DATABASE)


def diagnose(
    error: sqlite3.Error, folder: Path, connect: Callable[[], sqlite3.Connection], words: Sequence[str] = ()
) -> str:
    """What an error of a database in `folder` means, as `explain_sqlite_error`, but `DAMAGED` only if the
    database is still damaged when it is read again. `words` are its FTS5 tables.
    """
    return (
        find_damage(folder, connect, words) if _may_be_damage(error) else explain_sqlite_error(error, folder)
    )


def find_damage(folder: Path, connect: Callable[[], sqlite3.Connection], words: Sequence[str] = ()) -> str:
    """`DAMAGED` if a database is damaged, else why a read failed.

    SQLite reports a failed read (EIO) as damage, FTS5 as a failed constructor. So a new connection copies all
    pages to a temporary database, which keeps the two apart, and the copy is checked. The file must not be
    read with `open`: closing it would release the locks of all connections of this process.
    """
    try:
        with closing(connect()) as source, closing(sqlite3.connect("", isolation_level=None)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA trusted_schema = OFF")
            if copy.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
                return DAMAGED
            names = {name for (name,) in copy.execute("SELECT name FROM sqlite_master")}
            for table in names.intersection(words):  # they are made with the other tables, after the file
                copy.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")
    except UnicodeDecodeError:
        return DAMAGED
    except sqlite3.Error as error:
        return DAMAGED if _may_be_damage(error) else explain_sqlite_error(error, folder)
    return READ_FAILED


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All changes of the block, or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite itself rolls back when the disk is full
            connection.execute("ROLLBACK")
        raise


def convert_rows(row: type[T], found: list[tuple]) -> list[T]:
    """Rows of a database, each as a tuple type of bounded types; a wrong one is a `DatabaseError`."""
    import msgspec  # opening photos needs this module, but no database

    try:
        # Text is not bytes: without their names, msgspec would decode it as base64.
        return msgspec.convert(found, list[row], builtin_types=(bytes,))  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        raise sqlite3.DatabaseError(f"a value has a wrong type: {error}") from error


def select(connection: sqlite3.Connection, row: type[T], query: str, *values: Any) -> list[T]:
    """The rows that `query` finds, as `convert_rows` returns them."""
    return convert_rows(row, connection.execute(query, values).fetchall())


def select_keys(
    connection: sqlite3.Connection, row: type[T], query: str, keys: Iterable[Any], *values: Any
) -> Iterator[T]:
    """The rows that a query, which ends in IN, finds for these keys; some hundred keys at a time."""
    distinct = list(dict.fromkeys(keys))
    for start in range(0, len(distinct), KEYS_PER_QUERY):
        chunk = distinct[start : start + KEYS_PER_QUERY]
        marks = ", ".join("?" * len(chunk))
        yield from select(connection, row, f"{query} ({marks})", *values, *chunk)
