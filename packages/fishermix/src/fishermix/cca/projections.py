"""The fitted arrays of a CCA and the projections they define. Needs numpy alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fishermix.schemas import Number, Positive, Size, Struct, Text
from fishermix.storage import require_tensors

FEATURES_AT_ONCE = 2048
BLOCK_CELLS = 8_000_000  # 32 MB of cosines at a time: few enough to fit, enough for a full-speed product
SHAPES = {"correlations_": "k", "x_weights_": "p k", "y_weights_": "q k", "x_mean_": "p", "y_mean_": "q"}
FitMethod = Literal["primal", "dual", "streaming"]


class CCAParameters(Struct, kw_only=True):
    """The parameters of a saved `RegularizedCCA`."""

    n_components: Size | None = None
    reg_x: Positive = 0.01
    reg_y: Positive = 0.01
    scale: Number | Literal["correlation"] | None = "correlation"
    method: Literal["auto", "primal", "dual"] = "auto"


class CCAFit(Struct, frozen=True):
    """How a CCA was fitted: the method, and the ridges that were added."""

    method: FitMethod
    x_ridge: Number | None = None
    y_ridge: Number | None = None


class CCAConfig(CCAFit, frozen=True, kw_only=True):
    """A saved `RegularizedCCA`."""

    params: CCAParameters
    feature_names_in: list[Text] | None = None


def unit_rows(points: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
    """Rows of length 1, in this type. A zero row stays zero."""
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    return (points / np.where(lengths > 0, lengths, 1)).astype(dtype, copy=False)


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

    def scale_columns(self, columns: np.ndarray, power: float, dtype: Any) -> np.ndarray:
        """Columns (n, k) times `correlations ** power`, computed in `dtype`.

        This is the only place that applies the power: to weights, and to points projected with power 0.
        """
        if power == 0:
            return columns.astype(dtype, copy=False)
        return np.multiply(columns, (self.correlations**power).astype(dtype), dtype=dtype)

    def project_x(self, rows: np.ndarray, power: float) -> np.ndarray:
        """Points (n, k) of rows (n, p) of X, in the type of the rows."""
        return self._project(rows, self.x_weights, self.x_mean, power)

    def project_y(self, rows: np.ndarray, power: float) -> np.ndarray:
        """Points (n, k) of rows (n, q) of Y, in the type of the rows."""
        return self._project(rows, self.y_weights, self.y_mean, power)

    def _project(self, rows: np.ndarray, weights: np.ndarray, mean: np.ndarray, power: float) -> np.ndarray:
        scaled = self.scale_columns(weights, power, np.result_type(weights, np.float32))
        points = rows @ scaled.astype(rows.dtype, copy=False)
        origin = np.zeros(scaled.shape[1])
        for start in range(0, len(mean), FEATURES_AT_ONCE):
            part = slice(start, start + FEATURES_AT_ONCE)
            origin += mean[part] @ scaled[part]  # numpy widens these weights to float64
        points -= origin.astype(points.dtype)
        return points

    def to_tensors(self) -> dict[str, np.ndarray]:
        return {f"{name}_": value for name, value in vars(self).items()}

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, np.ndarray], where: str | os.PathLike
    ) -> CanonicalProjections:
        """Read what `to_tensors` gave; errors name `where`."""
        return cls(*require_tensors(tensors, SHAPES, where))
