"""Search of more than a million points: `faiss` proposes candidates, the exact score ranks them.

An inverted file over 8-bit points, built after an update, proposes the rows that may be nearest. They are
scored with the exact points, together with all rows appended since the file was built. The file is a cache
next to the index: it is not used if `faiss` is not installed, and built again when too many rows are new.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fishermix.disk import create_private_file
from fishermix.progress import progress
from fishermix.retrieval.exact_search import find_nearest

LARGEST_NEW_SHARE = 0.1  # new rows are scored one by one: beyond this share the file is built again
TRAINING_POINTS_PER_LIST = 40  # faiss asks for at least 39 points per cluster
POINTS_PER_ADD = 65_536


class FaissIndex:
    """The first `rows` points of an index in an inverted file of faiss."""

    def __init__(self, lists: Any):
        self.lists, self.rows = lists, int(lists.ntotal)
        self.lists.nprobe = max(16, lists.nlist // 32)

    def covers(self, rows: int) -> bool:
        """Whether it holds enough of the `rows` points of an index."""
        return self.rows <= rows and rows - self.rows <= LARGEST_NEW_SHARE * rows

    def find_nearest(
        self, vectors: np.ndarray, queries: np.ndarray, n: int, excluded: Sequence[int] | np.ndarray
    ) -> list[tuple[list[int], list[float]]]:
        """Rows and exact scores of approximately the n nearest rows of each query, best first."""
        # More candidates than wanted: some rows are dead, and 8 bits order close points only roughly.
        wanted = min(4 * n + 100, self.rows)
        _, candidates = self.lists.search(queries, wanted)
        new, dead = np.arange(self.rows, len(vectors)), np.asarray(excluded, np.int64)
        found = []
        for query, rows in zip(queries, candidates):
            rows = rows[(rows >= 0) & (rows < len(vectors))]  # a damaged file may name others
            rows = np.setdiff1d(np.concatenate([rows, new]), dead)
            best, scores = find_nearest(vectors[rows], query[None], n)
            found.append((rows[best[0]].tolist(), scores[0].tolist()))
        return found


def build_faiss_index(folder: Path, generation: int, vectors: np.ndarray) -> None:
    """Write the faiss index of all `vectors` (N, d) next to the SQLite file, completely or not at all."""
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
    with progress("building the faiss index", total=n) as bar:
        lists.train(np.ascontiguousarray(vectors[:: max(1, n // (TRAINING_POINTS_PER_LIST * count))]))
        for start in range(0, n, POINTS_PER_ADD):
            block = np.ascontiguousarray(vectors[start : start + POINTS_PER_ADD])
            lists.add(block)
            bar.advance(len(block))
    temporary = folder / f"faiss-{generation}.tmp"
    create_private_file(temporary)
    faiss.write_index(lists, str(temporary))
    os.replace(temporary, _file(folder, generation))


def open_faiss_index(folder: Path, generation: int) -> FaissIndex | None:
    """The faiss index of a folder; None if it does not exist or cannot be read."""
    file = _file(folder, generation)
    if not file.is_file() or not find_spec("faiss"):
        return None
    import faiss

    _bound_sizes(faiss, file.stat().st_size)
    try:
        return FaissIndex(faiss.read_index(str(file)))
    except (RuntimeError, MemoryError):  # damaged: a size in it may be any number
        return None


def _bound_sizes(faiss: Any, n_bytes: int) -> None:
    """Have faiss believe no size beyond that of the file; older versions believe any."""
    if hasattr(faiss, "set_deserialization_vector_byte_limit"):
        faiss.set_deserialization_vector_byte_limit(n_bytes)
        faiss.set_deserialization_loop_limit(n_bytes)


def _file(folder: Path, generation: int) -> Path:
    return folder / f"faiss-{generation}.index"
