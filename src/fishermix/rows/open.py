"""What `Mixture.fit` may be given besides an array in memory."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse

from fishermix.rows.blocks import RowSource
from fishermix.rows.files import BlockTable, Parts, Table, mapped_table, open_table
from fishermix.rows.stream import StreamSource


def opened(X: Any, sample_weight: Any, threads: int) -> RowSource | None:
    """The source of rows that are not in memory, as `Mixture.fit` lists them; None if X is an array or so."""
    if isinstance(X, np.ndarray) and not isinstance(X, np.memmap):
        return None
    return as_source(X, sample_weight, threads)


def as_source(X: Any, sample_weight: Any = None, threads: int | None = None) -> RowSource | None:
    """The rows of a path, of several paths, of a memory-mapped array, of a re-iterable of blocks, or of a
    `dask.array`; None if X is something else, such as an array in memory."""
    if hasattr(X, "__dask_graph__"):
        from fishermix.distributed.mixtures import ClusterSource

        return ClusterSource(X, weight=sample_weight)
    table = _table(X)
    return None if table is None else StreamSource(table, sample_weight, threads=threads)


def _table(X: Any) -> Table | None:
    if isinstance(X, str | os.PathLike):
        return open_table(X)
    if isinstance(X, np.memmap):
        return mapped_table(X) if X.ndim == 2 and X.dtype.kind in "fiu" else None
    if isinstance(X, list | tuple):
        if X and all(isinstance(part, str | os.PathLike) for part in X):
            return Parts([open_table(part) for part in X])
        if X and all(isinstance(part, np.ndarray) and part.ndim == 2 for part in X):
            return BlockTable(X)
        return None
    is_array = any(hasattr(X, name) for name in ("__array__", "__array_interface__", "__dataframe__"))
    if is_array or scipy.sparse.issparse(X) or isinstance(X, dict | set) or not hasattr(X, "__iter__"):
        return None
    return BlockTable(X)
