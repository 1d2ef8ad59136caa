"""Sets of vectors: the forms in which they come, and `OnRows`, which applies a transformer to their rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import _num_samples, check_is_fitted

from fishermix.errors import FishermixError


class OnRows(TransformerMixin, BaseEstimator):
    """Apply a scikit-learn transformer to the rows of sets, before `FisherEncoder` in a `Pipeline`.

    `fit` fits a clone of the transformer to the rows of all sets; `transform` returns the sets in the form in
    which they came, with transformed rows.

    Parameters
    ----------
    transformer : transformer
        Any scikit-learn transformer that keeps the number of rows, such as ``PCA(64)`` or a pipeline of
        several. Set its parameters as ``transformer__n_components``. To use a fitted one as it is, wrap it in
        `sklearn.frozen.FrozenEstimator`.

    Attributes
    ----------
    transformer_ : transformer
        The fitted clone.
    n_features_in_ : int
        Number of features D of the rows.

    Examples
    --------
    >>> from sklearn.decomposition import PCA
    >>> from sklearn.pipeline import make_pipeline
    >>> from fishermix import FisherEncoder, GaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> images = [rng.normal(size=(n, 8)) for n in (30, 50, 40)]
    >>> pipeline = make_pipeline(OnRows(PCA(3)), FisherEncoder(GaussianMixture(2, random_state=0)))
    >>> pipeline.fit_transform(images).shape
    (3, 12)
    """

    def __init__(self, transformer: Any):
        self.transformer = transformer

    def fit(self, X: Any, y: Any = None) -> OnRows:
        """Fit the transformer to the rows of all sets.

        Parameters
        ----------
        X : sets of rows (n_i, D)
            A list, an iterator or an object array of 2-D arrays; a 3-D array; a pair ``(rows, offsets)``; or
            a 2-D array, each row of which is a set.
        y : array-like of shape (n_sets,), optional
            Labels of the sets. A supervised transformer gets the label of its set for each row.

        Returns
        -------
        self : OnRows
        """
        self._fit(X, y, "fit")
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit the transformer and return the transformed sets.

        Parameters
        ----------
        X : list of arrays (n_i, D), array of shape (n, rows, D), or rows of shape (N, D)
            The sets.
        y : ignored
            Present for the interface of scikit-learn.
        """
        rows, form, out = self._fit(X, y, "fit_transform")
        return form.restore(self._check_rows(out, _num_samples(rows)))

    def transform(self, X: Any) -> Any:
        """Return the sets with transformed rows.

        Parameters
        ----------
        X : list of arrays (n_i, D), array of shape (n, rows, D), or rows of shape (N, D)
            The sets.

        Returns
        -------
        sets : as X
            A list for a list or an iterator, an object array for an object array, a 3-D array for a 3-D
            array, a pair for a pair, a 2-D array for a 2-D array. An empty set stays empty.
        """
        check_is_fitted(self, "transformer_")
        rows, form = open_sets(X, self.n_features_in_)
        if form.kind == "rows" or len(rows):
            out = self._check_rows(self.transformer_.transform(rows), _num_samples(rows))
        else:  # scikit-learn's transformers refuse an array without rows
            out = self._check_rows(self.transformer_.transform(np.zeros((1, self.n_features_in_))), 1)[:0]
        return form.restore(out)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns of the transformed rows.

        Parameters
        ----------
        input_features : ignored
            Present for the interface of scikit-learn.
        """
        check_is_fitted(self, "transformer_")
        return self.transformer_.get_feature_names_out(input_features)

    def set_output(self, *, transform: Any = None) -> OnRows:
        """Do nothing: sets stay sets, and later steps of a pipeline may return data frames.

        Parameters
        ----------
        transform : ignored
            Present for the interface of scikit-learn.
        """
        return self

    def _fit(self, X: Any, y: Any, method: str) -> tuple[Any, Sets, Any]:
        rows, form = open_sets(X)
        if y is not None and form.offsets is not None:
            y = np.repeat(np.asarray(y), form.sizes, axis=0)
        self.transformer_ = clone(self.transformer)
        out = getattr(self.transformer_, method)(rows, y)
        self.__dict__.pop("feature_names_in_", None)
        if hasattr(self.transformer_, "feature_names_in_"):
            self.feature_names_in_ = self.transformer_.feature_names_in_
        n_features = getattr(self.transformer_, "n_features_in_", None)
        self.n_features_in_ = int(np.shape(rows)[1]) if n_features is None else n_features
        return rows, form, out

    def _check_rows(self, out: Any, n_rows: int) -> np.ndarray:
        out = out.toarray() if issparse(out) else np.asarray(out)
        if len(out) != n_rows:
            raise FishermixError(
                f"{type(self.transformer).__name__} made {len(out)} rows of {n_rows}. OnRows needs a "
                "transformer that keeps the number of rows."
            )
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.transformer)
        tags.input_tags.three_d_array = True
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        tags.target_tags.required = inner.target_tags.required
        tags.transformer_tags = inner.transformer_tags or tags.transformer_tags
        return tags


class Sets:
    """The form of some sets: `restore` gives it to rows that were stacked by `open_sets`.

    kind: "list", "object", "3-D", "pair" or "rows". offsets (n_sets + 1,): where each set begins; None for
    "rows", a 2-D array of sets of one row.
    """

    def __init__(self, kind: str, offsets: np.ndarray | None):
        self.kind, self.offsets = kind, offsets

    @property
    def sizes(self) -> np.ndarray:
        """The number of rows of each set."""
        assert self.offsets is not None
        return np.diff(self.offsets)

    def restore(self, rows: np.ndarray) -> Any:
        """Return rows (n, D) as sets of this form."""
        if self.offsets is None:
            return rows
        if self.kind == "pair":
            return rows, self.offsets
        if self.kind == "3-D":
            size = self.sizes[0] if len(self.sizes) else 0
            return rows.reshape(len(self.sizes), size, rows.shape[1])
        sets = [rows[first:last] for first, last in zip(self.offsets[:-1], self.offsets[1:])]
        if self.kind == "list":
            return sets
        array = np.empty(len(sets), dtype=object)
        array[:] = sets
        return array


def open_sets(X: Any, dimension: int = 0, offsets: Any = None) -> tuple[Any, Sets]:
    """Return all rows one under the other, unchecked, and the form of the sets.

    dimension: number of columns if there are no rows. offsets: if X is one array of the rows of all sets.
    """
    pair = isinstance(X, tuple) and len(X) == 2 and offsets is None and np.ndim(X[1]) == 1
    if pair:
        X, offsets = X
    kind = "list"
    if isinstance(X, Iterator):
        X = list(X)
    elif getattr(X, "dtype", None) == np.dtype(object) and np.ndim(X) == 1:
        X, kind = list(X), "object"
    elif isinstance(X, np.ndarray) and X.ndim == 3:
        kind = "3-D"
    is_list = isinstance(X, (list, tuple))
    if kind == "3-D" or (is_list and any(np.ndim(member) == 2 for member in X)):
        if offsets is not None:
            raise FishermixError("offsets belong to one array of all rows, not to a list of sets.")
        rows, offsets = _stack_sets(X, dimension)
        return rows, Sets(kind, offsets)
    if is_list and len(X) == 0 and dimension and offsets is None:
        return np.zeros((0, dimension)), Sets(kind, np.zeros(1, np.int64))
    if offsets is None:
        return X, Sets("rows", None)
    return X, Sets("pair" if pair else "rows", _parse_offsets(offsets, len(X)))


def _stack_sets(sets: Any, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of (n_i, D) arrays one under the other, and where each set begins."""
    sizes = [len(member) if np.size(member) else 0 for member in sets]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    if isinstance(sets, np.ndarray):
        return sets.reshape(-1, sets.shape[2]), offsets
    filled = [np.asarray(member) for member, size in zip(sets, sizes) if size]
    if len(shapes := {member.shape[1:] for member in filled}) > 1:
        raise FishermixError(f"The sets differ in dimension: {sorted(shapes)}.")
    if len(filled) == 1:
        return filled[0], offsets
    return np.concatenate(filled) if filled else np.zeros((0, dimension)), offsets


def _parse_offsets(offsets: Any, n_rows: int) -> np.ndarray:
    given = np.asarray(offsets)
    whole = given.astype(np.int64)
    fits = given.ndim == 1 and len(given) > 0 and (whole == given).all()
    if not fits or whole[0] != 0 or whole[-1] != n_rows or (np.diff(whole) < 0).any():
        raise FishermixError(f"offsets must be integers that increase from 0 to {n_rows}, the rows of X.")
    return whole
