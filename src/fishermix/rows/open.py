"""What `Mixture.fit` accepts besides an array in memory."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse

from fishermix.rows.blocks import RowSource
from fishermix.rows.files import BlockTable, JoinedTable, Table, open_mapped_table, open_table
from fishermix.rows.stream import StreamSource


def open_rows(X: Any, sample_weight: Any = None, threads: int | None = None) -> RowSource | None:
    """Open rows that are not in memory; return None if X is something else, such as a list of lists.

    X may be a path, a list of paths, a memory-mapped array, a re-iterable of blocks, or a `dask.array`.

    Parameters
    ----------
    X : path, list of paths, memory-mapped array, iterable of blocks, or dask.array
        The rows.
    sample_weight : array of shape (N,), optional
        The weight of each row. Weight 2 counts as the same row twice.
    threads : int, optional
        The number of threads, as `n_jobs` in joblib. Default: every core.
    """
    if hasattr(X, "__dask_graph__"):
        from fishermix.distributed.mixtures import ClusterSource

        return ClusterSource(X, weight=sample_weight)
    table = _find_table(X)
    return None if table is None else StreamSource(table, sample_weight, threads=threads)


def _find_table(X: Any) -> Table | None:
    if isinstance(X, str | os.PathLike):
        return open_table(X)
    if isinstance(X, np.memmap):
        return open_mapped_table(X) if X.ndim == 2 and X.dtype.kind in "fiu" else None
    if isinstance(X, list | tuple):
        if X and all(isinstance(part, str | os.PathLike) for part in X):
            return JoinedTable([open_table(part) for part in X])
        if X and all(isinstance(part, np.ndarray) and part.ndim == 2 for part in X):
            return BlockTable(X)
        return None
    is_array = any(hasattr(X, name) for name in ("__array__", "__array_interface__", "__dataframe__"))
    if is_array or scipy.sparse.issparse(X) or isinstance(X, dict | set) or not hasattr(X, "__iter__"):
        return None
    return BlockTable(X)
