"""The estimator: two sides, a ridge on each, one joint space."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, cast

import numpy as np
from msgspec import structs
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from fishermix.cca.base import BaseCCA, CCAFit, parse_sides
from fishermix.cca.cholesky import ROWS_IN_CACHE
from fishermix.cca.covariances import CovarianceSums, IndexedRows, sum_by_group
from fishermix.cca.dual import GramSums, choose_method
from fishermix.cca.solver import solve
from fishermix.errors import FishermixError
from fishermix.joint.projections import CCA_TENSORS, CanonicalProjections
from fishermix.saved import (
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

LARGEST_RESIDUAL = 3e-5  # of correlations that were computed in float32: above, `fit` starts again in float64


class CCAParameters(Struct, kw_only=True):
    """The parameters of a saved `RegularizedCCA`.

    Its files call `correlation_power` scale. Version 0.3 wrote "correlation" for 1 and None for 0.
    """

    n_components: Size | None = None
    reg_x: Positive = 0.01
    reg_y: Positive = 0.01
    scale: Number | Literal["correlation"] | None = "correlation"
    method: Literal["auto", "primal", "dual"] = "auto"
    standardize: bool = False

    @classmethod
    def from_arguments(cls, correlation_power: float, **arguments: Any) -> CCAParameters:
        return cls(scale=correlation_power, **arguments)

    def to_arguments(self) -> dict[str, Any]:
        arguments = structs.asdict(self)
        scale = arguments.pop("scale")
        return {**arguments, "correlation_power": {"correlation": 1.0, None: 0.0}.get(scale, scale)}


class CCAConfig(CCAFit, frozen=True, kw_only=True):
    """A saved `RegularizedCCA`."""

    params: CCAParameters
    feature_names_in: list[Text] | None = None


CCA_KIND = FolderKind("cca", 1, CCAConfig, CCA_TENSORS)


class RegularizedCCA(BaseCCA):
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
    correlation_power : float, default 1.0
        Projections are multiplied by this power of `ridged_correlations_`. Klein et al. use 1, Gong et al.
        (2014) use 4; 0 leaves the projections as they are. You can change it after `fit`.
    method : {"auto", "primal", "dual"}, default "auto"
        "primal" forms covariances, "dual" inner products of rows; "auto" takes the cheaper one.
    standardize : bool, default False
        Divide each feature by its standard deviation over the pairs. One ridge serves all features of a side,
        so features in different units need it.

    Attributes
    ----------
    correlations_ : ndarray of shape (k,)
        The correlations of the projections of the training pairs, one per direction.
    ridged_correlations_ : ndarray of shape (k,)
        The maxima of the problem, falling. They are smaller than `correlations_`, because the ridges count
        as variance; without ridges they are equal.
    x_weights_ : ndarray of shape (p, k)
        Directions of X. On the side with fewer features, the largest weight of each column is positive.
    y_weights_ : ndarray of shape (q, k)
        Directions of Y.
    x_mean_ : ndarray of shape (p,)
        Mean of X over the pairs.
    y_mean_ : ndarray of shape (q,)
        Mean of Y over the pairs.
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
    fishermix.RegularizedCCACV : chooses the ridges by cross-validation.
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
        "correlation_power": [Interval(Real, 0, None, closed="left")],
        "method": [StrOptions({"auto", "primal", "dual"})],
        "standardize": ["boolean"],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        reg_x: float = 0.01,
        reg_y: float = 0.01,
        correlation_power: float = 1.0,
        method: str = "auto",
        standardize: bool = False,
    ):
        self.n_components = n_components
        self.reg_x = reg_x
        self.reg_y = reg_y
        self.correlation_power = correlation_power
        self.method = method
        self.standardize = standardize

    def fit(
        self, X: ArrayLike, Y: ArrayLike | Iterator[ArrayLike], pairs: ArrayLike | None = None
    ) -> RegularizedCCA:
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
        self._check_parameters()
        if isinstance(Y, Iterator):
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit to a data frame
            of_blocks = None if pairs is None else np.asarray(pairs)
            projections, fit = self._solve(CovarianceSums.from_blocks(cast(IndexedRows, X), Y, of_blocks))
            return self._set_fit(projections, fit)
        x, y, x_of_y = parse_sides(self, X, Y, pairs)
        method = self._choose(x, y, n_components=self.n_components)
        if self._may_use_float32(x, y, method):
            with suppress(FishermixError, np.linalg.LinAlgError):
                projections, fit = self._solve(_sum(x, y, x_of_y, method, rounded=True))
                if _largest_residual(projections, fit, x, y, x_of_y) < LARGEST_RESIDUAL:
                    return self._set_fit(projections, fit)
        projections, fit = self._solve(_sum(x, y, x_of_y, method))
        return self._set_fit(projections, fit)

    def _check_parameters(self) -> None:
        self._validate_params()
        if isinstance(self.correlation_power, bool):
            raise FishermixError(
                f"correlation_power={self.correlation_power}, but it is a number. To divide the features by "
                "their standard deviation, set standardize=True.",
                code="wrong_parameter",
            )

    def _solve(self, statistics: CovarianceSums | GramSums) -> tuple[CanonicalProjections, CCAFit]:
        """The solution for the estimator's own ridges."""
        [(_, projections, fit)] = self._solve_grid(statistics, self.reg_x, self.reg_y)
        return projections, fit

    def statistics(
        self, X: ArrayLike, Y: ArrayLike, pairs: ArrayLike | None = None, n_ridges: int = 1
    ) -> CovarianceSums | GramSums:
        """The covariances or the inner products of rows, whichever is cheaper; `path` needs them.

        X, Y and pairs are as in `fit`; n_ridges is the number of ridges of the side with more features that
        `path` will be given.
        """
        self._check_parameters()
        x, y, x_of_y = parse_sides(self, X, Y, pairs)
        return _sum(x, y, x_of_y, self._choose(x, y, n_ridges))

    def _choose(
        self, X: np.ndarray, Y: np.ndarray, n_ridges: int = 1, n_components: int | None = None
    ) -> str:
        if self.method != "auto":
            return self.method
        return choose_method(len(X), len(Y), X.shape[1], Y.shape[1], n_ridges, n_components)

    def _may_use_float32(self, X: np.ndarray, Y: np.ndarray, method: str) -> bool:
        """Whether to try float32 first, which takes about half the time."""
        least_ridge = {"primal": 1e-3, "dual": 5e-3}  # below, the residual is nearly always too large
        are_float32 = X.dtype == Y.dtype == np.float32
        few = self.n_components is not None and self.n_components <= min(X.shape[1], Y.shape[1]) / 3
        return (
            are_float32
            and few
            and not self.standardize
            and min(self.reg_x, self.reg_y) >= least_ridge[method]
        )

    def _solve_grid(
        self,
        statistics: CovarianceSums | GramSums,
        reg_x: float | Sequence[float],
        reg_y: float | Sequence[float],
    ) -> Iterator[tuple[tuple[float, float], CanonicalProjections, CCAFit]]:
        """(reg_x, reg_y), the projections, and how they were fitted, for each pair of ridges."""
        p, q = len(statistics.x_mean), len(statistics.y_mean)
        at_most = min(p, q)
        if self.n_components is not None and self.n_components > at_most:
            raise FishermixError(
                f"n_components is {self.n_components}, but the smaller side has {at_most} features.",
                code="wrong_parameter",
            )
        n_components = self.n_components or max(1, min(at_most, statistics.n - 1))
        regs_x, regs_y = parse_ridges("reg_x", reg_x), parse_ridges("reg_y", reg_y)
        x_is_small = p <= q
        regs = (regs_x, regs_y) if x_is_small else (regs_y, regs_x)
        for pair in solve(statistics.problem(self.standardize), n_components, *regs):
            small = pair.reg_small, pair.ridge_small, pair.small_weights
            large = pair.reg_large, pair.ridge_large, pair.large_weights
            of_x, of_y = (small, large) if x_is_small else (large, small)
            chosen_x, x_ridge, x_weights = of_x
            chosen_y, y_ridge, y_weights = of_y
            if self.standardize:
                x_weights = x_weights / statistics.x_deviation[:, None]
                y_weights = y_weights / statistics.y_deviation[:, None]
            projections = CanonicalProjections(
                pair.ridged_correlations,
                x_weights.astype(statistics.dtype, copy=False),
                y_weights.astype(statistics.dtype, copy=False),
                statistics.x_mean,
                statistics.y_mean,
            )
            fit = CCAFit(statistics.method, x_ridge, y_ridge, pair.correlations.tolist())
            yield (chosen_x, chosen_y), projections, fit

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
        self._check_parameters()
        for (chosen_x, chosen_y), projections, fit in self._solve_grid(statistics, reg_x, reg_y):
            yield clone(self).set_params(reg_x=chosen_x, reg_y=chosen_y)._set_fit(projections, fit)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted estimator as a folder of JSON and safetensors, created if it does not exist."""
        check_is_fitted(self)
        config = CCAConfig(
            self.method_,
            self.x_ridge_,
            self.y_ridge_,
            self.correlations_.tolist(),
            params=CCAParameters.from_arguments(**self.get_params()),
            feature_names_in=list_feature_names(self),
        )
        save_folder(folder, CCA_KIND, config, self._projections.to_tensors())

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> RegularizedCCA:
        """Read an estimator that `save` wrote."""
        saved = load_folder(folder, CCA_KIND)
        config = saved.config
        projections = CanonicalProjections.from_tensors(saved.tensors)
        if config.correlations is not None and len(config.correlations) != len(projections.correlations):
            raise FishermixError(
                f"'correlations' in {folder} must be a list of {len(projections.correlations)} numbers.",
                code="damaged",
            )
        loaded = cls(**config.params.to_arguments())._set_fit(projections, config)
        if names := check_feature_names(config.feature_names_in, loaded.n_features_in_, folder):
            loaded.feature_names_in_ = np.array(names, object)
        return loaded


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


def parse_ridges(name: str, given: float | Sequence[float]) -> list[float]:
    """The ridges of one side, checked."""
    ridges = np.atleast_1d(np.asarray(given, np.float64))
    if ridges.ndim != 1 or not np.isfinite(ridges).all() or (ridges < 0).any():
        raise FishermixError(
            f"{name} must be one ridge or a list of ridges, each at least 0, not {given!r}.",
            code="wrong_parameter",
        )
    return ridges.tolist()
