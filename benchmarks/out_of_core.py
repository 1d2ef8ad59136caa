"""EM on a file against EM on the same rows in memory: what it costs to hold a few blocks instead of all rows.

python -m benchmarks out_of_core                 200,000 x 100, K = 10
BENCH_FULL=1 python -m benchmarks out_of_core    also 1,000,000 x 300, K = 30: 1.2 GB
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import numpy as np
from fishermix.mixture import HybridMixture
from fishermix.rows import StreamSource

from benchmarks.timing import FULL, Row, Timing, measure, peak_memory

MEMORY = 256 * 2**20
ITERATIONS = 3
TURNS = 2


def run() -> list[Row]:
    rows = [against_memory(200_000, 100, 10)]
    if FULL:
        rows.append(against_memory(1_000_000, 300, 30))
    return rows


def against_memory(n_rows: int, dimensions: int, components: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        write(path, n_rows, dimensions, components)
        fit(np.load(path, mmap_mode="r")[:4096], components)  # compiles
        rows = np.load(path)
        turns = [
            (fit(StreamSource(path, memory=MEMORY), components), fit(rows, components)) for _ in range(TURNS)
        ]
        streamed, seconds, memory = min((ours for ours, _ in turns), key=lambda fitted: fitted[1].wall)
        held, in_memory, memory_beside = min(
            (theirs for _, theirs in turns), key=lambda fitted: fitted[1].wall
        )
        same = all(np.array_equal(getattr(streamed, n), getattr(held, n)) for n in ("locations_", "scales_"))
    return Row(
        f"hybrid EM on a file, {n_rows:,} x {dimensions}, K={components}, {ITERATIONS} iterations; "
        f"{'the same bits' if same else 'OTHER BITS'}",
        seconds,
        "in memory",
        in_memory,
        "1.3",
        f"{memory / 2**20:.0f} MiB; in memory {rows.nbytes / 2**20:.0f} + {memory_beside / 2**20:.0f}",
    )


def write(path: Path, n_rows: int, dimensions: int, components: int) -> None:
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((components, dimensions), dtype=np.float32)
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (n_rows, dimensions))
    for start in range(0, n_rows, 50_000):
        piece = rng.standard_normal((min(50_000, n_rows - start), dimensions), dtype=np.float32)
        rows[start : start + 50_000] = piece + centers[rng.integers(components, size=len(piece))]
    rows.flush()


def fit(rows, components: int) -> tuple[HybridMixture, Timing, int]:
    """The mixture, its time and the growth of memory."""
    mixture = HybridMixture(components, max_iter=ITERATIONS, tol=0, random_state=0, n_jobs=-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seconds, memory = peak_memory(lambda: measure(lambda: mixture.fit(rows)))
    return mixture, seconds, memory
