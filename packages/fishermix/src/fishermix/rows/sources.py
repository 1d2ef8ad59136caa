"""Rows (N, D) that are not in memory: files, several files joined, and re-iterables of blocks.

A *table* reads consecutive rows into new memory; reading from the first row to the last is cheap.
`StreamSource` sums a step over the blocks of a table. `open_rows` finds the table of what `fit` was given.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse

from fishermix.errors import FishermixError
from fishermix.rows.blocks import (
    PANEL,
    Block,
    RowSource,
    Statistics,
    Step,
    block_rows,
    check_finite,
    count_threads,
    cut,
    sum_in_tree,
)
from fishermix.storage import DTYPES, explain_damage, read_tensor_header

SUFFIXES = (".npy", ".safetensors")
ROWS_PER_READ = 65_536  # of `take_rows`: 79 MB of 300 float32 numbers
MEMORY = 2**30  # bytes


class Table(Protocol):
    """Rows (N, D). A table can be pickled and read in any process that can open its files."""

    shape: tuple[int, int]
    dtype: np.dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        """Read the rows from `start` to before `stop`."""


class RawTable:
    """Numbers stored row by row in a file: the content of .npy and safetensors files.

    The file is read, not mapped: the pages of a mapped file would count as memory of this process.
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
            raise FishermixError(f"{self.path} ends before row {stop}. The file is damaged.")
        return numbers.reshape(stop - start, width)


class BlockTable:
    """A re-iterable of blocks (n, D): each `iter` gives the same blocks. A first pass counts their rows.

    Reading rows before the last ones read starts again.
    """

    def __init__(self, blocks: Iterable[np.ndarray]):
        self.blocks = blocks
        if iter(blocks) is blocks:
            raise FishermixError(
                "A generator gives its blocks only once, but a fit reads them several times. Pass a list, or "
                "an object whose __iter__ starts again."
            )
        shapes: list[tuple[int, ...]] = []
        kinds = set()
        for block in map(np.asarray, blocks):
            if block.ndim != 2 or block.shape[1] != (shapes[0][1] if shapes else block.shape[1]):
                raise FishermixError(
                    f"A block has shape {block.shape}. All blocks must be (n, D) with the same D."
                )
            shapes.append(block.shape)
            kinds.add(block.dtype)
        if not shapes:
            raise FishermixError("There are no blocks.")
        self.shape = sum(rows for rows, _ in shapes), shapes[0][1]
        self.dtype = np.result_type(*kinds)
        self._start_again()

    def _start_again(self) -> None:
        self._pieces = (block for block in map(np.asarray, self.blocks) if len(block))
        self._position, self._left = 0, np.empty((0, self.shape[1]), self.dtype)

    def read(self, start: int, stop: int) -> np.ndarray:
        if start < self._position:
            self._start_again()
        found = np.empty((stop - start, self.shape[1]), self.dtype)
        while self._position < stop:
            if not len(self._left):
                self._left = next(self._pieces, self._left)
                if not len(self._left):
                    raise FishermixError(
                        f"The blocks had {self.shape[0]} rows at first and have {self._position} rows now. "
                        "Each iteration over them must give the same blocks."
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
        self._start_again()


class JoinedTable:
    """Tables joined one after another."""

    def __init__(self, tables: Sequence[Table]):
        widths = {table.shape[1] for table in tables}
        if len(widths) != 1:
            raise FishermixError(f"The files have rows of different lengths: {sorted(widths)}.")
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


def take_rows(table: Table, rows: np.ndarray) -> np.ndarray:
    """Read the rows (m, D) at these ascending positions (m,)."""
    found = np.empty((len(rows), table.shape[1]), table.dtype)
    edges = np.searchsorted(rows, range(0, table.shape[0] + ROWS_PER_READ, ROWS_PER_READ))
    for begin, end in pairwise(edges):
        if begin < end:
            wanted = rows[begin:end]
            first = int(wanted[0])
            found[begin:end] = table.read(first, int(wanted[-1]) + 1)[wanted - first]
    return found


def open_table(path: str | os.PathLike) -> Table:
    """Open a .npy or .safetensors file, or a folder of such files in the order of their names.

    A safetensors file must hold exactly one two-dimensional tensor of floats. A folder of imported word
    vectors is such a table.

    Parameters
    ----------
    path : path
        The file or folder.

    Returns
    -------
    table : Table

    Examples
    --------
    >>> np.save("rows.npy", np.zeros((5000, 3)))
    >>> open_table("rows.npy").shape
    (5000, 3)
    """
    path = Path(path)
    if path.is_dir():
        parts = sorted(part for part in path.iterdir() if part.suffix in SUFFIXES)
        if not parts:
            raise FishermixError(f"{path} holds no file that ends in {' or '.join(SUFFIXES)}.")
        return JoinedTable([open_table(part) for part in parts])
    if not path.is_file():
        raise FishermixError(f"There is no file {path}.")
    if path.suffix == ".npy":
        return _open_npy(path)
    if path.suffix == ".safetensors":
        return _open_safetensors(path)
    raise FishermixError(f"{path} does not end in {' or '.join(SUFFIXES)}.")


def _open_npy(path: Path) -> RawTable:
    with explain_damage(path, "It is not an array that numpy.save wrote."):
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    if mapped.ndim != 2 or mapped.dtype.kind not in "fiu":
        raise FishermixError(
            f"{path} holds an array of {mapped.dtype} and shape {mapped.shape}, not rows of numbers."
        )
    if not mapped.flags.c_contiguous:
        raise FishermixError(f"{path} is stored column by column. Save numpy.ascontiguousarray(X) instead.")
    return RawTable(path, mapped.offset, mapped.dtype, mapped.shape)


def _open_safetensors(path: Path) -> RawTable:
    start, header = read_tensor_header(path)
    found = [entry for entry in header.values() if entry.dtype.startswith("F") and len(entry.shape) == 2]
    if len(found) != 1:
        raise FishermixError(f"{path} holds {len(found)} tables of floats. Save exactly one per file.")
    (entry,) = found
    rows, width = entry.shape
    return RawTable(path, start + entry.data_offsets[0], DTYPES[entry.dtype], (rows, width))


class StreamSource(RowSource):
    """A `RowSource` whose rows stay in a file or in a re-iterable of blocks.

    Parameters
    ----------
    rows : Table or path
        A table or the path of one.
    weight : array of shape (N,), optional
        The weight of each row.
    memory : int
        Bytes for the blocks in work and for the posteriors that one pass keeps for the next.
    threads : int, optional
        The number of threads, as `n_jobs` in joblib. Default: every core.

    See Also
    --------
    fishermix.rows.blocks.ArraySource : rows in memory.
    fishermix.distributed.mixtures.ClusterSource : rows on a cluster.
    numpy.memmap : arrays in files.

    Examples
    --------
    >>> np.save("rows.npy", np.zeros((5000, 3)))
    >>> StreamSource("rows.npy", memory=10_000_000, threads=1).shape
    (5000, 3)
    """

    def __init__(
        self,
        rows: Table | str | os.PathLike,
        weight: np.ndarray | None = None,
        memory: int = MEMORY,
        threads: int | None = None,
    ):
        self.table = open_table(rows) if isinstance(rows, str | os.PathLike) else rows
        super().__init__(self.table.shape, self.table.dtype, weight)
        self.threads = count_threads(threads)
        bytes_of_row = self.shape[1] * (self.dtype.itemsize + self.table.dtype.itemsize)
        affordable = memory // 2 // (self.threads + 1) // bytes_of_row // PANEL * PANEL
        if affordable < PANEL:
            needed = 2 * (self.threads + 1) * bytes_of_row * PANEL
            raise FishermixError(
                f"memory={memory} is too small for rows of {self.shape[1]} numbers. "
                f"Set it to at least {needed} bytes."
            )
        self._cuts = cut(self.shape[0], min(block_rows(self.shape[0]), affordable))
        self._memos: list[dict[str, Any]] = [{} for _ in self._cuts]
        self._memory_for_memos = memory // 2
        self._checked = False

    def total(self, step: Step) -> Statistics:
        total = sum_in_tree(self._results(step))
        self._checked = True
        return total

    def _results(self, step: Step) -> Iterator[Statistics]:
        kept = 0
        running: deque[tuple[dict[str, Any], Future[Statistics]]] = deque()
        with ThreadPoolExecutor(self.threads) as pool:
            for number, memo in enumerate(self._memos):
                running.append((memo, pool.submit(step, self._block(number))))
                while len(running) > self.threads or (running and number == len(self._memos) - 1):
                    done, future = running.popleft()
                    yield future.result()
                    kept += (size := _count_bytes(done))
                    if kept > self._memory_for_memos:
                        done.clear()
                        kept -= size

    def _block(self, number: int) -> Block:
        part = self._cuts[number]
        rows = np.ascontiguousarray(self.table.read(part.start, part.stop), self.dtype)
        if not self._checked:
            check_finite(rows, part.start)
        return Block(rows, self._weigh(part), self._memos[number])

    def read_rows(self, rows: np.ndarray) -> np.ndarray:
        found = take_rows(self.table, rows).astype(self.dtype, copy=False)
        check_finite(found, rows)
        return found


def _count_bytes(memo: dict[str, Any]) -> int:
    return sum(part.nbytes for value in memo.values() if value for part in value)


def open_rows(X: Any, sample_weight: Any = None, threads: int | None = None) -> RowSource | None:
    """Open rows that are not in memory; return None if X is something else, such as a list of lists.

    X may be a path, a list of paths, a memory-mapped array, a re-iterable of blocks, or a `dask.array`.

    Parameters
    ----------
    X : path, list of paths, memory-mapped array, iterable of blocks, or dask.array
        The rows.
    sample_weight : array of shape (N,), optional
        The weight of each row. Weight 2 counts as the same row twice.
    threads : int, optional
        The number of threads, as `n_jobs` in joblib. Default: every core.

    Returns
    -------
    source : RowSource or None

    Examples
    --------
    >>> open_rows([np.zeros((100, 3)), np.zeros((50, 3))]).shape
    (150, 3)
    """
    if hasattr(X, "__dask_graph__"):
        from fishermix.distributed.mixtures import ClusterSource

        return ClusterSource(X, weight=sample_weight)
    table = _find_table(X)
    return None if table is None else StreamSource(table, sample_weight, threads=threads)


def _find_table(X: Any) -> Table | None:
    if isinstance(X, str | os.PathLike):
        return open_table(X)
    if isinstance(X, np.memmap):
        return BlockTable([X]) if X.ndim == 2 and X.dtype.kind in "fiu" else None
    if isinstance(X, list | tuple):
        return _join_parts(X)
    is_array = any(hasattr(X, name) for name in ("__array__", "__array_interface__", "__dataframe__"))
    if is_array or scipy.sparse.issparse(X) or isinstance(X, dict | set) or not hasattr(X, "__iter__"):
        return None
    return BlockTable(X)


def _join_parts(parts: Sequence[Any]) -> Table | None:
    """The table of a list of paths or of blocks; None for any other list."""
    if parts and all(isinstance(part, str | os.PathLike) for part in parts):
        return JoinedTable([open_table(part) for part in parts])
    if parts and all(isinstance(part, np.ndarray) and part.ndim == 2 for part in parts):
        return BlockTable(parts)
    return None
