"""EM from the same start, in the same type, against scikit-learn's diagonal GaussianMixture.

scikit-learn gets starts and precisions in the type of the rows: with float64 starts it computes float32 rows
in mixed types and takes three times as long. The hybrid is also compared with plain numpy (numpy_hybrid.py).

    python -m benchmarks mixture                 MIXTURE_ROWS=20000 makes the first row smaller
    BENCH_FULL=1 python -m benchmarks mixture    also N=1,000,000, numpy at every size, and how the time grows

VLFeat joins where cyvlfeat is installed.
"""

from __future__ import annotations

import os
import warnings
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from fishermix import GaussianMixture, HybridMixture, LaplacianMixture
from sklearn.mixture import GaussianMixture as Peer

from benchmarks import numpy_hybrid
from benchmarks.timing import (
    FULL,
    Row,
    compare,
    measure_first,
    peak_memory,
    roofline,
    show_bytes,
    thread_counts,
    use_threads,
)

ITERATIONS = 10
TURNS = 3
PEER = "scikit-learn, Gaussian:"
NUMPY = "numpy, presorted:"
Start = tuple[np.ndarray, np.ndarray, np.ndarray]  # weights, locations, scales


class Shape(NamedTuple):
    """A case: rows, dimensions, components, type, distance of the centers, and the ratios that we want."""

    n: int
    d: int
    k: int
    dtype: Any
    distance: float
    wanted: tuple[str, str]  # GMM, HGLMM
    wanted_alone: tuple[str, str] | None = None  # the same with one thread, if it differs


SHAPES = [
    Shape(2_000, 10, 3, np.float64, 1.0, ("0.7", "1.5")),
    Shape(10_000, 64, 256, np.float64, 0.25, ("0.4", "2")),
    Shape(10_000, 64, 256, np.float64, 2.0, ("0.25", "0.8")),
    Shape(10_000, 64, 256, np.float32, 0.25, ("", "")),
    Shape(10_000, 64, 256, np.float32, 2.0, ("", "")),
    Shape(
        int(os.environ.get("MIXTURE_ROWS", 100_000)),
        300,
        30,
        np.float32,
        0.25,
        ("0.35", "0.6"),
        ("0.45", "0.8"),
    ),
]
LARGE = [
    Shape(100_000, 300, 30, np.float64, 0.25, ("", "")),
    Shape(1_000_000, 16, 8, np.float64, 1.0, ("0.4", "1.5")),
    Shape(1_000_000, 16, 8, np.float32, 1.0, ("", "")),
]


def describe(shape: Shape) -> str:
    kind, place = np.dtype(shape.dtype).name, "near" if shape.distance < 2 else "apart"
    return f"N={shape.n:,} D={shape.d} K={shape.k} {kind}, {place}"


def data(shape: Shape) -> np.ndarray:
    """Clusters that are Gaussian or Laplacian in each dimension; near ones overlap."""
    n, d, k, dtype, distance = shape[:5]
    rng = np.random.default_rng(0)
    centers, laplacian = rng.normal(scale=distance, size=(k, d)), rng.random((k, d)) < 0.5
    rows = np.empty((n, d), dtype)
    for part in np.array_split(np.arange(n), max(n // 10_000, 1)):
        label = rng.integers(k, size=len(part))
        size = (len(part), d)
        noise = np.where(laplacian[label], rng.laplace(size=size), rng.standard_normal(size))
        rows[part] = centers[label] + 0.6 * noise
    return rows


def start_of(X: np.ndarray, k: int) -> Start:
    """Equal weights, random rows, the deviations of the whole, all in the type of the rows."""
    locations = X[np.random.default_rng(1).choice(len(X), k, replace=False)]
    scales = np.tile(X.std(axis=0, dtype=np.float64), (k, 1))
    return np.full(k, 1 / k, X.dtype), locations, scales.astype(X.dtype)


def ours(kind, X: np.ndarray, start: Start, n_iter: int = ITERATIONS):
    weights, locations, scales = start
    given = {"weights_init": weights, "locations_init": locations, "scales_init": scales}
    return quietly(kind(len(weights), tol=0.0, max_iter=n_iter, n_jobs=-1, **given), X)


def peer(X: np.ndarray, start: Start):
    weights, locations, scales = start
    given = {"weights_init": weights, "means_init": locations, "precisions_init": 1 / scales**2}
    assert all(part.dtype == X.dtype for part in given.values())
    return quietly(Peer(len(weights), covariance_type="diag", tol=0.0, max_iter=ITERATIONS, **given), X)


def quietly(mixture, X: np.ndarray):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mixture.fit(X)


def run() -> list[Row]:
    shapes = [*SHAPES, *(LARGE if FULL else [])]
    rows = [row for shape in shapes for row in against_peers(shape)]
    rows += [against_numpy(shape) for shape in (shapes if FULL else SHAPES[:1]) if any(shape.wanted)]
    rows.append(first_fit())
    return rows + (growth() if FULL else [])


def against_peers(shape: Shape) -> list[Row]:
    X, rows = data(shape), []
    start = start_of(X, shape.k)
    kinds = {"GMM": GaussianMixture, "HGLMM": HybridMixture, "LMM": LaplacianMixture}
    runs = {name: partial(ours, kind, X, start) for name, kind in kinds.items()}
    runs |= {PEER: partial(peer, X, start), **vlfeat(X, start)}
    grown = {name: peak_memory(run)[1] for name, run in runs.items()}
    case = describe(shape)
    # Both Gaussian matrix products of the E step and both of the M step; the rows are read twice.
    operations = ITERATIONS * 8.0 * shape.n * shape.d * shape.k
    for threads in thread_counts():
        floor = roofline(operations, 2.0 * ITERATIONS * X.nbytes, X.dtype, threads)
        wanted_here = (shape.wanted_alone or shape.wanted) if threads == 1 else shape.wanted
        wanted = dict(zip(kinds, (*wanted_here, "")))
        with use_threads(threads):
            found = compare(runs, TURNS if shape.n > 5_000 else 20)
        for name in [*kinds, *(name for name in runs if name.startswith("VLFeat"))]:
            memory = f"{show_bytes(grown[name])}, peer {show_bytes(grown[PEER])}"
            given = wanted.get(name, ""), memory, threads, floor
            rows.append(Row(f"{name}, {case}", found[name], PEER, found[PEER], *given))
    return rows


def against_numpy(shape: Shape) -> Row:
    """The hybrid against plain numpy, on one thread; large data for two iterations, once."""
    X, small = data(shape), shape.n <= 5_000
    start, iterations = start_of(X, shape.k), ITERATIONS if small else 2
    runs = {
        "ours": partial(ours, HybridMixture, X, start, iterations),
        NUMPY: partial(numpy_hybrid.fit, X, start, iterations),
    }
    with use_threads(1):
        found = compare(runs, 20 if small else 1)
    case = f"HGLMM, {describe(shape)}, {iterations} iterations"
    return Row(case, found["ours"], NUMPY, found[NUMPY], "0.4", "", 1)


FIRST = """
import time
import numpy as np
from fishermix import HybridMixture
rows = np.random.default_rng(0).standard_normal((20_000, 64)).astype(np.float32)
wall, cpu = time.perf_counter(), time.process_time()
HybridMixture(16, max_iter=2, tol=0.0, random_state=0).fit(rows)
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


def first_fit() -> Row:
    """The first fit with nothing compiled, and with what that run left on disk."""
    first, second = measure_first(FIRST)
    return Row("first fit in a new environment, HGLMM", first, "ours, compiled before:", second, "3 s")


def growth(n: int = 25_000, d: int = 150, k: int = 15) -> list[Row]:
    """How the hybrid's time grows."""
    sizes = {"": (n, d, k), "N": (2 * n, d, k), "D": (n, 2 * d, k), "K": (n, d, 2 * k)}
    runs = {}
    for name, size in sizes.items():
        X = data(Shape(*size, np.float32, 0.25, ("", "")))
        runs[name] = partial(ours, HybridMixture, X, start_of(X, size[2]))
    seconds = compare(runs, TURNS)
    base = seconds.pop("")
    doubled = [Row(f"the same with {name} doubled", s, "before", base) for name, s in seconds.items()]
    return [Row(f"HGLMM, N={n:,} D={d} K={k}", base), *doubled]


def vlfeat(X: np.ndarray, start: Start) -> dict[str, Any]:
    try:
        from cyvlfeat.gmm import gmm
    except ImportError:
        return {}
    weights, locations, scales = start
    given = {"init_priors": weights, "init_means": locations, "init_covars": scales**2, "init_mode": "custom"}
    return {"VLFeat GMM": partial(gmm, X, len(weights), max_num_iterations=ITERATIONS, **given)}
