"""Cross-validation of a CCA with `pairs`: an image and all its sentences are on the same side of a split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.utils import check_random_state

from fishermix.cca.covariances import parse_pairs
from fishermix.cca.estimator import RegularizedCCA
from fishermix.errors import FishermixError

T = TypeVar("T")


@dataclass(frozen=True)
class PairSide:
    """One side of a split: Y[y_rows[j]] belongs to X[x_rows[pairs[j]]]."""

    x_rows: np.ndarray  # (m,) rows of X
    y_rows: np.ndarray  # (n,) rows of Y
    pairs: np.ndarray  # (n,) positions in x_rows


class PairKFold:
    """K folds of the rows of X; the rows of Y follow theirs. `random_state` seeds the shuffle.

    >>> import numpy as np
    >>> for train, test in PairKFold(2, shuffle=False).split(4, np.array([0, 0, 1, 2, 3, 3])):
    ...     print(test.x_rows, test.y_rows, test.pairs)
    [0 1] [0 1 2] [0 0 1]
    [2 3] [3 4 5] [0 1 1]
    """

    def __init__(self, n_splits: int = 5, *, shuffle: bool = True, random_state=None):
        self.n_splits, self.shuffle, self.random_state = n_splits, shuffle, random_state

    def split(self, n_rows: int, pairs: np.ndarray) -> Iterator[tuple[PairSide, PairSide]]:
        """Yield (train, test) of each fold of the `n_rows` of X; pairs (n,) is the row of X of each of Y."""
        pairs = np.asarray(pairs)
        seed = check_random_state(self.random_state) if self.shuffle else None
        folds = KFold(self.n_splits, shuffle=self.shuffle, random_state=seed)
        for train, test in folds.split(np.empty(n_rows)):
            yield _take_side(train, n_rows, pairs), _take_side(test, n_rows, pairs)


def choose_ridges(
    cca: RegularizedCCA,
    X: np.ndarray,
    Y: np.ndarray,
    pairs: np.ndarray | None = None,
    *,
    reg_x: float | Sequence[float],
    reg_y: float | Sequence[float],
    cv: int | PairKFold = 5,
) -> RegularizedCCA:
    """Fit to all pairs with the ridges that have the highest mean `score` in cross-validation.

    X, Y, pairs : arrays (m, p), (n, q), and the row of X of each row of Y, as `RegularizedCCA.fit` takes them
    cv : the folds; an int is their number, shuffled by the seed 0

    `cca` itself is not changed. `cv_scores_` of the result lists (reg_x, reg_y, mean score). Ridges that fail
    to score in one fold have NaN and are not chosen. The covariances of a fold are formed once for all of
    them.
    """
    X, Y = np.asarray(X), np.asarray(Y)
    pairs = parse_pairs(pairs, len(X), len(Y))
    folds = PairKFold(cv, random_state=0) if isinstance(cv, int) else cv
    scores: dict[tuple[float, float], list[float]] = {}
    for train, test in folds.split(len(X), np.arange(len(Y)) if pairs is None else pairs):
        statistics = cca.statistics(X[train.x_rows], Y[train.y_rows], train.pairs)
        for fitted in cca.path(statistics, reg_x, reg_y):
            score = fitted.score(X[test.x_rows], Y[test.y_rows], test.pairs)
            scores.setdefault((fitted.reg_x, fitted.reg_y), []).append(score)
    means = {ridges: float(np.mean(of_folds)) for ridges, of_folds in scores.items()}
    best = choose_best(means, means.__getitem__)
    fitted = clone(cca).set_params(reg_x=best[0], reg_y=best[1]).fit(X, Y, pairs)
    fitted.cv_scores_ = [(*ridges, mean) for ridges, mean in means.items()]
    return fitted


def _take_side(x_rows: np.ndarray, n_rows: int, pairs: np.ndarray) -> PairSide:
    position = np.full(n_rows, -1)
    position[x_rows] = np.arange(len(x_rows))
    y_rows = np.flatnonzero(position[pairs] >= 0)
    return PairSide(x_rows, y_rows, position[pairs[y_rows]])


def choose_best(candidates: Iterable[T], score: Callable[[T], float]) -> T:
    """The candidate of a grid with the highest score, the first of equal ones; a NaN is never the highest.

    Parameters
    ----------
    candidates : iterable
        What to choose from. It may be a generator: only the best so far is held.
    score : callable
        Returns the score of a candidate.
    """
    best, best_score, n_scored = None, np.nan, 0
    for candidate in candidates:
        value = float(score(candidate))
        n_scored += 1
        if not np.isnan(value) and (best is None or value > best_score):
            best, best_score = candidate, value
    if not n_scored:
        raise FishermixError("The grid of ridges is empty. Give at least one reg_x and one reg_y.")
    if best is None:
        raise FishermixError(f"The score is NaN for all {n_scored} pairs of ridges.")
    return best
