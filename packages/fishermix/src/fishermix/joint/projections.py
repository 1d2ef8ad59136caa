"""What a CCA has learned: correlations, and the weights and the mean of each side. They project rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from fishermix.joint.vectors import unit_rows

CCA_TENSORS = {"correlations_": "k", "x_weights_": "p k", "y_weights_": "q k", "x_mean_": "p", "y_mean_": "q"}


@dataclass(frozen=True, eq=False)
class CanonicalProjections:
    """Correlations (k,), falling; weights (features, k) and mean (features,) of each side.

    A row x projects to (x - mean) W diag(correlations ** power). The power weights the directions: 0 treats
    them alike, 1 follows Klein et al., 4 follows Gong et al. (2014).
    """

    correlations: np.ndarray
    x_weights: np.ndarray
    y_weights: np.ndarray
    x_mean: np.ndarray
    y_mean: np.ndarray

    def scale_columns(self, columns: np.ndarray, power: float, dtype: DTypeLike) -> np.ndarray:
        """Columns (n, k) times `correlations ** power`, computed in `dtype`.

        This is the only place that applies the power: to weights, and to rows projected with power 0.
        """
        if power == 0:
            return columns.astype(dtype, copy=False)
        return np.multiply(columns, (self.correlations**power).astype(dtype), dtype=dtype)

    def project_x(self, rows: np.ndarray, power: float) -> np.ndarray:
        """Projections (n, k) of rows (n, p) of X, in the type of the rows."""
        return self._project(rows, self.x_weights, self.x_mean, power)

    def project_y(self, rows: np.ndarray, power: float) -> np.ndarray:
        """Projections (n, k) of rows (n, q) of Y, in the type of the rows."""
        return self._project(rows, self.y_weights, self.y_mean, power)

    def _project(self, rows: np.ndarray, weights: np.ndarray, mean: np.ndarray, power: float) -> np.ndarray:
        scaled = self.scale_columns(weights, power, np.result_type(weights, np.float32))
        projected = rows @ scaled.astype(rows.dtype, copy=False)
        origin = np.zeros(scaled.shape[1])
        features_at_once = 2048
        for start in range(0, len(mean), features_at_once):
            part = slice(start, start + features_at_once)
            origin += mean[part] @ scaled[part]  # numpy widens these weights to float64
        projected -= origin.astype(projected.dtype)
        return projected

    def unit_embeddings(self, x: np.ndarray, y: np.ndarray, power: float) -> tuple[np.ndarray, np.ndarray]:
        """Unit embeddings float32 of rows of X and Y that were projected with power 0, for this power."""
        scaled_x = self.scale_columns(x, power, np.float32)
        scaled_y = self.scale_columns(y, power, np.float32)
        return unit_rows(scaled_x), unit_rows(scaled_y)

    def to_tensors(self) -> dict[str, np.ndarray]:
        return {f"{name}_": value for name, value in vars(self).items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, np.ndarray]) -> CanonicalProjections:
        """What `to_tensors` gave; the load of a folder has compared the shapes with `CCA_TENSORS`."""
        return cls(*(tensors[name] for name in CCA_TENSORS))
