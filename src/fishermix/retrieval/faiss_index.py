"""Search beyond a million points: `faiss` proposes, the exact cosine decides.

An inverted file over 8-bit points, built after an update, names the rows that may be nearest; these are
scored with the exact points, together with all rows appended since it was built. It is a cache beside the
index: left out where `faiss` is not installed, built anew when it has fallen behind.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fishermix.progress import progress
from fishermix.retrieval.exact_search import nearest_rows

LARGEST_TAIL = 0.1
TRAINING_POINTS_A_LIST = 40
ADDED_AT_ONCE = 65_536


class Shortlist:
    """The first `rows` points of an index by a faiss inverted file."""

    def __init__(self, lists: Any):
        self.lists, self.rows = lists, int(lists.ntotal)
        self.lists.nprobe = max(16, lists.nlist // 32)

    def covers(self, rows: int) -> bool:
        """Whether few enough points came after it was built."""
        return self.rows <= rows and rows - self.rows <= LARGEST_TAIL * rows

    def nearest(
        self, vectors: np.ndarray, queries: np.ndarray, n: int, excluded: Sequence[int]
    ) -> list[tuple[list[int], list[float]]]:
        """Rows and exact scores of about the n nearest of each query, best first."""
        # More are proposed than wanted: some are dead, and 8 bits order close points only roughly.
        wanted = min(4 * n + 100, self.rows)
        _, proposed = self.lists.search(queries, wanted)
        tail, dead = np.arange(self.rows, len(vectors)), np.asarray(excluded, np.int64)
        found = []
        for query, rows in zip(queries, proposed):
            rows = np.setdiff1d(np.concatenate([rows[rows >= 0], tail]), dead)
            best, scores = nearest_rows(vectors[rows], query[None], n)
            found.append((rows[best[0]].tolist(), scores[0].tolist()))
        return found


def build_shortlist(folder: Path, generation: int, vectors: np.ndarray) -> None:
    """Write the shortlist of all `vectors` (N, d) beside the index, whole or not at all."""
    if not find_spec("faiss"):
        return
    import faiss

    n, dimension = vectors.shape
    count = max(1, int(4 * n**0.5))
    lists = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(dimension),
        dimension,
        count,
        faiss.ScalarQuantizer.QT_8bit,
        faiss.METRIC_INNER_PRODUCT,
    )
    with progress("preparing fast search", total=n) as bar:
        lists.train(np.ascontiguousarray(vectors[:: max(1, n // (TRAINING_POINTS_A_LIST * count))]))
        for start in range(0, n, ADDED_AT_ONCE):
            block = np.ascontiguousarray(vectors[start : start + ADDED_AT_ONCE])
            lists.add(block)
            bar.advance(len(block))
    temporary = folder / f"faiss-{generation}.tmp"
    faiss.write_index(lists, str(temporary))
    os.replace(temporary, _file(folder, generation))


def open_shortlist(folder: Path, generation: int) -> Shortlist | None:
    """The shortlist of an index, or None if there is none that can be read."""
    file = _file(folder, generation)
    if not file.is_file() or not find_spec("faiss"):
        return None
    import faiss

    try:
        return Shortlist(faiss.read_index(str(file)))
    except RuntimeError:
        return None


def _file(folder: Path, generation: int) -> Path:
    return folder / f"faiss-{generation}.index"
