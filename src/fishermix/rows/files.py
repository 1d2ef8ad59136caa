"""Rows (N, D) that are not in memory: files, several files in a row, and blocks that come one after another.

A table reads consecutive rows into fresh memory. Reading from the front to the back is cheap for all of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fishermix.errors import FishermixError

SUFFIXES = (".npy", ".safetensors", ".parquet")
SAFETENSORS_DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
TAKEN_AT_ONCE = 65_536


class Table(Protocol):
    """Rows (N, D) somewhere; it can be pickled, and read where it arrives if the files are there too."""

    shape: tuple[int, int]
    dtype: np.dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        """The rows from `start` to before `stop`."""


class RawTable:
    """Numbers one after another in a file, row after row: the inside of .npy and safetensors.

    The file is read, not mapped: pages of a mapped file would count as memory of this process.
    """

    def __init__(self, path: str | os.PathLike, offset: int, dtype: Any, shape: tuple[int, int]):
        self.path, self.offset = os.fspath(path), offset
        self.dtype, self.shape = np.dtype(dtype), shape

    def read(self, start: int, stop: int) -> np.ndarray:
        width = self.shape[1]
        count = (stop - start) * width
        offset = self.offset + start * width * self.dtype.itemsize
        numbers = np.fromfile(self.path, self.dtype, count, offset=offset)
        if len(numbers) != count:
            raise FishermixError(f"{self.path} ends before row {stop}: the file is damaged")
        return numbers.reshape(stop - start, width)


class SequentialTable:
    """Rows that come in pieces of any length; asking for rows before the last ones starts again."""

    shape: tuple[int, int]
    dtype: np.dtype

    def __init__(self) -> None:
        self._pieces: Iterator[np.ndarray] = iter(())
        self._position, self._left = -1, np.empty((0, 0))

    def pieces_from(self, row: int) -> tuple[int, Iterator[np.ndarray]]:
        """Pieces that begin at `row` or before it, and where they begin."""
        raise NotImplementedError

    def read(self, start: int, stop: int) -> np.ndarray:
        if self._position < 0 or start < self._position:
            self._position, self._pieces = self.pieces_from(start)
            self._left = np.empty((0, self.shape[1]), self.dtype)
        found = np.empty((stop - start, self.shape[1]), self.dtype)
        while self._position < stop:
            if not len(self._left):
                self._left = next(self._pieces, self._left)
                if not len(self._left):
                    raise FishermixError(
                        f"there are {self._position} rows now, and there were {self.shape[0]} before: blocks "
                        "must come out the same each time they are asked for"
                    )
            end = min(self._position + len(self._left), stop if self._position >= start else start)
            used, self._left = np.split(self._left, [end - self._position])
            if self._position >= start:
                found[self._position - start : end - start] = used
            self._position = end
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        SequentialTable.__init__(self)


class ParquetTable(SequentialTable):
    """The numeric columns of a Parquet file, or its single column of lists of one length.

    It is read a row group at a time: write groups of 65,536 rows or fewer to stay within little memory.
    """

    def __init__(self, path: str | os.PathLike):
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise FishermixError(
                f"{path} is a Parquet file, and reading it needs pyarrow: pip install 'fishermix[dask]'"
            ) from error

        super().__init__()
        self.path = os.fspath(path)
        try:
            file = pyarrow.parquet.ParquetFile(self.path)
        except pyarrow.ArrowInvalid as error:
            raise FishermixError(f"{self.path} is not a Parquet file: {error}") from error
        with file:
            groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
            first = _array_of(file.schema_arrow.empty_table(), self.path)
            if first.shape[1] == 0 and groups:
                first = _array_of(file.read_row_group(0), self.path)
        self.group_ends = np.cumsum(groups, dtype=np.int64)
        self.shape, self.dtype = (int(sum(groups)), first.shape[1]), first.dtype

    def pieces_from(self, row: int) -> tuple[int, Iterator[np.ndarray]]:
        group = int(np.searchsorted(self.group_ends, row, side="right"))
        return int(self.group_ends[group - 1]) if group else 0, self._groups(group)

    def _groups(self, first: int) -> Iterator[np.ndarray]:
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(self.path) as file:
            for group in range(first, len(self.group_ends)):
                yield _array_of(file.read_row_group(group), self.path).astype(self.dtype, copy=False)


def _array_of(table: Any, path: str) -> np.ndarray:
    """The numbers (n, D) of a pyarrow table."""
    import pyarrow.types

    types = [field.type for field in table.schema]
    if len(types) == 1 and (
        pyarrow.types.is_list(types[0])
        or pyarrow.types.is_large_list(types[0])
        or pyarrow.types.is_fixed_size_list(types[0])
    ):
        column = table.column(0).combine_chunks()
        lists = column.flatten() if len(column) else None
        width = types[0].list_size if pyarrow.types.is_fixed_size_list(types[0]) else 0
        if lists is None:
            return np.empty((0, width), types[0].value_type.to_pandas_dtype())
        numbers = lists.to_numpy(zero_copy_only=False)
        if column.null_count or len(numbers) % len(column):
            raise FishermixError(f"{path}: the lists are not all of one length")
        return numbers.reshape(len(column), -1)
    wrong = [
        field.name
        for field in table.schema
        if not (pyarrow.types.is_integer(field.type) or pyarrow.types.is_floating(field.type))
    ]
    if wrong or not types:
        raise FishermixError(f"{path}: column '{wrong[0] if wrong else ''}' is not of numbers")
    dtype = np.result_type(*(kind.to_pandas_dtype() for kind in types))
    found = np.empty((table.num_rows, len(types)), dtype)
    for number, column in enumerate(table.columns):
        found[:, number] = column.to_numpy()
    return found


class BlockTable(SequentialTable):
    """A re-iterable of blocks (n, D): each `iter` gives the same blocks. One pass counts their rows."""

    def __init__(self, blocks: Iterable[np.ndarray]):
        super().__init__()
        self.blocks = blocks
        if iter(blocks) is blocks:
            raise FishermixError(
                "a generator gives its blocks only once, and a fit needs them several times: give a list, or "
                "an object whose __iter__ starts again"
            )
        shapes: list[tuple[int, ...]] = []
        kinds = set()
        for block in map(np.asarray, blocks):
            if block.ndim != 2 or block.shape[1] != (shapes[0][1] if shapes else block.shape[1]):
                raise FishermixError(f"a block has the shape {block.shape}: blocks must be (n, D) of one D")
            shapes.append(block.shape)
            kinds.add(block.dtype)
        if not shapes:
            raise FishermixError("there are no blocks")
        self.shape = sum(rows for rows, _ in shapes), shapes[0][1]
        self.dtype = np.result_type(*kinds)

    def pieces_from(self, row: int) -> tuple[int, Iterator[np.ndarray]]:
        return 0, (block for block in map(np.asarray, self.blocks) if len(block))


class Parts:
    """Tables one after another."""

    def __init__(self, tables: Sequence[Table]):
        widths = {table.shape[1] for table in tables}
        if len(widths) != 1:
            raise FishermixError(f"parts must have rows of one length, not of {sorted(widths)}")
        self.tables = list(tables)
        self.starts = np.concatenate([[0], np.cumsum([table.shape[0] for table in tables])])
        self.shape = int(self.starts[-1]), widths.pop()
        self.dtype = np.result_type(*(table.dtype for table in tables))

    def read(self, start: int, stop: int) -> np.ndarray:
        found = np.empty((stop - start, self.shape[1]), self.dtype)
        for table, first in zip(self.tables, self.starts):
            begin, end = max(start, first), min(stop, first + table.shape[0])
            if begin < end:
                found[begin - start : end - start] = table.read(begin - first, end - first)
        return found


def taken(table: Table, rows: np.ndarray) -> np.ndarray:
    """The rows (m, D) at these ascending positions (m,)."""
    found = np.empty((len(rows), table.shape[1]), table.dtype)
    edges = np.searchsorted(rows, range(0, table.shape[0] + TAKEN_AT_ONCE, TAKEN_AT_ONCE))
    for begin, end in pairwise(edges):
        if begin < end:
            wanted = rows[begin:end]
            first = int(wanted[0])
            found[begin:end] = table.read(first, int(wanted[-1]) + 1)[wanted - first]
    return found


def open_table(path: str | os.PathLike) -> Table:
    """The rows in a .npy, .safetensors or .parquet file, or in a folder of such files by their names.

    A safetensors file must hold exactly one two-dimensional tensor of floats: the folder of imported word
    vectors is such a table.
    """
    path = Path(path)
    if path.is_dir():
        parts = sorted(part for part in path.iterdir() if part.suffix in SUFFIXES)
        if not parts:
            raise FishermixError(f"{path} holds no file that ends in {', '.join(SUFFIXES)}")
        return Parts([open_table(part) for part in parts])
    if not path.is_file():
        raise FishermixError(f"there is no file {path}")
    if path.suffix == ".npy":
        return _npy(path)
    if path.suffix == ".safetensors":
        return _safetensors(path)
    if path.suffix == ".parquet":
        return ParquetTable(path)
    raise FishermixError(f"{path} ends in none of {', '.join(SUFFIXES)}")


def _npy(path: Path) -> RawTable:
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise FishermixError(f"{path} cannot be read as an array: {error}") from error
    if mapped.ndim != 2 or mapped.dtype.kind not in "fiu":
        raise FishermixError(f"{path} holds {mapped.dtype} {mapped.shape}, not rows of numbers")
    if not mapped.flags.c_contiguous:
        raise FishermixError(f"{path} is stored column by column: save numpy.ascontiguousarray of it")
    return RawTable(path, mapped.offset, mapped.dtype, mapped.shape)


def _safetensors(path: Path) -> RawTable:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy"):  # checks the header, the offsets and the file's size
            pass
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
    except (SafetensorError, ValueError) as error:
        raise FishermixError(f"{path} cannot be read ({error}): the file is damaged") from error
    header.pop("__metadata__", None)
    found = [e for e in header.values() if e["dtype"] in SAFETENSORS_DTYPES and len(e["shape"]) == 2]
    if len(found) != 1:
        raise FishermixError(f"{path} holds {len(found)} tables of floats: put one alone into a file")
    (entry,) = found
    offset = 8 + size + entry["data_offsets"][0]
    return RawTable(path, offset, SAFETENSORS_DTYPES[entry["dtype"]], tuple(entry["shape"]))


def mapped_table(mapped: np.memmap) -> Table:
    """The rows of a memory-mapped array, read from its file where that is possible."""
    root = mapped
    while isinstance(root.base, np.memmap):
        root = root.base
    if not mapped.flags.c_contiguous or mapped.ndim != 2 or root.filename is None or root.mode == "c":
        return BlockTable([mapped])
    offset = root.offset + mapped.ctypes.data - root.ctypes.data
    return RawTable(root.filename, offset, mapped.dtype, (mapped.shape[0], mapped.shape[1]))
