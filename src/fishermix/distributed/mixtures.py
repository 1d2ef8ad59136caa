"""EM on a Dask cluster: the rows stay on the workers, steps are sent there, and sums come back.

A pass is one task per block, and tasks that add up the statistics of eight blocks, then of eight of these.
The client receives one set of statistics. Tasks depend on blocks and steps only, and blocks can be made
again, so a pass survives the death of workers.
"""

from __future__ import annotations

import copy
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fishermix.distributed.cluster import current_client, explain_errors, gather, submit, sum_in_tree
from fishermix.errors import FishermixError
from fishermix.rows.blocks import (
    GROUP,
    Block,
    Statistics,
    Step,
    block_rows,
    check_finite,
    choose_dtype,
    parse_weight,
    sum_weights,
)
from fishermix.rows.files import Table, open_table

if TYPE_CHECKING:
    from distributed import Client


@dataclass
class Traffic:
    """Bytes between client and cluster: steps to the workers, statistics back."""

    passes: int = 0
    sent: int = 0
    received: int = 0


class ClusterSource:
    """A `RowSource` whose blocks are on the workers of a Dask cluster.

    Parameters
    ----------
    rows : dask.array, paths, or array of shape (N, D)
        The rows: a `dask.array`, files that the workers can read, or an array that is sent there once.
    client : distributed.Client, optional
        The Dask client. Default: the one made last.
    weight : array of shape (N,), optional
        The weight of each row.
    keep : bool
        Keep the rows in the memory of the workers. False reads the files again in each pass.
    """

    def __init__(
        self,
        rows: Any,
        client: Client | None = None,
        weight: np.ndarray | None = None,
        keep: bool = True,
    ):
        self.client = client or current_client()
        self.traffic = Traffic()
        with explain_errors(self.client):
            pieces = list(self._pieces(rows))
        self.starts = np.concatenate([[0], np.cumsum([piece.n_rows for piece in pieces])])
        self.shape: tuple[int, int] = int(self.starts[-1]), pieces[0].width
        self.dtype = choose_dtype(np.result_type(*(piece.dtype for piece in pieces)))
        self.weight = None if weight is None else parse_weight(weight, self.shape[0])
        self.total_weight = sum_weights(self.weight, self.shape[0])
        workers = self._assign_workers(len(pieces))
        self._parts = [
            submit(
                self.client,
                _make_part,
                piece.rows,
                self.dtype,
                None if self.weight is None else self.weight[start:stop],
                int(start),
                keep,
                worker=worker if isinstance(piece.rows, np.ndarray | FileRows) else None,
            )
            for piece, worker, (start, stop) in zip(pieces, workers, pairwise(self.starts))
        ]
        self._iteration = ""

    def _assign_workers(self, n_pieces: int) -> list[str | None]:
        """Assign a worker to each piece: neighbors, whose sums are added first, to the same one."""
        workers = sorted(self.client.scheduler_info()["workers"]) or [None]
        return [workers[i * len(workers) // n_pieces] for i in range(n_pieces)]

    def _pieces(self, rows: Any) -> Iterator[_Piece]:
        if hasattr(rows, "__dask_graph__"):
            yield from self._chunks(rows)
        elif isinstance(rows, np.ndarray):
            size = block_rows(len(rows))
            for start in range(0, len(rows), size):
                part = np.ascontiguousarray(rows[start : start + size])
                yield _Piece(part, len(part), part.shape[1], part.dtype)
        else:
            paths = [rows] if isinstance(rows, str | os.PathLike) else list(rows)
            tables = gather(self.client, [submit(self.client, open_table, path) for path in paths])
            size = block_rows(sum(table.shape[0] for table in tables))
            for table in tables:
                for start in range(0, table.shape[0], size):
                    span = FileRows(table, start, min(start + size, table.shape[0]))
                    yield _Piece(span, span.stop - span.start, table.shape[1], table.dtype)

    def _chunks(self, array: Any) -> Iterator[_Piece]:
        if array.ndim != 2:
            raise FishermixError(f"The rows must be (N, D), got an array of shape {array.shape}.")
        array = array.rechunk({1: -1})
        lengths = array.chunks[0]
        if any(np.isnan(length) for length in lengths):
            raise FishermixError(
                "The chunk sizes of the array are unknown. Call compute_chunk_sizes() first."
            )
        for future, length in zip(self.client.compute(list(array.to_delayed().ravel())), lengths):
            yield _Piece(future, int(length), array.shape[1], array.dtype)

    def wait(self) -> ClusterSource:
        """Wait until all rows are on the workers. A fit that starts earlier waits for them itself."""
        gather(self.client, [submit(self.client, _confirm, part) for part in self._parts])
        return self

    def total(self, step: Step) -> Statistics:
        """Sum the statistics of all blocks.

        Parameters
        ----------
        step : callable
            Maps a block to its statistics.
        """
        from distributed.protocol import pickle

        if not getattr(step, "again", False) or not self._iteration:
            self._iteration = uuid.uuid4().hex
        blob = pickle.dumps(step)
        there = submit(self.client, pickle.loads, blob)
        values = there, self._iteration
        total = sum_in_tree(self.client, _run_step, self._parts, *values, add=_add_up, group=GROUP)
        self.traffic.passes += 1
        self.traffic.sent += len(blob)
        self.traffic.received += count_bytes(total)
        return total

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
        edges = np.searchsorted(rows, self.starts)
        wanted = [
            submit(self.client, _take_rows, part, rows[begin:end] - start)
            for part, start, (begin, end) in zip(self._parts, self.starts, pairwise(edges))
            if begin < end
        ]
        found = np.concatenate(gather(self.client, wanted))
        return found, np.ones(len(rows)) if self.weight is None else self.weight[rows]


@dataclass
class _Piece:
    """The origin of a part: an array, the future of one, or rows in a file."""

    rows: Any
    n_rows: int
    width: int
    dtype: np.dtype


@dataclass(frozen=True)
class FileRows:
    """Rows of a table, read when they are needed."""

    table: Table
    start: int
    stop: int

    def read(self) -> np.ndarray:
        return self.table.read(self.start, self.stop)


@dataclass
class Part:
    """A block on its worker. Its memo stays there."""

    rows: np.ndarray | FileRows
    dtype: np.dtype
    weight: np.ndarray | None
    start: int
    memo: dict[str, Any] = field(default_factory=dict)
    iteration: str = ""

    def block(self) -> Block:
        rows = self.rows
        if isinstance(rows, FileRows):
            rows = np.ascontiguousarray(rows.read(), self.dtype)
            check_finite(rows, self.start)
        return Block(rows, self.weight, self.memo)

    def __sizeof__(self) -> int:
        return 1000 + (self.rows.nbytes if isinstance(self.rows, np.ndarray) else 0)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "memo": {}, "iteration": ""}


def _make_part(
    rows: np.ndarray | FileRows, dtype: np.dtype, weight: np.ndarray | None, start: int, keep: bool
) -> Part:
    if keep and isinstance(rows, FileRows):
        rows = rows.read()
    if isinstance(rows, np.ndarray):
        rows = np.ascontiguousarray(rows, dtype)
        check_finite(rows, start)
    return Part(rows, dtype, weight, start)


def _confirm(part: Part) -> bool:
    return True


def _run_step(part: Part, step: Step, iteration: str) -> Statistics:
    if part.iteration != iteration:
        # This may be an old copy of the part, with the memo of an earlier iteration.
        part.memo, part.iteration = {}, iteration
    return step(part.block())


def _add_up(parts: Sequence[Statistics]) -> Statistics:
    total = copy.deepcopy(parts[0])  # results of tasks must not change: they may be needed again
    for more in parts[1:]:
        total += more
    return total


def _take_rows(part: Part, rows: np.ndarray) -> np.ndarray:
    return part.block().rows[rows]


def count_bytes(value: Any) -> int:
    """Count the bytes of the arrays in nested statistics."""
    if isinstance(value, dict):
        return sum(count_bytes(part) for part in value.values())
    if isinstance(value, list | tuple):
        return sum(count_bytes(part) for part in value)
    return int(getattr(value, "nbytes", 8))
