"""The sums behind the covariances of both sides; they add up over blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, DTypeLike

from fishermix.cca.cholesky import SymmetricPanels
from fishermix.cca.problem import ROWS_OF_A_SUM, CanonicalProblem, FitMethod, check_magnitude, find_deviation
from fishermix.errors import FishermixError
from fishermix.progress import progress

DOUBLE_UP_TO = 2048
NUMBERS_IN_A_BLOCK = 2**26


class IndexedRows(Protocol):
    """Rows that are read when they are asked for, as those of an array or of a file."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


class CovarianceSums:
    """n, sum x, sum y, X'X, Y'X and Y'Y of pairs (x, y): the sufficient statistics of a primal CCA.

    `add` takes a block of pairs. The sums are taken about a shift near the mean, the first block's mean, so
    that moving them to the mean at the end subtracts little. The side with fewer features and any side of up
    to 2,048 features are summed in float64; a larger side is summed in the type of its data, usually float32.

    Parameters
    ----------
    n_features_x, n_features_y : int
        Number of features of each side.
    dtype : numpy dtype, default float32
        Type of the data.
    y_groups : sequence of sequences of slices, optional
        Groups of columns of Y that are zero together in most rows; their zero blocks are skipped.
    rounded : bool, default False
        Products are taken in `dtype`, and only their sums over blocks in float64.

    See Also
    --------
    fishermix.RegularizedCCA.path : fits to these sums.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(100, 3)), rng.normal(size=(100, 5))
    >>> sums = CovarianceSums(3, 5)
    >>> sums.add(X[:50], Y[:50])
    >>> sums.add(X[50:], Y[50:])
    >>> sums.n
    100
    """

    def __init__(
        self,
        n_features_x: int,
        n_features_y: int,
        dtype: DTypeLike = np.float32,
        y_groups: Sequence[Sequence[slice]] | None = None,
        rounded: bool = False,
    ):
        self.y_groups = y_groups
        self.rounded = rounded
        self.dtype = np.dtype(dtype)
        self.method: FitMethod = "streaming"
        self.n = 0
        self.x_shift, self.y_shift = np.zeros(n_features_x), np.zeros(n_features_y)
        self.x_sum, self.y_sum = np.zeros(n_features_x), np.zeros(n_features_y)
        self.x_largest = self.y_largest = 0.0
        x_is_small = n_features_x <= n_features_y
        x_dtype = np.float64 if x_is_small or n_features_x <= DOUBLE_UP_TO else self.dtype
        y_dtype = np.float64 if not x_is_small or n_features_y <= DOUBLE_UP_TO else self.dtype
        self.xx = SymmetricPanels(n_features_x, x_dtype)
        self.yy = SymmetricPanels(n_features_y, y_dtype)
        self.yx = np.zeros((n_features_y, n_features_x), y_dtype if x_is_small else x_dtype)
        self.x_type: np.dtype = self.dtype if rounded else self.xx.dtype
        self.y_type: np.dtype = self.dtype if rounded else self.yy.dtype
        self.yx_type: np.dtype = self.dtype if rounded else self.yx.dtype

    @classmethod
    def from_blocks(
        cls,
        X: IndexedRows,
        blocks: Iterable[ArrayLike],
        pairs: np.ndarray | None = None,
        y_groups: Sequence[Sequence[slice]] | None = None,
        rounded: bool = False,
    ) -> CovarianceSums:
        """Sums of the pairs (X[pairs[j]], row j of Y), where `blocks` are the rows of Y in their order.

        Without `pairs`, row j of X belongs to row j of Y.
        """
        sums = None
        with progress("covariances", total=None if pairs is None else len(pairs)) as bar:
            for x, y, rows in _join_blocks(X, blocks, pairs):
                if sums is None:
                    sums = cls(x.shape[1], y.shape[1], np.result_type(x, y), y_groups, rounded)
                sums.add(x, y, rows)
                bar.advance(len(y))
        if sums is None:
            raise FishermixError("There are no blocks of Y. A fit needs at least one.", code="too_few")
        return sums

    @classmethod
    def from_arrays(
        cls, X: np.ndarray, Y: np.ndarray, pairs: np.ndarray | None, rounded: bool = False
    ) -> CovarianceSums:
        """Sums of the pairs (X[pairs[j]], Y[j]) of arrays in memory."""
        step = ROWS_OF_A_SUM if rounded else choose_block_rows(Y.shape[1])
        parts = [slice(start, start + step) for start in range(0, len(Y), step)]
        if pairs is None:
            sums = cls.from_blocks(X, (Y[part] for part in parts), rounded=rounded)
        else:
            # Sentences of one image come together, so that they meet it in one product.
            order = np.argsort(pairs, kind="stable")
            sums = cls.from_blocks(X, (Y[order[part]] for part in parts), pairs[order], rounded=rounded)
        sums.method = "primal"
        return sums

    @property
    def x_mean(self) -> np.ndarray:
        return self.x_shift + self.x_sum / self.n

    @property
    def y_mean(self) -> np.ndarray:
        return self.y_shift + self.y_sum / self.n

    def add(self, X: np.ndarray, Y: np.ndarray, pairs: np.ndarray | None = None) -> None:
        """Add the pairs (X[pairs[j]], Y[j]); without `pairs`, (X[j], Y[j])."""
        X, Y = _table("X", X), _table("Y", Y)
        for side, rows, size in (("X", X, self.xx.size), ("Y", Y, self.yy.size)):
            if rows.shape[1] != size:
                raise FishermixError(
                    f"A block of {side} has {rows.shape[1]} features, but these sums have {size}.",
                    code="wrong_shape",
                    side=side,
                )
        pairs = parse_pairs(pairs, len(X), len(Y))
        if len(Y) == 0:
            return
        counts = np.ones(len(X)) if pairs is None else np.bincount(pairs, minlength=len(X)).astype(np.float64)
        if self.n == 0:
            self.x_shift = X.mean(axis=0).astype(np.float64)
            if self.y_groups is None:
                self.y_shift = Y.mean(axis=0).astype(np.float64)
        x = _difference(X, self.x_shift, self.x_type)
        y = Y
        if self.y_shift.any() or Y.dtype != self.y_type:
            y = _difference(Y, self.y_shift, self.y_type)
        x_largest, y_largest = (max(float(side.max()), -float(side.min())) for side in (x, y))
        for side, largest in (("X", x_largest), ("Y", y_largest)):
            if not np.isfinite(largest):
                raise FishermixError(
                    f"{side} contains NaN, infinity or numbers near it. Remove such rows.",
                    code="not_finite",
                    side=side,
                )
        self._add_differences(x, y, counts, pairs)
        self.x_largest, self.y_largest = max(self.x_largest, x_largest), max(self.y_largest, y_largest)

    @np.errstate(over="ignore", invalid="ignore")  # `problem` reports that numbers were too large
    def _add_differences(
        self, x: np.ndarray, y: np.ndarray, counts: np.ndarray, pairs: np.ndarray | None
    ) -> None:
        self.n += len(y)
        self.x_sum += counts @ x
        self.y_sum += y.sum(axis=0, dtype=np.float64)
        if self.y_groups is None:
            self.yy.add_product(y, y)
        else:
            self.yy.add_sparse_product(y, self.y_groups)
        of_images = sum_by_group(y, pairs, len(x)).astype(self.yx_type, copy=False)
        images = x.astype(self.yx_type, copy=False)
        for part in self._feature_slices():
            self.yx[part] += of_images[:, part].T @ images
        if pairs is not None:
            x *= np.sqrt(counts)[:, None].astype(x.dtype)
        self.xx.add_product(x, x)

    def move(self, x_shift: np.ndarray, y_shift: np.ndarray) -> None:
        """Move the sums to other shifts. With d and e the old shifts of y and x minus the new ones,

        sum (y + d)(x + e)' = Y'X + s_y e' + d (s_x + n e)'.
        """
        e, d = self.x_shift - x_shift, self.y_shift - y_shift
        x_sum, y_sum = self.x_sum + self.n * e, self.y_sum + self.n * d
        if e.any():
            self.xx.add_product(np.stack((self.x_sum, e)), np.stack((e, x_sum)))
        if d.any():
            self.yy.add_product(np.stack((self.y_sum, d)), np.stack((d, y_sum)))
        if e.any() or d.any():
            for part in self._feature_slices():
                self.yx[part] += np.outer(self.y_sum[part], e) + np.outer(d[part], x_sum)
        self.x_shift, self.y_shift, self.x_sum, self.y_sum = x_shift, y_shift, x_sum, y_sum

    @property
    def x_deviation(self) -> np.ndarray:
        """Standard deviations (p,) of the features of X over the pairs, 1 for constant features."""
        variances = self.xx.diagonal() / self.n - (self.x_sum / self.n) ** 2
        return find_deviation(variances, self.x_mean, self.dtype)

    @property
    def y_deviation(self) -> np.ndarray:
        variances = self.yy.diagonal() / self.n - (self.y_sum / self.n) ** 2
        return find_deviation(variances, self.y_mean, self.dtype)

    def problem(self, standardize: bool = False) -> CanonicalProblem:
        """The sums about the mean, as a problem to solve; you can add more pairs later.

        Nothing is copied, unless the features are to be divided by their deviation (`standardize`).
        """
        if self.n < 2:
            raise FishermixError(f"CCA needs at least two pairs, but there are {self.n}.", code="too_few")
        check_magnitude("X", self.x_largest, self.n, self.yx_type)
        check_magnitude("Y", self.y_largest, self.n, self.yx_type)
        self.move(self.x_mean, self.y_mean)
        precision = float(np.finfo(self.yx_type).eps)
        xx, yy, yx = self.xx, self.yy, self.yx
        if standardize:
            of_x, of_y = 1 / self.x_deviation, 1 / self.y_deviation
            xx, yy, yx = xx.scale(of_x), yy.scale(of_y), yx * np.outer(of_y, of_x).astype(yx.dtype)
        if xx.size <= yy.size:
            return CanonicalProblem(
                n=self.n, small=xx, large=yy, right=yx, precision=precision, rounded=self.rounded
            )
        return CanonicalProblem(
            n=self.n, small=yy, large=xx, right=yx.T, precision=precision, rounded=self.rounded
        )

    def _feature_slices(self) -> Iterator[slice]:
        """Slices of Y's features: no second matrix as large as Y'X is needed."""
        for start in range(0, self.yy.size, self.yy.width):
            yield slice(start, start + self.yy.width)


def choose_block_rows(n_features: int) -> int:
    """The number of rows for blocks of about 256 MB of float32."""
    return max(512, min(8192, NUMBERS_IN_A_BLOCK // max(n_features, 1)))


def _join_blocks(
    X: IndexedRows, blocks: Iterable[ArrayLike], pairs: np.ndarray | None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """For each block of Y: the rows of X that it needs, the block, and which of them each of its rows has."""
    n_pairs = len(X) if pairs is None else len(pairs)
    done = 0
    for block in blocks:
        y = _table("Y", block)
        part = slice(done, done + len(y))
        done += len(y)
        if done > n_pairs:
            break
        if pairs is None:
            yield _table("X", X[part]), y, None
            continue
        rows = parse_pairs(pairs[part], len(X), len(y))
        assert rows is not None
        wanted, local = np.unique(rows, return_inverse=True)
        yield _table("X", X[wanted]), y, local
    if done != n_pairs:
        more = "at least " if done > n_pairs else ""
        raise FishermixError(
            f"The blocks of Y have {more}{done} rows, but there are {n_pairs} pairs.", code="wrong_pairs"
        )


def _table(side: str, block: ArrayLike) -> np.ndarray:
    """A block of rows (n, features) as floats."""
    rows = np.asarray(block)
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise FishermixError(
            f"A block of {side} has the shape {rows.shape}, not (rows, features). Give blocks in a list or "
            "an iterator; to fit one array, use `fit`.",
            code="wrong_shape",
            side=side,
        )
    return rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float64)


def parse_pairs(pairs: ArrayLike | None, n_x: int, n_y: int) -> np.ndarray | None:
    """The row of X of each row of Y (n_y,), or None where row j belongs to row j."""
    if pairs is None:
        if n_x != n_y:
            raise FishermixError(
                f"X has {n_x} rows and Y has {n_y}. Give pairs, the row of X for each row of Y.",
                code="wrong_pairs",
            )
        return None
    rows = np.asarray(pairs)
    if rows.shape != (n_y,) or (n_y and rows.dtype.kind not in "iu"):
        raise FishermixError(f"pairs must be {n_y} integers, one for each row of Y.", code="wrong_pairs")
    if len(rows) and (rows.min() < 0 or rows.max() >= n_x):
        raise FishermixError(f"pairs must be between 0 and {n_x - 1}, the rows of X.", code="wrong_pairs")
    return rows


def _difference(rows: np.ndarray, shift: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """rows - shift in this type, without a copy in a wider one."""
    rounded = shift.astype(dtype)
    # numpy is slow at float32 minus float64; the mean of a first block of float32 is a float32.
    exact = rounded if (rounded == shift).all() else shift
    result = np.empty(rows.shape, dtype)
    np.subtract(rows, exact, out=result, casting="same_kind")
    return result


def sum_by_group(y: np.ndarray, groups: np.ndarray | None, n_groups: int) -> np.ndarray:
    """(n_groups, q): the sum of the rows of each group; five sentences meet their image in one product."""
    if groups is None:
        return y
    shape = (n_groups, len(y))
    return scipy.sparse.csr_matrix((np.ones(len(y), y.dtype), (groups, np.arange(len(y)))), shape=shape) @ y
