"""Reaching a Dask cluster, and saying plainly what is wrong when it goes away."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from fishermix.errors import FishermixError

if TYPE_CHECKING:
    from distributed import Client, Future

SECONDS_TO_CONNECT = 30
SECONDS_BETWEEN_LOOKS = 1


@contextmanager
def connect(cluster: str) -> Iterator[Client]:
    """A client of the scheduler at `tcp://HOST:PORT`, or of `local:N`, N processes of this machine."""
    distributed = _distributed()
    if local := re.fullmatch(r"local:([1-9]\d*)", cluster):
        with (
            distributed.LocalCluster(
                n_workers=int(local[1]), threads_per_worker=1, dashboard_address=None
            ) as processes,
            distributed.Client(processes) as client,
        ):
            yield client
    elif re.fullmatch(r"(tcp|tls)://.+:\d+", cluster):
        with _client(distributed, cluster) as client:
            try:
                client.wait_for_workers(1, timeout=SECONDS_TO_CONNECT)
            except TimeoutError as error:
                raise FishermixError(
                    f"the scheduler at {cluster} has no workers: start some with `dask worker {cluster}`"
                ) from error
            yield client
    else:
        raise FishermixError(f"a cluster is tcp://HOST:PORT or local:N, not '{cluster}'")


def _client(distributed: Any, cluster: str) -> Client:
    problem = ""
    try:
        return distributed.Client(cluster, timeout=SECONDS_TO_CONNECT)
    except OSError:
        problem = f"no scheduler answers at {cluster}: start one with `dask scheduler` and workers with "
        problem += f"`dask worker {cluster}`"
    except TypeError as error:  # a context of TLS that is not there
        problem = f"{cluster} cannot be used ({error}): give TLS its certificates in Dask's configuration"
    # Dask waits for itself if a client that came to nothing is collected while the next one is made.
    gc.collect()
    raise FishermixError(problem)


def current_client() -> Client:
    """The client that was made last in this process."""
    try:
        return _distributed().get_client()
    except ValueError as error:
        raise FishermixError(
            "there is no Dask client: make one before the fit, such as distributed.Client('tcp://HOST:PORT')"
        ) from error


@contextmanager
def told_plainly(client: Client) -> Iterator[None]:
    """Turn the many errors of a lost cluster into one that says what to do."""
    try:
        yield
    except FishermixError:
        raise
    except _distributed().scheduler.KilledWorker as error:
        raise FishermixError(
            f"workers died again and again over one task ({error}): most often a block and its statistics do "
            "not fit into their memory; give smaller blocks or larger workers"
        ) from error
    except Exception as error:
        if client.status == "running" and not isinstance(error, CancelledError):
            raise
        raise FishermixError(
            f"the scheduler at {_address(client)} is gone: start it and its workers again, and run this "
            "again with a new client; a command goes on from its finished stages, a fit with "
            "checkpoint=FOLDER from its last checkpoint"
        ) from error


def submitted(client: Client, function: Any, *values: Any, worker: str | None = None) -> Future:
    """The future of function(*values), run on a worker; if it is lost, the scheduler has it made again.

    worker: the one that should run it, as long as it lives.
    """
    import dask

    # Dask warns of data inside of tasks, but data that only a worker holds is lost with it.
    with told_plainly(client), dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
        there = {"workers": [worker], "allow_other_workers": True} if worker else {}
        return client.submit(function, *values, pure=False, **there)


def gathered(client: Client, futures: Sequence[Future]) -> list[Any]:
    """The results of futures; the errors of a lost cluster told plainly.

    Dask itself may wait for ever for what was asked of a scheduler just before it went away.
    """
    with told_plainly(client):
        loop = cast(Any, client.loop).asyncio_loop
        waiting = asyncio.run_coroutine_threadsafe(_gathered(client, futures), loop)
        while True:
            try:
                return waiting.result(timeout=SECONDS_BETWEEN_LOOKS)
            except TimeoutError:
                if waiting.done():
                    raise
                if client.status != "running":
                    waiting.cancel()
                    raise CancelledError from None


async def _gathered(client: Client, futures: Sequence[Future]) -> list[Any]:
    return await client.gather(list(futures), asynchronous=True)


def in_order(client: Client, function: Any, items: Iterable[Any], *shared: Any) -> Iterator[Any]:
    """function(item, *shared) of each item, run on the workers, in the order of the items.

    Twice as many are under way as there are threads: neither all items nor all results are held at once.
    """
    with told_plainly(client):
        most = 2 * sum(client.nthreads().values())
    running: list[Future] = []
    for item in items:
        running.append(submitted(client, function, item, *shared))
        if len(running) >= most:
            yield gathered(client, [running.pop(0)])[0]
    while running:
        yield gathered(client, [running.pop(0)])[0]


def shared(client: Client, value: Any) -> Future:
    """A value that each worker gets once, when a task first asks for it there, and again if it is lost."""
    from distributed.protocol import pickle

    return submitted(client, pickle.loads, pickle.dumps(value))


def _address(client: Client) -> str:
    return str(client.scheduler.address if client.scheduler else client._start_arg)


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise FishermixError("a cluster needs Dask: pip install fishermix[dask]") from error
    return distributed
