"""Connecting to a Dask cluster, running tasks on it, and clear errors when it goes away."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from fishermix.errors import FishermixError
from fishermix.runtime import install_command

if TYPE_CHECKING:
    from distributed import Client, Future

SECONDS_TO_CONNECT = 30
SECONDS_BETWEEN_CHECKS = 1  # of whether the scheduler is still there


@contextmanager
def connect(cluster: str) -> Iterator[Client]:
    """Connect to the scheduler at `tcp://HOST:PORT`, or start `local:N`, N processes on this machine.

    Parameters
    ----------
    cluster : str
        `tcp://HOST:PORT`, the address of a scheduler, or `local:N` for N processes on this machine.

    Returns
    -------
    client : context manager of a dask.distributed.Client

    Examples
    --------
    >>> import numpy as np
    >>> from fishermix import HybridMixture
    >>> from fishermix.distributed.mixtures import ClusterSource
    >>> rows = np.random.default_rng(0).normal(size=(500, 3))
    >>> with connect("local:1"):
    ...     mixture = HybridMixture(2, random_state=0).fit(ClusterSource(rows))
    >>> mixture.n_features_in_
    3
    """
    distributed = _import_distributed()
    if local := re.fullmatch(r"local:([1-9]\d*)", cluster):
        with (
            distributed.LocalCluster(
                n_workers=int(local[1]), threads_per_worker=1, dashboard_address=None
            ) as processes,
            distributed.Client(processes) as client,
        ):
            yield client
    elif re.fullmatch(r"(tcp|tls)://.+:\d+", cluster):
        with _make_client(distributed, cluster) as client:
            try:
                client.wait_for_workers(1, timeout=SECONDS_TO_CONNECT)
            except TimeoutError as error:
                raise FishermixError(
                    f"The scheduler at {cluster} has no workers. Start some with `dask worker {cluster}`."
                ) from error
            yield client
    else:
        raise FishermixError(f"A cluster must be tcp://HOST:PORT or local:N, got '{cluster}'.")


def _make_client(distributed: Any, cluster: str) -> Client:
    problem = ""
    try:
        return distributed.Client(cluster, timeout=SECONDS_TO_CONNECT)
    except OSError:
        problem = f"No scheduler answers at {cluster}. Start one with `dask scheduler` and workers with "
        problem += f"`dask worker {cluster}`."
    except TypeError as error:  # TLS without its context
        problem = f"Cannot use {cluster} ({error}). Set the TLS certificates in Dask's configuration."
    # Dask deadlocks if a client that failed is collected while the next one is made.
    gc.collect()
    raise FishermixError(problem)


def current_client() -> Client:
    """Return the client that was made last in this process."""
    try:
        return _import_distributed().get_client()
    except ValueError as error:
        raise FishermixError(
            "There is no Dask client. Make one before the fit: distributed.Client(processes=False) on this "
            "machine, or distributed.Client('tcp://HOST:PORT')."
        ) from error


@contextmanager
def explain_errors(client: Client) -> Iterator[None]:
    """Turn the errors of a lost cluster into one that says what to do."""
    try:
        yield
    except FishermixError:
        raise
    except _import_distributed().scheduler.KilledWorker as error:
        raise FishermixError(
            f"A task killed its workers repeatedly ({error}). Usually a block and its statistics do not fit "
            "into their memory: use smaller blocks or workers with more memory."
        ) from error
    except Exception as error:
        if client.status == "running" and not isinstance(error, CancelledError):
            raise
        raise FishermixError(
            f"The scheduler at {_find_address(client)} is gone. Restart it and its workers, and run this "
            "again with a new client. A command continues after its finished stages, and a fit with "
            "checkpoint=FOLDER from its last checkpoint."
        ) from error


def submit(client: Client, function: Any, *values: Any, worker: str | None = None) -> Future:
    """Run function(*values) on a worker and return its future. A lost result is computed again.

    worker : the preferred worker.
    """
    import dask

    # Dask warns of data inside tasks, but data that only a worker holds would be lost with it.
    with explain_errors(client), dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
        there = {"workers": [worker], "allow_other_workers": True} if worker else {}
        return client.submit(function, *values, pure=False, **there)


def gather(client: Client, futures: Sequence[Future]) -> list[Any]:
    """Wait for the results of futures.

    Dask itself may wait forever if the scheduler goes away just after it was asked.
    """
    with explain_errors(client):
        loop = cast(Any, client.loop).asyncio_loop
        waiting = asyncio.run_coroutine_threadsafe(_gather(client, futures), loop)
        while True:
            try:
                return waiting.result(timeout=SECONDS_BETWEEN_CHECKS)
            except TimeoutError:
                if waiting.done():
                    raise
                if client.status != "running":
                    waiting.cancel()
                    raise CancelledError from None


async def _gather(client: Client, futures: Sequence[Future]) -> list[Any]:
    return await client.gather(list(futures), asynchronous=True)


def sum_in_tree(
    client: Client, function: Any, parts: Sequence[Future], *values: Any, add: Any, group: int
) -> Any:
    """Run function(part, *values) on each part; add up every `group` results, every `group` sums, ..."""
    sums = [submit(client, function, part, *values) for part in parts]
    while len(sums) > 1:
        groups = (sums[first : first + group] for first in range(0, len(sums), group))
        sums = [submit(client, add, members) for members in groups]
    return gather(client, sums)[0]


def _find_address(client: Client) -> str:
    return str(client.scheduler.address if client.scheduler else client._start_arg)


def _import_distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise FishermixError(f"A cluster needs Dask. Run: {install_command('dask')}") from error
    return distributed
