"""`FisherEncoder` and `OnRows`: transformers of sets of vectors, and the forms in which the sets come."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags
from sklearn.utils.validation import _num_samples, check_array, check_is_fitted

from fishermix.errors import FishermixError, warn_user
from fishermix.fisher.scores import FisherScores
from fishermix.mixture.em import too_large
from fishermix.mixture.mixture import Mixture

ROWS_OF_AN_IMAGE = 100  # so many rows in one array are more often an image than sets of one row


class FisherEncoder(TransformerMixin, BaseEstimator):
    """Map sets of vectors to Fisher vectors (n_sets, 2 K D).

    A Fisher vector holds the location blocks of all components, then the scale blocks.
    `fishermix.fisher.scores` gives the formulas.

    Parameters
    ----------
    mixture : Mixture
        A fitted mixture is used as it is, also in clones of the encoder (cross-validation). If it is not
        fitted, `fit` fits a clone of it on all rows.
    power : float, default 0.5
        Exponent of the power normalization, 1 for none.
    norm : {"l2", None}, default "l2"
        "l2" scales each Fisher vector to unit length.
    threshold : float, optional
        Posteriors below it count as 0; at least 0 and less than 1. None is 1e-6 for float32 rows and 1e-15
        for float64 rows, below which rounding hides them.

    Attributes
    ----------
    mixture_ : Mixture
        The mixture after `fit`: the given one, or the fitted clone.
    n_features_in_ : int
        Number of features D of the rows.

    See Also
    --------
    fishermix.OnRows : applies a transformer, such as PCA, to the rows of sets.
    fishermix.SentenceEncoder : Fisher vectors of the words of sentences.

    References
    ----------
    Klein, Lev, Sadeh, Wolf (CVPR 2015), Associating Neural Word Embeddings with Deep Image Representations
    using Fisher Vectors; arXiv:1411.7399.
    Perronnin, Sanchez, Mensink (ECCV 2010), Improving the Fisher kernel for large-scale image classification.

    Examples
    --------
    >>> from fishermix import GaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> encoder = FisherEncoder(GaussianMixture(2, random_state=0).fit(rng.normal(size=(100, 3))))
    >>> encoder.transform([rng.normal(size=(5, 3)), rng.normal(size=(8, 3))]).shape
    (2, 12)
    """

    mixture_: Mixture
    n_features_in_: int

    def __init__(
        self,
        mixture: Mixture,
        power: float = 0.5,
        norm: str | None = "l2",
        *,
        threshold: float | None = None,
    ):
        self.mixture = mixture
        self.power = power
        self.norm = norm
        self.threshold = threshold

    def fit(self, X: Any, y: Any = None, *, offsets: ArrayLike | None = None) -> Self:
        """Fit the mixture if it is not fitted yet; X and offsets are as in `transform`, y is ignored.

        Returns
        -------
        self : FisherEncoder
            The encoder, with the fitted mixture as `mixture_`.
        """
        self._check_options()
        rows, _ = self._parse_sets(X, offsets, None)
        self.mixture_ = self.mixture if _is_fitted(self.mixture) else clone(self.mixture).fit(rows)
        self.n_features_in_ = self.mixture_.n_features_in_
        if rows.shape[1] != self.n_features_in_:
            raise FishermixError(
                f"The mixture has {self.n_features_in_} dimensions, but X has {rows.shape[1]}."
            )
        return self

    def transform(self, X: Any, offsets: ArrayLike | None = None) -> np.ndarray:
        """Return the Fisher vectors of the sets.

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
        vectors : ndarray of shape (n_sets, 2 K D)
            float32 for float32 rows, float64 otherwise. An empty set has the zero vector.
        """
        self._check_options()
        scores = FisherScores(self._find_mixture().parameters_, self.power, self.norm, self.threshold)
        rows, starts = self._parse_sets(X, offsets, scores.parameters.locations.shape[1])
        if offsets is None and getattr(X, "ndim", 0) == 2 and len(X) >= ROWS_OF_AN_IMAGE:
            warn_user(
                f"X is one array: each of its {len(X)} rows was taken as a set. If they belong to one image, "
                "pass [X]. If not, offsets=range(len(X) + 1) says so, without this warning."
            )
        out = scores.encode(rows, starts)
        if not np.isfinite(out).all():
            raise too_large()
        if n_empty := int((starts[1:] == starts[:-1]).sum()):
            warn_user(f"{n_empty} of {len(out)} sets are empty. Their vectors are 0.")
        return out

    def _find_mixture(self) -> Mixture:
        if hasattr(self, "mixture_"):
            return self.mixture_
        if not hasattr(self.mixture, "weights_"):
            check_is_fitted(self)
        return self.mixture

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """location_k_d for every component k and dimension d, then scale_k_d.

        `input_features`, names of the columns of the rows, do not appear in the result, but must be D.
        """
        check_is_fitted(self)
        n_components, dimension = self._find_mixture().parameters_.locations.shape
        if input_features is not None and len(input_features) != dimension:
            raise ValueError(f"input_features should have length {dimension}, got {len(input_features)}.")
        names = [f"{half}_{k}_" for half in ("location", "scale") for k in range(n_components)]
        return np.array([f"{name}{d}" for name in names for d in range(dimension)], dtype=object)

    def set_params(self, **params: Any) -> FisherEncoder:
        """Set parameters. Parameters of the mixture, such as `mixture__n_components=8`, ask for another fit:
        the encoder then holds an unfitted clone with these parameters, and the given mixture is unchanged.
        """
        mixture = params.get("mixture", self.mixture)
        if any(name.startswith("mixture__") for name in params) and _is_fitted(mixture):
            params["mixture"] = clone(mixture)
        return super().set_params(**params)

    def __sklearn_clone__(self) -> FisherEncoder:
        new = super().__sklearn_clone__()
        if _is_fitted(self.mixture):
            new.mixture = copy.copy(self.mixture)  # scikit-learn's clone is not fitted
        return new

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "mixture_") or _is_fitted(self.mixture)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _check_options(self) -> None:
        if not hasattr(type(self.mixture), "parameters_"):
            kind = type(self.mixture)
            raise FishermixError(
                f"mixture is a {kind.__module__}.{kind.__qualname__}, not a mixture of fishermix. "
                "GaussianMixture.from_parameters makes one of arrays."
            )
        if not 0 < self.power <= 1:
            raise FishermixError(f"power={self.power} is not in (0, 1].")
        if self.norm not in ("l2", None):
            raise FishermixError(f"norm={self.norm!r} is neither 'l2' nor None.")
        if self.threshold is not None and not 0 <= self.threshold < 1:
            raise FishermixError(f"threshold={self.threshold} is not in [0, 1), the range of posteriors.")

    def _parse_sets(self, X, offsets, dimension: int | None) -> tuple[np.ndarray, np.ndarray]:
        """All rows one under the other (n, D), and where each set begins (n_sets + 1,) int64."""
        X, sets = open_sets(X, dimension or 0, offsets)
        rows = check_array(
            X, dtype=[np.float64, np.float32], order="C", estimator=self, input_name="X",
            ensure_min_samples=0 if dimension else 1, ensure_min_features=1 if dimension is None else 0,
        )  # fmt: skip
        if dimension is not None and rows.shape[1] != dimension:
            found = rows.shape[1]
            raise FishermixError(  # in the words that scikit-learn's checks look for
                f"X has {found} features, but FisherEncoder is expecting {dimension} features as input."
            )
        return rows, np.arange(len(rows) + 1) if sets.offsets is None else sets.offsets


def _is_fitted(estimator: Any) -> bool:
    try:
        check_is_fitted(estimator)
    except (NotFittedError, TypeError):  # a TypeError: it is not an estimator at all
        return False
    return True


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

    See Also
    --------
    fishermix.FisherEncoder : the usual next step of a pipeline.
    sklearn.decomposition.PCA : the usual transformer.
    sklearn.frozen.FrozenEstimator : keeps a fitted transformer as it is.

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
            As in `FisherEncoder.transform`, with offsets as a pair ``(rows, offsets)``.
        y : array-like of shape (n_sets,), optional
            Labels of the sets. A supervised transformer gets the label of its set for each row.

        Returns
        -------
        self : OnRows
            The estimator, with the fitted transformer as `transformer_`.
        """
        self._fit(X, y, "fit")
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit the transformer and return the transformed sets.

        Returns
        -------
        sets : list, array or pair
            As of `transform`.
        """
        rows, form, out = self._fit(X, y, "fit_transform")
        return form.restore(self._check_rows(out, _num_samples(rows)))

    def transform(self, X: Any) -> Any:
        """Return the sets with transformed rows.

        X is as in `fit`. The result is a list for a list, an iterator or an object array; else a 3-D array,
        a pair or a 2-D array, as X. An empty set stays empty.

        Returns
        -------
        sets : list, array or pair
            The sets, each with as many rows as before.
        """
        check_is_fitted(self, "transformer_")
        rows, form = open_sets(X, self.n_features_in_)
        if form.kind == "rows" or len(rows):
            out = self._check_rows(self.transformer_.transform(rows), _num_samples(rows))
        else:  # scikit-learn's transformers refuse an array without rows
            out = self._check_rows(self.transformer_.transform(np.zeros((1, self.n_features_in_))), 1)[:0]
        return form.restore(out)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns of the transformed rows."""
        check_is_fitted(self, "transformer_")
        return self.transformer_.get_feature_names_out(input_features)

    def set_output(self, *, transform: Any = None) -> OnRows:
        """Do nothing: sets stay sets, and later steps of a pipeline may return data frames."""
        return self

    def _fit(self, X: Any, y: Any, method: str) -> tuple[Any, Sets, Any]:
        rows, form = open_sets(X)
        if y is not None and form.offsets is not None:
            y = np.repeat(np.asarray(y), np.diff(form.offsets), axis=0)
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


@dataclass(frozen=True)
class Sets:
    """The form of some sets: `restore` gives it to rows that were stacked by `open_sets`.

    kind: "list", "3-D", "pair" or "rows". offsets (n_sets + 1,): where each set begins; None for "rows", a
    2-D array of sets of one row.
    """

    kind: str
    offsets: np.ndarray | None

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
            raise FishermixError("offsets belong to one array of all rows, not to a list of sets.")
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
        raise FishermixError("The sets are sparse matrices. Call toarray() on each of them.")
    return any(np.ndim(member) == 2 for member in X) if X else empty


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
