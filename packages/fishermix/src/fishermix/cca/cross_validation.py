"""`RegularizedCCACV` chooses the ridges. An image and all its sentences are on the same side of a split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import KFold, check_cv

from fishermix.cca.base import BaseCCA, CCAFit, parse_sides
from fishermix.cca.estimator import RegularizedCCA, parse_ridges
from fishermix.errors import FishermixError, warn_user


class RegularizedCCACV(BaseCCA):
    """Regularized CCA whose ridges are chosen by cross-validation.

    Every ridge of X is tried with every ridge of Y. Those with the highest mean score on held-out pairs are
    chosen, and the CCA is fitted to all pairs with them. In each fold the covariances are formed once, and
    the side with more features is factorized once for each of its ridges.

    Parameters
    ----------
    n_components : int, optional
        Number of directions k. None: min(features of X, features of Y, pairs - 1).
    ridges : sequence of floats, default (0.0001, 0.001, 0.01, 0.1, 1, 10)
        The ridges of X to try, as shares of the largest eigenvalue of its covariance, and those of Y too, if
        `ridges_y` is None.
    ridges_y : sequence of floats, optional
        The ridges of Y to try.
    cv : int or splitter, default 5
        Number of folds of the rows of X, which are shuffled, or a splitter of scikit-learn.
    scoring : callable, optional
        ``scoring(fitted, X, Y, pairs)`` returns a number, higher is better. It gets no pairs if `fit` gets
        none. None is `RegularizedCCA.score`, the mean correlation of the directions.
    correlation_power : float, default 1.0
        As in `RegularizedCCA`.
    method : {"auto", "primal", "dual"}, default "auto"
        As in `RegularizedCCA`.
    standardize : bool, default False
        As in `RegularizedCCA`.

    Attributes
    ----------
    reg_x_, reg_y_ : float
        The chosen ridges.
    best_score_ : float
        Their mean score on held-out pairs.
    cv_results_ : dict of ndarray of shape (n_candidates,)
        reg_x, reg_y, mean_test_score and std_test_score of all pairs of ridges.
    cca_ : RegularizedCCA
        The fitted CCA, to be saved.
    correlations_, ridged_correlations_ : ndarray of shape (k,)
        Without and with the ridges, as in `RegularizedCCA`.
    x_weights_ : ndarray of shape (p, k)
        Directions of X.
    y_weights_ : ndarray of shape (q, k)
        Directions of Y.
    x_mean_ : ndarray of shape (p,)
        Mean of X over the pairs.
    y_mean_ : ndarray of shape (q,)
        Mean of Y over the pairs.
    x_ridge_, y_ridge_ : float
        The chosen ridges in units of the covariance.
    n_components_ : int
        Number of directions k.
    method_ : str
        "primal" or "dual".
    n_features_in_ : int
        Number of features p of X.
    feature_names_in_ : ndarray of shape (p,)
        Names of the columns of X, if it was a data frame.

    See Also
    --------
    fishermix.RegularizedCCA : with given ridges.
    sklearn.linear_model.RidgeCV : the same for regression.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> common = rng.standard_normal((200, 2))
    >>> X, Y = (
    ...     common @ rng.standard_normal((2, 8))
    ...     + 4 * rng.standard_normal((200, 3)) @ rng.standard_normal((3, 8))
    ...     + rng.standard_normal((200, 8))
    ...     for side in "XY"
    ... )
    >>> cca = RegularizedCCACV(2).fit(X, Y)
    >>> cca.transform(X).shape, len(cca.cv_results_["mean_test_score"])
    ((200, 2), 36)
    """

    cca_: RegularizedCCA
    reg_x_: float
    reg_y_: float
    best_score_: float
    cv_results_: dict[str, np.ndarray]

    def __init__(
        self,
        n_components: int | None = None,
        *,
        ridges: Sequence[float] = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0),
        ridges_y: Sequence[float] | None = None,
        cv: Any = 5,
        scoring: Callable[..., float] | None = None,
        correlation_power: float = 1.0,
        method: str = "auto",
        standardize: bool = False,
    ):
        self.n_components = n_components
        self.ridges = ridges
        self.ridges_y = ridges_y
        self.cv = cv
        self.scoring = scoring
        self.correlation_power = correlation_power
        self.method = method
        self.standardize = standardize

    def fit(self, X: ArrayLike, Y: ArrayLike, pairs: ArrayLike | None = None) -> RegularizedCCACV:
        """Choose the ridges and fit to all pairs.

        Parameters
        ----------
        X : array of shape (m, p)
            The rows of one side.
        Y : array of shape (n, q)
            The rows of the other side.
        pairs : array of shape (n,), optional
            The row of X that belongs to each row of Y. Default: row j belongs to row j. A row of X and all
            rows of Y that belong to it are on the same side of a split.

        Returns
        -------
        self : RegularizedCCACV
        """
        if self.scoring is not None and not callable(self.scoring):
            raise FishermixError(
                f"scoring={self.scoring!r} is not a function scoring(fitted, X, Y, pairs) or None.",
                code="wrong_parameter",
            )
        cca = RegularizedCCA(
            self.n_components,
            correlation_power=self.correlation_power,
            method=self.method,
            standardize=self.standardize,
        )
        rows_x, rows_y, of_x = parse_sides(self, X, Y, pairs)
        ridges_x = _check_ridges("ridges", self.ridges)
        ridges_y = ridges_x if self.ridges_y is None else _check_ridges("ridges_y", self.ridges_y)

        n_ridges = len(ridges_x if rows_x.shape[1] > rows_y.shape[1] else ridges_y)  # of the large side
        scores: dict[tuple[float, float], list[float]] = {}
        for train, test in self._split(rows_x):
            held_out = _take_pairs(rows_x, rows_y, of_x, test)
            statistics = cca.statistics(*_take_pairs(rows_x, rows_y, of_x, train), n_ridges=n_ridges)
            for fitted in cca.path(statistics, ridges_x, ridges_y):
                scores.setdefault((fitted.reg_x, fitted.reg_y), []).append(self._score(fitted, *held_out))
        of_folds = np.array(list(scores.values()))
        means = of_folds.mean(axis=1)
        if np.isnan(means).all():
            raise FishermixError(f"The score is NaN for all {len(means)} pairs of ridges.", code="not_finite")
        best = int(np.nanargmax(means))  # the first of equal ones
        self.reg_x_, self.reg_y_ = list(scores)[best]
        self.best_score_ = float(means[best])
        tried = np.array(list(scores))
        self.cv_results_ = {
            "reg_x": tried[:, 0],
            "reg_y": tried[:, 1],
            "mean_test_score": means,
            "std_test_score": of_folds.std(axis=1),
        }
        for name, chosen, ridges in (("X", self.reg_x_, ridges_x), ("Y", self.reg_y_, ridges_y)):
            _warn_at_edge(name, chosen, ridges)

        self.cca_ = cca.set_params(reg_x=self.reg_x_, reg_y=self.reg_y_).fit(X, Y, pairs)
        fit = CCAFit(
            self.cca_.method_, self.cca_.x_ridge_, self.cca_.y_ridge_, self.cca_.correlations_.tolist()
        )
        return self._set_fit(self.cca_._projections, fit)

    def _split(self, X: np.ndarray) -> Any:
        if isinstance(self.cv, Integral):
            return KFold(int(self.cv), shuffle=True, random_state=0).split(X)
        return check_cv(self.cv).split(X)

    def _score(self, fitted: RegularizedCCA, X: np.ndarray, Y: np.ndarray, pairs: np.ndarray | None) -> float:
        score = self.scoring or RegularizedCCA.score
        return float(score(fitted, X, Y) if pairs is None else score(fitted, X, Y, pairs))


def _check_ridges(name: str, given: Any) -> list[float]:
    ridges = parse_ridges(name, given)
    if not ridges:
        raise FishermixError(f"{name} is empty. Give at least one ridge to try.", code="wrong_parameter")
    return ridges


def _warn_at_edge(side: str, chosen: float, ridges: list[float]) -> None:
    if len(set(ridges)) > 1 and chosen in (min(ridges), max(ridges)):
        end, other = ("smallest", "smaller") if chosen == min(ridges) else ("largest", "larger")
        warn_user(
            f"The best ridge of {side}, {chosen:g}, is the {end} that was tried. Try {other} ones, too."
        )


def _take_pairs(
    X: np.ndarray, Y: np.ndarray, pairs: np.ndarray | None, x_rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """These rows of X, the rows of Y that belong to them, and their pairs."""
    if pairs is None:
        return X[x_rows], Y[x_rows], None
    position = np.full(len(X), -1)
    position[x_rows] = np.arange(len(x_rows))
    y_rows = np.flatnonzero(position[pairs] >= 0)
    return X[x_rows], Y[y_rows], position[pairs[y_rows]]
