"""Rows that do not fit into memory: threads read and sum one block after another."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.rows.blocks import (
    PANEL,
    Block,
    Statistics,
    Step,
    block_rows,
    check_finite,
    choose_dtype,
    parse_weight,
    sum_in_tree,
    sum_weights,
)
from fishermix.rows.files import Table, open_table, take_rows
from fishermix.threads import count_threads

MEMORY = 2**30  # bytes


class StreamSource:
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
    """

    def __init__(
        self,
        rows: Table | str | os.PathLike,
        weight: np.ndarray | None = None,
        memory: int = MEMORY,
        threads: int | None = None,
    ):
        self.table = open_table(rows) if isinstance(rows, str | os.PathLike) else rows
        self.shape, self.dtype = self.table.shape, choose_dtype(self.table.dtype)
        self.weight = None if weight is None else parse_weight(weight, self.shape[0])
        self.total_weight = sum_weights(self.weight, self.shape[0])
        self.threads = count_threads(threads)
        bytes_of_row = self.shape[1] * (self.dtype.itemsize + self.table.dtype.itemsize)
        affordable = memory // 2 // (self.threads + 1) // bytes_of_row // PANEL * PANEL
        if affordable < PANEL:
            needed = 2 * (self.threads + 1) * bytes_of_row * PANEL
            raise FishermixError(
                f"memory={memory} is too small for rows of {self.shape[1]} numbers. "
                f"Set it to at least {needed} bytes."
            )
        self.size = min(block_rows(self.shape[0]), affordable)
        self._memos: list[dict[str, Any]] = [{} for _ in range(0, self.shape[0], self.size)]
        self._memory_for_memos = memory // 2
        self._checked = False

    def total(self, step: Step) -> Statistics:
        """Sum the statistics of all blocks, in their order.

        Parameters
        ----------
        step : callable
            Maps a block to its statistics.
        """
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
        start, stop = number * self.size, min((number + 1) * self.size, self.shape[0])
        rows = np.ascontiguousarray(self.table.read(start, stop), self.dtype)
        if not self._checked:
            check_finite(rows, start)
        return Block(rows, None if self.weight is None else self.weight[start:stop], self._memos[number])

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows at the given positions, and their weights.

        Parameters
        ----------
        rows : array of int of shape (m,)
            Positions of the rows, in ascending order.

        Returns
        -------
        rows : array of shape (m, D)
            The rows.
        weight : array of shape (m,)
            Their weights: ones if the source has none.
        """
        weight = np.ones(len(rows)) if self.weight is None else self.weight[rows]
        found = take_rows(self.table, rows).astype(self.dtype, copy=False)
        check_finite(found, rows)
        return found, weight


def _count_bytes(memo: dict[str, Any]) -> int:
    return sum(part.nbytes for value in memo.values() if value for part in value)
