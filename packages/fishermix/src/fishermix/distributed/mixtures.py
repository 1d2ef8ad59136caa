"""EM on a Dask cluster: the rows stay on the workers, steps are sent there, and sums come back.

A pass is one task per block, and tasks that add up the statistics of eight blocks, then of eight of these.
The client receives one set of statistics. Tasks depend on blocks and steps only, and blocks can be made
again, so a pass survives the death of workers.
"""

from __future__ import annotations

import copy
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fishermix.distributed.cluster import current_client, explain_errors, gather, submit, sum_in_tree
from fishermix.errors import FishermixError
from fishermix.rows.blocks import GROUP, Block, RowSource, Statistics, Step, block_rows, check_finite, cut
from fishermix.rows.sources import Table, open_table

if TYPE_CHECKING:
    from distributed import Client


@dataclass
class Traffic:
    """Bytes between client and cluster: steps to the workers, statistics back."""

    passes: int = 0
    sent: int = 0
    received: int = 0


class ClusterSource(RowSource):
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

    See Also
    --------
    fishermix.distributed.cluster.connect : connects to a cluster.
    fishermix.rows.sources.StreamSource : rows in files, on one machine.

    Examples
    --------
    >>> from fishermix.distributed.cluster import connect
    >>> np.save("rows.npy", np.random.default_rng(0).normal(size=(500, 3)))
    >>> with connect("local:1"):
    ...     print(ClusterSource("rows.npy").shape)
    (500, 3)
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
            pieces = list(list_pieces(self.client, rows, lambda n_rows, width: block_rows(n_rows)))
        self.starts = np.concatenate([[0], np.cumsum([piece.n_rows for piece in pieces])])
        shape = int(self.starts[-1]), pieces[0].width
        super().__init__(shape, np.result_type(*(piece.dtype for piece in pieces)), weight)
        workers = self._assign_workers(len(pieces))
        self._parts = [
            submit(
                self.client,
                _make_part,
                piece.rows,
                self.dtype,
                self._weigh(slice(start, stop)),
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

    def wait(self) -> ClusterSource:
        """Wait until all rows are on the workers. A fit that starts earlier waits for them itself.

        Returns
        -------
        self : ClusterSource
        """
        gather(self.client, [submit(self.client, _confirm, part) for part in self._parts])
        return self

    def total(self, step: Step) -> Statistics:
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

    def read_rows(self, rows: np.ndarray) -> np.ndarray:
        edges = np.searchsorted(rows, self.starts)
        wanted = [
            submit(self.client, _take_rows, part, rows[begin:end] - start)
            for part, start, (begin, end) in zip(self._parts, self.starts, pairwise(edges))
            if begin < end
        ]
        return np.concatenate(gather(self.client, wanted))


@dataclass(frozen=True)
class FileRows:
    """Rows of a table, read when they are needed."""

    table: Table
    start: int
    stop: int

    def read(self) -> np.ndarray:
        return self.table.read(self.start, self.stop)


@dataclass
class Piece:
    """Consecutive rows: an array, the future of one, or rows in a file."""

    rows: Any
    n_rows: int
    width: int
    dtype: np.dtype


def list_pieces(client: Client, rows: Any, choose_size: Callable[[int, int], int]) -> Iterator[Piece]:
    """Cut a `dask.array`, an array in memory or the rows of files into pieces.

    choose_size : the number of rows per piece, given the number of all rows and their width.
    """
    if hasattr(rows, "__dask_graph__"):
        yield from _list_chunks(client, rows)
        return
    if isinstance(rows, np.ndarray):
        for part in cut(len(rows), choose_size(*rows.shape)):
            piece = np.ascontiguousarray(rows[part])
            yield Piece(piece, len(piece), piece.shape[1], piece.dtype)
        return
    paths = [rows] if isinstance(rows, str | os.PathLike) else list(rows)
    tables = gather(client, [submit(client, open_table, path) for path in paths])
    n_rows = sum(table.shape[0] for table in tables)
    for table in tables:
        for part in cut(table.shape[0], choose_size(n_rows, table.shape[1])):
            span = FileRows(table, part.start, part.stop)
            yield Piece(span, part.stop - part.start, table.shape[1], table.dtype)


def _list_chunks(client: Client, array: Any) -> Iterator[Piece]:
    if array.ndim != 2:
        raise FishermixError(f"The rows must be (N, D), got an array of shape {array.shape}.")
    array = array.rechunk({1: -1})
    lengths = array.chunks[0]
    if any(np.isnan(length) for length in lengths):
        raise FishermixError("The chunk sizes of the array are unknown. Call compute_chunk_sizes() first.")
    for future, length in zip(client.compute(list(array.to_delayed().ravel())), lengths):
        yield Piece(future, int(length), array.shape[1], array.dtype)


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
