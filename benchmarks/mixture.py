"""EM at N = 100,000, D = 300, K = 30, float32, ten iterations from the same start, against scikit-learn.

`python -m benchmarks mixture`; MIXTURE_ROWS=20000 makes a smaller run. VLFeat joins where cyvlfeat is there.
"""

from __future__ import annotations

import os
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as Peer

from benchmarks.timing import Row, best_of, peak_memory
from fishermix import GaussianMixture, HybridMixture, LaplacianMixture

ROWS = int(os.environ.get("MIXTURE_ROWS", 100_000))
DIMENSIONS, COMPONENTS, ITERATIONS = 300, 30, 10


def data(n: int, d: int, k: int, seed: int = 0) -> np.ndarray:
    """Heavy-tailed clusters, as whitened word vectors are."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=1.0, size=(k, d))
    rows = centres[rng.integers(k, size=n)] + rng.laplace(scale=0.7, size=(n, d))
    return rows.astype(np.float32)


def start(X: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    locations = X[rng.choice(len(X), k, replace=False)]
    return np.full(k, 1 / k), locations.astype(np.float64), np.tile(X.std(axis=0, dtype=np.float64), (k, 1))


def ours(kind, X: np.ndarray, k: int):
    weights, locations, scales = start(X, k)
    options = {"weights_init": weights, "locations_init": locations, "scales_init": scales, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return kind(k, tol=0.0, max_iter=ITERATIONS, **options).fit(X)


def peer(X: np.ndarray, k: int):
    weights, locations, scales = start(X, k)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return Peer(
            k,
            covariance_type="diag",
            tol=0.0,
            max_iter=ITERATIONS,
            weights_init=weights,
            means_init=locations,
            precisions_init=1 / scales**2,
            random_state=0,
        ).fit(X)


def run() -> list[Row]:
    X = data(ROWS, DIMENSIONS, COMPONENTS)
    size = f"N={ROWS:,} D={DIMENSIONS} K={COMPONENTS}, {ITERATIONS} iterations"
    for kind in (GaussianMixture, LaplacianMixture, HybridMixture):
        ours(kind, X[:3000], COMPONENTS)  # compiles
    scikit = best_of(lambda: peer(X, COMPONENTS), 1)
    rows = []
    wanted = {
        "GaussianMixture": "<= 0.3, goal 0.15",
        "HybridMixture": "<= 0.4, goal 0.25",
        "LaplacianMixture": "",
    }
    for kind in (GaussianMixture, LaplacianMixture, HybridMixture):
        seconds = best_of(lambda kind=kind: ours(kind, X, COMPONENTS), 2)
        _, grown = peak_memory(lambda kind=kind: ours(kind, X, COMPONENTS))
        memory = f"{grown / X.nbytes:.2f} x data"
        rows.append(
            Row(
                f"{kind.__name__}, {size}", seconds, "sklearn Gaussian", scikit, wanted[kind.__name__], memory
            )
        )
    half = ROWS // 4
    base = best_of(lambda: ours(HybridMixture, data(half, 150, 15), 15), 2)
    rows.append(Row(f"hybrid, N={half:,} D=150 K=15", base))
    for name, n, d, k in (("N", 2 * half, 150, 15), ("D", half, 300, 15), ("K", half, 150, 30)):
        seconds = best_of(lambda n=n, d=d, k=k: ours(HybridMixture, data(n, d, k), k), 2)
        rows.append(Row(f"the same with {name} doubled", seconds, "before", base))
    return rows + vlfeat(X, scikit)


def vlfeat(X: np.ndarray, scikit: float) -> list[Row]:
    try:
        from cyvlfeat.gmm import gmm
    except ImportError:
        return []
    _, locations, scales = start(X, COMPONENTS)
    options = {"init_mode": "custom", "init_means": locations, "init_covars": scales**2}
    seconds = best_of(
        lambda: gmm(
            X.astype(np.float64),
            COMPONENTS,
            max_num_iterations=ITERATIONS,
            init_priors=np.full(30, 1 / 30),
            **options,
        ),
        1,
    )
    return [Row("VLFeat's Gaussian through cyvlfeat", seconds, "sklearn Gaussian", scikit)]
