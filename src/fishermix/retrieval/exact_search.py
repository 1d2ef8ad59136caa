"""Exact nearest points: scores with a known margin find the rows that may be best, exact scores rank them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fishermix.retrieval.point_codes import PointCodes

BLOCK_ROWS = 65_536
EXACT_ROWS = 512
LENGTH = 2.0  # at least that of a photo's point with its hubness
LOWEST = np.finfo(np.float32).min  # the score of NaN, in a damaged file, which is never near


def find_nearest(
    vectors: np.ndarray,
    queries: np.ndarray,
    n: int,
    excluded: Sequence[int] | np.ndarray = (),
    codes: PointCodes | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Find the n rows of `vectors` (N, d) with the largest dot product with each row of `queries` (m, d).

    Returns rows and scores, both (m, min(n, N - excluded)), best first; ties go to the lower row. `vectors`
    may be memory-mapped: it is read once, in blocks, for all queries together. For one query, the rows that
    have `codes` are read only if they may be among the best. The scores are sums in float64, rounded to
    float32: they do not depend on codes, blocks or threads.
    """
    excluded = np.sort(np.asarray(excluded, np.int64))
    kept = max(0, min(n, len(vectors) - len(excluded)))
    pools = [_Pool(kept, excluded) for _ in queries]
    start = 0
    if kept and codes and len(queries) == 1 and np.isfinite(queries).all():
        for first, scores, margin in codes.score(queries[0]):
            pools[0].add(first, scores, margin)
        start = codes.n_rows
    margins = vectors.shape[1] * 2.0**-23 * LENGTH * np.fmax(np.linalg.norm(queries, axis=1), 0)
    for first in range(start, len(vectors) if kept else 0, BLOCK_ROWS):
        products = (queries @ vectors[first : first + BLOCK_ROWS].T).astype(np.float32, copy=False)
        for pool, scores, margin in zip(pools, products, margins):
            pool.add(first, scores, margin)
    rows, scores = np.empty((len(queries), kept), np.int64), np.empty((len(queries), kept), np.float32)
    for number, query in enumerate(queries if kept else ()):
        rows[number], scores[number] = pools[number].best(vectors, query)
    return rows, scores


class _Pool:
    """The rows that may be among the `kept` best ones."""

    def __init__(self, kept: int, excluded: np.ndarray):
        self.kept, self.excluded = kept, excluded
        self.edge = float(LOWEST)  # `kept` rows have at least this score
        self.parts: list[tuple[np.ndarray, np.ndarray, float]] = []

    def add(self, first: int, scores: np.ndarray, margin: float) -> None:
        """Add the rows from `first` on, whose scores are right up to `margin`; `scores` is written over."""
        np.fmax(scores, LOWEST, out=scores)
        inside = slice(*np.searchsorted(self.excluded, (first, first + len(scores))))
        scores[self.excluded[inside] - first] = -np.inf
        if not self.parts:
            self._raise_edge(scores, margin)
        rows = np.flatnonzero(scores >= self._least(margin))
        scores = scores[rows]
        self._raise_edge(scores, margin)
        self.parts.append((rows + first, scores, margin))

    def _raise_edge(self, scores: np.ndarray, margin: float) -> None:
        if len(scores) > self.kept:
            self.edge = max(self.edge, np.partition(scores, -self.kept)[-self.kept] - margin)

    def _least(self, margin: float) -> np.float32:
        return max(np.float32(self.edge - margin), LOWEST)

    def best(self, vectors: np.ndarray, query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The best rows and their exact scores."""
        rows = np.concatenate([rows for rows, _, _ in self.parts])
        upper = np.concatenate([scores + np.float32(margin) for _, scores, margin in self.parts])
        if len(rows) > 2 * self.kept:  # the exact scores of a few rule out most of the others
            likely = np.argpartition(upper, -self.kept)[-self.kept :]
            may_be_best = upper >= _exact_scores(vectors, query, rows[likely]).min()
            may_be_best[likely] = True  # codes may be damaged
            rows = rows[may_be_best]
        scores = _exact_scores(vectors, query, rows)
        order = np.argsort(-scores, kind="stable")[: self.kept]  # the rows ascend
        return rows[order], scores[order]


def _exact_scores(vectors: np.ndarray, query: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The scores (n,) of these rows; a sum over one row does not depend on the other rows."""
    scores, query = np.empty(len(rows), np.float32), query.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(rows), EXACT_ROWS):
            part = slice(start, start + EXACT_ROWS)
            scores[part] = np.einsum("nd,d->n", vectors.take(rows[part], axis=0).astype(np.float64), query)
    scores[np.isnan(scores)] = -np.inf
    return scores
