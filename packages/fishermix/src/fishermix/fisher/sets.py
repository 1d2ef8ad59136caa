"""The forms in which sets of vectors come: read into one array of rows, and given back in the same form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import check_array

from fishermix.errors import FishermixError


@dataclass(frozen=True)
class Sets:
    """The form of some sets: `restore` gives it to rows that were stacked by `open_sets`.

    kind: "list", "3-D", "pair" or "rows". offsets (n_sets + 1,): where each set begins; None for "rows", a
    2-D array of sets of one row.
    """

    kind: str
    offsets: np.ndarray | None

    def repeat(self, of_sets: Any) -> Any:
        """For each row what `of_sets` (n_sets, ...) has for its set; anything of another length as it is."""
        if self.offsets is None or isinstance(of_sets, str) or np.size(of_sets, 0) != len(self.offsets) - 1:
            return of_sets
        return np.repeat(np.asarray(of_sets), np.diff(self.offsets), axis=0)

    def restore(self, rows: np.ndarray) -> Any:
        """Return rows (n, D) as sets of this form."""
        if self.offsets is None:
            return rows
        if self.kind == "pair":
            return rows, self.offsets
        if self.kind == "3-D":
            n_sets = len(self.offsets) - 1
            return rows.reshape(n_sets, len(rows) // max(n_sets, 1), rows.shape[1])
        return [rows[first:last] for first, last in zip(self.offsets[:-1], self.offsets[1:])]


def parse_rows(encoder: Any, X: Any, offsets: Any, *, fitted: bool = True) -> tuple[np.ndarray, Sets]:
    """All rows one under the other (n, D), checked, and the form of the sets.

    fitted: whether the encoder knows the number of features, and an empty collection of sets will do.
    """
    dimension = encoder.n_features_in_ if fitted else 0
    rows, sets = open_sets(X, dimension, offsets)
    rows = check_array(
        rows, dtype=[np.float64, np.float32], order="C", estimator=encoder, input_name="X",
        ensure_min_samples=0 if fitted else 1, ensure_min_features=0 if fitted else 1,
    )  # fmt: skip
    if fitted and rows.shape[1] != dimension:
        raise FishermixError(  # in the words that scikit-learn's checks look for
            f"X has {rows.shape[1]} features, but {type(encoder).__name__} is expecting {dimension} features "
            "as input.",
            code="wrong_shape",
        )
    return rows, sets


def weigh_rows(of_sets: Any, sets: Sets, n_rows: int) -> np.ndarray:
    """The weight of each row (n,), given that of each set."""
    weights = np.asarray(of_sets, np.float64)
    sizes = np.ones(n_rows, np.int64) if sets.offsets is None else np.diff(sets.offsets)
    if weights.shape != sizes.shape:
        raise FishermixError(
            f"sample_weight has the shape {weights.shape}, but there are {len(sizes)} sets. Give one number "
            "for each set.",
            code="wrong_shape",
        )
    return np.repeat(weights, sizes)


def open_sets(X: Any, dimension: int = 0, offsets: Any = None) -> tuple[Any, Sets]:
    """Return all rows one under the other, unchecked, and the form of the sets.

    dimension: number of columns if there are no rows. offsets: if X is one array of the rows of all sets.
    """
    pair = isinstance(X, tuple) and len(X) == 2 and offsets is None and np.ndim(X[1]) == 1
    if pair:
        X, offsets = X
    if isinstance(X, Iterator) or (getattr(X, "dtype", None) == np.dtype(object) and np.ndim(X) == 1):
        X = list(X)
    if _are_sets(X, empty=bool(dimension) and offsets is None):
        if offsets is not None:
            raise FishermixError(
                "offsets belong to one array of all rows, not to a list of sets.", code="wrong_offsets"
            )
        rows, offsets = _stack_sets(X, dimension)
        return rows, Sets("3-D" if isinstance(X, np.ndarray) else "list", offsets)
    if offsets is None:
        return X, Sets("rows", None)
    return X, Sets("pair" if pair else "rows", _parse_offsets(offsets, len(X)))


def _are_sets(X: Any, empty: bool) -> bool:
    """Whether X is a 3-D array or a list of 2-D arrays, which may have no members if `empty`."""
    if not isinstance(X, (list, tuple)):
        return isinstance(X, np.ndarray) and X.ndim == 3
    if any(issparse(member) for member in X):
        raise FishermixError(
            "The sets are sparse matrices. Call toarray() on each of them.", code="wrong_form"
        )
    return any(np.ndim(member) == 2 for member in X) if X else empty


def _stack_sets(sets: Any, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of (n_i, D) arrays one under the other, and where each set begins."""
    sizes = [len(member) if np.size(member) else 0 for member in sets]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    if isinstance(sets, np.ndarray):
        return sets.reshape(-1, sets.shape[2]), offsets
    filled = [np.asarray(member) for member, size in zip(sets, sizes) if size]
    if len(shapes := {member.shape[1:] for member in filled}) > 1:
        raise FishermixError(f"The sets differ in dimension: {sorted(shapes)}.", code="wrong_shape")
    if len(filled) == 1:
        return filled[0], offsets
    return np.concatenate(filled) if filled else np.zeros((0, dimension)), offsets


def _parse_offsets(offsets: Any, n_rows: int) -> np.ndarray:
    given = np.asarray(offsets)
    whole = given.astype(np.int64)
    fits = given.ndim == 1 and len(given) > 0 and (whole == given).all()
    if not fits or whole[0] != 0 or whole[-1] != n_rows or (np.diff(whole) < 0).any():
        raise FishermixError(
            f"offsets must be integers that increase from 0 to {n_rows}, the rows of X.", code="wrong_offsets"
        )
    return whole
