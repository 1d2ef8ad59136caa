"""How many threads a computation may use, and a map over items that runs in them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
Item = TypeVar("Item")


def available_threads() -> int:
    """The number of cores this process may use, or fewer if OMP_NUM_THREADS asks for fewer."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(wanted)) if wanted.isdigit() and int(wanted) > 0 else cores


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
