"""Connections to the database of a library, which may be damaged, hostile, read-only or on a full disk."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fishermix.errors import FishermixError

from fishermix_photos.disk import (
    DAMAGED,
    FULL,
    READ_FAILED,
    DiskFull,
    ReadFailed,
    diagnose,
    explain_os_error,
    explain_sqlite_error,
    find_damage,
    is_full,
)
from fishermix_photos.index.errors import LibraryDamaged
from fishermix_photos.index.migrations import (
    VERSION,
    create_tables,
    expect_tables,
    find_version,
    is_empty,
    migrate,
    open_empty,
)
from fishermix_photos.photos.geodesy import distance_km

DATABASE = "library.sqlite"
WORD_TABLES = ("names", "texts")  # of FTS5
REBUILD = (
    "Your photos are untouched. Copy the library to another disk, then delete it and add your folders again."
)
LONGEST_VALUE = 1 << 20  # bytes of a row; a path has at most some thousand


class Connections:
    """The connections of a process to the library in a folder: one per thread, so that threads that search at
    the same time do not share a snapshot.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.file = folder / DATABASE
        self._threads = threading.local()
        self.closed = 0  # how often: a connection from before is not used any more

    def exists(self) -> bool:
        """Whether there is a database. A disk that does not say so has not lost it: else an empty library
        would be used in its place, and its changes would be written to the real one.
        """
        try:
            return self.file.stat().st_size > 0
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise self.unusable(explain_os_error(error)) from error

    @property
    def current(self) -> sqlite3.Connection:
        """This thread's connection; an empty library if there is none yet. Inside a transaction, it is always
        the same one.
        """
        held = self._held
        if held is not None and not held.connection.in_transaction and held.is_outdated(self):
            self._drop()  # before another one is opened: on a full disk, it keeps others out
            held = None
        if held is None:
            exists = self.exists()
            if exists:
                expect_readable(self.file)
            held = self._threads.held = _ThreadConnection(self.file if exists else None, self.closed)
        return held.connection

    @property
    def writing(self) -> sqlite3.Connection:
        """This thread's connection; raises if it only reads, because the disk is full."""
        connection, held = self.current, self._held
        if held is None or not held.lacks_space:
            return connection
        self._drop()  # nobody else may use the database meanwhile, not even we
        connect(self.file).close()
        return self.current

    def close(self) -> None:
        """Close this thread's connection. The others close theirs with their next question, or when they end:
        SQLite crashes if a connection is closed while another thread reads with it.
        """
        self.closed += 1
        self._drop()

    @property
    def _held(self) -> _ThreadConnection | None:
        return getattr(self._threads, "held", None)

    def _drop(self) -> None:
        """Close this thread's connection, if it has one, and hold none: opening the next one may fail."""
        held = self._held
        self._threads.held = None
        if held is not None:
            held.close()

    # What went wrong

    @contextmanager
    def explain_damage(self) -> Iterator[None]:
        """Say what errors of SQLite mean."""
        try:
            yield
        except sqlite3.ProgrammingError:
            raise  # our mistake
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            reason = DAMAGED
            if isinstance(error, sqlite3.Error) and hasattr(error, "sqlite_errorcode"):
                # SQLite's own; the others are values that nobody wrote
                reason = diagnose(error, self.folder, self.open_again, WORD_TABLES)
            if reason == DAMAGED:
                raise self.damaged(f"cannot be used ({error})") from error
            raise self.unusable(reason) from error

    def open_again(self) -> sqlite3.Connection:
        """A new connection that looks at nothing yet."""
        return _open_file(self.file)[0]

    def expect_damage(self) -> None:
        """Raise if the database is sound, after a check has found errors: then a read has failed."""
        if (reason := find_damage(self.folder, self.open_again, WORD_TABLES)) != DAMAGED:
            raise self.unusable(reason)

    def unusable(self, reason: str) -> FishermixError:
        """The error that says why the library cannot be used now."""
        kind = {FULL: DiskFull, READ_FAILED: ReadFailed}.get(reason, FishermixError)
        return kind(f"The photo library in {self.folder} cannot be used. {reason}")

    def damaged(self, problem: str) -> LibraryDamaged:
        """The error that says what is wrong with the files of the library, and what to do."""
        return LibraryDamaged(
            f"The photo library in {self.folder} {problem}. {REBUILD}", place=str(self.folder)
        )


class _ThreadConnection:
    """A connection that is closed when its thread ends: servers start threads again and again.

    lacks_space : whether it only reads, because the disk is full
    closed_before : how often the connections had been closed when it was opened
    """

    def __init__(self, file: Path | None, closed_before: int):
        self.closed_before = closed_before
        self.is_empty = file is None
        self.connection, self.lacks_space = (open_empty(), False) if file is None else _connect_or_read(file)
        self.connection.create_function("distance_km", 4, distance_km, deterministic=True)

    def is_outdated(self, connections: Connections) -> bool:
        """Whether the library was closed since, or has been created, or its disk has space now."""
        return (
            self.closed_before != connections.closed
            or (self.is_empty and connections.exists())
            or (self.lacks_space and not is_full(connections.folder))
        )

    def close(self) -> None:
        self.connection.close()

    def __del__(self) -> None:
        if hasattr(self, "connection"):
            self.close()


def connect(file: Path) -> sqlite3.Connection:
    """A connection that writes or, in a read-only place, reads what was committed."""
    return _prepare(file, *_open_file(file))


def _connect_or_read(file: Path) -> tuple[sqlite3.Connection, bool]:
    """As `connect`, and False; on a disk without space for SQLite's files, one that only reads, and True."""
    try:
        return connect(file), False
    except sqlite3.Error as error:
        if explain_sqlite_error(error, file.parent) != FULL:
            raise
    return _prepare(file, _open_without_space(file), is_writable=False), True


def _prepare(file: Path, connection: sqlite3.Connection, is_writable: bool) -> sqlite3.Connection:
    """Make sure that a database is a library of this version; an empty one becomes a library."""
    try:
        connection = _restrict(connection)
        if is_empty(connection) and is_writable:
            connection.execute("PRAGMA journal_mode = WAL")
            create_tables(connection)
        elif is_empty(connection):  # its first change has failed
            connection.close()
            connection = _restrict(open_empty())
        version = find_version(connection, file.parent)
        if version == VERSION:
            expect_tables(connection)
        elif not is_writable:
            connection = _copy_to_memory(connection)
        has_version = connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
        if version != VERSION or (is_writable and not has_version):
            migrate(connection, file.parent)
        if is_writable:  # which changes the file: it is a library
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        else:  # a copy in memory would forget what is written to it
            connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _restrict(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Let a database that anyone may have made run nothing, and hold nothing large."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
    return connection


def _copy_to_memory(connection: sqlite3.Connection) -> sqlite3.Connection:
    """A copy that can be migrated: an older library in a read-only place."""
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        connection.backup(copy)
        return _restrict(copy)
    except BaseException:
        copy.close()
        raise
    finally:
        connection.close()


def _open_file(file: Path) -> tuple[sqlite3.Connection, bool]:
    """A connection to a database that may be anything, and whether it can write.

    SQLite needs its shared memory next to a database with a write-ahead log. Where it cannot create it, the
    database is opened as one that nobody changes, unless a log with newer content is there.
    """
    _expect_sqlite_files(file)
    if os.access(file.parent, os.W_OK) and os.access(file, os.W_OK):
        return _open(file, "mode=rw"), True
    return _open(file, "mode=ro" if _has_log(file) else "mode=ro&immutable=1"), False


def _open_without_space(file: Path) -> sqlite3.Connection:
    """A connection that needs no shared memory on the disk, and so no space: one to a database that nobody
    changes or, if a log has newer content, that nobody else uses meanwhile.
    """
    _expect_sqlite_files(file)
    if not _has_log(file):
        return _open(file, "mode=ro&immutable=1")
    connection = _open(file, "mode=rw")
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    return connection


def _open(file: Path, options: str) -> sqlite3.Connection:
    name = f"{file.absolute().as_uri()}?{options}"
    return sqlite3.connect(name, timeout=60, isolation_level=None, check_same_thread=False, uri=True)


def _has_log(file: Path) -> bool:
    """Whether the write-ahead log of a database may have what the database has not."""
    log = file.with_name(f"{file.name}-wal")
    return log.exists() and log.stat().st_size > 0


def _expect_sqlite_files(file: Path) -> None:
    """Raise if a database, or what SQLite keeps next to it, is a link, perhaps to a library of yours, or a
    pipe, for which SQLite would wait without end.
    """
    for suffix in ("", "-wal", "-shm", "-journal"):
        path = Path(f"{file}{suffix}")
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(path.lstat().st_mode):
                raise FishermixError(
                    f"{path} is not a file, or a link, which is not followed. Remove it.", code="wrong_file"
                )


def expect_readable(file: Path) -> None:
    """Raise if we may not read a file."""
    if not os.access(file, os.R_OK):
        raise FishermixError(
            f"You have no permission to read {file}. Correct its permissions.", code="no_permission"
        )
