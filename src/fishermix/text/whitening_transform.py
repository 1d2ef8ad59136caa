"""The plain object that whitens word vectors; `fishermix.text.whitening` fits it.

It is in a file of its own because a search needs it and not scikit-learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fishermix.errors import FishermixError
from fishermix.storage import require_tensor

KINDS = ("ica", "pca", "none")
SMALLEST_LENGTH = 1e-12  # divides vectors shorter than this: zeros stay zeros


@dataclass(frozen=True)
class WhiteningTransform:
    """x -> (x - mean) @ matrix.T, unless `kind` is "none".

    l2_before, l2_after: scale each vector to length 1 before or after. mean (D,), matrix (D, D): float64.
    """

    kind: str
    l2_before: bool
    l2_after: bool
    mean: np.ndarray
    matrix: np.ndarray

    def transform(self, data: np.ndarray) -> np.ndarray:
        """(n, D) -> (n, D) of the same type."""
        if self.l2_before:
            data = scale_to_unit_length(data)
        if self.kind != "none":
            # In float64, since the mean and the small eigenvalues leave few digits to float32.
            data = ((data - self.mean) @ self.matrix.T).astype(data.dtype, copy=False)
        return scale_to_unit_length(data) if self.l2_after else data

    def to_tensors(self) -> dict[str, np.ndarray]:
        flags = np.array([KINDS.index(self.kind), self.l2_before, self.l2_after], np.int64)
        return {"whitening_mean": self.mean, "whitening_matrix": self.matrix, "whitening_flags": flags}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, np.ndarray]) -> WhiteningTransform:
        """Read and check what `to_tensors` wrote."""
        where = "The whitening is damaged"
        mean = require_tensor(tensors, "whitening_mean", (None,), where)
        matrix = require_tensor(tensors, "whitening_matrix", (len(mean), len(mean)), where)
        flags = require_tensor(tensors, "whitening_flags", (3,), where, kinds="i")
        kind, before, after = flags.tolist()
        if not 0 <= kind < len(KINDS):
            raise FishermixError(f"{where}: it has the unknown kind {kind}.")
        return cls(KINDS[kind], bool(before), bool(after), mean.astype(np.float64), matrix.astype(np.float64))


def scale_to_unit_length(data: np.ndarray) -> np.ndarray:
    lengths = np.sqrt(np.einsum("ij,ij->i", data, data))[:, None]
    return data / np.maximum(lengths, SMALLEST_LENGTH).astype(data.dtype)
