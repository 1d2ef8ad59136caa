"""EM on a Dask cluster: the rows stay on the workers, steps go there, sums come back.

A sweep is a task for each block, and tasks that add up the sums of eight, and of eight of these: what reaches
the client is one set of statistics. Tasks depend on nothing but blocks and step, and blocks can be made again
from what they were made of, so a sweep outlives the death of workers.
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

from fishermix.distributed.cluster import current_client, gathered, submitted, told_plainly
from fishermix.errors import FishermixError
from fishermix.rows.blocks import GROUP, Block, Step, Totals, block_rows, total_weight
from fishermix.rows.files import Table, open_table
from fishermix.rows.stream import checked_weight, require_finite, working_type

if TYPE_CHECKING:
    from distributed import Client


@dataclass
class Traffic:
    """What went between client and cluster, in bytes: steps to the workers, statistics back."""

    sweeps: int = 0
    sent: int = 0
    received: int = 0


class ClusterSource:
    """A `RowSource` whose blocks live on the workers of a Dask cluster.

    rows : a `dask.array` (N, D), whose chunks of rows are the blocks; paths of .npy, .safetensors or .parquet
        parts that the workers can read; or an array (N, D), which travels there once.
    client : the one made last, if left out.
    keep : True holds the rows in the memory of the workers; False lets the workers read their parts anew in
        each sweep, for files larger than all their memory.
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
        with told_plainly(self.client):
            pieces = list(self._pieces(rows))
        self.starts = np.concatenate([[0], np.cumsum([piece.n_rows for piece in pieces])])
        self.shape: tuple[int, int] = int(self.starts[-1]), pieces[0].width
        self.dtype = working_type(np.result_type(*(piece.dtype for piece in pieces)))
        self.weight = None if weight is None else checked_weight(weight, self.shape[0])
        self.total_weight = total_weight(self.weight, self.shape[0])
        workers = self._workers(len(pieces))
        self._parts = [
            submitted(
                self.client,
                _part,
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

    def _workers(self, n_pieces: int) -> list[str | None]:
        """A worker for each piece: neighbours, whose sums are added first, on the same one."""
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
            tables = gathered(self.client, [submitted(self.client, open_table, path) for path in paths])
            size = block_rows(sum(table.shape[0] for table in tables))
            for table in tables:
                for start in range(0, table.shape[0], size):
                    span = FileRows(table, start, min(start + size, table.shape[0]))
                    yield _Piece(span, span.stop - span.start, table.shape[1], table.dtype)

    def _chunks(self, array: Any) -> Iterator[_Piece]:
        if array.ndim != 2:
            raise FishermixError(f"rows must be a table (N, D), not an array of {array.shape}")
        array = array.rechunk({1: -1})
        lengths = array.chunks[0]
        if any(np.isnan(length) for length in lengths):
            raise FishermixError("the array does not know its chunks: call compute_chunk_sizes() first")
        for future, length in zip(self.client.compute(list(array.to_delayed().ravel())), lengths):
            yield _Piece(future, int(length), array.shape[1], array.dtype)

    def wait(self) -> ClusterSource:
        """Return when all rows are on the workers; a fit that begins earlier waits for them itself."""
        gathered(self.client, [submitted(self.client, _is_there, part) for part in self._parts])
        return self

    def total(self, step: Step) -> Totals:
        from distributed.protocol import pickle

        if not getattr(step, "again", False) or not self._iteration:
            self._iteration = uuid.uuid4().hex
        blob = pickle.dumps(step)
        there = submitted(self.client, pickle.loads, blob)
        sums = [submitted(self.client, _run, there, part, self._iteration) for part in self._parts]
        while len(sums) > 1:
            groups = [sums[first : first + GROUP] for first in range(0, len(sums), GROUP)]
            sums = [submitted(self.client, _added, group) for group in groups]
        (total,) = gathered(self.client, sums)
        self.traffic.sweeps += 1
        self.traffic.sent += len(blob)
        self.traffic.received += bytes_of(total)
        return total

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        edges = np.searchsorted(rows, self.starts)
        wanted = [
            submitted(self.client, _rows_of, part, rows[begin:end] - start)
            for part, start, (begin, end) in zip(self._parts, self.starts, pairwise(edges))
            if begin < end
        ]
        found = np.concatenate(gathered(self.client, wanted))
        return found, np.ones(len(rows)) if self.weight is None else self.weight[rows]


@dataclass
class _Piece:
    """What a part is made of: an array, a future of one, or rows in a file."""

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
    """A block on its worker; what it remembers of a sweep stays there."""

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
            require_finite(rows, self.start)
        return Block(rows, self.weight, self.memo)

    def __sizeof__(self) -> int:
        return 1000 + (self.rows.nbytes if isinstance(self.rows, np.ndarray) else 0)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "memo": {}, "iteration": ""}


def _part(
    rows: np.ndarray | FileRows, dtype: np.dtype, weight: np.ndarray | None, start: int, keep: bool
) -> Part:
    if keep and isinstance(rows, FileRows):
        rows = rows.read()
    if isinstance(rows, np.ndarray):
        rows = np.ascontiguousarray(rows, dtype)
        require_finite(rows, start)
    return Part(rows, dtype, weight, start)


def _is_there(part: Part) -> bool:
    return True


def _run(step: Step, part: Part, iteration: str) -> Totals:
    if part.iteration != iteration:
        # A copy of the part may have sat on this worker since an older iteration.
        part.memo, part.iteration = {}, iteration
    return step(part.block())


def _added(totals: Sequence[Totals]) -> Totals:
    total = copy.deepcopy(totals[0])  # results of tasks are not to be changed: they may be asked for again
    for more in totals[1:]:
        total += more
    return total


def _rows_of(part: Part, rows: np.ndarray) -> np.ndarray:
    return part.block().rows[rows]


def bytes_of(value: Any) -> int:
    """The bytes of the arrays in nested statistics."""
    if isinstance(value, dict):
        return sum(bytes_of(part) for part in value.values())
    if isinstance(value, list | tuple):
        return sum(bytes_of(part) for part in value)
    return int(getattr(value, "nbytes", 8))
