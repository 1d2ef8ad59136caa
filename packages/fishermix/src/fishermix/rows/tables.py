"""Tables of rows that are not in memory: .npy files and iterables of blocks, read from one row to another."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import numpy as np

from fishermix.errors import FishermixError

FilePath = str | os.PathLike


class NpyFile(NamedTuple):
    """Where the rows of an .npy file are.

    The file is read, not mapped: the pages of a mapped file would count as memory of this process.
    """

    path: FilePath
    offset: int
    dtype: np.dtype
    shape: tuple[int, int]

    @classmethod
    def open(cls, path: FilePath) -> NpyFile:
        """Read and check the header of a file."""
        from fishermix.saved import explain_damage  # and msgspec, which plain objects do without

        if not os.path.isfile(path):
            raise FishermixError(f"There is no file {path}.", code="not_found")
        if os.path.splitext(path)[1] != ".npy":
            raise FishermixError(f"{path} does not end in .npy.", code="wrong_file")
        with explain_damage(path, "It is not an array that numpy.save wrote."):
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        if mapped.ndim != 2 or mapped.dtype.kind not in "fiu":
            raise FishermixError(
                f"{path} holds an array of {mapped.dtype} and shape {mapped.shape}, not rows of numbers.",
                code="wrong_file",
            )
        if not mapped.flags.c_contiguous:
            raise FishermixError(
                f"{path} is stored column by column. Save numpy.ascontiguousarray(X) instead.",
                code="wrong_file",
            )
        return cls(path, mapped.offset, mapped.dtype, mapped.shape)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Read the rows from `start` to before `stop`."""
        width = self.shape[1]
        count = (stop - start) * width
        offset = self.offset + start * width * self.dtype.itemsize
        numbers = np.fromfile(self.path, self.dtype, count, offset=offset)
        if len(numbers) != count:
            raise FishermixError(f"{self.path} ends before row {stop}. The file is damaged.", code="damaged")
        return numbers.reshape(stop - start, width)


class FileTable:
    """The rows of .npy files, one file after another."""

    def __init__(self, paths: Sequence[FilePath]):
        self.files = [NpyFile.open(path) for path in paths]
        widths = {file.shape[1] for file in self.files}
        if len(widths) != 1:
            raise FishermixError(
                f"The files have rows of different lengths: {sorted(widths)}.", code="wrong_shape"
            )
        self.starts = np.concatenate([[0], np.cumsum([file.shape[0] for file in self.files])])
        self.shape = int(self.starts[-1]), widths.pop()
        self.dtype = np.result_type(*(file.dtype for file in self.files))

    def read(self, start: int, stop: int) -> np.ndarray:
        """Read the rows from `start` to before `stop`."""
        if len(self.files) == 1:
            return self.files[0].read(start, stop)
        found = np.empty((stop - start, self.shape[1]), self.dtype)
        for file, first in zip(self.files, self.starts):
            begin = max(start, first)
            end = min(stop, first + file.shape[0])
            if begin < end:
                found[begin - start : end - start] = file.read(begin - first, end - first)
        return found


class BlockTable:
    """A re-iterable of blocks (n, D): each `iter` gives the same blocks. A first pass counts their rows.

    Reading rows before the last ones read starts again.
    """

    def __init__(self, blocks: Iterable[np.ndarray]):
        self.blocks = blocks
        if iter(blocks) is blocks:
            raise FishermixError(
                "A generator gives its blocks only once, but a fit reads them several times. Pass a list, or "
                "an object whose __iter__ starts again.",
                code="not_repeatable",
            )
        shapes: list[tuple[int, ...]] = []
        kinds = set()
        for block in map(np.asarray, blocks):
            if block.ndim != 2 or block.shape[1] != (shapes[0][1] if shapes else block.shape[1]):
                raise FishermixError(
                    f"A block has shape {block.shape}. All blocks must be (n, D) with the same D.",
                    code="wrong_shape",
                )
            shapes.append(block.shape)
            kinds.add(block.dtype)
        if not shapes:
            raise FishermixError("There are no blocks.", code="too_few")
        self.shape = sum(rows for rows, _ in shapes), shapes[0][1]
        self.dtype = np.result_type(*kinds)
        self._start_again()

    def _start_again(self) -> None:
        self._pieces = (block for block in map(np.asarray, self.blocks) if len(block))
        self._position = 0
        self._left = np.empty((0, self.shape[1]), self.dtype)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Read the rows from `start` to before `stop`."""
        if start < self._position:
            self._start_again()
        found = np.empty((stop - start, self.shape[1]), self.dtype)
        while self._position < stop:
            if not len(self._left):
                self._left = next(self._pieces, self._left)
                if not len(self._left):
                    raise FishermixError(
                        f"The blocks had {self.shape[0]} rows at first and have {self._position} rows now. "
                        "Each iteration over them must give the same blocks.",
                        code="not_repeatable",
                    )
            end = min(self._position + len(self._left), stop if self._position >= start else start)
            used, self._left = np.split(self._left, [end - self._position])
            if self._position >= start:
                found[self._position - start : end - start] = used
            self._position = end
        return found


Table = FileTable | BlockTable


def open_table(X: FilePath | Sequence[FilePath] | np.ndarray | Iterable[np.ndarray]) -> Table:
    """Open the rows of a path, paths, a memory-mapped array or blocks."""
    if isinstance(X, FilePath):
        return FileTable([X])
    if isinstance(X, np.ndarray):
        return BlockTable([X])
    if isinstance(X, list | tuple) and X and all(isinstance(part, FilePath) for part in X):
        return FileTable(X)
    return BlockTable(cast("Iterable[np.ndarray]", X))
