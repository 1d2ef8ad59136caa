"""The estimator: two sides, a ridge on each, one joint space."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, overload

import numpy as np
from msgspec import structs
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils._set_output import _wrap_data_with_container
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from fishermix.cca.cholesky import ROWS_IN_CACHE
from fishermix.cca.covariances import CovarianceSums, parse_pairs, sum_by_group
from fishermix.cca.dual import GramSums, choose_method
from fishermix.cca.problem import FitMethod, solve
from fishermix.errors import FishermixError
from fishermix.joint import CCA_TENSORS, CanonicalProjections
from fishermix.storage import (
    FolderKind,
    Number,
    Positive,
    Size,
    Struct,
    Text,
    check_feature_names,
    list_feature_names,
    load_folder,
    save_folder,
)

LEAST_RIDGE_IN_SINGLE = {"primal": 1e-3, "dual": 5e-3}  # below, the residual is nearly always too large
LARGEST_RESIDUAL = 3e-5


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


CCA_KIND = FolderKind("cca", 1, CCAConfig, CCA_TENSORS)


class RegularizedCCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Canonical correlation analysis with a ridge on each side.

    The k-th pair of directions maximizes u' S_xy v subject to u'(S_xx + r_x I)u = v'(S_yy + r_y I)v = 1 and
    to orthogonality to the pairs before it; r = reg * (largest eigenvalue of that side's covariance).

    Parameters
    ----------
    n_components : int, optional
        Number of directions k. None: min(features of X, features of Y, pairs - 1).
    reg_x : float, default 0.01
        Ridge of X as a share of the largest eigenvalue of its covariance.
    reg_y : float, default 0.01
        Ridge of Y as a share of the largest eigenvalue of its covariance.
    scale : "correlation", float or None, default "correlation"
        The power of the correlations that projections are multiplied by. "correlation" is power 1 (Klein et
        al.), a number is that power (Gong et al., 2014, use 4), None is power 0. You can change it after
        `fit`.
    method : {"auto", "primal", "dual"}, default "auto"
        "primal" forms covariances, "dual" inner products of rows; "auto" takes the cheaper one.

    Attributes
    ----------
    correlations_ : ndarray of shape (k,)
        The canonical correlations, falling.
    x_weights_ : ndarray of shape (p, k)
        Directions of X. On the side with fewer features, the largest weight of each column is positive.
    y_weights_ : ndarray of shape (q, k)
        Directions of Y.
    x_mean_ : ndarray of shape (p,)
        Mean of X over the pairs.
    y_mean_ : ndarray of shape (q,)
        Mean of Y over the pairs.
    projections_ : CanonicalProjections
        These five as one plain object, which computes.
    x_ridge_ : float or None
        r_x, in units of the covariance. None if it is unknown.
    y_ridge_ : float or None
        r_y, in units of the covariance.
    n_components_ : int
        Number of directions k.
    method_ : str
        "primal", "dual" or "streaming".
    n_features_in_ : int
        Number of features p of X.
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns of X, if it was a data frame.

    See Also
    --------
    fishermix.cca.choose.choose_ridges : chooses the ridges by cross-validation.
    fishermix.JointSpace : compares points of both sides.
    sklearn.cross_decomposition.CCA : without ridges, for few features.

    References
    ----------
    Vinod (1976), Canonical ridge and econometrics of joint production; Klein et al. (CVPR 2015);
    Gong et al. (IJCV 2014), A multi-view embedding space for modeling Internet images, tags, and their
    semantics.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> images = rng.standard_normal((100, 4))
    >>> sentences = np.repeat(images, 5, axis=0) + rng.standard_normal((500, 4))
    >>> cca = RegularizedCCA(n_components=2).fit(images, sentences, pairs=np.repeat(np.arange(100), 5))
    >>> cca.transform(images).shape, cca.transform_y(sentences).shape
    ((100, 2), (500, 2))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "reg_x": [Interval(Real, 0, None, closed="left")],
        "reg_y": [Interval(Real, 0, None, closed="left")],
        "scale": [StrOptions({"correlation"}), Interval(Real, 0, None, closed="left"), None],
        "method": [StrOptions({"auto", "primal", "dual"})],
    }

    projections_: CanonicalProjections
    correlations_: np.ndarray
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

    def __init__(
        self,
        n_components: int | None = None,
        *,
        reg_x: float = 0.01,
        reg_y: float = 0.01,
        scale: str | float | None = "correlation",
        method: str = "auto",
    ):
        self.n_components = n_components
        self.reg_x = reg_x
        self.reg_y = reg_y
        self.scale = scale
        self.method = method

    def fit(self, X: Any, Y: Any, pairs: ArrayLike | None = None) -> RegularizedCCA:
        """Fit to the pairs (X[pairs[j]], Y[j]); without `pairs`, (X[j], Y[j]).

        Parameters
        ----------
        X : array of shape (m, p)
            The rows of one side.
        Y : array of shape (n, q) or iterator of blocks of rows
            The rows of the other side. Each block is read once and not kept.
        pairs : array of shape (n,), optional
            The row of X that belongs to each row of Y. Default: row j belongs to row j.

        Returns
        -------
        self : RegularizedCCA
        """
        self._validate_params()
        ridges = self.n_components, self.reg_x, self.reg_y
        if isinstance(Y, Iterator):
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit to a data frame
            _, projections, fit = next(_solve_grid(CovarianceSums.from_blocks(X, Y, pairs), *ridges))
            return self._set_fit(projections, fit)
        X, Y, pairs = self._parse_sides(X, Y, pairs)
        method = self._choose(X, Y, n_components=self.n_components)
        if self._may_round(X, Y, method):
            with suppress(FishermixError, np.linalg.LinAlgError):
                sums = _sum(X, Y, pairs, method, rounded=True)
                _, projections, fit = next(_solve_grid(sums, *ridges))
                if _largest_residual(projections, fit, X, Y, pairs) < LARGEST_RESIDUAL:
                    return self._set_fit(projections, fit)
        _, projections, fit = next(_solve_grid(_sum(X, Y, pairs, method), *ridges))
        return self._set_fit(projections, fit)

    def statistics(
        self, X: Any, Y: Any, pairs: ArrayLike | None = None, n_ridges: int = 1
    ) -> CovarianceSums | GramSums:
        """The covariances or the inner products of rows, whichever is cheaper; `path` needs them.

        X, Y and pairs are as in `fit`; n_ridges is the number of ridges of the side with more features that
        `path` will be given.
        """
        self._validate_params()
        X, Y, pairs = self._parse_sides(X, Y, pairs)
        return _sum(X, Y, pairs, self._choose(X, Y, n_ridges))

    def _parse_sides(self, X: Any, Y: Any, pairs: ArrayLike | None) -> tuple[Any, Any, np.ndarray | None]:
        X = validate_data(self, X, dtype=(np.float64, np.float32), ensure_min_samples=2)
        if Y is None:
            raise FishermixError("RegularizedCCA requires y to be passed, but the target y is None.")
        Y = _parse_y(Y)
        return X, Y, parse_pairs(pairs, len(X), len(Y))

    def _choose(self, X: Any, Y: Any, n_ridges: int = 1, n_components: int | None = None) -> str:
        if self.method != "auto":
            return self.method
        return choose_method(len(X), len(Y), X.shape[1], Y.shape[1], n_ridges, n_components)

    def _may_round(self, X: Any, Y: Any, method: str) -> bool:
        """Whether to try float32 first, which takes about half the time."""
        in_single = X.dtype == Y.dtype == np.float32
        few = self.n_components is not None and self.n_components <= min(X.shape[1], Y.shape[1]) / 3
        return in_single and few and min(self.reg_x, self.reg_y) >= LEAST_RIDGE_IN_SINGLE[method]

    def path(
        self,
        statistics: CovarianceSums | GramSums,
        reg_x: float | Sequence[float],
        reg_y: float | Sequence[float],
    ) -> Iterator[RegularizedCCA]:
        """Yield a fitted estimator for each pair of ridges.

        The covariances are formed once, and the side with more features is factorized once for each of its
        ridges.

        Parameters
        ----------
        statistics : CovarianceSums or GramSums
            What the method `statistics` returns.
        reg_x, reg_y : float or sequence of floats
            The ridges of X and Y to try, as shares of the largest eigenvalue of that side.

        Returns
        -------
        estimators : iterator of RegularizedCCA
        """
        self._validate_params()
        for (chosen_x, chosen_y), projections, fit in _solve_grid(
            statistics, self.n_components, reg_x, reg_y
        ):
            yield clone(self).set_params(reg_x=chosen_x, reg_y=chosen_y)._set_fit(projections, fit)

    def fit_transform(self, X: Any, Y: Any = None, pairs: Any = None, *, y: Any = None) -> Any:
        """Fit to the pairs and return the points (m, k) and (n, k) of both sides, as scikit-learn's CCA does.

        `y` is scikit-learn's name of Y. A `Pipeline` that goes on with the points of X alone calls this
        method too, and fails as it does with scikit-learn's CCA: fit the CCA before it.

        Returns
        -------
        points : tuple of ndarray of shape (m, k) and ndarray of shape (n, k)
            The points of X and of Y.
        """
        Y = y if Y is None else Y
        return self.fit(X, Y, pairs).transform(X, Y)

    @overload
    def transform(self, X: Any, Y: None = None) -> np.ndarray: ...

    @overload
    def transform(self, X: Any, Y: Any) -> tuple[np.ndarray, np.ndarray]: ...

    def transform(self, X: Any, Y: Any = None) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Points (m, k) of rows (m, p) of X in the joint space; with Y the tuple of the points of both.

        Returns
        -------
        points : ndarray of shape (m, k), or tuple of it and ndarray of shape (n, k)
            The points of X, in its type; with Y also those of Y.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        points = self.projections_.project_x(X, self.power)
        return points if Y is None else (points, self.transform_y(Y))

    def transform_y(self, Y: Any) -> np.ndarray:
        """Points (n, k) of rows (n, q) of Y in the joint space, in the container of `set_output`.

        Returns
        -------
        points : ndarray of shape (n, k)
            The points, in the type of Y; a data frame if `set_output` asked for one.
        """
        check_is_fitted(self)
        given, Y = Y, _parse_y(Y)
        if Y.shape[1] != len(self.y_weights_):
            raise FishermixError(
                f"Y has {Y.shape[1]} features, but this CCA was fitted to {len(self.y_weights_)}."
            )
        points = self.projections_.project_y(Y, self.power)
        return _wrap_data_with_container("transform", points, given, self)

    def score(self, X: Any, y: Any, pairs: ArrayLike | None = None) -> float:
        """The correlation of both sides' points of these pairs, averaged over the directions.

        On pairs held out from the fit it is what `GridSearchCV` maximizes. Use it to compare ridges, not
        numbers of directions, because the first directions correlate most. A direction without variance
        counts as 0. scikit-learn names its second argument y.

        Returns
        -------
        correlation : float
            Between -1 and 1; higher is better.
        """
        x, y = (np.asarray(points, np.float64) for points in self.transform(X, y))
        pairs = parse_pairs(pairs, len(x), len(y))
        if len(y) < 2:
            raise FishermixError(f"A correlation needs at least two pairs, but there are {len(y)}.")
        x = x if pairs is None else x[pairs]
        x, y = x - x.mean(axis=0), y - y.mean(axis=0)
        lengths = np.linalg.norm(x, axis=0) * np.linalg.norm(y, axis=0)
        products = np.einsum("nk,nk->k", x, y)
        return float(np.divide(products, lengths, out=np.zeros(len(lengths)), where=lengths > 0).mean())

    def save(self, folder: str | os.PathLike) -> None:
        """Write the fitted estimator as a folder of JSON and safetensors, created if it does not exist."""
        check_is_fitted(self)
        config = CCAConfig(
            self.method_,
            self.x_ridge_,
            self.y_ridge_,
            params=CCAParameters(**self.get_params()),
            feature_names_in=list_feature_names(self),
        )
        save_folder(folder, CCA_KIND, config, self.projections_.to_tensors())

    @classmethod
    def load(cls, folder: str | os.PathLike) -> RegularizedCCA:
        """Read an estimator that `save` wrote."""
        saved = load_folder(folder, CCA_KIND)
        config = saved.config
        projections = CanonicalProjections.from_tensors(saved.tensors)
        loaded = cls(**structs.asdict(config.params))._set_fit(projections, config)
        if names := check_feature_names(config.feature_names_in, loaded.n_features_in_, folder):
            loaded.feature_names_in_ = np.array(names, object)
        return loaded

    def _set_fit(self, projections: CanonicalProjections, fit: CCAFit) -> RegularizedCCA:
        self.projections_ = projections
        self.__dict__.update(projections.to_tensors())
        self.method_, self.x_ridge_, self.y_ridge_ = fit.method, fit.x_ridge, fit.y_ridge
        self.n_components_ = len(projections.correlations)
        self.n_features_in_ = len(projections.x_weights)
        return self

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    @property
    def power(self) -> float:
        """The power of the correlations that `scale` stands for."""
        if self.scale is None:
            return 0.0
        return 1.0 if self.scale == "correlation" else float(self.scale)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _sum(
    X: Any, Y: Any, pairs: np.ndarray | None, method: str, rounded: bool = False
) -> CovarianceSums | GramSums:
    return (GramSums if method == "dual" else CovarianceSums.from_arrays)(X, Y, pairs, rounded)


def _largest_residual(
    projections: CanonicalProjections, fit: CCAFit, X: Any, Y: Any, pairs: np.ndarray | None
) -> float:
    """A bound on the error of four of the correlations, computed in float64 from the rows.

    With s = S_xy v - rho A u and t = S_yx u - rho B v, a correlation of the exact problem lies within
    sqrt((s' A^-1 s + t' B^-1 t) / 2) of rho, and A^-1 is at most I / r_x, B^-1 at most I / r_y.
    """
    if not projections.y_weights.any(axis=0).all() or not projections.x_weights.any(axis=0).all():
        return np.inf  # the last correlations are lost in the rounding
    chosen = np.unique(np.linspace(0, len(projections.correlations) - 1, 4).astype(int))
    rho = projections.correlations[chosen]
    u, v = (side[:, chosen].astype(np.float64) for side in (projections.x_weights, projections.y_weights))
    x = np.concatenate([rows @ u for _, rows in _in_double(X)]) - projections.x_mean @ u
    y = np.concatenate([rows @ v for _, rows in _in_double(Y)]) - projections.y_mean @ v
    of_x = sum_by_group(y, pairs, len(x))
    counts = sum_by_group(np.ones((len(y), 1)), pairs, len(x))
    of_y = x if pairs is None else x[pairs]
    squares = np.zeros(len(chosen))
    for side, mean, right, weights, ridge in (
        (X, projections.x_mean, of_x - rho * counts * x, u, fit.x_ridge),
        (Y, projections.y_mean, of_y - rho * y, v, fit.y_ridge),
    ):
        product = sum(rows.T @ right[part] for part, rows in _in_double(side))
        product -= np.outer(mean, right.sum(axis=0))
        squares += ((product / len(y) - rho * ridge * weights) ** 2).sum(axis=0) / ridge
    return float(np.sqrt(squares.max() / 2))


def _in_double(rows: Any) -> Iterator[tuple[slice, np.ndarray]]:
    for start in range(0, len(rows), ROWS_IN_CACHE):
        part = slice(start, start + ROWS_IN_CACHE)
        yield part, rows[part].astype(np.float64)


def _parse_y(Y) -> np.ndarray:
    Y = check_array(Y, dtype=(np.float64, np.float32), ensure_2d=False, input_name="Y")
    return Y.reshape(-1, 1) if Y.ndim == 1 else Y


def _solve_grid(
    statistics: CovarianceSums | GramSums,
    n_components: int | None,
    reg_x: float | Sequence[float],
    reg_y: float | Sequence[float],
) -> Iterator[tuple[tuple[float, float], CanonicalProjections, CCAFit]]:
    """(reg_x, reg_y), the projections, and how they were fitted, for each pair of ridges."""
    p, q = len(statistics.x_mean), len(statistics.y_mean)
    at_most = min(p, q)
    if n_components is not None and n_components > at_most:
        raise FishermixError(f"n_components is {n_components}, but the smaller side has {at_most} features.")
    n_components = n_components or max(1, min(at_most, statistics.n - 1))
    x_is_small = p <= q
    regs_x, regs_y = _parse_ridges("reg_x", reg_x), _parse_ridges("reg_y", reg_y)
    regs = (regs_x, regs_y) if x_is_small else (regs_y, regs_x)
    for pair in solve(statistics.problem(), n_components, *regs):
        small = pair.reg_small, pair.ridge_small, pair.small_weights.astype(statistics.dtype, copy=False)
        large = pair.reg_large, pair.ridge_large, pair.large_weights.astype(statistics.dtype, copy=False)
        x, y = (small, large) if x_is_small else (large, small)
        projections = CanonicalProjections(
            pair.correlations, x[2], y[2], statistics.x_mean, statistics.y_mean
        )
        yield (x[0], y[0]), projections, CCAFit(statistics.method, x[1], y[1])


def _parse_ridges(name: str, given: float | Sequence[float]) -> list[float]:
    """The ridges of one side, checked."""
    ridges = np.atleast_1d(np.asarray(given, np.float64))
    if ridges.ndim != 1 or not np.isfinite(ridges).all() or (ridges < 0).any():
        raise FishermixError(f"{name} must be one ridge or a list of ridges, each at least 0, not {given!r}.")
    return ridges.tolist()
