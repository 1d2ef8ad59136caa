"""EM from the same start, in the same type, against scikit-learn's diagonal GaussianMixture.

scikit-learn gets starts and precisions in the type of the rows: with float64 starts it computes float32 rows
in mixed types and takes three times as long. The hybrid is also compared with plain numpy (numpy_hybrid.py).

    python -m benchmarks mixture                 MIXTURE_ROWS=20000 makes the first row smaller
    BENCH_FULL=1 python -m benchmarks mixture    also N=1,000,000, and how the time grows

VLFeat joins where cyvlfeat is installed.
"""

from __future__ import annotations

import os
import warnings
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.mixture import GaussianMixture as Peer

from benchmarks import numpy_hybrid
from benchmarks.timing import (
    FULL,
    Row,
    compare,
    peak_memory,
    roofline,
    show_bytes,
    thread_counts,
    use_threads,
)
from fishermix import GaussianMixture, HybridMixture, LaplacianMixture

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


SHAPES = [
    Shape(2_000, 10, 3, np.float64, 1.0, ("0.7", "1.5")),
    Shape(10_000, 64, 256, np.float64, 0.25, ("0.4", "2")),
    Shape(10_000, 64, 256, np.float64, 2.0, ("0.25", "0.8")),
    Shape(int(os.environ.get("MIXTURE_ROWS", 100_000)), 300, 30, np.float32, 0.25, ("0.35", "0.6")),
]
LARGE = [Shape(1_000_000, 16, 8, np.float64, 1.0, ("0.4", "1.5"))]


def data(shape: Shape) -> np.ndarray:
    """Clusters that are Gaussian or Laplacian in each dimension; near ones overlap."""
    n, d, k, dtype, distance, _ = shape
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


def ours(kind, X: np.ndarray, start: Start):
    weights, locations, scales = start
    given = {"weights_init": weights, "locations_init": locations, "scales_init": scales}
    return quietly(kind(len(weights), tol=0.0, max_iter=ITERATIONS, **given), X)


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
    rows = [row for shape in [*SHAPES, *(LARGE if FULL else [])] for row in against_peers(shape)]
    return rows + (growth() if FULL else [])


def against_peers(shape: Shape) -> list[Row]:
    X, rows = data(shape), []
    start = start_of(X, shape.k)
    kinds = {"GMM": GaussianMixture, "HGLMM": HybridMixture, "LMM": LaplacianMixture}
    runs = {name: partial(ours, kind, X, start) for name, kind in kinds.items()}
    runs |= {PEER: partial(peer, X, start), **vlfeat(X, start)}
    grown = {name: peak_memory(run)[1] for name, run in runs.items()}
    wanted = dict(zip(kinds, (*shape.wanted, "")))
    case = f"N={shape.n:,} D={shape.d} K={shape.k} {X.dtype}, {'near' if shape.distance < 2 else 'apart'}"
    # Both Gaussian matrix products of the E step and both of the M step; the rows are read twice.
    operations = ITERATIONS * 8.0 * shape.n * shape.d * shape.k
    for threads in thread_counts():
        floor = roofline(operations, 2.0 * ITERATIONS * X.nbytes, X.dtype, threads)
        with use_threads(threads):
            found = compare(runs, TURNS if shape.n > 5_000 else 20)
            if threads == 1 and shape.k < 100 and shape.n <= 20_000:
                runs_numpy = {"HGLMM": runs["HGLMM"], NUMPY: partial(numpy_hybrid.fit, X, start, ITERATIONS)}
                plain = compare(runs_numpy, TURNS)
                rows.append(Row(f"HGLMM, {case}", plain["HGLMM"], NUMPY, plain[NUMPY], "0.4", "", 1))
        for name in [*kinds, *(name for name in runs if name.startswith("VLFeat"))]:
            memory = f"{show_bytes(grown[name])}, peer {show_bytes(grown[PEER])}"
            given = wanted.get(name, ""), memory, threads, floor
            rows.append(Row(f"{name}, {case}", found[name], PEER, found[PEER], *given))
    return rows


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
