"""Exact nearest points by blocked matrix products."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BLOCK_ROWS = 65_536


def find_nearest(
    vectors: np.ndarray, queries: np.ndarray, n: int, excluded: Sequence[int] | np.ndarray = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Find the n rows of `vectors` (N, d) with the largest dot product with each row of `queries` (m, d).

    Returns rows and scores, both (m, min(n, N - excluded)), best first; ties go to the lower row. `vectors`
    may be memory-mapped: it is read once, in blocks, for all queries together.
    """
    excluded = np.asarray(excluded, np.int64)
    kept = max(0, min(n, len(vectors) - len(excluded)))
    best_rows = np.empty((len(queries), 0), np.int64)
    best_scores = np.empty((len(queries), 0), np.float32)
    for start in range(0, len(vectors) if kept else 0, BLOCK_ROWS):
        block = vectors[start : start + BLOCK_ROWS]
        scores = (queries @ block.T).astype(np.float32, copy=False)
        np.fmax(scores, -np.inf, out=scores)  # NaN, in a damaged file, is never near
        inside = excluded[(excluded >= start) & (excluded < start + len(block))] - start
        scores[:, inside] = -np.inf
        rows, scores = _largest(scores, kept)
        best_rows = np.hstack([best_rows, rows + start])
        best_scores = np.hstack([best_scores, scores])
        chosen, best_scores = _largest(best_scores, kept)
        best_rows = np.take_along_axis(best_rows, chosen, axis=1)
    order = np.lexsort((best_rows, -best_scores), axis=1)
    best_rows = np.take_along_axis(best_rows, order, axis=1)
    return best_rows, np.take_along_axis(best_scores, order, axis=1)


def _largest(scores: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns and values of the n largest of each row, unordered; ties go to the lower column."""
    if scores.shape[1] <= n:
        columns = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
        return columns, scores
    edge = np.partition(scores, -n, axis=1)[:, -n][:, None]
    columns = np.empty((len(scores), n), np.int64)
    for row, (values, limit) in enumerate(zip(scores, edge)):
        above = np.flatnonzero(values > limit)
        columns[row, : len(above)] = above
        columns[row, len(above) :] = np.flatnonzero(values == limit)[: n - len(above)]
    return columns, np.take_along_axis(scores, columns, axis=1)
