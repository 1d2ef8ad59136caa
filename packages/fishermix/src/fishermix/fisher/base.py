"""What encoders of sets share: they read sets, fit a part to all rows, and make one vector of each set."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from fishermix.callbacks import CallbackSupportMixin, with_callbacks
from fishermix.errors import FishermixError, warn_user
from fishermix.fisher.sets import Sets, parse_rows, weigh_rows


class SetEncoder(CallbackSupportMixin, TransformerMixin, BaseEstimator):
    """Map sets of vectors to one vector each. A subclass fits to rows and encodes rows."""

    n_features_in_: int

    def _check_options(self) -> None:
        """Raise an error for wrong parameters."""
        raise NotImplementedError

    def _fit_rows(self, rows: np.ndarray, sample_weight: np.ndarray | None) -> None:
        """Fit to rows (n, D) with their weights (n,), and set `n_features_in_`."""
        raise NotImplementedError

    def _encode_rows(self, rows: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """The vectors (n_sets, n_features) of the sets rows[offsets[i]:offsets[i + 1]]."""
        raise NotImplementedError

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        offsets: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit to the rows of all sets.

        Parameters
        ----------
        X, offsets
            As in `transform`.
        y : ignored
            Present for the interface of scikit-learn.
        sample_weight : array-like of shape (n_sets,), optional
            The weight of each set. Weight 2 counts as the same set twice.

        Returns
        -------
        self : encoder
            The encoder, with the fitted clone of its part.
        """
        self._fit(X, offsets, sample_weight)
        return self

    @with_callbacks
    def fit_transform(
        self,
        X: Any,
        y: Any = None,
        *,
        offsets: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> np.ndarray:
        """Fit to the sets and return their vectors. The sets are read once: X may be an iterator.

        Returns
        -------
        vectors : ndarray of shape (n_sets, n_features)
            As `fit` and then `transform` give them.
        """
        return self._encode(*self._fit(X, offsets, sample_weight))

    def transform(self, X: Any, offsets: ArrayLike | None = None) -> np.ndarray:
        """Return the vectors of the sets.

        Parameters
        ----------
        X : sets of rows (n_i, D)
            A list, an iterator or an object array of 2-D arrays; a 3-D array; all rows as one 2-D array with
            `offsets` (also as a pair ``(X, offsets)``); or, without `offsets`, a 2-D array each row of which
            is a set.
        offsets : array-like of shape (n_sets + 1,), optional
            Set i is the rows ``offsets[i]:offsets[i + 1]`` of X.

        Returns
        -------
        vectors : ndarray of shape (n_sets, n_features)
            float32 for float32 rows, float64 otherwise. An empty set has the zero vector.
        """
        self._check_options()
        check_is_fitted(
            self,
            msg="This %(name)s is not fitted. fit(sets) fits a clone of what it is given; "
            "%(name)s.from_fitted uses a fitted one as it is.",
        )
        return self._encode(*parse_rows(self, X, offsets))

    def _fit(self, X: Any, offsets: Any, sample_weight: Any) -> tuple[np.ndarray, Sets]:
        """Fit to the rows of the sets; return the rows and the form of the sets."""
        self._check_options()
        rows, sets = parse_rows(self, X, offsets, fitted=False)
        weight = None if sample_weight is None else weigh_rows(sample_weight, sets)
        self._fit_rows(rows, weight)
        if rows.shape[1] != self.n_features_in_:
            raise FishermixError(
                f"X has {rows.shape[1]} features, but what was given fitted has {self.n_features_in_}.",
                code="wrong_shape",
            )
        return rows, sets

    def _encode(self, rows: np.ndarray, sets: Sets) -> np.ndarray:
        """The vectors of sets that `parse_rows` read."""
        rows_of_an_image = 100  # this many rows in one array are more often an image than sets of one row
        if sets.kind == "rows" and len(rows) >= rows_of_an_image:
            warn_user(
                f"X is one array: each of its {len(rows)} rows was taken as a set. If they belong to one "
                "image, pass [X]. If not, offsets=range(len(X) + 1) says so, without this warning."
            )
        out = self._encode_rows(rows, sets.offsets)
        sets.warn_of_empty()
        return out

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
