"""Rows in blocks whose sufficient statistics add up.

EM never asks for all rows at once. It hands a *step*, a function of one block, to a source and gets the sum
over all blocks. An array in memory is cut into blocks that threads share. A file larger than memory and a
cluster implement the same `RowSource` and run the same steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from fishermix.errors import FishermixError
from fishermix.runtime import available_threads

T = TypeVar("T")
Item = TypeVar("Item")

PANEL = 1024  # rows per kernel call: few enough for the L2 cache, enough to hide the cost of the call
FEWEST_ROWS, MOST_ROWS = 2 * PANEL, 64 * PANEL  # of a block
BLOCKS_OF_ARRAY = 16  # per array, within these limits: enough for the threads of most machines
GROUP = 8  # results that are added up before their sum is passed on
LEVELS = 3  # of such sums that are made while results come in; those of the next levels are held at once


class Statistics(dict[str, Any]):
    """Named sufficient statistics of a block: numbers and arrays are added, lists are concatenated."""

    def __iadd__(self, other: Statistics) -> Statistics:
        for name, value in other.items():
            self[name] += value
        return self

    def is_finite(self) -> bool:
        """Whether no sum has overflowed the type of the data."""
        return all(
            value.is_finite()
            if isinstance(value, Statistics)
            else isinstance(value, list) or np.isfinite(value).all()
            for value in self.values()
        )


@dataclass
class Block:
    """Consecutive rows (n, D), C-ordered float32 or float64, and their weights (n,), or None for ones.

    `memo` keeps what one pass computes for the next one of the same iteration. It may be emptied at any time.
    """

    rows: np.ndarray
    weight: np.ndarray | None = None
    memo: dict[str, Any] = field(default_factory=dict)

    def panels(self, dtype: np.dtype) -> list[np.ndarray]:
        """The rows as this type, in panels."""
        rows = self.rows.astype(dtype, copy=False)
        return [rows[panel] for panel in cut(len(rows), PANEL)]


BlockStep = Callable[[Block], Statistics]


class RowSource(ABC):
    """Rows of this shape (N, D) and stored type, in blocks, with the weight (N,) of each row.

    Steps can be pickled, so they may run in another process.
    """

    def __init__(self, shape: tuple[int, int], dtype: np.dtype, weight: np.ndarray | None):
        self.shape, self.dtype = shape, choose_dtype(dtype)
        self.weight = None if weight is None else parse_weight(weight, shape[0])
        with np.errstate(over="ignore"):  # `Mixture.fit` rejects an infinite sum
            self.total_weight = float(shape[0] if self.weight is None else self.weight.sum())

    @abstractmethod
    def total(self, step: BlockStep) -> Statistics:
        """Sum the statistics that `step` gives of each block, in the order of the blocks.

        Returns
        -------
        statistics : Statistics
        """

    @abstractmethod
    def read_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows at the given positions (m,), which ascend.

        Returns
        -------
        rows : ndarray of shape (m, D)
        """

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows at the given positions (m,), which ascend, and their weights.

        Returns
        -------
        rows, weights : ndarrays of shape (m, D) and (m,)
        """
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


def sum_in_tree(results: Iterator[Statistics]) -> Statistics:
    """Add up every GROUP results, then every GROUP of these sums, and so on.

    Machines can add in this order too, each its own branches, and get the same bits.
    """
    for _ in range(LEVELS):
        results = _sum_groups(results)
    sums = list(results)
    while len(sums) > 1:
        sums = list(_sum_groups(iter(sums)))
    return sums[0]


def _sum_groups(results: Iterator[Statistics]) -> Iterator[Statistics]:
    for total in results:
        for other in islice(results, GROUP - 1):
            total += other
        yield total


# What sources check about rows and weights


def choose_dtype(stored: np.dtype) -> np.dtype:
    """Return the type to compute in: float32 for float32 and float16, else float64."""
    return np.dtype(np.float32 if stored in (np.float32, np.float16) else np.float64)


def parse_weight(weight: Any, rows: int) -> np.ndarray:
    """Return sample weights (N,) as float64."""
    weight = np.asarray(weight, np.float64)
    if weight.shape != (rows,) or not np.isfinite(weight).all() or (weight < 0).any() or not weight.any():
        raise FishermixError(
            f"sample_weight must be {rows} finite numbers that are at least 0 and not all 0."
        )
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


def is_table(X: Any) -> bool:
    """Whether X is what scikit-learn's `check_array` would return unchanged, found in less time."""
    if type(X) is not np.ndarray or X.dtype not in (np.float32, np.float64) or not X.flags.c_contiguous:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return X.ndim == 2 and X.size > 0 and bool(np.isfinite(X.sum()))
