"""What every benchmark shares: a row of the table, the best time of a few runs, the peak memory of a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil


@dataclass
class Row:
    """One line of the table: our seconds against a named peer's in the same run."""

    work: str
    ours: float
    peer: str = ""
    peer_seconds: float | None = None
    wanted: str = ""
    memory: str = ""

    def cells(self) -> tuple[str, ...]:
        against = f"{self.peer} {self.peer_seconds:.3g} s" if self.peer_seconds is not None else self.peer
        ratio = f"{self.ours / self.peer_seconds:.3f}" if self.peer_seconds else ""
        return self.work, f"{self.ours:.3g} s", against, ratio, self.wanted, self.memory


def best_of(run: Callable[[], Any], times: int = 3) -> float:
    """Seconds of the fastest of a few runs; the first run also pays for compilation, so give at least two."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def peak_memory(run: Callable[[], Any]) -> tuple[Any, int]:
    """The result of `run` and the peak growth of this process's resident memory in bytes while it ran."""
    process = psutil.Process()
    before = peak = process.memory_info().rss
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        result = run()
    finally:
        done.set()
        watcher.join()
    return result, peak - before
