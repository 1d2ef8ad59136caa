"""EM on a Dask cluster: the rows stay on the workers, steps are sent there, and sums come back.

A pass is one task per block, and tasks that add up the statistics of eight blocks, then of eight of these.
The client receives one set of statistics. Tasks depend on blocks and steps only, and blocks can be made
again, so a pass survives the death of workers.
"""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from operator import iadd
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fishermix.errors import FishermixError, install_command
from fishermix.rows import GROUP, Block, BlockStep, RowSource, check_finite
from fishermix.rows.blocks import S

if TYPE_CHECKING:
    from distributed import Client, Future

SECONDS_BETWEEN_CHECKS = 1  # of whether the scheduler is still there


class ClusterSource(RowSource):
    """A `dask.array` (N, D), whose chunks of rows are blocks on the workers of the current client."""

    def __init__(self, array: Any, weight: np.ndarray | None = None):
        if array.ndim != 2:
            raise FishermixError(
                f"The rows must be (N, D), got an array of shape {array.shape}.", code="wrong_shape"
            )
        array = array.rechunk({1: -1})
        lengths = array.chunks[0]
        if any(np.isnan(length) for length in lengths):
            raise FishermixError(
                "The chunk sizes of the array are unknown. Call compute_chunk_sizes() first.",
                code="wrong_shape",
            )
        super().__init__(array.shape, array.dtype, weight)
        self.client = _find_client()
        self.starts = np.concatenate([[0], np.cumsum(lengths)])
        with explain_errors(self.client):
            chunks = self.client.compute(list(array.to_delayed().ravel()))
        self._parts = [
            self._submit(_make_part, chunk, self.dtype, self._weigh(slice(start, stop)), int(start))
            for chunk, (start, stop) in zip(chunks, pairwise(self.starts))
        ]
        self._iteration = ""

    def total(self, step: BlockStep[S]) -> S:
        from distributed.protocol import pickle

        if not getattr(step, "again", False) or not self._iteration:
            self._iteration = uuid.uuid4().hex
        there = self._submit(pickle.loads, pickle.dumps(step))  # each worker fetches it once
        sums = [self._submit(_run_step, part, there, self._iteration) for part in self._parts]
        while len(sums) > 1:
            groups = (sums[first : first + GROUP] for first in range(0, len(sums), GROUP))
            sums = [self._submit(_add_up, members) for members in groups]
        return self._gather(sums)[0]

    def read_rows(self, rows: np.ndarray) -> np.ndarray:
        edges = np.searchsorted(rows, self.starts)
        wanted = [
            self._submit(_take_rows, part, rows[begin:end] - start)
            for part, start, (begin, end) in zip(self._parts, self.starts, pairwise(edges))
            if begin < end
        ]
        return np.concatenate(self._gather(wanted))

    def _submit(self, function: Any, *values: Any) -> Future:
        """Run function(*values) on a worker. A lost result is computed again."""
        import dask

        # Dask warns of data inside tasks, but data that only a worker holds would be lost with it.
        settings = {"distributed.admin.large-graph-warning-threshold": "1TB"}
        with explain_errors(self.client), dask.config.set(settings):
            return self.client.submit(function, *values, pure=False)

    def _gather(self, futures: Sequence[Future]) -> list[Any]:
        """Wait for results. Dask may wait forever if the scheduler goes away just after it was asked."""

        async def gather() -> list[Any]:
            return await self.client.gather(list(futures), asynchronous=True)

        with explain_errors(self.client):
            loop = cast(Any, self.client.loop).asyncio_loop
            waiting = asyncio.run_coroutine_threadsafe(gather(), loop)
            while True:
                try:
                    return waiting.result(timeout=SECONDS_BETWEEN_CHECKS)
                except TimeoutError:
                    if waiting.done():
                        raise
                    if self.client.status != "running":
                        waiting.cancel()
                        raise CancelledError from None


# What runs on the workers


@dataclass
class Part(Block):
    """A block on its worker. Its memo stays there."""

    iteration: str = ""

    def __sizeof__(self) -> int:
        return 1000 + self.rows.nbytes

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "memo": {}, "iteration": ""}


def _make_part(rows: Any, dtype: np.dtype, weight: np.ndarray | None, start: int) -> Part:
    rows = np.ascontiguousarray(rows, dtype)
    check_finite(rows, start)
    return Part(rows, weight)


def _run_step(part: Part, step: BlockStep[S], iteration: str) -> S:
    if part.iteration != iteration:
        # This may be an old copy of the part, with the memo of an earlier iteration.
        part.memo = {}
        part.iteration = iteration
    return step(part)


def _add_up(parts: Sequence[S]) -> S:
    total = copy.deepcopy(parts[0])  # results of tasks must not change: they may be needed again
    for more in parts[1:]:
        total = iadd(total, more)
    return total


def _take_rows(part: Part, rows: np.ndarray) -> np.ndarray:
    return part.rows[rows]


# The client, and clear errors when its cluster goes away


def _find_client() -> Client:
    """Return the client that was made last in this process."""
    try:
        return _import_dask().get_client()
    except ValueError as error:
        raise FishermixError(
            "There is no Dask client. Make one before the fit: distributed.Client(processes=False) on this "
            "machine, or distributed.Client('tcp://HOST:PORT').",
            code="cluster",
        ) from error


@contextmanager
def explain_errors(client: Client) -> Iterator[None]:
    """Turn the errors of a lost cluster into one that says what to do."""
    try:
        yield
    except FishermixError:
        raise
    except _import_dask().scheduler.KilledWorker as error:
        raise FishermixError(
            f"A task killed its workers repeatedly ({error}). Usually a block and its statistics do not fit "
            "into their memory: use smaller blocks or workers with more memory.",
            code="cluster",
        ) from error
    except Exception as error:
        if client.status == "running" and not isinstance(error, CancelledError):
            raise
        address = client.scheduler.address if client.scheduler else client._start_arg
        raise FishermixError(
            f"The scheduler at {address} is gone. Restart it and its workers, and run this again with a new "
            "client. A fit with checkpoint=FOLDER continues from its last checkpoint.",
            code="cluster",
        ) from error


def _import_dask() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise FishermixError(
            f"A cluster needs Dask. Run: {install_command('fishermix[dask]')}", code="missing_package"
        ) from error
    return distributed
