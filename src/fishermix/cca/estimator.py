"""The estimator: two sides, a ridge on each, one joint space."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, cast, overload

import numpy as np
from msgspec import structs
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from fishermix.cca.covariances import CovarianceSums, parse_pairs
from fishermix.cca.grams import GramSums
from fishermix.cca.projections import CanonicalProjections, CCAConfig, CCAParameters, FitMethod
from fishermix.cca.ridge_grid import choose_best, form_statistics, solve_grid
from fishermix.errors import FishermixError
from fishermix.rows.blocks import is_table
from fishermix.storage import FolderKind, check_feature_names, list_feature_names, load_folder, save_folder

KIND = FolderKind("cca", 1, CCAConfig)


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
        r_x, in units of the covariance. None if a model of 0.1 did not save it.
    y_ridge_ : float or None
        r_y, in units of the covariance.
    n_components_ : int
        Number of directions k.
    method_ : str
        "primal", "dual" or "streaming".
    path_scores_ : list of (reg_x, reg_y, score)
        The scores of all ridges, after `fit_best`.
    n_features_in_ : int
        Number of features p of X.
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns of X, if it was a data frame.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> images = rng.standard_normal((100, 4))
    >>> sentences = np.repeat(images, 5, axis=0) + rng.standard_normal((500, 4))
    >>> cca = RegularizedCCA(n_components=2).fit(images, sentences, pairs=np.repeat(np.arange(100), 5))
    >>> cca.transform(images).shape, cca.transform_y(sentences).shape
    ((100, 2), (500, 2))

    References
    ----------
    Vinod (1976), Canonical ridge and econometrics of joint production; Klein et al. (CVPR 2015);
    Gong et al. (IJCV 2014), A multi-view embedding space for modeling Internet images, tags, and their
    semantics.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "reg_x": [Interval(Real, 0, None, closed="left")],
        "reg_y": [Interval(Real, 0, None, closed="left")],
        "scale": [StrOptions({"correlation"}), Interval(Real, 0, None, closed="left"), None],
        "method": [StrOptions({"auto", "primal", "dual"})],
    }

    projections_: CanonicalProjections
    method_: str
    x_ridge_: float | None
    y_ridge_: float | None
    path_scores_: list[tuple[float, float, float]]
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
        Y : array of shape (n, q), iterator of blocks of rows, or dask.array
            The rows of the other side.
        pairs : array of shape (n,), optional
            The row of X that belongs to each row of Y. Default: row j belongs to row j.
        """
        if isinstance(Y, Iterator):
            return self.fit_blocks(X, Y, pairs)
        if hasattr(Y, "__dask_graph__"):
            from fishermix.distributed.covariances import covariance_sums

            self._validate_params()
            return self._fit_without_names(covariance_sums(X, Y, pairs))
        return self._fit_statistics(self.statistics(X, Y, pairs))

    def fit_blocks(self, X: Any, blocks: Iterable[Any], pairs: ArrayLike | None = None) -> RegularizedCCA:
        """Fit to Y in blocks of rows. Each block is read once and not kept.

        With `X=None` the blocks are tuples (X block, Y block).

        Parameters
        ----------
        X : array of shape (m, p)
            The rows of one side.
        blocks : iterable of arrays (n_i, q)
            The rows of Y in their order; with `X=None`, tuples (X block, Y block).
        pairs : array of shape (n,), optional
            The row of X that belongs to each row of Y. Default: row j belongs to row j.
        """
        self._validate_params()
        return self._fit_without_names(CovarianceSums.from_blocks(X, blocks, pairs))

    def statistics(
        self, X: Any, Y: Any, pairs: ArrayLike | None = None, n_ridges: int = 1
    ) -> CovarianceSums | GramSums:
        """The covariances or the inner products of rows, whichever is cheaper; `path` needs them.

        Parameters
        ----------
        X : array of shape (m, p)
            The rows of one side.
        Y : array of shape (n, q)
            The rows of the other side.
        pairs : array of shape (n,), optional
            The row of X that belongs to each row of Y. Default: row j belongs to row j.
        n_ridges : int
            The number of ridges of the side with more features that `path` will be given.
        """
        self._validate_params()
        if is_table(X) and len(X) > 1:
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit to a data frame
        else:
            X = validate_data(self, X, dtype=(np.float64, np.float32), ensure_min_samples=2)
        if Y is None:
            raise FishermixError("RegularizedCCA requires y to be passed, but the target y is None.")
        Y = _parse_y(Y)
        pairs = parse_pairs(pairs, len(X), len(Y))
        return form_statistics(X, Y, pairs, self.method, n_ridges)

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
        reg_x : float or sequence of floats
            The ridges of X to try, as shares of its largest eigenvalue.
        reg_y : float or sequence of floats
            The ridges of Y to try, as shares of its largest eigenvalue.
        """
        self._validate_params()
        for regs, projections, ridges in solve_grid(statistics, self.n_components, reg_x, reg_y):
            fitted = clone(self).set_params(reg_x=regs[0], reg_y=regs[1])
            yield fitted._set_fit(projections, statistics.method, *ridges)

    def fit_best(
        self,
        statistics: CovarianceSums | GramSums,
        score: Callable[[RegularizedCCA], float],
        reg_x: float | Sequence[float],
        reg_y: float | Sequence[float],
    ) -> RegularizedCCA:
        """Fit with the ridges that have the highest `score`, such as a recall on validation pairs.

        `reg_x` and `reg_y` become the chosen ridges; `path_scores_` lists (reg_x, reg_y, score) of all. A NaN
        is never the highest.

        Parameters
        ----------
        statistics : CovarianceSums or GramSums
            What the method `statistics` returns.
        score : callable
            Maps a fitted `RegularizedCCA` to a number; the highest wins.
        reg_x : float or sequence of floats
            The ridges of X to try, as shares of its largest eigenvalue.
        reg_y : float or sequence of floats
            The ridges of Y to try, as shares of its largest eigenvalue.
        """
        scores: list[tuple[float, float, float]] = []

        def record(fitted: RegularizedCCA) -> float:
            scores.append((fitted.reg_x, fitted.reg_y, float(score(fitted))))
            return scores[-1][2]

        best = choose_best(self.path(statistics, reg_x, reg_y), record)
        self._set_fit(best.projections_, best.method_, best.x_ridge_, best.y_ridge_)
        self.reg_x, self.reg_y = best.reg_x, best.reg_y
        self.path_scores_ = scores
        return self

    def fit_transform(self, X: Any, Y: Any = None, pairs: Any = None, *, y: Any = None) -> Any:
        """Fit to the pairs and return the points of both sides, as scikit-learn's CCA does.

        `y` is scikit-learn's name of Y. A `Pipeline` that goes on with the points of X alone calls this
        method too, and fails as it does with scikit-learn's CCA: fit the CCA before it.

        Parameters
        ----------
        X : array of shape (m, p)
            The rows of one side.
        Y : array of shape (n, q)
            The rows of the other side.
        pairs : array of shape (n,), optional
            The row of X that belongs to each row of Y. Default: row j belongs to row j.
        y : array of shape (n, q), optional
            scikit-learn's name of Y.
        """
        Y = y if Y is None else Y
        return self.fit(X, Y, pairs).transform(X, Y)

    @overload
    def transform(self, X: Any, Y: None = None) -> np.ndarray: ...

    @overload
    def transform(self, X: Any, Y: Any) -> tuple[np.ndarray, np.ndarray]: ...

    def transform(self, X: Any, Y: Any = None) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Points (m, k) of X in the joint space; with Y the tuple of the points of both.

        Parameters
        ----------
        X : array of shape (m, p)
            The rows of one side.
        Y : array of shape (n, q)
            The rows of the other side.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        points = self.projections_.project_x(X, self.power)
        return points if Y is None else (points, self.transform_y(Y))

    def transform_y(self, Y: Any) -> np.ndarray:
        """Points (n, k) of Y in the joint space.

        Parameters
        ----------
        Y : array of shape (n, q)
            The rows of the other side.
        """
        check_is_fitted(self)
        Y = _parse_y(Y)
        if Y.shape[1] != len(self.y_weights_):
            raise FishermixError(
                f"Y has {Y.shape[1]} features, but this CCA was fitted to {len(self.y_weights_)}."
            )
        return self.projections_.project_y(Y, self.power)

    def score(
        self, X: Any, y: Any, pairs: ArrayLike | None = None
    ) -> float:  # scikit-learn names its second argument
        """The correlation of both sides' points of these pairs, averaged over the directions.

        On pairs held out from the fit it is what `GridSearchCV` maximizes. Use it to compare ridges, not
        numbers of directions, because the first directions correlate most. A direction without variance
        counts as 0.

        Parameters
        ----------
        X : array of shape (m, p)
            The rows of one side.
        y : array of shape (n, q)
            The rows of the other side.
        pairs : array of shape (n,), optional
            The row of X that belongs to each row of Y. Default: row j belongs to row j.
        """
        x, y = (points.astype(np.float64) for points in self.transform(X, y))
        pairs = parse_pairs(pairs, len(x), len(y))
        if len(y) < 2:
            raise FishermixError(f"A correlation needs at least two pairs, but there are {len(y)}.")
        x = x if pairs is None else x[pairs]
        x, y = x - x.mean(axis=0), y - y.mean(axis=0)
        lengths = np.linalg.norm(x, axis=0) * np.linalg.norm(y, axis=0)
        products = np.einsum("nk,nk->k", x, y)
        return float(np.divide(products, lengths, out=np.zeros(len(lengths)), where=lengths > 0).mean())

    def save(self, folder: str | os.PathLike) -> None:
        """Write the fitted estimator as a folder of JSON and safetensors.

        Parameters
        ----------
        folder : path
            Where to write. The folder is created if it does not exist.
        """
        check_is_fitted(self)
        params = CCAParameters(**self.get_params())
        config = CCAConfig(
            cast("FitMethod", self.method_),
            self.x_ridge_,
            self.y_ridge_,
            params=params,
            feature_names_in=list_feature_names(self),
        )
        save_folder(folder, KIND, config, self.projections_.to_tensors())

    @classmethod
    def load(cls, folder: str | os.PathLike) -> RegularizedCCA:
        """Read an estimator that `save` wrote.

        Parameters
        ----------
        folder : path
            A folder that `save` wrote.
        """
        config, tensors = load_folder(folder, KIND)
        loaded = cls.from_projections(
            CanonicalProjections.from_tensors(tensors, folder),
            structs.asdict(config.params),
            config.method,
            config.x_ridge,
            config.y_ridge,
        )
        if names := check_feature_names(config.feature_names_in, loaded.n_features_in_, folder):
            loaded.feature_names_in_ = np.array(names, object)
        return loaded

    @classmethod
    def from_projections(
        cls,
        projections: CanonicalProjections,
        params: dict[str, Any],
        method: str,
        x_ridge: float | None,
        y_ridge: float | None,
    ) -> RegularizedCCA:
        """A fitted estimator with these fitted arrays.

        Parameters
        ----------
        projections : CanonicalProjections
            The fitted arrays.
        params : dict
            The parameters of the estimator.
        method : str
            The method that fitted it: "primal" or "dual".
        x_ridge : float or None
            The ridge that was added to the covariance of X.
        y_ridge : float or None
            The ridge that was added to the covariance of Y.
        """
        return cls(**params)._set_fit(projections, method, x_ridge, y_ridge)

    @property
    def correlations_(self) -> np.ndarray:
        return self.projections_.correlations

    @property
    def x_weights_(self) -> np.ndarray:
        return self.projections_.x_weights

    @property
    def y_weights_(self) -> np.ndarray:
        return self.projections_.y_weights

    @property
    def x_mean_(self) -> np.ndarray:
        return self.projections_.x_mean

    @property
    def y_mean_(self) -> np.ndarray:
        return self.projections_.y_mean

    @property
    def n_components_(self) -> int:
        return len(self.projections_.correlations)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _fit_without_names(self, statistics: CovarianceSums) -> RegularizedCCA:
        self.__dict__.pop("feature_names_in_", None)  # of an earlier fit to a data frame
        return self._fit_statistics(statistics)

    def _fit_statistics(self, statistics: CovarianceSums | GramSums) -> RegularizedCCA:
        _, projections, ridges = next(solve_grid(statistics, self.n_components, self.reg_x, self.reg_y))
        return self._set_fit(projections, statistics.method, *ridges)

    def _set_fit(
        self,
        projections: CanonicalProjections,
        method: str,
        x_ridge: float | None,
        y_ridge: float | None,
    ) -> RegularizedCCA:
        """Replace everything that an earlier fit left."""
        self.__dict__.pop("path_scores_", None)
        self.projections_, self.method_ = projections, method
        self.x_ridge_, self.y_ridge_ = x_ridge, y_ridge
        self.n_features_in_ = len(projections.x_weights)
        return self

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


def _parse_y(Y) -> np.ndarray:
    if is_table(Y):
        return Y
    Y = check_array(Y, dtype=(np.float64, np.float32), ensure_2d=False, input_name="Y")
    return Y.reshape(-1, 1) if Y.ndim == 1 else Y
