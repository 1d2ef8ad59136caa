"""EM over rows that do not fit into memory: one block after another is read and summed by threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.rows.blocks import PANEL, Block, Step, Totals, block_rows, summed, total_weight
from fishermix.rows.files import Table, open_table, taken
from fishermix.threads import available_threads

MEMORY = 2**30


class StreamSource:
    """A `RowSource` whose rows stay where they are, in a file or in a re-iterable of blocks.

    memory : bytes for the rows under way and for what one sweep leaves to the next; the statistics, a few
        numbers for each (component, dimension), come on top. Blocks are cut as those of an array in memory
        are, and the result is the same to the last bit, unless `memory` asks for smaller ones: then the sums
        may differ in their last bits, while medians stay exact.
    """

    def __init__(
        self,
        rows: Table | str | os.PathLike,
        weight: np.ndarray | None = None,
        memory: int = MEMORY,
        threads: int | None = None,
    ):
        self.table = open_table(rows) if isinstance(rows, str | os.PathLike) else rows
        self.shape, self.dtype = self.table.shape, working_type(self.table.dtype)
        self.weight = None if weight is None else checked_weight(weight, self.shape[0])
        self.total_weight = total_weight(self.weight, self.shape[0])
        self.threads = threads or available_threads()
        bytes_of_row = self.shape[1] * (self.dtype.itemsize + self.table.dtype.itemsize)
        affordable = memory // 2 // (self.threads + 1) // bytes_of_row // PANEL * PANEL
        if affordable < PANEL:
            needed = 2 * (self.threads + 1) * bytes_of_row * PANEL
            raise FishermixError(f"{memory:,} bytes are too few for rows so wide: give {needed:,} at least")
        self.size = min(block_rows(self.shape[0]), affordable)
        self._memos: list[dict[str, Any]] = [{} for _ in range(0, self.shape[0], self.size)]
        self._memory_for_memos = memory // 2
        self._checked = False

    def total(self, step: Step) -> Totals:
        total = summed(self._results(step))
        self._checked = True
        return total

    def _results(self, step: Step) -> Iterator[Totals]:
        kept = 0
        running: deque[tuple[dict[str, Any], Future[Totals]]] = deque()
        with ThreadPoolExecutor(self.threads) as pool:
            for number, memo in enumerate(self._memos):
                running.append((memo, pool.submit(step, self._block(number))))
                while len(running) > self.threads or (running and number == len(self._memos) - 1):
                    done, future = running.popleft()
                    yield future.result()
                    kept += (size := _bytes_of(done))
                    if kept > self._memory_for_memos:
                        done.clear()
                        kept -= size

    def _block(self, number: int) -> Block:
        start, stop = number * self.size, min((number + 1) * self.size, self.shape[0])
        rows = np.ascontiguousarray(self.table.read(start, stop), self.dtype)
        if not self._checked:
            require_finite(rows, start)
        return Block(rows, None if self.weight is None else self.weight[start:stop], self._memos[number])

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weight = np.ones(len(rows)) if self.weight is None else self.weight[rows]
        found = taken(self.table, rows).astype(self.dtype, copy=False)
        require_finite(found, rows)
        return found, weight


def working_type(stored: np.dtype) -> np.dtype:
    """float32 for float32 and float16, else float64."""
    return np.dtype(np.float32 if stored in (np.float32, np.float16) else np.float64)


def checked_weight(weight: np.ndarray, rows: int) -> np.ndarray:
    weight = np.asarray(weight, np.float64)
    if weight.shape != (rows,) or not np.isfinite(weight).all() or (weight < 0).any() or not weight.any():
        raise FishermixError(f"sample_weight must be {rows} numbers from 0 on, not all of them 0")
    return weight


def require_finite(rows: np.ndarray, position: int | np.ndarray) -> None:
    """Refuse NaN and infinity in rows from `position` on, or at these positions; mostly the sum tells."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(rows.sum()):
            return
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        first = int(bad.argmax())
        row = position + first if isinstance(position, int) else position[first]
        raise FishermixError(f"row {row} contains NaN or infinity: leave such rows out of the fit")


def _bytes_of(memo: dict[str, Any]) -> int:
    return sum(part.nbytes for value in memo.values() if value for part in value)
