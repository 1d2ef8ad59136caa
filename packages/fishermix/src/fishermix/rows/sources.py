"""Rows in blocks whose sufficient statistics add up: in memory, in files and in streams.

EM never asks for all rows at once. It hands a *step*, a function of one block, to a source and gets the sum
over all blocks. An array in memory is cut into blocks that threads share (`ArraySource`). Rows that are not
in memory are in a *table*, which reads consecutive ones into new memory (`StreamSource`). A cluster
(`fishermix.rows.distributed`) implements the same `RowSource` and runs the same steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.rows.blocks import PANEL, Block, BlockStep, S, block_rows, cut, sum_in_tree
from fishermix.rows.tables import FilePath, open_table
from fishermix.rows.threads import count_threads, map_in_threads

if TYPE_CHECKING:
    from concurrent.futures import Future


class RowSource(ABC):
    """Rows of this shape (N, D) and stored type, in blocks, with the weight (N,) of each row.

    Steps can be pickled, so they may run in another process.
    """

    def __init__(self, shape: tuple[int, int], dtype: np.dtype, weight: np.ndarray | None):
        if not shape[0]:
            raise FishermixError("There are no rows.", code="too_few")
        self.shape = shape
        self.dtype = np.dtype(np.float32 if dtype in (np.float32, np.float16) else np.float64)
        self.weight = None if weight is None else _parse_weight(weight, shape[0])
        with np.errstate(over="ignore"):  # `Mixture.fit` rejects an infinite sum
            self.total_weight = float(shape[0] if self.weight is None else self.weight.sum())

    @abstractmethod
    def total(self, step: BlockStep[S]) -> S:
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
        self.rows = np.ascontiguousarray(rows, self.dtype)
        self.threads = count_threads(threads)
        parts = cut(len(rows), block_rows(len(rows)))
        self.blocks = [Block(self.rows[part], self._weigh(part)) for part in parts]

    def total(self, step: BlockStep[S]) -> S:
        return sum_in_tree(map_in_threads(step, self.blocks, self.threads))

    def read_rows(self, rows: np.ndarray) -> np.ndarray:
        return self.rows[rows]


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
        memory: int = 2**30,
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
                f"Set it to at least {needed} bytes.",
                code="too_little_memory",
            )
        self._cuts = cut(self.shape[0], min(block_rows(self.shape[0]), affordable))
        self._memos: list[dict[str, Any]] = [{} for _ in self._cuts]
        self._memory_for_memos = memory // 2
        self._checked = False

    def total(self, step: BlockStep[S]) -> S:
        total = sum_in_tree(self._results(step))
        self._checked = True
        return total

    def _results(self, step: BlockStep[S]) -> Iterator[S]:
        from concurrent.futures import ThreadPoolExecutor

        kept = 0
        running: deque[tuple[dict[str, Any], Future[S]]] = deque()
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
        rows_per_read = 65_536  # 79 MB of 300 float32 numbers
        found = np.empty((len(rows), self.shape[1]), self.dtype)
        edges = np.searchsorted(rows, range(0, self.shape[0] + rows_per_read, rows_per_read))
        for begin, end in pairwise(edges):
            if begin < end:
                wanted = rows[begin:end]
                first = int(wanted[0])
                found[begin:end] = self.table.read(first, int(wanted[-1]) + 1)[wanted - first]
        check_finite(found, rows)
        return found


def _count_bytes(memo: dict[str, Any]) -> int:
    return sum(part.nbytes for value in memo.values() if value for part in value)


def open_rows(X: Any, sample_weight: Any, threads: int | None) -> RowSource | None:
    """Open rows that are not in memory; None for arrays and whatever scikit-learn turns into one."""
    if isinstance(X, RowSource):
        if sample_weight is not None:
            raise ValueError("Pass sample_weight to the RowSource, not to fit.")
        return X
    if hasattr(X, "__dask_graph__"):
        from fishermix.rows.distributed import ClusterSource

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


def _parse_weight(weight: Any, rows: int) -> np.ndarray:
    """Return sample weights (N,) as float64."""
    weight = np.asarray(weight, np.float64)
    if weight.shape != (rows,) or not np.isfinite(weight).all() or (weight < 0).any() or not weight.any():
        raise FishermixError(
            f"sample_weight must be {rows} finite numbers, not negative and not all zero.", code="wrong_shape"
        )
    return weight


def check_finite(rows: np.ndarray, position: int | np.ndarray) -> None:
    """Reject NaN and infinity in rows that start at `position`, or are at these positions."""
    found = find_not_finite(rows)
    if found is not None:
        row = int(position + found if isinstance(position, int) else position[found])
        raise FishermixError(
            f"Row {row} contains NaN or infinity. Remove such rows before fitting.",
            code="not_finite",
            row=row,
        )


def find_not_finite(rows: np.ndarray) -> int | None:
    """The number of the first row (n, D) with NaN or infinity, or None."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(rows.sum()):  # the quick test; a finite row can overflow it, so look again if it fails
            return None
    bad = ~np.isfinite(rows).all(axis=1)
    return int(bad.argmax()) if bad.any() else None
