"""Exact weighted medians."""

from __future__ import annotations

import numpy as np


def weighted_median(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """First sorted value at which half of the weight is reached, (D,), of the columns of x (n, D); weight (n,)."""
    order = np.argsort(x, axis=0, kind="stable")
    reached = np.cumsum(weight[order], axis=0)
    first = (reached >= 0.5 * reached[-1:]).argmax(axis=0)
    return np.take_along_axis(x, np.take_along_axis(order, first[None], 0), 0)[0]
