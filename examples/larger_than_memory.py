"""EM on a file that is larger than the memory it may use: 3,000,000 rows of 300 in float32, 3.6 GB, K = 30.

    python examples/larger_than_memory.py --folder SCRATCH                    the whole, as stated above
    python examples/larger_than_memory.py --folder SCRATCH --rows 300000      a part

Prints the peak memory of the process, and the time of an iteration per row and that of an array in memory,
the first 100,000 rows: by the clock, and by the time that the processors spent, which others do not disturb.
"""

import argparse
import os
import resource
import time
import warnings
from pathlib import Path

import numpy as np
from fishermix.mixture import HybridMixture
from fishermix.rows import ArraySource, StreamSource

DIMENSIONS, COMPONENTS, ITERATIONS = 300, 30, 3
IN_MEMORY_ROWS = 100_000
AT_ONCE = 50_000


def generate(path: Path, n_rows: int) -> None:
    """A mixture of 30 clusters, Laplacian in every other dimension, written a piece at a time."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((COMPONENTS, DIMENSIONS), dtype=np.float32)
    unfinished = path.with_suffix(".part")
    rows = np.lib.format.open_memmap(unfinished, "w+", np.float32, (n_rows, DIMENSIONS))
    for start in range(0, n_rows, AT_ONCE):
        n = min(AT_ONCE, n_rows - start)
        piece = rng.standard_normal((n, DIMENSIONS), dtype=np.float32)
        # The difference of two exponentials is a Laplacian.
        pieces = rng.standard_exponential((2, n, DIMENSIONS // 2), dtype=np.float32)
        piece[:, ::2] = pieces[0] - pieces[1]
        rows[start : start + n] = piece + centers[rng.integers(COMPONENTS, size=n)]
    rows.flush()
    unfinished.replace(path)


def seconds_per_iteration(source) -> tuple[HybridMixture, np.ndarray]:
    """A fit of a few iterations, its start not counted: seconds by the clock and of the processors."""
    total, spent = source.total, np.zeros(2)

    def timed_total(step):
        nonlocal spent
        begin = np.array([time.perf_counter(), time.process_time()])
        found = total(step)
        spent += np.array([time.perf_counter(), time.process_time()]) - begin
        print(f"  a pass over {source.shape[0]:,} rows, {spent[0]:.0f} s so far", flush=True)
        return found

    source.total = timed_total
    mixture = HybridMixture(COMPONENTS, max_iter=ITERATIONS, tol=0, random_state=0).fit(source)
    return mixture, spent / ITERATIONS


def peak_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> None:
    path = options.folder / f"rows-{options.rows}.npy"
    if not path.exists():
        # In another process, whose memory does not count.
        if os.fork() == 0:
            generate(path, options.rows)
            os._exit(0)
        os.wait()
    print(f"{path.name}: {path.stat().st_size / 1e9:.2f} GB; memory for rows: {options.memory} MiB")
    warnings.simplefilter("ignore")
    HybridMixture(COMPONENTS, max_iter=2, tol=0).fit(np.load(path, mmap_mode="r")[:4096])  # compiles
    started = peak_memory()
    mixture, on_disk = seconds_per_iteration(StreamSource(path, memory=options.memory * 2**20))
    peak = peak_memory()
    print(f"on disk: {on_disk[0]:.1f} s an iteration, {options.rows / on_disk[0]:,.0f} rows/s")
    print(f"peak memory: {peak:.2f} GB, of which {started:.2f} GB before the fit")
    print(f"mean log likelihood: {', '.join(f'{bound:.3f}' for bound in mixture.lower_bounds_)}")
    few = np.array(np.load(path, mmap_mode="r")[:IN_MEMORY_ROWS])
    _, in_memory = seconds_per_iteration(ArraySource(few))
    rate = len(few) / in_memory
    print(f"in memory: {in_memory[0]:.2f} s an iteration of {len(few):,} rows, {rate[0]:,.0f} rows/s")
    clock, processors = on_disk / options.rows * rate
    print(f"a row on disk takes {clock:.2f} times as long as one in memory, {processors:.2f} of processors")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="where the generated file may lie")
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--memory", type=int, default=1024, help="MiB for rows under way")
    options = parser.parse_args()
    main()
