"""Whitening, learned from the word vectors: ICA as in the paper, PCA, or none."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from itertools import count

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from fishermix.errors import FishermixError, warn_user
from fishermix.joint.vectors import unit_rows
from fishermix.progress import progress
from fishermix.text.sentences import WHITENINGS, WhiteningTransform

ITERATIONS_PER_STEP = 10  # of the progress bar


class Whitening(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Whiten vectors: `x -> (x - mean_) @ matrix_.T`, each dimension with mean 0 and variance 1.

    Parameters
    ----------
    kind : {"ica", "pca", "none"}, default "ica"
        "ica" rotates to independent components (FastICA, Hyvärinen and Oja 2000), "pca" to uncorrelated ones,
        "none" leaves the vectors unchanged.
    l2_before, l2_after : bool, default False
        Scale each vector to length 1 before or after. The authors' code does so, although the paper does not
        mention it.
    max_iter : int, default 400
        Maximum number of iterations of ICA.
    tol : float, default 1e-3
        ICA stops when its directions change less than this.
    random_state : int, RandomState or None, default 0
        Seeds ICA.
    n_components : int, optional
        Number of dimensions d to keep, those of the largest variance. None keeps all D; so does "none".

    Attributes
    ----------
    mean_ : ndarray of shape (D,)
        Mean of the vectors; float64, because FastICA does not converge in float32 on real word vectors.
    matrix_ : ndarray of shape (d, D)
        The whitening matrix, float64.
    whitening_ : WhiteningTransform
        Both as one plain object, which computes.
    n_iter_ : int
        Number of iterations of ICA.
    n_features_in_ : int
        Number of features D.
    feature_names_in_ : ndarray of shape (D,)
        Names of the columns, if X was a data frame.

    See Also
    --------
    sklearn.decomposition.FastICA : what "ica" uses.
    sklearn.decomposition.PCA : what "pca" uses.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(3, 2, size=(1000, 2))
    >>> np.allclose(np.cov(Whitening("pca").fit_transform(X).T, bias=True), np.eye(2))
    True
    """

    whitening_: WhiteningTransform
    n_iter_: int
    n_features_in_: int
    feature_names_in_: np.ndarray

    def __init__(
        self,
        kind: str = "ica",
        l2_before: bool = False,
        l2_after: bool = False,
        max_iter: int = 400,
        tol: float = 1e-3,
        random_state: int | np.random.RandomState | None = 0,
        n_components: int | None = None,
    ):
        self.kind = kind
        self.l2_before = l2_before
        self.l2_after = l2_after
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_components = n_components

    def fit(self, X: ArrayLike, y: object = None) -> Whitening:
        """Learn from word vectors X (n, D).

        Returns
        -------
        self : Whitening
            The estimator, with the learned map as `whitening_`.
        """
        if self.kind not in WHITENINGS:
            raise FishermixError(
                f"kind='{self.kind}' is not one of {', '.join(WHITENINGS)}.", code="wrong_parameter"
            )
        data = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        if self.n_components is not None and not 1 <= self.n_components <= data.shape[1]:
            raise FishermixError(
                f"n_components={self.n_components} is not between 1 and {data.shape[1]}.",
                code="wrong_parameter",
            )
        if self.l2_before:
            data = unit_rows(data, data.dtype)
        dimension = data.shape[1]
        mean = np.zeros(dimension)
        matrix = np.eye(dimension)
        self.n_iter_ = 1
        if self.kind == "pca":
            mean, matrix = _fit_pca(data, self.n_components)
        elif self.kind == "ica":
            mean, matrix, self.n_iter_ = _fit_ica(self, data)
        return self._set_fit(WhiteningTransform(self.kind, self.l2_before, self.l2_after, mean, matrix))

    def _set_fit(self, whitening: WhiteningTransform) -> Whitening:
        self.whitening_ = whitening
        self.mean_ = whitening.mean
        self.matrix_ = whitening.matrix
        self.n_features_in_ = len(whitening.mean)
        return self

    def transform(self, X: ArrayLike) -> np.ndarray:
        """(n, D) -> (n, d), float32 for float32 and float64 otherwise.

        Returns
        -------
        rows : ndarray of shape (n, d)
            The whitened rows.
        """
        check_is_fitted(self)
        data = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self.whitening_.transform(data)

    def _to_tensors(self) -> dict[str, np.ndarray]:
        """The fitted arrays by name."""
        check_is_fitted(self)
        return self.whitening_._to_tensors()

    @classmethod
    def _from_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Whitening:
        """The fitted whitening that `_to_tensors` wrote."""
        found = WhiteningTransform._from_tensors(tensors)
        n_components, dimension = found.matrix.shape
        kept = None if n_components == dimension else n_components
        return cls(found.kind, found.l2_before, found.l2_after, n_components=kept)._set_fit(found)

    @property
    def _n_features_out(self) -> int:
        return len(self.matrix_)


def _fit_pca(data: np.ndarray, n_components: int | None) -> tuple[np.ndarray, np.ndarray]:
    mean = data.mean(axis=0)
    centered = data - mean
    variances, axes = np.linalg.eigh(centered.T @ centered / len(data))
    order = np.argsort(-variances, kind="stable")
    variances, axes = variances[order][:n_components], axes[:, order][:, :n_components]
    _check_rank(variances, data)
    # The sign of an eigenvector is arbitrary: make its largest entry positive, on every machine.
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(len(variances))])
    return mean, (axes * (signs / np.sqrt(variances))).T


def _fit_ica(whitening: Whitening, data: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    variances = np.linalg.eigvalsh(np.cov(data.T, bias=True).reshape(data.shape[1], -1))[::-1]
    _check_rank(variances[: whitening.n_components], data)
    with progress("ICA of the word vectors", total=whitening.max_iter) as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)

        calls = count(1)

        def log_cosh(projected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            # FastICA's own contrast; given as a function because FastICA does not report its progress.
            if next(calls) % ITERATIONS_PER_STEP == 0:
                bar.advance(ITERATIONS_PER_STEP)
            np.tanh(projected, out=projected)
            return projected, 1 - np.einsum("ij,ij->i", projected, projected) / projected.shape[1]

        ica = FastICA(
            whitening.n_components,
            fun=log_cosh,
            max_iter=whitening.max_iter,
            tol=whitening.tol,
            random_state=whitening.random_state,
        ).fit(data)
    if ica.n_iter_ >= whitening.max_iter:
        warn_user(
            f"ICA did not converge in {whitening.max_iter} iterations. Increase max_iter or tol.",
            ConvergenceWarning,
        )
    return ica.mean_, ica.components_, ica.n_iter_


def _check_rank(variances: np.ndarray, data: np.ndarray) -> None:
    if variances[-1] <= variances[0] * data.shape[1] * np.finfo(np.float64).eps:
        raise FishermixError(
            f"The {len(data)} vectors do not span their {data.shape[1]} dimensions. Whitening needs more or "
            "other vectors.",
            code="too_few",
        )
