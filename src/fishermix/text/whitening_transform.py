"""The plain object that whitens word vectors; `fishermix.text.whitening` fits it.

It is in a file of its own because a search needs it and not scikit-learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fishermix.errors import FishermixError

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
        try:
            mean, matrix, flags = (tensors[f"whitening_{name}"] for name in ("mean", "matrix", "flags"))
            kind, before, after = flags.tolist()
            name = KINDS[kind]
        except (KeyError, ValueError, IndexError) as error:
            raise FishermixError(f"The whitening is damaged ({error!r}).") from error
        if matrix.shape != (len(mean), len(mean)):
            raise FishermixError(f"The whitening is damaged: mean {mean.shape}, matrix {matrix.shape}.")
        if not (np.isfinite(matrix).all() and np.isfinite(mean).all()):
            raise FishermixError("The whitening is damaged: it contains NaN or infinity.")
        return cls(name, bool(before), bool(after), mean.astype(np.float64), matrix.astype(np.float64))


def scale_to_unit_length(data: np.ndarray) -> np.ndarray:
    lengths = np.sqrt(np.einsum("ij,ij->i", data, data))[:, None]
    return data / np.maximum(lengths, SMALLEST_LENGTH).astype(data.dtype)
