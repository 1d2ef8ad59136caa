"""Cross-validation of a CCA with `pairs`: an image and all its sentences are on the same side of a split."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold

from fishermix.cca.covariances import parse_pairs
from fishermix.cca.estimator import RegularizedCCA
from fishermix.errors import FishermixError

N_FOLDS = 5  # of the rows of X, which are shuffled


def choose_ridges(
    cca: RegularizedCCA,
    X: np.ndarray,
    Y: np.ndarray,
    pairs: np.ndarray | None = None,
    *,
    reg_x: float | Sequence[float],
    reg_y: float | Sequence[float],
) -> RegularizedCCA:
    """Fit to all pairs with the ridges that have the highest mean `score` in five-fold cross-validation.

    Parameters
    ----------
    cca : RegularizedCCA
        Its other parameters are kept. It is not changed itself.
    X, Y, pairs
        As in `RegularizedCCA.fit`. An image and all its sentences are on the same side of a fold.
    reg_x, reg_y : float or sequence of floats
        The ridges to try. Ridges that fail to score in one fold have NaN and are not chosen.

    Returns
    -------
    cca : RegularizedCCA
        Fitted to all pairs. `cv_scores_` lists (reg_x, reg_y, mean score).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> images, pairs = rng.standard_normal((50, 4)), np.repeat(np.arange(50), 3)
    >>> sentences = images[pairs] + rng.standard_normal((150, 4))
    >>> cca = choose_ridges(RegularizedCCA(2), images, sentences, pairs, reg_x=[0.01, 1], reg_y=0.01)
    >>> len(cca.cv_scores_)
    2
    """
    X, Y = np.asarray(X), np.asarray(Y)
    pairs = parse_pairs(pairs, len(X), len(Y))
    image_of = np.arange(len(Y)) if pairs is None else pairs
    scores: dict[tuple[float, float], list[float]] = {}
    for train, test in KFold(N_FOLDS, shuffle=True, random_state=0).split(X):
        statistics = cca.statistics(*_take_pairs(X, Y, image_of, train))
        held_out = _take_pairs(X, Y, image_of, test)
        for fitted in cca.path(statistics, reg_x, reg_y):
            score = fitted.score(*held_out)
            scores.setdefault((fitted.reg_x, fitted.reg_y), []).append(score)
    means = {ridges: float(np.mean(of_folds)) for ridges, of_folds in scores.items()}
    best_x, best_y = _find_best(means)
    fitted = clone(cca).set_params(reg_x=best_x, reg_y=best_y).fit(X, Y, pairs)
    fitted.cv_scores_ = [(*ridges, mean) for ridges, mean in means.items()]
    return fitted


def _find_best(scores: dict[tuple[float, float], float]) -> tuple[float, float]:
    """The ridges with the highest score, the first of equal ones; a NaN is never the highest."""
    if not scores:
        raise FishermixError("The grid of ridges is empty. Give at least one reg_x and one reg_y.")
    if np.isnan(list(scores.values())).all():
        raise FishermixError(f"The score is NaN for all {len(scores)} pairs of ridges.")
    return max(scores, key=lambda ridges: np.nan_to_num(scores[ridges], nan=-np.inf))


def _take_pairs(
    X: np.ndarray, Y: np.ndarray, pairs: np.ndarray, x_rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """These rows of X, the rows of Y that belong to them, and their pairs."""
    position = np.full(len(X), -1)
    position[x_rows] = np.arange(len(x_rows))
    y_rows = np.flatnonzero(position[pairs] >= 0)
    return X[x_rows], Y[y_rows], position[pairs[y_rows]]
