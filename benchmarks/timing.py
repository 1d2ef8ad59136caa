"""What every benchmark shares: a fair measurement, a row of the table, and what this machine can do at most.

Fair means: `compare` warms every contestant up, then lets them take turns the same number of times, with the
same number of threads, and keeps the best wall time and the best CPU time of each.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from fishermix.rows import available_threads
from threadpoolctl import threadpool_limits

FULL = bool(os.environ.get("BENCH_FULL"))
SIMD = ("avx2", "fma", "avx512f", "avx512_vnni", "asimd", "sve")


@dataclass(frozen=True)
class Timing:
    """Seconds of the best run: wall time, and CPU time of all threads together."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.3g} ({self.cpu:.3g})"

    def __mul__(self, times: float) -> Timing:
        return Timing(self.wall * times, self.cpu * times)


@dataclass
class Row:
    """One line of the table: our time against a named peer's in the same run.

    The ratios are ours divided by the peer's, below 1 is faster. `floor` is in seconds.
    """

    work: str
    ours: Timing
    peer: str = ""
    theirs: Timing | None = None
    wanted: str = ""
    memory: str = ""
    threads: int = 0
    floor: float | None = None

    def cells(self) -> tuple[str, ...]:
        against = f"{self.peer} {self.theirs}" if self.theirs else self.peer
        ratio = ""
        if self.theirs:
            ratio = f"{self.ours.wall / self.theirs.wall:.3f} ({self.ours.cpu / self.theirs.cpu:.3f})"
        threads = str(self.threads or available_threads())
        return self.work, threads, str(self.ours), against, ratio, self.memory

    def to_json(self) -> dict[str, Any]:
        """The row as JSON values; times are wall and CPU seconds."""
        row: dict[str, Any] = {"work": self.work, "threads": self.threads or available_threads()}
        row["seconds"] = [self.ours.wall, self.ours.cpu]
        if self.theirs:
            row |= {"peer": self.peer.rstrip(":"), "peer_seconds": [self.theirs.wall, self.theirs.cpu]}
        return row | ({"memory": self.memory} if self.memory else {})


@contextmanager
def use_threads(number: int) -> Iterator[None]:
    """Let BLAS, OpenMP and fishermix use this many threads."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(number)
    try:
        with threadpool_limits(number):
            yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def thread_counts() -> list[int]:
    """One thread, and all."""
    return sorted({1, available_threads()})


def measure(run: Callable[[], Any]) -> Timing:
    """Time one run."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return Timing(time.perf_counter() - wall, time.process_time() - cpu)


def compare(runs: dict[str, Callable[[], Any]], times: int = 3, warm: bool = True) -> dict[str, Timing]:
    """Time the runs in turns, each as often as the others, after one run of each that does not count.

    `warm=False` is for runs so long that compiling and page faults do not matter.
    """
    if warm:
        for run in runs.values():
            run()
    found: dict[str, list[Timing]] = {name: [] for name in runs}
    for _ in range(times):
        for name, run in runs.items():
            found[name].append(measure(run))
    return {name: Timing(min(t.wall for t in of), min(t.cpu for t in of)) for name, of in found.items()}


def measure_first(script: str) -> tuple[Timing, Timing]:
    """Time a script that prints its wall and CPU seconds, with nothing compiled yet and with what it left."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        command = [sys.executable, "-W", "ignore", "-c", script]
        outputs = [subprocess.check_output(command, env=environment, text=True) for _ in range(2)]
    first, second = (Timing(*map(float, output.split())) for output in outputs)
    return first, second


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


def show_bytes(size: float) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**28 else f"{size / 2**20:.0f} MiB"


@cache
def matrix_speed(dtype: str, threads: int) -> float:
    """Measured operations per second of a product of two 2,048 x 2,048 matrices.

    By CPU time, so that other work on the machine does not lower the roofline.
    """
    size = 2048
    a = np.ones((size, size), dtype)
    with use_threads(threads):
        return threads * 2 * size**3 / compare({"product": lambda: a @ a}, 5)["product"].cpu


@cache
def bandwidth(threads: int) -> float:
    """Measured bytes per second of copies of arrays that no cache holds, read and written bytes counted."""
    parts = [(np.ones(2**24), np.empty(2**24)) for _ in range(threads)]

    def copy() -> None:
        workers = [threading.Thread(target=np.copyto, args=(to, source)) for source, to in parts]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    return threads**2 * 2**28 / compare({"copy": copy}, 5)["copy"].cpu


def roofline(operations: float, moved: float, dtype: Any, threads: int) -> float:
    """The fewest seconds that these operations take at the speed of a matrix product, and these bytes at
    the speed of a copy."""
    return max(operations / matrix_speed(np.dtype(dtype).name, threads), moved / bandwidth(threads))


def describe_machine() -> str:
    """The processor, its SIMD extensions, and what it can do at most."""
    name, flags = platform.processor() or platform.machine(), set[str]()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
        found = {key.strip(): value.strip() for key, value in lines.items()}
        name, flags = found.get("model name", name), set(found.get("flags", "").split())
    simd = " ".join(one for one in SIMD if one in flags) or "unknown SIMD"
    speeds = [
        f"{threads} thread{'s' * (threads > 1)}: "
        f"sgemm {matrix_speed('float32', threads) / 1e9:.0f} GFLOP/s, "
        f"dgemm {matrix_speed('float64', threads) / 1e9:.0f} GFLOP/s, "
        f"copy {bandwidth(threads) / 1e9:.1f} GB/s"
        for threads in thread_counts()
    ]
    load = f"load average before the run {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return "\n".join([f"{name}, {available_threads()} cores, {simd}; {load}", *speeds])
