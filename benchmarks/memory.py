"""Peak memory of a fit to components that overlap, besides the rows, for several values of `working_memory`.

    python -m benchmarks memory                 300,000 x 64 float32, K = 64
    BENCH_FULL=1 python -m benchmarks memory    also 1,000,000 rows

Each fit has a process of its own, because a process does not return all memory that it has freed. The peak is
the largest resident size of the process, less that before the fit, when the rows are in memory and the
kernels are compiled. A digest of the parameters shows that no bit depends on `working_memory`.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
import warnings
from hashlib import blake2b

import numpy as np
from fishermix import mixture as mixtures

from benchmarks.timing import FULL, Row, Timing

DIMENSIONS = COMPONENTS = 64
ITERATIONS = 5
BUDGETS = (64, 256, 4096)  # MiB


def run() -> list[Row]:
    return [row for n_rows in (300_000, *([1_000_000] if FULL else [])) for row in measure_fits(n_rows)]


def measure_fits(n_rows: int) -> list[Row]:
    cases = [("GaussianMixture", 256), *(("HybridMixture", budget) for budget in BUDGETS)]
    rows = []
    for name, budget in cases:
        command = [sys.executable, "-m", "benchmarks.memory", name, str(n_rows), str(budget)]
        wall, cpu, peak, digest = subprocess.check_output(command, text=True).split()
        work = f"{name}(working_memory={budget}), {n_rows:,} x {DIMENSIONS} float32, K={COMPONENTS}, {digest}"
        rows.append(Row(work, Timing(float(wall), float(cpu)), memory=f"{peak} MiB"))
    return rows


def make_rows(n_rows: int) -> np.ndarray:
    """Gaussian clusters whose centers are 0.3 standard deviations from the origin in each dimension."""
    rng = np.random.default_rng(0)
    centers = 0.3 * rng.normal(size=(COMPONENTS, DIMENSIONS)).astype(np.float32)
    rows = centers[rng.integers(0, COMPONENTS, n_rows)]
    for start in range(0, n_rows, 50_000):
        rows[start : start + 50_000] += rng.standard_normal(rows[start : start + 50_000].shape, np.float32)
    return rows


def measure_one(name: str, n_rows: int, budget: float) -> None:
    """Print wall and CPU seconds, MiB and a digest of one fit."""
    rows, kind = make_rows(n_rows), getattr(mixtures, name)
    start = {
        "weights_init": np.full(COMPONENTS, 1 / COMPONENTS),
        "locations_init": rows[np.random.default_rng(1).choice(n_rows, COMPONENTS, replace=False)],
        "scales_init": np.ones((COMPONENTS, DIMENSIONS)),
    }
    warnings.simplefilter("ignore")
    kind(4, max_iter=2, tol=0, random_state=0).fit(rows[:20_000, :16].copy())  # compiles
    before, wall, cpu = peak(), time.perf_counter(), time.process_time()
    fitted = kind(COMPONENTS, max_iter=ITERATIONS, tol=0, working_memory=budget, **start).fit(rows)
    digest = blake2b(b"".join(part.tobytes() for part in (fitted.locations_, fitted.scales_)), digest_size=4)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(wall, cpu, round(peak() - before), digest.hexdigest())


def peak() -> float:
    """The largest resident size of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    measure_one(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
