"""The files of a library on this machine: a SQLite database, and one file of embeddings that only grows.

`library.sqlite` (write-ahead log) holds folders, paths, stamps, details, the hash of each content and its
row in `embeddings-G.f32` with the checksum of its bytes. A change appends embeddings at the end of the file,
flushes them to disk, and only then commits the transaction that refers to them: a crash at any moment leaves
the old state or the new one. SQLite lets one process change the files at a time; a lock per folder keeps two
updates of the same folder apart.

A process that is killed during its commit leaves it open whether it has happened: other processes go on
without it, but if they are killed too before their own next commit, SQLite recovers it from its log. So
nothing that a commit may refer to is ever overwritten: what is beyond the last committed row stays and is
listed as orphaned, and each new file of embeddings has a name of its own.

Rows whose photos are gone are listed as orphaned and not found any more, but stay recognizable for some
weeks: a photo that was moved to another folder is not encoded again. When many rows are older, the others
are copied to the next generation G + 1 of the file, and the switch is one transaction again. A reader finds
photos and their scores in one snapshot; the file that it has mapped does not change.
"""

from __future__ import annotations

import os
import re
import secrets
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from fishermix_photos.disk import create_private_file, sync_folder
from fishermix_photos.index.connection import expect_readable

OWN_FILE = re.compile(
    r"library\.sqlite(-wal|-shm|-journal)?|(embeddings|points)-\d+\.f32|codes-\d+-\d+\.(i8|\d+\.tmp)"
    r"|folder-[0-9a-f]{16}\.lock"
)
ROWS_PER_COPY = 65_536
NUMBERS_PER_GENERATION = 2**24


class EmbeddingFiles:
    """The files of embeddings in the folder of a library. Rows are counted from 0."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._mapped: tuple[int, np.ndarray] = (-1, np.empty((0, 0), np.float32))
        self._durable = -1  # the generation whose name this process has made durable

    def path(self, generation: int) -> Path:
        """The file of a generation. 0.3 called it points: that file keeps its name until it is compacted."""
        old = self.folder / f"points-{generation}.f32"
        try:
            old.lstat()  # not `lexists`: a disk that fails has not lost the file
        except FileNotFoundError:
            return self.folder / f"embeddings-{generation}.f32"
        return old

    def has_rows(self, generation: int, n_rows: int, dimension: int) -> bool:
        """Whether the file has so many rows."""
        path = self.path(generation)
        return dimension > 0 and path.is_file() and path.stat().st_size >= n_rows * dimension * 4

    def open(self, generation: int, n_rows: int, dimension: int) -> np.ndarray:
        """The committed rows (n_rows, dimension), memory-mapped; they never change: the mapping is kept."""
        known, rows = self._mapped
        if known != generation or len(rows) < n_rows or rows.shape[1] != dimension:
            rows = np.empty((0, dimension), np.float32)
            if n_rows:
                path = self.path(generation)
                expect_readable(path)
                rows = np.memmap(path, np.float32, "r", shape=(n_rows, dimension))
            self._mapped = generation, rows
        return rows[:n_rows]

    def has_mapped(self, generation: int, n_rows: int, dimension: int) -> bool:
        """Whether `open` needs no file for these rows."""
        known, rows = self._mapped
        return known == generation and len(rows) >= n_rows and rows.shape[1] == dimension

    def count_rows(self, generation: int, dimension: int) -> int:
        """The number of rows that were ever written, the last one perhaps in part."""
        path = self.path(generation)
        return -(-path.stat().st_size // (dimension * 4)) if dimension and path.is_file() else 0

    def append(self, generation: int, row: int, dimension: int, data: bytes) -> None:
        """Write rows from `row` on, the end of the file, and flush them and the file's name to the disk."""
        write_at(self.path(generation), row * dimension * 4, data)
        if generation != self._durable:  # the process that made the file may have been killed
            sync_folder(self.folder)
            self._durable = generation

    def copy(self, rows: np.ndarray, kept: Sequence[int], generation: int) -> None:
        """Write those of the rows that are kept to the file of a new generation."""
        try:
            for start in range(0, len(kept), ROWS_PER_COPY):
                block = rows[kept[start : start + ROWS_PER_COPY]]
                self.append(generation, start, block.shape[1], block.astype("<f4").tobytes())
        except OSError:
            self.path(generation).unlink(missing_ok=True)  # a full disk
            raise

    def count_damaged(self, generation: int, dimension: int, expected: Sequence[tuple[int, int]]) -> int:
        """The number of rows that do not have the checksum that is expected, or are not finite."""
        width, damaged = dimension * 4, 0
        with open(self.path(generation), "rb") as file:
            for row, checksum in expected:
                file.seek(row * width)
                data = file.read(width)
                is_sound = len(data) == width and zlib.crc32(data) == checksum
                damaged += not (is_sound and np.isfinite(np.frombuffer(data, "<f4")).all())
        return damaged

    def remove_stale(self, current: int) -> None:
        """Remove embeddings and codes of earlier generations; a later one may yet be recovered, see above."""
        for path in self._list("embeddings-*", "points-*", "codes-*"):
            generation = int(path.name.split("-")[1].removesuffix(".f32"))
            is_later = generation // NUMBERS_PER_GENERATION > current // NUMBERS_PER_GENERATION
            if generation != current and not is_later:
                with suppress(PermissionError):  # Windows: a search has it open
                    path.unlink(missing_ok=True)

    def remove_codes(self) -> None:
        """Remove what can be made again, and takes a quarter of the space."""
        for path in self._list("codes-*"):
            with suppress(OSError):
                path.unlink()

    def _list(self, *patterns: str) -> Iterator[Path]:
        for pattern in patterns:
            for path in self.folder.glob(pattern):
                if OWN_FILE.fullmatch(path.name) and not path.is_dir():
                    yield path


def next_generation(generation: int) -> int:
    """The number of a new generation, which no other process chooses."""
    return (generation // NUMBERS_PER_GENERATION + 1) * NUMBERS_PER_GENERATION + secrets.randbelow(
        NUMBERS_PER_GENERATION
    )


def write_at(path: Path, offset: int, data: bytes) -> None:
    """Write at `offset` and flush to disk. A link is an error: a library that somebody made must not choose a
    file of yours to write to.
    """
    create_private_file(path)
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "r+b") as file:
        file.seek(offset)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
