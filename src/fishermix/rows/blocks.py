"""Where rows come from: blocks whose statistics add up.

EM never asks for all rows at once. It hands a *step*, a function of one block, to a source, and gets the sum
over all blocks. An array in memory is cut into blocks that threads share; a file too large for memory or a
cluster offers the same members of `RowSource` and runs the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fishermix.threads import available_threads

PANEL = 1024  # rows that a kernel takes at once: few enough for the caches, enough to forget the call's cost
FEWEST_ROWS, MOST_ROWS, BLOCKS = 2 * PANEL, 64 * PANEL, 16
GROUP = 8  # results that are added up before their sum goes on


class Totals(dict[str, Any]):
    """Named statistics of a block that add up: numbers and arrays are added, lists joined."""

    def __iadd__(self, other: Totals) -> Totals:
        for name, value in other.items():
            self[name] += value
        return self

    def finite(self) -> bool:
        """Whether no sum has overflowed the type of the data."""
        return all(
            value.finite()
            if isinstance(value, Totals)
            else isinstance(value, list) or np.isfinite(value).all()
            for value in self.values()
        )


@dataclass
class Block:
    """Consecutive rows (n, D), C-ordered float32 or float64, and their weights (n,) or None for ones.

    `memo` is room for what one sweep leaves to the next of the same iteration; it may be lost at any time.
    """

    rows: np.ndarray
    weight: np.ndarray | None = None
    memo: dict[str, Any] = field(default_factory=dict)

    def panels(self) -> Iterator[slice]:
        """The rows in pieces of PANEL."""
        for start in range(0, len(self.rows), PANEL):
            yield slice(start, min(start + PANEL, len(self.rows)))


Step = Callable[[Block], Totals]


@runtime_checkable
class RowSource(Protocol):
    """Rows in blocks. Steps can be pickled, so that they may run in another process."""

    shape: tuple[int, int]
    dtype: np.dtype
    total_weight: float

    def total(self, step: Step) -> Totals:
        """The sum of step(block) over all blocks, in their order."""

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows (m, D) at these ascending positions (m,), and their weights (m,)."""


class ArraySource:
    """An array (N, D) in memory or memory-mapped, cut into blocks.

    The cuts depend on N alone and the sums run in the order of the blocks: `threads` changes the time, not a
    bit of the result.
    """

    def __init__(self, rows: np.ndarray, weight: np.ndarray | None = None, threads: int | None = None):
        self.rows, self.weight = rows, weight
        self.shape: tuple[int, int] = rows.shape[0], rows.shape[1]
        self.dtype = np.dtype(np.float32 if rows.dtype == np.float32 else np.float64)
        self.total_weight = total_weight(weight, len(rows))
        self.threads = threads or available_threads()
        self.size = block_rows(len(rows))
        self._memos: list[dict[str, Any]] = [{} for _ in range(0, len(rows), self.size)]

    def _block(self, number: int) -> Block:
        cut = slice(number * self.size, (number + 1) * self.size)
        rows = np.ascontiguousarray(self.rows[cut], self.dtype)
        return Block(rows, None if self.weight is None else self.weight[cut], self._memos[number])

    def total(self, step: Step) -> Totals:
        numbers = range(len(self._memos))
        if self.threads == 1 or len(numbers) == 1:
            return summed(step(self._block(number)) for number in numbers)
        from concurrent.futures import ThreadPoolExecutor  # 10 ms that a search does not wait for

        with ThreadPoolExecutor(self.threads) as pool:
            return summed(pool.map(lambda number: step(self._block(number)), numbers))

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weight = np.ones(len(rows)) if self.weight is None else self.weight[rows]
        return np.asarray(self.rows[rows], self.dtype), weight


def total_weight(weight: np.ndarray | None, n_rows: int) -> float:
    """The sum of the weights (N,), or N if there are none."""
    with np.errstate(over="ignore"):  # infinity is refused where it is used
        return float(n_rows if weight is None else weight.sum())


def block_rows(n_rows: int) -> int:
    """How many rows a block has."""
    size = -(-n_rows // (BLOCKS * PANEL)) * PANEL
    return min(max(size, FEWEST_ROWS), MOST_ROWS)


def summed(results: Iterator[Totals]) -> Totals:
    """The sum in the order of a tree: of every GROUP results, of every GROUP of these sums, and so on.

    Machines can add in this order too, each its own branches, and come to the same bits.
    """
    branches: list[tuple[int, Totals]] = []  # of each height: how many are added up so far, and their sum
    for result in results:
        for height in count():
            if height == len(branches):
                branches.append((1, result))
            else:
                added, branch = branches[height]
                branches[height] = (added + 1, branch.__iadd__(result)) if added else (1, result)
            added, result = branches[height]
            if added < GROUP:
                break
            branches[height] = (0, result)
    total = None
    for added, branch in branches:
        if added:
            total = branch if total is None else branch.__iadd__(total)
    assert total is not None
    return total
