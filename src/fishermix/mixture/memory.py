"""What `partial_fit` remembers of the rows it has seen: a uniform sample of them, of bounded size."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from fishermix.rows.blocks import ArraySource, RowSource
from fishermix.storage import require_tensor

CAPACITY = 16_384  # rows, or ROWS_PER_COMPONENT per component if that is more
ROWS_PER_COMPONENT = 20
PREFIX = "memory."


@dataclass(frozen=True)
class Memory:
    """A uniform sample without replacement of all rows so far; all of them while there is room.

    Each row draws a random key when it arrives, and the rows with the smallest keys stay: every subset of
    the stream is equally likely, in whatever order the rows come.
    """

    rows: np.ndarray  # (n, D)
    weight: np.ndarray  # (n,) their sample weights
    keys: np.ndarray  # (n,)
    n_seen: int = 0  # rows so far, without those of weight 0
    seen_weight: float = 0.0  # the sum of their weights
    credit: float = 0.0  # rows that may still be visited; see `minibatch`
    restarted_at: int = 0  # rows seen at the last new start

    @classmethod
    def empty(cls, n_features: int, dtype: np.dtype) -> Memory:
        """Return a memory without rows."""
        return cls(np.empty((0, n_features), dtype), np.empty(0), np.empty(0))

    @property
    def is_complete(self) -> bool:
        """Whether all rows so far are in the memory."""
        return len(self.rows) == self.n_seen

    def source(self, threads: int | None) -> ArraySource:
        """Return the rows, with weights that sum to the weight of all rows so far."""
        scale = 1.0 if self.is_complete else self.seen_weight / self.weight.sum()
        weight = None if scale == 1 and (self.weight == 1).all() else scale * self.weight
        return ArraySource(self.rows, weight, threads)

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the tensors from which `from_tensors` makes the same memory."""
        numbers = np.array([self.n_seen, self.seen_weight, self.credit, self.restarted_at], np.float64)
        parts = {"rows": self.rows, "weight": self.weight, "keys": self.keys, "numbers": numbers}
        return {PREFIX + name: value for name, value in parts.items()}

    @classmethod
    def from_tensors(
        cls, tensors: dict[str, np.ndarray], n_features: int, where: str | os.PathLike
    ) -> Memory | None:
        """Read what `tensors` returned; None if there is no memory."""
        if PREFIX + "rows" not in tensors:
            return None
        n_rows = len(tensors[PREFIX + "rows"])
        rows = require_tensor(tensors, PREFIX + "rows", (n_rows, n_features), where)
        rows = rows.astype(np.float32) if rows.dtype == np.float16 else rows
        weight = require_tensor(tensors, PREFIX + "weight", (n_rows,), where).astype(np.float64, copy=False)
        keys = require_tensor(tensors, PREFIX + "keys", (n_rows,), where).astype(np.float64, copy=False)
        numbers = require_tensor(tensors, PREFIX + "numbers", (4,), where).astype(np.float64, copy=False)
        return cls(rows, weight, keys, int(numbers[0]), float(numbers[1]), float(numbers[2]), int(numbers[3]))


def remember(memory: Memory, source: RowSource, n_components: int, seed: int, visits: float) -> Memory:
    """Add a batch to the memory, and `visits` per row to its credit."""
    capacity = max(CAPACITY, ROWS_PER_COMPONENT * n_components)
    n_rows = source.shape[0]
    keys = np.random.default_rng([seed, memory.n_seen]).random(n_rows)
    kept = np.arange(n_rows) if n_rows <= capacity else np.sort(np.argpartition(keys, capacity)[:capacity])
    rows, weight = source.take(kept)
    positive = weight > 0
    dtype = np.result_type(memory.rows, rows)
    rows = np.concatenate([memory.rows, rows[positive]]).astype(dtype, copy=False)
    weight = np.concatenate([memory.weight, weight[positive]])
    keys = np.concatenate([memory.keys, keys[kept][positive]])
    if len(keys) > capacity:
        smallest = np.sort(np.argpartition(keys, capacity)[:capacity])
        rows, weight, keys = rows[smallest], weight[smallest], keys[smallest]
    return Memory(
        rows,
        weight,
        keys,
        # Of a batch larger than the memory only the kept rows are looked at for weights of 0.
        memory.n_seen + (int(positive.sum()) if len(kept) == n_rows else n_rows),
        memory.seen_weight + source.total_weight,
        memory.credit + visits * n_rows,
        memory.restarted_at,
    )
