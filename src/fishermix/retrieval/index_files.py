"""The files of a local index: the writer's lock, points that are appended, and what a deletion removes."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np

from fishermix.disk import create_private_file, explain_os_error, explain_sqlite_error, is_busy
from fishermix.errors import FishermixError
from fishermix.retrieval.store import StoreLocked

OWN_FILE = re.compile(
    r"(index\.sqlite|writer\.lock|thumbnails\.sqlite)(-wal|-shm|-journal)?|vectors-\d+\.f32|faiss-\d+(\..+)?"
    r"|codes-\d+-\d+\.(i8|tmp)|folder\.txt"
)
LOCK = "writer.lock"
NO_UPDATE = " A search with --no-update uses the index as it is."


@contextmanager
def hold_writer_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of an index: an exclusive transaction on a separate file; it ends with the process."""
    file = folder / LOCK
    try:
        if not file.exists():
            create_private_file(file)
        before = file.stat()
    except OSError as error:
        raise FishermixError(
            f"The index in {folder} cannot be written. {explain_os_error(error)}{NO_UPDATE}"
        ) from error
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as lock:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if not is_busy(error, folder):
                reason = explain_sqlite_error(error, folder)
                raise FishermixError(f"The index in {folder} cannot be locked ({error}). {reason}") from error
            raise StoreLocked(
                f"Another process is updating the index in {folder}. Wait until it has finished."
            ) from error
        if not file.exists() or not os.path.samestat(before, file.stat()):
            raise StoreLocked(
                f"Another process has just deleted the index in {folder}. Run the command again."
            )
        yield


def append(path: Path, offset: int, data: bytes) -> None:
    """Write at `offset`, over what a killed writer may have left there, and flush to disk."""
    create_private_file(path)
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def expect_points(rows: Sequence[int] | np.ndarray, vectors: np.ndarray) -> None:
    """Raise if a row of a damaged database is beyond the points."""
    if len(rows) and max(rows) >= len(vectors):
        raise sqlite3.DatabaseError(f"the point {max(rows)} is missing")


def remove_stale_files(folder: Path, generation: int) -> None:
    """Remove the points, their codes and the faiss indexes of other generations."""
    for path in [file for kind in ("vectors", "codes", "faiss") for file in folder.glob(f"{kind}-*")]:
        is_stale = path.stem.split("-")[1] != str(generation)
        if is_stale and OWN_FILE.fullmatch(path.name) and not path.is_dir():
            path.unlink(missing_ok=True)


def delete_files(folder: Path, may_delete: Callable[[], bool] = lambda: True) -> None:
    """Delete the files of an index, damaged or not, and the folder if nothing else is in it; no other process
    may be writing it. `may_delete` is asked when none can.
    """
    with hold_writer_lock(folder):
        if not may_delete():
            return
        for path in list(folder.iterdir()):
            if OWN_FILE.fullmatch(path.name) and not path.is_dir():
                with suppress(PermissionError):  # Windows: the lock itself is open
                    path.unlink(missing_ok=True)
        if os.name == "posix":
            _remove_if_empty(folder)
            return
    (folder / LOCK).unlink(missing_ok=True)
    _remove_if_empty(folder)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # other files are in it
        folder.rmdir()
