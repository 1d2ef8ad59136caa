"""Time of one query against an index of N synthetic points, through the local store: p50 and p95.

Peers on the same points, in memory: a full sort in numpy, and faiss' exact index. Ours also reads the paths
of the photos found. Beyond a million the store uses candidates of faiss; here the search is exact.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.timing import Row
from fishermix.retrieval.sqlite_store import LocalStore
from fishermix.retrieval.store import Entry, Stamp

SIZES = (8_091, 100_000, 1_000_000)
DIMENSION = 384  # of the model in the package
BEST = 10
QUERIES = 40


def run() -> list[Row]:
    return [row for size in SIZES for row in _at(size)]


def _at(size: int) -> list[Row]:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore(Path(folder) / "index")
        store.adopt("synthetic", DIMENSION)
        for start in range(0, size, 50_000):
            points = _unit(rng.standard_normal((min(50_000, size - start), DIMENSION), np.float32))
            store.write(
                [
                    Entry(f"{start + i}.jpg", Stamp(0, 0), (start + i).to_bytes(32, "big"), point)
                    for i, point in enumerate(points)
                ]
            )
        vectors = np.array(np.memmap(next(store.folder.glob("vectors-*.f32")), np.float32, "r")).reshape(
            size, -1
        )
        queries = _unit(rng.standard_normal((QUERIES, DIMENSION), np.float32))
        rows = []
        ours = _percentiles(lambda query: store.nearest(query[None], BEST), queries)
        peers = {
            "numpy, full sort": lambda query: np.argsort(-(vectors @ query))[:BEST],
            "faiss IndexFlatIP": _flat(vectors),
        }
        for peer, search in peers.items():
            for name, mine, theirs in zip(("p50", "p95"), ours, _percentiles(search, queries)):
                rows.append(Row(f"query, {size:,} x {DIMENSION}, {name}", mine, peer, theirs))
        store.close()
        return rows


def _flat(vectors: np.ndarray) -> Callable[[np.ndarray], object]:
    import faiss

    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return lambda query: index.search(query[None], BEST)


def _percentiles(search: Callable[[np.ndarray], object], queries: np.ndarray) -> tuple[float, float]:
    """p50 and p95 seconds of a query, after one to warm up."""
    search(queries[0])
    seconds = []
    for query in queries:
        start = time.perf_counter()
        search(query)
        seconds.append(time.perf_counter() - start)
    return float(np.percentile(seconds, 50)), float(np.percentile(seconds, 95))


def _unit(points: np.ndarray) -> np.ndarray:
    return points / np.linalg.norm(points, axis=1, keepdims=True)
