"""How the CPU time of one thread grows with N, D, K (mixtures) and n, q (ridge CCA), beside the peers.

Draws docs/figures/growth.svg. Each line changes one size and keeps the others.
BENCH_FULL=1 adds larger sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cca_zoo.linear import RidgeCCA
from fishermix import GaussianMixture, HybridMixture, RegularizedCCA

from benchmarks import mixture
from benchmarks.cca import REG, views
from benchmarks.timing import FULL, Row, Timing, compare, use_threads

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "growth.svg"
BASE = {"N": 8_000, "D": 32, "K": 16}
SIZES = {
    "N": (2_000, 8_000, 32_000),
    "D": (8, 32, 128),
    "K": (4, 16, 64),
    "n": (500, 2_000, 8_000),
    "q": (100, 400, 1_600),
}
LARGER = {"N": 128_000, "D": 512, "K": 256, "n": 32_000, "q": 6_400}
TURNS = 3
COLORS = {
    "GMM": "C0",
    "HGLMM": "C2",
    "scikit-learn GMM": "C1",
    "RegularizedCCA": "C0",
    "cca-zoo RidgeCCA": "C1",
}


def run() -> list[Row]:
    found: dict[str, dict[int, dict[str, Timing]]] = {}
    with use_threads(1):
        for name, sizes in SIZES.items():
            sizes = (*sizes, LARGER[name]) if FULL else sizes
            found[name] = {size: compare(dict(contestants(name, size)), TURNS) for size in sizes}
    draw(found)
    return [row for name, by_size in found.items() for row in list_rows(name, by_size)]


def contestants(name: str, size: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Ours and the peer's fit with this size changed."""
    if name in BASE:
        n, d, k = (BASE | {name: size}).values()
        X = mixture.data(mixture.Shape(n, d, k, np.float32, 1.0, ("", "")))
        start = mixture.start_of(X, k)
        yield "GMM", partial(mixture.ours, GaussianMixture, X, start)
        yield "HGLMM", partial(mixture.ours, HybridMixture, X, start)
        yield "scikit-learn GMM", partial(mixture.peer, X, start)
        return
    n, q = (size, 100) if name == "n" else (2_000, size)
    X, Y = views(n, 100, q)
    cca = RegularizedCCA(50, reg_x=REG, reg_y=REG, correlation_power=0)
    yield "RegularizedCCA", lambda: cca.fit(X, Y)
    shrinkage = [REG / (1 + REG)] * 2
    yield "cca-zoo RidgeCCA", lambda: RidgeCCA(n_components=50, shrinkage=shrinkage).fit([X, Y])


def list_rows(name: str, by_size: dict[int, dict[str, Timing]]) -> Iterator[Row]:
    for size, found in by_size.items():
        *ours, peer = found
        for one in ours:
            yield Row(f"growth: {one}, {name}={size:,}", found[one], f"{peer}:", found[peer], threads=1)


def draw(found: dict[str, dict[int, dict[str, Timing]]]) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "growth", "font.size": 8})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(11, 2.7), layout="constrained", sharey=True)
    for axis, (name, by_size) in zip(axes, found.items()):
        for contestant in next(iter(by_size.values())):
            seconds = [by_size[size][contestant].cpu for size in by_size]
            style = "o--" if " " in contestant else "o-"
            axis.loglog(
                list(by_size), seconds, style, label=contestant, markersize=3, color=COLORS[contestant]
            )
        axis.set_xticks(list(by_size), [f"{size:,}" for size in by_size])
        axis.minorticks_off()
        kept = ", ".join(f"{other}={size:,}" for other, size in BASE.items() if other != name)
        kept = kept if name in BASE else ("p=q=100" if name == "n" else "n=2,000, p=100")
        axis.set_title(f"{'EM' if name in BASE else 'ridge CCA'}: {name} ({kept})", fontsize=8)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=6)
    axes[0].set_ylabel("CPU seconds, one thread")
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})
    plt.close(figure)
