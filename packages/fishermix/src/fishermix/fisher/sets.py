"""The forms in which sets of vectors come: read into one array of rows, and given back in the same form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import _num_samples, check_array

from fishermix.errors import FishermixError, warn_user
from fishermix.rows import find_not_finite


@dataclass(frozen=True)
class Sets:
    """The form of some sets: `restore` gives it to rows that were stacked by `open_sets`.

    kind: "list", "3-D", "pair", or "rows" for a 2-D array each row of which is a set.
    offsets (n_sets + 1,): set i is the rows offsets[i]:offsets[i + 1].
    """

    kind: Literal["list", "3-D", "pair", "rows"]
    offsets: np.ndarray

    @property
    def n_sets(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> np.ndarray:
        """The number of rows of each set."""
        return np.diff(self.offsets)

    def locate(self, row: int) -> tuple[int, int]:
        """The set that has this row, and the row's number in it."""
        number = int(np.searchsorted(self.offsets, row, side="right")) - 1
        return number, row - int(self.offsets[number])

    def repeat(self, of_sets: Any) -> Any:
        """For each row what `of_sets` (n_sets, ...) has for its set; anything of another length as it is."""
        if self.kind == "rows" or not np.ndim(of_sets) or _num_samples(of_sets) != self.n_sets:
            return of_sets
        return np.repeat(np.asarray(of_sets), self.sizes, axis=0)

    def restore(self, rows: np.ndarray) -> Any:
        """Return rows (n, D) as sets of this form."""
        if self.kind == "rows":
            return rows
        if self.kind == "pair":
            return rows, self.offsets
        if self.kind == "3-D":
            return rows.reshape(self.n_sets, len(rows) // max(self.n_sets, 1), rows.shape[1])
        return [rows[first:last] for first, last in zip(self.offsets[:-1], self.offsets[1:])]

    @contextmanager
    def name_not_finite(self, rows: Any) -> Iterator[None]:
        """If scikit-learn refuses NaN or infinity in these rows, say which set has it."""
        try:
            yield
        except ValueError as error:
            refused = not isinstance(error, FishermixError) and re.search("NaN|infinity", str(error))
            found = np.asarray(rows)
            if not refused or found.dtype.kind != "f" or (row := find_not_finite(found)) is None:
                raise
            number, place = self.locate(row)
            raise FishermixError(
                f"Set {number} contains NaN or infinity in row {place}. Remove such rows, or replace missing "
                "values with OnRows(SimpleImputer()).",
                code="not_finite",
                set=number,
                row=place,
            ) from error

    def warn_of_empty(self) -> None:
        """Warn that the vectors of empty sets are 0, if there are any."""
        empty = np.flatnonzero(self.sizes == 0)
        if len(empty):
            warn_user(
                f"{len(empty)} of {self.n_sets} sets are empty, the first is set {empty[0]}. Their vectors "
                "are 0."
            )


def parse_rows(encoder: Any, X: Any, offsets: Any, *, fitted: bool = True) -> tuple[np.ndarray, Sets]:
    """All rows one under the other (n, D), checked, and the form of the sets.

    fitted: whether the encoder knows the number of features, and an empty collection of sets will do.
    """
    dimension = encoder.n_features_in_ if fitted else 0
    rows, sets = open_sets(X, dimension, offsets)
    if not fitted and sets.kind != "rows" and not sets.offsets[-1]:
        raise FishermixError(f"There are no rows to fit: all {sets.n_sets} sets are empty.", code="too_few")
    least = 0 if fitted else 1
    with sets.name_not_finite(rows):
        rows = check_array(
            rows,
            dtype=[np.float64, np.float32],
            order="C",
            estimator=encoder,
            input_name="X",
            ensure_min_samples=least,
            ensure_min_features=least,
        )
    if fitted and rows.shape[1] != dimension:
        raise FishermixError(  # in the words that scikit-learn's checks look for
            f"X has {rows.shape[1]} features, but {type(encoder).__name__} is expecting {dimension} features "
            "as input.",
            code="wrong_shape",
        )
    return rows, sets


def weigh_rows(of_sets: Any, sets: Sets) -> np.ndarray:
    """The weight of each row (n,), given that of each set."""
    weights = np.repeat(parse_weights(of_sets, sets.n_sets, "set"), sets.sizes)
    if not weights.any():
        raise FishermixError(
            "sample_weight is zero for all sets that have rows. Give at least one of them a weight above 0.",
            code="out_of_range",
        )
    return weights


def parse_weights(given: Any, n: int, kind: str) -> np.ndarray:
    """The weights (n,) of sets or sentences, which is the `kind`, checked."""
    weights = np.asarray(given, np.float64)
    if weights.shape != (n,):
        raise FishermixError(
            f"sample_weight has the shape {weights.shape}, but there are {n} {kind}s. Give one number for "
            f"each {kind}.",
            code="wrong_shape",
        )
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        number = int(wrong[0])
        raise FishermixError(
            f"The sample_weight of {kind} {number} is {weights[number]:g}. Weights must be finite and not "
            "negative.",
            code="out_of_range",
            **{kind: number},
        )
    return weights


def open_sets(X: Any, dimension: int = 0, offsets: Any = None) -> tuple[Any, Sets]:
    """Return all rows one under the other, unchecked, and the form of the sets.

    dimension: number of columns if there are no rows. offsets: if X is one array of the rows of all sets.
    """
    pair = isinstance(X, tuple) and len(X) == 2 and offsets is None and _count_axes(X[1]) == 1
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
        return X, Sets("rows", np.arange(_num_samples(X) + 1))
    return X, Sets("pair" if pair else "list", _parse_offsets(offsets, len(X)))


def _are_sets(X: Any, empty: bool) -> bool:
    """Whether X is a 3-D array or a list of 2-D arrays, which may have no members if `empty`."""
    if not isinstance(X, (list, tuple)):
        return isinstance(X, np.ndarray) and X.ndim == 3
    return any(issparse(member) or _count_axes(member) == 2 for member in X) if X else empty


def _count_axes(member: Any) -> int:
    try:
        return np.ndim(member)
    except ValueError:  # lists of different lengths: `_parse_set` says so
        return 2


def _stack_sets(sets: Any, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of (n_i, D) arrays one under the other, and where each set begins.

    dimension: number of columns; 0 if it is that of the first set with rows.
    """
    if isinstance(sets, np.ndarray):
        n_sets, size, width = sets.shape
        return sets.reshape(-1, width), np.arange(n_sets + 1) * (size if width else 0)
    members = [_parse_set(number, member) for number, member in enumerate(sets)]
    filled = {number: rows for number, rows in enumerate(members) if rows.size}
    first = next(iter(filled), 0)
    width = dimension or (filled[first].shape[1] if filled else 0)
    measure = "the fit" if dimension else f"set {first}"
    for number, rows in filled.items():
        if rows.shape[1] != width:
            raise FishermixError(
                f"Set {number} has {rows.shape[1]} columns, but {measure} had {width}.",
                code="wrong_shape",
                set=number,
            )
    offsets = np.cumsum([0, *(len(rows) if rows.size else 0 for rows in members)])
    if len(filled) == 1:
        return filled[first], offsets
    return np.concatenate(list(filled.values())) if filled else np.zeros((0, width)), offsets


def _parse_set(number: int, member: Any) -> np.ndarray:
    """The rows (n, D) of a set. An empty set may have any shape."""
    if issparse(member):
        raise FishermixError(
            f"Set {number} is a sparse matrix. Call toarray() on the sets.", code="wrong_form", set=number
        )
    try:
        rows = np.asarray(member)
    except ValueError as error:
        raise FishermixError(
            f"The rows of set {number} differ in length. Give sets as 2-D arrays.",
            code="wrong_shape",
            set=number,
        ) from error
    if rows.size and rows.ndim != 2:
        raise FishermixError(
            f"Set {number} has the shape {rows.shape}, not (rows, columns).", code="wrong_shape", set=number
        )
    return rows


def _parse_offsets(offsets: Any, n_rows: int) -> np.ndarray:
    given = np.asarray(offsets)
    whole = given.astype(np.int64)
    fits = given.ndim == 1 and len(given) > 0 and (whole == given).all()
    if not fits or whole[0] != 0 or whole[-1] != n_rows or (np.diff(whole) < 0).any():
        raise FishermixError(
            f"offsets must be integers that increase from 0 to {n_rows}, the rows of X.", code="wrong_offsets"
        )
    return whole
