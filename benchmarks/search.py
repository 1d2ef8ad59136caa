"""Time of one query against a library of N photos, through the local store: p50 and p95.

The points are made from those of the training photos in the model of the package: to one drawn at random, a
share of the difference of two others is added, so that points differ and the covariance stays like the real.
The queries are training sentences of the model. Both have the hubness correction, as in a search.
Peers on the same points, in memory: a full sort in numpy, and faiss' exact index. Ours also reads the paths
of the photos found.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from fishermix.joint.vectors import from_bytes, unit_rows
from fishermix.rows import available_threads
from fishermix_photos.index.scan import Stamp
from fishermix_photos.index.values import Entry
from fishermix_photos.index.writer import LocalIndex
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.model.saved import SHIPPED

from benchmarks.timing import FULL, Row, Timing, measure, peak_memory, roofline, show_bytes

SIZES = (8_091, 100_000, *([1_000_000] if FULL else []))
JITTER = 0.4  # the share of the difference of two points that is added
BEST = 10
QUERIES = 40


def run() -> list[Row]:
    return [row for size in SIZES for row in _at(size)]


def _at(size: int) -> list[Row]:
    rng = np.random.default_rng(0)
    hubness = ImageTextModel.load(SHIPPED).joint_space.hubness
    queries = hubness.csls_right(from_bytes(rng.choice(hubness.right, QUERIES, replace=False)))
    photos, dimension = hubness.csls_left(from_bytes(hubness.left)), queries.shape[1]
    with tempfile.TemporaryDirectory() as folder:
        store = LocalIndex(Path(folder) / "library")
        store.adopt("synthetic", dimension)
        store.add_folder("/photos")
        for start in range(0, size, 50_000):
            points = _photo_points(photos, min(50_000, size - start), rng)
            store.write(
                "/photos",
                [
                    Entry(f"/photos/{start + i}.jpg", Stamp(0, 0), (start + i).to_bytes(32, "big"), point)
                    for i, point in enumerate(points)
                ],
            )
        seconds = measure(store.tune)
        file = next(store.folder.glob("embeddings-*.f32"))
        vectors = np.array(np.memmap(file, np.float32, "r")).reshape(size, -1)
        searches = {
            "ours": lambda query: store.nearest(query, BEST),
            "numpy, full sort": lambda query: np.argsort(-(vectors @ query))[:BEST],
            "faiss IndexFlatIP": _flat(vectors),
        }
        rows, floor = [], roofline(0, vectors.nbytes, np.float32, available_threads())
        _, memory = peak_memory(lambda: store.nearest(queries[0], BEST))
        found = _percentiles(searches, queries)
        if next(store.folder.glob("codes-*"), None):
            rows.append(Row(f"codes of {size:,} x {dimension}, once after an update", seconds))
        ours = found.pop("ours")
        for peer, theirs in found.items():
            for name, mine, other in zip(("p50", "p95"), ours, theirs):
                rows.append(_row(f"query, {size:,} x {dimension}, {name}", mine, peer, other, memory, floor))
        store.close()
        return rows


def _row(work: str, mine: Timing, peer: str, other: Timing, memory: int, floor: float) -> Row:
    wanted = "40 ms" if "1,000,000" in work else ""
    return Row(work, mine, peer, other, wanted, show_bytes(memory), floor=floor)


def _flat(vectors: np.ndarray) -> Callable[[np.ndarray], object]:
    import faiss

    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return lambda query: index.search(query[None], BEST)


def _percentiles(
    searches: dict[str, Callable[[np.ndarray], object]], queries: np.ndarray
) -> dict[str, tuple[Timing, Timing]]:
    """p50 and p95 of a query, in turns, after one to warm up."""
    for search in searches.values():
        search(queries[0])
    found: dict[str, list[Timing]] = {name: [] for name in searches}
    for query in queries:
        for name, search in searches.items():
            found[name].append(measure(lambda search=search, query=query: search(query)))

    def percentile(timings: list[Timing], share: int) -> Timing:
        walls, cpus = ([getattr(timing, kind) for timing in timings] for kind in ("wall", "cpu"))
        return Timing(float(np.percentile(walls, share)), float(np.percentile(cpus, share)))

    return {name: (percentile(of, 50), percentile(of, 95)) for name, of in found.items()}


def _photo_points(photos: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Vectors (n, d + 2) of photos that do not exist, with the hubness of the photos they are made from."""
    one, another, third = photos[rng.integers(len(photos), size=(3, n))]
    points = unit_rows((one + JITTER * (another - third))[:, :-2])
    return np.hstack([points, one[:, -2:]])
