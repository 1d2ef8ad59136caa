"""EM at N = 100,000, D = 300, K = 30, float32, ten iterations from the same start, against scikit-learn.

`python -m benchmarks mixture`; MIXTURE_ROWS=20000 makes a smaller run. VLFeat joins where cyvlfeat is there.
"""

from __future__ import annotations

import os
import warnings

import numpy as np
from sklearn.mixture import GaussianMixture as Peer

from benchmarks.timing import Row, best_of, peak_memory
from fishermix import GaussianMixture, HybridMixture, LaplacianMixture

ROWS = int(os.environ.get("MIXTURE_ROWS", 100_000))
DIMENSIONS, COMPONENTS, ITERATIONS = 300, 30, 10
Start = tuple[np.ndarray, np.ndarray, np.ndarray]  # weights, locations, scales
WANTED = {GaussianMixture: "<= 0.3, goal 0.15", HybridMixture: "<= 0.4, goal 0.25", LaplacianMixture: ""}


def data(n: int, d: int, k: int) -> np.ndarray:
    """Overlapping clusters, Gaussian or Laplacian in each dimension; at first a row belongs to several."""
    rng = np.random.default_rng(0)
    centres, laplacian = rng.normal(scale=0.25, size=(k, d)), rng.random((k, d)) < 0.5
    rows = np.empty((n, d), np.float32)
    for part in np.array_split(np.arange(n), max(n // 10_000, 1)):
        label = rng.integers(k, size=len(part))
        shape = (len(part), d)
        noise = np.where(laplacian[label], rng.laplace(size=shape), rng.standard_normal(shape))
        rows[part] = centres[label] + 0.6 * noise
    return rows


def start_of(X: np.ndarray, k: int) -> Start:
    """Equal weights, random rows, the deviations of the whole."""
    locations = X[np.random.default_rng(1).choice(len(X), k, replace=False)]
    return np.full(k, 1 / k), locations.astype(np.float64), np.tile(X.std(axis=0, dtype=np.float64), (k, 1))


def ours(kind, X: np.ndarray, start: Start):
    weights, locations, scales = start
    given = {"weights_init": weights, "locations_init": locations, "scales_init": scales}
    return quietly(kind(len(weights), tol=0.0, max_iter=ITERATIONS, **given), X)


def peer(X: np.ndarray, start: Start):
    weights, locations, scales = start
    given = {"weights_init": weights, "means_init": locations, "precisions_init": 1 / scales**2}
    return quietly(Peer(len(weights), covariance_type="diag", tol=0.0, max_iter=ITERATIONS, **given), X)


def quietly(mixture, X: np.ndarray):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mixture.fit(X)


def run() -> list[Row]:
    X = data(ROWS, DIMENSIONS, COMPONENTS)
    start = start_of(X, COMPONENTS)
    size = f"N={ROWS:,} D={DIMENSIONS} K={COMPONENTS}, {ITERATIONS} iterations"
    seconds, memory = {}, {}
    for kind in WANTED:
        ours(kind, X[:3000], start)  # compiles
        seconds[kind] = best_of(lambda kind=kind: ours(kind, X, start), 2)
        _, grown = peak_memory(lambda kind=kind: ours(kind, X, start))
        memory[kind] = f"{grown / X.nbytes:.2f} x data"
    scikit = best_of(lambda: peer(X, start), 1)
    rows = [
        Row(f"{kind.__name__}, {size}", seconds[kind], "sklearn Gaussian", scikit, wanted, memory[kind])
        for kind, wanted in WANTED.items()
    ]
    return rows + vlfeat(X, start, scikit) + growth(ROWS // 4, 150, 15)


def growth(n: int, d: int, k: int) -> list[Row]:
    """How the hybrid's time grows."""
    sizes = {"": (n, d, k), "N": (2 * n, d, k), "D": (n, 2 * d, k), "K": (n, d, 2 * k)}
    seconds = {}
    for name, size in sizes.items():
        X = data(*size)
        start = start_of(X, size[2])
        seconds[name] = best_of(lambda X=X, start=start: ours(HybridMixture, X, start), 3)
    base = seconds.pop("")
    doubled = [Row(f"the same with {name} doubled", s, "before", base) for name, s in seconds.items()]
    return [Row(f"HybridMixture, N={n:,} D={d} K={k}", base), *doubled]


def vlfeat(X: np.ndarray, start: Start, scikit: float) -> list[Row]:
    try:
        from cyvlfeat.gmm import gmm
    except ImportError:
        return []
    weights, locations, scales = start
    given = {"init_priors": weights, "init_means": locations, "init_covars": scales**2, "init_mode": "custom"}
    seconds = best_of(lambda: gmm(X, COMPONENTS, max_num_iterations=ITERATIONS, **given), 1)
    return [Row("VLFeat's Gaussian through cyvlfeat", seconds, "sklearn Gaussian", scikit)]
