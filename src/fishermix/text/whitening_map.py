"""What a fitted `Whitening` does to word vectors, and no more: light to import, for a search that starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fishermix.errors import FishermixError

KINDS = ("ica", "pca", "none")
SMALLEST_LENGTH = 1e-12


@dataclass(frozen=True)
class WhiteningMap:
    """x -> (x - mean) @ matrix.T, unless `kind` is "none"; lengths are brought to 1 before or after it."""

    kind: str
    l2_before: bool
    l2_after: bool
    mean: np.ndarray
    matrix: np.ndarray

    def transform(self, data: np.ndarray) -> np.ndarray:
        """(n, D) -> (n, D) of the same type."""
        if self.l2_before:
            data = unit(data)
        if self.kind != "none":
            # In float64, since the mean and the small eigenvalues leave few digits to float32.
            data = ((data - self.mean) @ self.matrix.T).astype(data.dtype, copy=False)
        return unit(data) if self.l2_after else data

    def to_tensors(self) -> dict[str, np.ndarray]:
        flags = np.array([KINDS.index(self.kind), self.l2_before, self.l2_after], np.int64)
        return {"whitening_mean": self.mean, "whitening_matrix": self.matrix, "whitening_flags": flags}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, np.ndarray]) -> WhiteningMap:
        """Out of what `to_tensors` gave, checked."""
        try:
            mean, matrix, flags = (tensors[f"whitening_{name}"] for name in ("mean", "matrix", "flags"))
            kind, before, after = flags.tolist()
            name = KINDS[kind]
        except (KeyError, ValueError, IndexError) as error:
            raise FishermixError(f"the whitening is damaged: {error!r}") from error
        if matrix.shape != (len(mean), len(mean)) or not (
            np.isfinite(matrix).all() and np.isfinite(mean).all()
        ):
            raise FishermixError(f"the whitening is damaged: mean {mean.shape}, matrix {matrix.shape}")
        return cls(name, bool(before), bool(after), mean.astype(np.float64), matrix.astype(np.float64))


def unit(data: np.ndarray) -> np.ndarray:
    lengths = np.sqrt(np.einsum("ij,ij->i", data, data))[:, None]
    return data / np.maximum(lengths, SMALLEST_LENGTH).astype(data.dtype)
