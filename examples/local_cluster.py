"""A fit on two processes: the same result, faster, and alive after a worker or the scheduler has died.

    python examples/local_cluster.py                    60,000 rows of 100, K = 10
    python examples/local_cluster.py --rows 200000 --dimensions 300 --components 30

Prints the speed-up against one process with one thread, what travels in an iteration, and what happens when a
worker is killed in the middle of a fit and when the scheduler is.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np

FITTED = ("weights_", "locations_", "scales_")
os.environ["OMP_NUM_THREADS"] = "1"  # one process is one thread


def rows_of(options: argparse.Namespace) -> np.ndarray:
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((options.components, options.dimensions))
    noise = rng.standard_normal((options.rows, options.dimensions))
    noise[:, ::2] = rng.laplace(size=noise[:, ::2].shape)
    return (noise + centers[rng.integers(options.components, size=options.rows)]).astype(np.float32)


def fit(rows, options: argparse.Namespace, **more):
    from fishermix.mixture import HybridMixture

    begin = time.perf_counter()
    mixture = HybridMixture(options.components, max_iter=options.iterations, tol=0, random_state=0, **more)
    mixture.fit(rows)
    return mixture, time.perf_counter() - begin


def compare(name: str, found, wanted) -> str:
    differences = [
        float(np.max(np.abs(getattr(found, n) - getattr(wanted, n)) / np.abs(getattr(wanted, n))))
        for n in FITTED
    ]
    choices = "identical" if np.array_equal(found.choice_, wanted.choice_) else "DIFFERENT"
    return f"{name}: choices {choices}, largest relative difference {max(differences):.1e}"


class DyingCluster:
    """A scheduler and two workers as processes of their own, so that each can be killed."""

    def __init__(self, folder: Path):
        file = folder / f"scheduler-{time.time_ns()}.json"
        self.scheduler = self._start("scheduler", "--port", "0", "--scheduler-file", str(file))
        while not file.exists() or not file.read_text().endswith("}"):
            time.sleep(0.1)
        self.address = json.loads(file.read_text())["address"]
        self.workers = [
            self._start("worker", self.address, "--nthreads", "1", "--no-nanny", "--death-timeout", "60")
            for _ in range(2)
        ]

    def _start(self, what: str, *options: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "dask", what, "--no-dashboard", *options]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def stop(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


def kill_during(source, victim: subprocess.Popen, number: int):
    """Kill a process a moment after a pass has begun."""
    total, done = source.total, []

    def total_with_a_death(step):
        done.append(1)
        if len(done) == number:
            threading.Timer(0.1, victim.send_signal, (signal.SIGKILL,)).start()
        return total(step)

    source.total = total_with_a_death
    return source


def open_rows(rows: np.ndarray):
    """The rows on the workers of the current client, cut as in memory."""
    import dask.array
    from fishermix.rows import block_rows
    from fishermix.rows.distributed import ClusterSource

    return ClusterSource(dask.array.from_array(rows, chunks=(block_rows(len(rows)), -1)))


def count_traffic(source) -> dict[str, int]:
    """Count the passes of a source and the bytes between client and cluster from now on."""
    from distributed.protocol import pickle

    total, counted = source.total, {"passes": 0, "sent": 0, "received": 0}

    def count(step):
        found = total(step)
        counted["passes"] += 1
        counted["sent"] += len(pickle.dumps(step))
        counted["received"] += len(pickle.dumps(found))
        return found

    source.total = count
    return counted


def main(options: argparse.Namespace) -> None:
    from distributed import Client, LocalCluster
    from fishermix.errors import FishermixError

    warnings.simplefilter("ignore")
    rows = rows_of(options)
    fit(rows[:4096], options)  # compiles
    wanted, alone = fit(rows, options)
    print(f"one process, one thread: {alone:.1f} s for {options.iterations} iterations", flush=True)

    two = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**two) as processes, Client(processes) as client:
        fit(open_rows(rows[:8192]), options)  # each worker loads what is compiled
        begin = time.perf_counter()
        source = open_rows(rows)
        source.read_rows(np.arange(0, len(rows), 1000))  # waits for them
        print(f"the rows went to the workers in {time.perf_counter() - begin:.1f} s", flush=True)
        before, traffic = _between_workers(client), count_traffic(source)
        found, together = fit(source, options)
        print(compare(f"two processes: {together:.1f} s, speed-up {alone / together:.2f}", found, wanted))
        each = options.iterations
        print(
            f"an iteration: {traffic['passes'] / each:.1f} passes, {traffic['sent'] / each / 1e6:.2f} MB of "
            f"steps out, {traffic['received'] / each / 1e6:.2f} MB of statistics back, "
            f"{(_between_workers(client) - before) / each / 1e6:.2f} MB between workers; the rows are "
            f"{rows.nbytes / 1e6:.0f} MB",
            flush=True,
        )

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cluster = DyingCluster(folder)
        with Client(cluster.address, timeout=60) as client:
            client.wait_for_workers(2)
            source = kill_during(open_rows(rows), cluster.workers[0], number=5)
            print(compare("a worker killed in the middle", fit(source, options)[0], wanted), flush=True)
        cluster.stop()

        cluster = DyingCluster(folder)
        client = Client(cluster.address, timeout=60)
        client.wait_for_workers(2)
        source = kill_during(open_rows(rows), cluster.scheduler, number=2 * options.iterations - 3)
        try:
            fit(source, options, checkpoint=folder / "checkpoint")
        except FishermixError as error:
            print(f"the scheduler killed: {error}")
        cluster.stop()

        with LocalCluster(**two) as processes, Client(processes):
            found, _ = fit(open_rows(rows), options, checkpoint=folder / "checkpoint")
            print(compare("resumed on a new cluster", found, wanted))


def _between_workers(client) -> int:
    """Bytes that workers have got from each other."""
    got = client.run(lambda dask_worker: sum(entry["total"] for entry in dask_worker.transfer_incoming_log))
    return sum(got.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--dimensions", type=int, default=100)
    parser.add_argument("--components", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=8)
    main(parser.parse_args())
