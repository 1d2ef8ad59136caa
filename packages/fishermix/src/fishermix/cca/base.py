"""What a fitted CCA does, however its ridges were chosen: it projects both sides, and scores pairs."""

from __future__ import annotations

from typing import Self, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils._set_output import _wrap_data_with_container
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from fishermix.cca.covariances import parse_pairs
from fishermix.cca.problem import FitMethod
from fishermix.cca.solver import remove_ridges
from fishermix.errors import FishermixError
from fishermix.joint.projections import CanonicalProjections
from fishermix.saved import Number, Struct


class CCAFit(Struct, frozen=True):
    """How a CCA was fitted: the method, the ridges that were added, and the correlations of the pairs."""

    method: FitMethod
    x_ridge: Number | None = None
    y_ridge: Number | None = None
    correlations: list[Number] | None = None


class BaseCCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What fitted CCAs do: they project rows of both sides into the joint space, and score pairs."""

    correlation_power: float
    _projections: CanonicalProjections
    correlations_: np.ndarray
    ridged_correlations_: np.ndarray
    x_weights_: np.ndarray
    y_weights_: np.ndarray
    x_mean_: np.ndarray
    y_mean_: np.ndarray
    method_: FitMethod
    x_ridge_: float | None
    y_ridge_: float | None
    n_components_: int
    n_features_in_: int
    feature_names_in_: np.ndarray

    def fit_transform(
        self,
        X: ArrayLike,
        Y: ArrayLike | None = None,
        pairs: ArrayLike | None = None,
        *,
        y: ArrayLike | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Fit to the pairs and return the points (m, k) and (n, k) of both sides, as scikit-learn's CCA does.

        `y` is scikit-learn's name of Y. A `Pipeline` that goes on with the points of X alone calls this
        method too, and fails as it does with scikit-learn's CCA: fit the CCA before it.

        Returns
        -------
        points : tuple of ndarray of shape (m, k) and ndarray of shape (n, k)
            The points of X and of Y.
        """
        other_side = y if Y is None else Y
        self.fit(X, other_side, pairs)
        assert other_side is not None  # or `fit` has refused it
        return self.transform(X, other_side)

    @overload
    def transform(self, X: ArrayLike, Y: None = None) -> np.ndarray: ...

    @overload
    def transform(self, X: ArrayLike, Y: ArrayLike) -> tuple[np.ndarray, np.ndarray]: ...

    def transform(
        self, X: ArrayLike, Y: ArrayLike | None = None
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Points (m, k) of rows (m, p) of X in the joint space; with Y the tuple of the points of both.

        Returns
        -------
        points : ndarray of shape (m, k), or tuple of it and ndarray of shape (n, k)
            The points of X, in its type; with Y also those of Y.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        points = self._projections.project_x(rows, self.correlation_power)
        return points if Y is None else (points, self.transform_y(Y))

    def transform_y(self, Y: ArrayLike) -> np.ndarray:
        """Points (n, k) of rows (n, q) of Y in the joint space, in the container of `set_output`.

        Returns
        -------
        points : ndarray of shape (n, k)
            The points, in the type of Y; a data frame if `set_output` asked for one.
        """
        check_is_fitted(self)
        rows = parse_y(Y)
        if rows.shape[1] != len(self.y_weights_):
            raise FishermixError(
                f"Y has {rows.shape[1]} features, but this CCA was fitted to {len(self.y_weights_)}.",
                code="wrong_shape",
            )
        points = self._projections.project_y(rows, self.correlation_power)
        return _wrap_data_with_container("transform", points, Y, self)

    def score(self, X: ArrayLike, y: ArrayLike, pairs: ArrayLike | None = None) -> float:
        """The correlation of both sides' points of these pairs, averaged over the directions.

        On pairs held out from the fit it is what `GridSearchCV` maximizes. Use it to compare ridges, not
        numbers of directions, because the first directions correlate most. A direction without variance
        counts as 0. scikit-learn names its second argument y.

        Returns
        -------
        correlation : float
            Between -1 and 1; higher is better.
        """
        left, right = (np.asarray(points, np.float64) for points in self.transform(X, y))
        left_of_right = parse_pairs(pairs, len(left), len(right))
        if len(right) < 2:
            raise FishermixError(
                f"A correlation needs at least two pairs, but there are {len(right)}.", code="too_few"
            )
        if left_of_right is not None:
            left = left[left_of_right]
        left = left - left.mean(axis=0)
        right = right - right.mean(axis=0)
        lengths = np.linalg.norm(left, axis=0) * np.linalg.norm(right, axis=0)
        products = np.einsum("nk,nk->k", left, right)
        return float(np.divide(products, lengths, out=np.zeros(len(lengths)), where=lengths > 0).mean())

    def _set_fit(self, projections: CanonicalProjections, fit: CCAFit) -> Self:
        self._projections = projections
        self.x_weights_, self.y_weights_ = projections.x_weights, projections.y_weights
        self.x_mean_, self.y_mean_ = projections.x_mean, projections.y_mean
        self.ridged_correlations_ = projections.correlations
        if fit.correlations is None:  # saved by 0.3
            x, y = (self.x_weights_, fit.x_ridge or 0.0), (self.y_weights_, fit.y_ridge or 0.0)
            self.correlations_ = remove_ridges(projections.correlations, x, y)
        else:
            self.correlations_ = np.array(fit.correlations)
        self.method_, self.x_ridge_, self.y_ridge_ = fit.method, fit.x_ridge, fit.y_ridge
        self.n_components_ = len(projections.correlations)
        self.n_features_in_ = len(projections.x_weights)
        return self

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def parse_sides(
    cca: BaseCCA, X: ArrayLike, Y: ArrayLike | None, pairs: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """X (m, p), Y (n, q) and the pairs, as `fit` got them, checked."""
    x = validate_data(cca, X, dtype=(np.float64, np.float32), ensure_min_samples=2)
    if Y is None:
        raise FishermixError(
            f"{type(cca).__name__} requires y to be passed, but the target y is None.", code="missing_side"
        )
    y = parse_y(Y)
    return x, y, parse_pairs(pairs, len(x), len(y))


def parse_y(Y: ArrayLike) -> np.ndarray:
    """The rows (n, q) of Y; one number for each row is one feature."""
    rows = check_array(Y, dtype=(np.float64, np.float32), ensure_2d=False, input_name="Y")
    return rows.reshape(-1, 1) if rows.ndim == 1 else rows
