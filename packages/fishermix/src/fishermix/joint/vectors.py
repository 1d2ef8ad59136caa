"""Rows of length 1, and their directions as int8."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike


def unit_rows(rows: np.ndarray, dtype: DTypeLike = np.float32) -> np.ndarray:
    """Rows of length 1, in this type. A zero row stays zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1)).astype(dtype, copy=False)


def to_bytes(rows: np.ndarray) -> np.ndarray:
    """Directions of rows as int8, without the zero rows."""
    rows = rows[np.any(rows, axis=1)]
    return np.rint(127 * rows / np.abs(rows).max(axis=1, keepdims=True)).astype(np.int8)


def from_bytes(rows: np.ndarray) -> np.ndarray:
    """Unit rows of what `to_bytes` gave."""
    return unit_rows(rows.astype(np.float32))
