"""Ridge CCA against cca-zoo's RidgeCCA with the same ridges, and at sizes beyond its reach.

    python -m benchmarks cca                 up to n = 3,000, features 1,024 and 3,000
    BENCH_FULL=1 python -m benchmarks cca    also features 4,096 and 18,000, and n = 30,000 with 36,000

The peer gets the same rows, both in float32 and both in float64, and the same ridges: (1 - c) S + c I is
(1 - c) times S + r I for c = r / (1 + r). Of float32 rows, the peer's sums are in float32; ours are sums in
float64 of products in float32, and the result is checked in float64.
The grid of ridges is compared with the same through q x q covariances, however few pairs there are.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from cca_zoo.linear import RidgeCCA
from fishermix import RegularizedCCA
from fishermix.cca.covariances import CovarianceSums

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

REG = 0.01
LATENT = 400
ROWS_AT_A_TIME = 2000
REGS_X, REGS_Y = (0.003, 0.01, 0.03, 0.1), (0.003, 0.01, 0.03)  # of the recipe "paper"


def run() -> list[Row]:
    rows = against_peer(n=1000, p=50, q=50, n_components=20, wanted="0.3")
    rows += against_peer(n=5000, p=500, q=500, n_components=100, wanted="0.3")
    rows += against_peer(n=3000, p=1024, q=3000, n_components=256, wanted="0.15", turns=3 if FULL else 1)
    rows += block_sparse()
    rows += grid_of_ridges(n_images=200, p=440, q=4500)
    if FULL:
        rows += against_peer(n=6000, p=4096, q=18000, n_components=256, wanted="0.06", turns=1)
        rows += grid_of_ridges(n_images=800, p=1752, q=18000)
        rows += beyond_peers(n=30000, p=4096, q=36000, n_components=256, wanted="16 GiB")
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


def against_peer(n: int, p: int, q: int, n_components: int, wanted: str, turns: int = 3) -> list[Row]:
    X, Y = views(n + 1000, p, q)

    def fit(sides: list[np.ndarray]) -> RegularizedCCA:
        return RegularizedCCA(n_components, reg_x=REG, reg_y=REG, correlation_power=0).fit(*sides)

    narrow, wide = ([side[:n].astype(kind) for side in (X, Y)] for kind in (np.float32, np.float64))
    ours, memory = peak_memory(lambda: fit(narrow))
    shrinkage = [ridge * n / (n - 1) for ridge in (ours.x_ridge_, ours.y_ridge_)]
    shrinkage = [ridge / (1 + ridge) for ridge in shrinkage]

    def fit_peer(sides: list[np.ndarray]) -> RidgeCCA:
        return RidgeCCA(n_components=n_components, shrinkage=shrinkage).fit(sides)

    peer, peer_memory = peak_memory(lambda: fit_peer(narrow))
    correlation = held_out_correlation(*ours.transform(X[n:], Y[n:]))
    peer_correlation = held_out_correlation(*peer.transform([X[n:], Y[n:]]))
    work = (
        f"ridge CCA by {ours.method_}, n={n:,} p={p:,} q={q:,}, {n_components} components; "
        f"held-out correlation {correlation:.4f}, peer {peer_correlation:.4f}"
    )
    rows, least = [], min(n, q)
    operations = (
        1.0 * least**2 * max(n, q) + least**3 / 3 + 2.0 * least**2 * p + 1.0 * least * p**2 + n * p**2
    )
    for threads in thread_counts() if n <= 5000 else thread_counts()[-1:]:
        with use_threads(threads):
            types = {"float32": narrow, "float64": wide} if turns > 1 else {"float32": narrow}
            runs = {f"ours {kind}": partial(fit, sides) for kind, sides in types.items()}
            runs |= {f"peer {kind}": partial(fit_peer, sides) for kind, sides in types.items()}
            found = compare(runs, turns, turns > 1)
        memories = f"{show_bytes(memory)}, peer {show_bytes(peer_memory)}"
        for kind in types:
            floor = roofline(operations, X.nbytes + Y.nbytes, kind, threads)
            named = f"cca-zoo RidgeCCA, {kind}:"
            given = named, found[f"peer {kind}"], wanted, memories, threads, floor
            rows.append(Row(f"{work}; {kind}", found[f"ours {kind}"], *given))
    return rows


def block_sparse(n: int = 2048, components: int = 10, dimension: int = 300) -> list[Row]:
    """Covariances of vectors that are zero in half of the components, as Fisher vectors of captions are."""
    rng = np.random.default_rng(0)
    active = rng.random((n, components)) < rng.uniform(0, 0.95, components)
    Y = rng.standard_normal((n, 2, components, dimension), dtype=np.float32) * active[:, None, :, None]
    Y, X = Y.reshape(n, -1), rng.standard_normal((n, 100), dtype=np.float32)
    starts = dimension * np.arange(2 * components).reshape(2, components)
    groups = [[slice(first, first + dimension) for first in column] for column in starts.T.tolist()]
    runs = {
        "ours": lambda: CovarianceSums.from_blocks(X, [Y], y_groups=groups),
        "dense": lambda: CovarianceSums.from_blocks(X, [Y]),
    }
    _, memory = peak_memory(runs["ours"])
    pairs = (active.T.astype(float) @ active).sum()
    work = f"covariances of sentences, n={n:,} q={Y.shape[1]:,}, {active.mean():.0%} of blocks not zero"
    table = []
    for threads in thread_counts():
        with use_threads(threads):
            found = compare(runs, 3)
        floor = roofline(pairs * (2 * dimension) ** 2, 2.0 * Y.shape[1] ** 2, np.float32, threads)
        given = "", show_bytes(memory), threads, floor
        table.append(Row(work, found["ours"], "ours, dense:", found["dense"], *given))
    return table


def grid_of_ridges(n_images: int, p: int, q: int) -> list[Row]:
    """Twelve pairs of ridges for images with five sentences each, as in training; Pascal1K has 800 images."""
    X, Y = views(5 * n_images, p, q)
    X, pairs = X[::5], np.repeat(np.arange(n_images), 5)
    cca = RegularizedCCA(min(1024, p), correlation_power=0)

    def ours() -> None:
        for _ in cca.path(cca.statistics(X, Y, pairs, n_ridges=len(REGS_Y)), REGS_X, REGS_Y):
            pass

    def covariances() -> None:
        for _ in cca.path(CovarianceSums.from_blocks(X, [Y], pairs), REGS_X, REGS_Y):
            pass

    _, memory = peak_memory(ours)
    work = f"{len(REGS_X)} x {len(REGS_Y)} ridges, {n_images:,} images, {len(Y):,} sentences, p={p:,} q={q:,}"
    table = []
    for threads in thread_counts():
        with use_threads(threads):
            found = compare({"ours": ours, "peer": covariances}, 1, warm=False)
        given = "", show_bytes(memory), threads
        table.append(Row(work, found["ours"], "covariances of q x q:", found["peer"], *given))
    return table


def beyond_peers(n: int, p: int, q: int, n_components: int, wanted: str) -> list[Row]:
    X, Y = views(n, p, q)
    seconds = compare(
        {"ours": lambda: RegularizedCCA(n_components, reg_x=REG, reg_y=REG).fit(X, Y)}, 1, warm=False
    )
    work = f"ridge CCA, n={n:,} p={p:,} q={q:,}, {n_components} components"
    return [Row(work, seconds["ours"], "none finished", None, wanted)]


def held_out_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """The mean over the directions."""
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    return float(((x * y).sum(axis=0) / np.sqrt((x**2).sum(axis=0) * (y**2).sum(axis=0))).mean())
