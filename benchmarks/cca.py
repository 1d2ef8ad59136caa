"""Ridge CCA against cca-zoo's RidgeCCA with the same ridges, and at sizes beyond its reach.

    python -m benchmarks cca                 n = 6,000, features 4,096 and 2,000
    BENCH_FULL=1 python -m benchmarks cca    also 4,096 and 18,000, and n = 30,000 with 36,000

The peer gets the same ridges: (1 - c) S + c I is (1 - c) times S + r I for c = r / (1 + r).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
from cca_zoo.linear import RidgeCCA

from benchmarks.timing import Row, peak_memory
from fishermix.cca import RegularizedCCA

REG = 0.01
LATENT = 400
ROWS_AT_A_TIME = 2000


def run() -> list[Row]:
    rows = [against_peer(n=6000, p=4096, q=2000, n_components=256, wanted="0.25")]
    if os.environ.get("BENCH_FULL"):
        rows.append(against_peer(n=6000, p=4096, q=18000, n_components=256, wanted="0.1"))
        rows.append(beyond_peers(n=30000, p=4096, q=36000, n_components=256, wanted="16 GiB"))
    return rows


def views(n: int, p: int, q: int) -> tuple[np.ndarray, np.ndarray]:
    """Two sides (n, p) and (n, q) in float32 that share directions of falling strength, and noise."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((n, LATENT), dtype=np.float32) * np.geomspace(
        1, 0.05, LATENT, dtype=np.float32
    )
    sides = []
    for features in (p, q):
        mixing = rng.standard_normal((LATENT, features), dtype=np.float32)
        side = np.empty((n, features), np.float32)
        for start in range(0, n, ROWS_AT_A_TIME):
            part = slice(start, start + ROWS_AT_A_TIME)
            np.matmul(shared[part], mixing, out=side[part])
            side[part] += 2 * rng.standard_normal(side[part].shape, dtype=np.float32)
        sides.append(side)
    return sides[0], sides[1]


def against_peer(n: int, p: int, q: int, n_components: int, wanted: str) -> Row:
    X, Y = views(n + 1000, p, q)
    ours, seconds, memory = timed(
        lambda: RegularizedCCA(n_components, reg_x=REG, reg_y=REG, scale=None).fit(X[:n], Y[:n])
    )
    shrinkage = [ridge * n / (n - 1) for ridge in (ours.x_ridge_, ours.y_ridge_)]
    shrinkage = [ridge / (1 + ridge) for ridge in shrinkage]
    peer, peer_seconds, peer_memory = timed(
        lambda: RidgeCCA(n_components=n_components, shrinkage=shrinkage).fit([X[:n], Y[:n]])
    )
    correlation = held_out_correlation(*ours.transform(X[n:], Y[n:]))
    peer_correlation = held_out_correlation(*peer.transform([X[n:], Y[n:]]))
    return Row(
        f"ridge CCA by {ours.method_}, n={n:,} p={p:,} q={q:,}, {n_components} components; "
        f"held-out correlation {correlation:.4f}, peer {peer_correlation:.4f}",
        seconds,
        "cca-zoo RidgeCCA",
        peer_seconds,
        wanted,
        f"{memory}, peer {peer_memory}",
    )


def beyond_peers(n: int, p: int, q: int, n_components: int, wanted: str) -> Row:
    X, Y = views(n, p, q)
    held = (X.nbytes + Y.nbytes) / 2**30
    ours, seconds, memory = timed(lambda: RegularizedCCA(n_components, reg_x=REG, reg_y=REG).fit(X, Y))
    work = f"ridge CCA by {ours.method_}, n={n:,} p={p:,} q={q:,}, {n_components} components"
    return Row(work, seconds, "none finished", None, wanted, f"{memory} besides {held:.1f} GiB of data")


def timed(fit: Callable) -> tuple:
    """The fitted estimator, its seconds and its memory."""
    start = time.perf_counter()
    fitted, memory = peak_memory(fit)
    return fitted, time.perf_counter() - start, f"{memory / 2**30:.1f} GiB"


def held_out_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """The mean over the directions."""
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    return float(((x * y).sum(axis=0) / np.sqrt((x**2).sum(axis=0) * (y**2).sum(axis=0))).mean())
