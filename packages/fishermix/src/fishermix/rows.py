"""Rows in blocks whose sufficient statistics add up: in memory, in files and in streams.

EM never asks for all rows at once. It hands a *step*, a function of one block, to a source and gets the sum
over all blocks. An array in memory is cut into blocks that threads share (`ArraySource`). Rows that are not
in memory are in a *table*, which reads consecutive ones into new memory (`StreamSource`). A cluster
(`fishermix.distributed`) implements the same `RowSource` and runs the same steps.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from fishermix.errors import FishermixError

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
Item = TypeVar("Item")
FilePath = str | os.PathLike

PANEL = 1024  # rows per kernel call: few enough for the L2 cache, enough to hide the cost of the call
FEWEST_ROWS, MOST_ROWS = 2 * PANEL, 64 * PANEL  # of a block
BLOCKS_OF_ARRAY = 16  # per array, within these limits: enough for the threads of most machines
GROUP = 8  # results that are added up before their sum is passed on
ROWS_PER_READ = 65_536  # of `StreamSource.read_rows`: 79 MB of 300 float32 numbers
MEMORY = 2**30  # bytes


class Statistics(dict[str, Any]):
    """Named sufficient statistics of a block: numbers and arrays are added, lists are concatenated."""

    def __iadd__(self, other: Statistics) -> Statistics:
        for name, value in other.items():
            self[name] += value
        return self


@dataclass
class Block:
    """Consecutive rows (n, D), C-ordered float32 or float64, and their weights (n,), or None for ones.

    `memo` keeps what one pass computes for the next one of the same iteration. It may be emptied at any time.
    """

    rows: np.ndarray
    weight: np.ndarray | None = None
    memo: dict[str, Any] = field(default_factory=dict)


BlockStep = Callable[[Block], Statistics]


class RowSource(ABC):
    """Rows of this shape (N, D) and stored type, in blocks, with the weight (N,) of each row.

    Steps can be pickled, so they may run in another process.
    """

    def __init__(self, shape: tuple[int, int], dtype: np.dtype, weight: np.ndarray | None):
        if not shape[0]:
            raise FishermixError("There are no rows.")
        self.shape = shape
        self.dtype = np.dtype(np.float32 if dtype in (np.float32, np.float16) else np.float64)
        self.weight = None if weight is None else _parse_weight(weight, shape[0])
        with np.errstate(over="ignore"):  # `Mixture.fit` rejects an infinite sum
            self.total_weight = float(shape[0] if self.weight is None else self.weight.sum())

    @abstractmethod
    def total(self, step: BlockStep) -> Statistics:
        """Return the sum of the statistics that `step` gives of each block, in the order of the blocks."""

    @abstractmethod
    def read_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows (m, D) at the given positions (m,), which ascend."""

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows (m, D) at the given positions (m,), which ascend, and their weights (m,)."""
        return self.read_rows(rows), np.ones(len(rows)) if self.weight is None else self.weight[rows]

    def _weigh(self, part: slice) -> np.ndarray | None:
        return None if self.weight is None else self.weight[part]


class ArraySource(RowSource):
    """An array (N, D) in memory, cut into blocks.

    The cuts depend on N alone, and the sums run in the order of the blocks: the result does not depend on the
    number of threads.
    """

    def __init__(self, rows: np.ndarray, weight: np.ndarray | None = None, threads: int | None = None):
        super().__init__((rows.shape[0], rows.shape[1]), rows.dtype, weight)
        self.rows, self.threads = np.ascontiguousarray(rows, self.dtype), count_threads(threads)
        parts = cut(len(rows), block_rows(len(rows)))
        self.blocks = [Block(self.rows[part], self._weigh(part)) for part in parts]

    def total(self, step: BlockStep) -> Statistics:
        return sum_in_tree(map_in_threads(step, self.blocks, self.threads))

    def read_rows(self, rows: np.ndarray) -> np.ndarray:
        return self.rows[rows]


def block_rows(n_rows: int) -> int:
    """Return the number of rows per block into which an array of this many rows is cut.

    Returns
    -------
    size : int
        2,048 for up to 32,768 rows. Above, a sixteenth of the rows, rounded up to a multiple of 1,024, and at
        most 65,536.

    Examples
    --------
    >>> block_rows(5_000), block_rows(100_000)
    (2048, 7168)
    """
    size = -(-n_rows // (BLOCKS_OF_ARRAY * PANEL)) * PANEL
    return min(max(size, FEWEST_ROWS), MOST_ROWS)


def cut(n: int, size: int) -> list[slice]:
    """Cut 0, ..., n - 1 into slices of `size`; the last one may be shorter."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def available_threads() -> int:
    """The number of cores this process may use, or fewer if OMP_NUM_THREADS asks for fewer."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(wanted)) if wanted.isdigit() and int(wanted) > 0 else cores


def count_threads(n_jobs: int | None) -> int:
    """The number of threads `n_jobs` means, as in joblib: None or -1 is every core, -2 all but one."""
    if n_jobs is not None and n_jobs > 0:
        return n_jobs
    return max(available_threads() + 1 + (n_jobs or -1), 1)


def map_in_threads(use: Callable[[Item], T], items: Sequence[Item], n_jobs: int | None = None) -> Iterator[T]:
    """Iterate over use(item) of each item, in their order.

    The calls must be independent of each other: threads may change the time, and not a bit of the result.
    """
    threads = min(count_threads(n_jobs), len(items)) if len(items) > 1 else 1
    if threads == 1:
        return map(use, items)
    from concurrent.futures import ThreadPoolExecutor  # 10 ms that a search does not wait for

    pool = ThreadPoolExecutor(threads)
    results = pool.map(use, items)
    pool.shutdown(wait=False)  # the threads end after the last item
    return results


def sum_in_tree(results: Iterable[Statistics]) -> Statistics:
    """Add up every GROUP results, then every GROUP of these sums, and so on.

    Machines can add in this order too, each its own branches, and get the same bits.
    """
    sums: list[Statistics | None] = []  # of results, of groups of these, ...: one group in work per level
    for number, result in enumerate(results):
        for level in count():
            if level == len(sums):
                sums.append(None)
            if (total := sums[level]) is not None:
                total += result
                result = total
            number, place = divmod(number, GROUP)
            sums[level] = result if place < GROUP - 1 else None
            if place < GROUP - 1:
                break
    total = None
    for unfinished in sums:
        if unfinished is not None:
            if total is not None:
                unfinished += total
            total = unfinished
    assert total is not None
    return total


# Rows that are not in memory


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
        from fishermix.storage import explain_damage  # and msgspec, which plain objects do without

        if not os.path.isfile(path):
            raise FishermixError(f"There is no file {path}.")
        if os.path.splitext(path)[1] != ".npy":
            raise FishermixError(f"{path} does not end in .npy.")
        with explain_damage(path, "It is not an array that numpy.save wrote."):
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        if mapped.ndim != 2 or mapped.dtype.kind not in "fiu":
            raise FishermixError(
                f"{path} holds an array of {mapped.dtype} and shape {mapped.shape}, not rows of numbers."
            )
        if not mapped.flags.c_contiguous:
            raise FishermixError(
                f"{path} is stored column by column. Save numpy.ascontiguousarray(X) instead."
            )
        return cls(path, mapped.offset, mapped.dtype, mapped.shape)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Read the rows from `start` to before `stop`."""
        width = self.shape[1]
        count = (stop - start) * width
        offset = self.offset + start * width * self.dtype.itemsize
        numbers = np.fromfile(self.path, self.dtype, count, offset=offset)
        if len(numbers) != count:
            raise FishermixError(f"{self.path} ends before row {stop}. The file is damaged.")
        return numbers.reshape(stop - start, width)


class FileTable:
    """The rows of .npy files, one file after another."""

    def __init__(self, paths: Sequence[FilePath]):
        self.files = [NpyFile.open(path) for path in paths]
        widths = {file.shape[1] for file in self.files}
        if len(widths) != 1:
            raise FishermixError(f"The files have rows of different lengths: {sorted(widths)}.")
        self.starts = np.concatenate([[0], np.cumsum([file.shape[0] for file in self.files])])
        self.shape = int(self.starts[-1]), widths.pop()
        self.dtype = np.result_type(*(file.dtype for file in self.files))

    def read(self, start: int, stop: int) -> np.ndarray:
        """Read the rows from `start` to before `stop`."""
        if len(self.files) == 1:
            return self.files[0].read(start, stop)
        found = np.empty((stop - start, self.shape[1]), self.dtype)
        for file, first in zip(self.files, self.starts):
            begin, end = max(start, first), min(stop, first + file.shape[0])
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
                        "Each iteration over them must give the same blocks."
                    )
            end = min(self._position + len(self._left), stop if self._position >= start else start)
            used, self._left = np.split(self._left, [end - self._position])
            if self._position >= start:
                found[self._position - start : end - start] = used
            self._position = end
        return found


Table = FileTable | BlockTable


class StreamSource(RowSource):
    """A `RowSource` whose rows stay in .npy files or in a re-iterable of blocks.

    Parameters
    ----------
    rows : path, list of paths, memory-mapped array, or iterable of blocks
        What `Mixture.fit` takes.
    weight : array of shape (N,), optional
        The weight of each row.
    memory : int
        Bytes for the blocks in work and for the posteriors that one pass keeps for the next.
    threads : int, optional
        The number of threads, as `n_jobs` in joblib. Default: every core.

    See Also
    --------
    numpy.memmap : arrays in files.

    Examples
    --------
    >>> np.save("rows.npy", np.zeros((5000, 3)))
    >>> StreamSource("rows.npy", memory=10_000_000, threads=1).shape
    (5000, 3)
    """

    def __init__(
        self,
        rows: FilePath | Sequence[FilePath] | Iterable[np.ndarray],
        weight: np.ndarray | None = None,
        memory: int = MEMORY,
        threads: int | None = None,
    ):
        self.table = open_table(rows)
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

    def total(self, step: BlockStep) -> Statistics:
        total = sum_in_tree(self._results(step))
        self._checked = True
        return total

    def _results(self, step: BlockStep) -> Iterator[Statistics]:
        from concurrent.futures import ThreadPoolExecutor

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
        found = np.empty((len(rows), self.shape[1]), self.dtype)
        edges = np.searchsorted(rows, range(0, self.shape[0] + ROWS_PER_READ, ROWS_PER_READ))
        for begin, end in pairwise(edges):
            if begin < end:
                wanted = rows[begin:end]
                first = int(wanted[0])
                found[begin:end] = self.table.read(first, int(wanted[-1]) + 1)[wanted - first]
        check_finite(found, rows)
        return found


def _count_bytes(memo: dict[str, Any]) -> int:
    return sum(part.nbytes for value in memo.values() if value for part in value)


def open_table(X: Any) -> Table:
    """Open the rows of a path, paths, a memory-mapped array or blocks."""
    if isinstance(X, FilePath):
        return FileTable([X])
    if isinstance(X, list | tuple) and X and all(isinstance(part, FilePath) for part in X):
        return FileTable(X)
    return BlockTable([X] if isinstance(X, np.ndarray) else X)


def open_rows(X: Any, sample_weight: Any, threads: int | None) -> RowSource | None:
    """Open rows that are not in memory; None for arrays and whatever scikit-learn turns into one."""
    if isinstance(X, RowSource):
        if sample_weight is not None:
            raise ValueError("Pass sample_weight to the RowSource, not to fit.")
        return X
    if hasattr(X, "__dask_graph__"):
        from fishermix.distributed import ClusterSource

        return ClusterSource(X, sample_weight)
    return StreamSource(X, sample_weight, threads=threads) if _is_stream(X) else None


def _is_stream(X: Any) -> bool:
    """Whether X is a path, a list of paths or blocks, a memory-mapped array, or a re-iterable of blocks."""
    if isinstance(X, list | tuple):
        blocks = all(isinstance(part, np.ndarray) and part.ndim == 2 for part in X)
        return bool(X) and (blocks or all(isinstance(part, FilePath) for part in X))
    if isinstance(X, np.memmap):
        return X.ndim == 2 and X.dtype.kind in "fiu"
    is_array = any(hasattr(X, name) for name in ("__array__", "__array_interface__", "__dataframe__"))
    other = is_array or hasattr(X, "tocsr") or isinstance(X, dict | set)
    return isinstance(X, FilePath) or (not other and hasattr(X, "__iter__"))


# What sources check about rows and weights


def _parse_weight(weight: Any, rows: int) -> np.ndarray:
    """Return sample weights (N,) as float64."""
    weight = np.asarray(weight, np.float64)
    if weight.shape != (rows,) or not np.isfinite(weight).all() or (weight < 0).any() or not weight.any():
        raise FishermixError(f"sample_weight must be {rows} finite numbers, not negative and not all zero.")
    return weight


def check_finite(rows: np.ndarray, position: int | np.ndarray) -> None:
    """Reject NaN and infinity in rows that start at `position`, or are at these positions."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(rows.sum()):  # the quick test; a finite row can overflow it, so look again if it fails
            return
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        first = int(bad.argmax())
        row = position + first if isinstance(position, int) else position[first]
        raise FishermixError(f"Row {row} contains NaN or infinity. Remove such rows before fitting.")
