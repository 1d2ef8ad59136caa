"""Fisher vectors of sets of vectors, for a mixture of any families (Klein et al. 2015, section 4).

With z = (x - location_kd) / scale_kd, T_k the posterior of component k, tau_k its weight and the scores and
informations of the family chosen at (k, d), the coordinates of a set of N vectors are

    sum over x of T_k * location_score(z) / sqrt(N tau_k location_information)
    sum over x of T_k * scale_score(z)    / sqrt(N tau_k scale_information)

so for a Gaussian (x - mu)/sigma and ((x - mu)²/sigma² - 1)/sqrt(2), for a Laplacian sgn(x - m) and
|x - m|/s - 1, each times T_k/sqrt(N tau_k). Then sign(v) |v|^power, then unit length.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_array, check_is_fitted

from fishermix.errors import FishermixError, FishermixWarning
from fishermix.fisher.scores import (
    THRESHOLD,
    add_sets,
    closed_form_information,
    information_factor,
    linear_sign_form,
    normalise,
    typed_constants,
    typed_entries,
    weighted_scores,
)
from fishermix.mixture.parameters import FEW_ROWS, MixtureParameters

HUGE_ROWS = 4096
PIECES = 16
INFORMATION = ("closed-form", "empirical")


class FisherEncoder(TransformerMixin, BaseEstimator):
    """Sets of vectors in, (n_sets, 2 K D) out: the location blocks of all components, then the scale blocks.

    mixture: a fitted mixture is used as it is, also in clones of the encoder (cross-validation); of one that
        is not, `fit` fits a clone on all the rows.
    power: exponent of the power normalisation, 1 for none. norm: "l2" or None.
    intra_norm: bring the 2D numbers of each component to unit length, after the power and before `norm`
        (Arandjelović and Zisserman, All about VLAD, 2013).
    information: "closed-form", the paper's approximation; or "empirical", the mean squared gradient over the
        rows given to `fit`, an estimate of its definition (Jaakkola and Haussler, Exploiting generative
        models in discriminative classifiers, 1998).
    threshold: posteriors below it count as 0; from 0 to less than 1.

    >>> from fishermix import GaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> encoder = FisherEncoder(GaussianMixture(2, random_state=0).fit(rng.normal(size=(100, 3))))
    >>> encoder.transform([rng.normal(size=(5, 3)), rng.normal(size=(8, 3))]).shape
    (2, 12)
    """

    def __init__(
        self,
        mixture,
        power: float = 0.5,
        norm: str | None = "l2",
        *,
        intra_norm: bool = False,
        information: str = "closed-form",
        threshold: float = THRESHOLD,
    ):
        self.mixture = mixture
        self.power = power
        self.norm = norm
        self.intra_norm = intra_norm
        self.information = information
        self.threshold = threshold

    def fit(self, X, y=None, *, offsets=None) -> FisherEncoder:
        """Fit the mixture if it is not fitted yet; estimate the information if it is to be "empirical"."""
        self._check_options()
        rows, _ = self._as_rows(X, offsets, None)
        self.mixture_ = self.mixture if _is_fitted(self.mixture) else clone(self.mixture).fit(rows)
        self.n_features_in_ = self.mixture_.n_features_in_
        if rows.shape[1] != self.n_features_in_:
            raise FishermixError(f"the mixture is of {self.n_features_in_} dimensions, X of {rows.shape[1]}")
        if self.information == "empirical":
            parameters = self.mixture_.parameters_
            squares = np.zeros((2, *parameters.locations.shape))
            posteriors = parameters.sparse_posteriors(rows, self.threshold)
            for k, _, weighted in weighted_scores(parameters, rows, posteriors):
                squares[:, k] += np.einsum("hnd,hnd->hd", weighted, weighted, dtype=np.float64)
            self.information_ = squares / len(rows)
        return self

    def transform(self, X, offsets=None) -> np.ndarray:
        """Fisher vectors of the sets, (n_sets, 2 K D); float32 for float32, float64 otherwise.

        X: (n_i, D) arrays in a list, an iterator or an object array; or one (n, D) array with `offsets`
        (n_sets + 1,), set i being the rows offsets[i]:offsets[i + 1] (also as a pair `(X, offsets)`); or one
        (n, D) array of sets of one row.
        """
        self._check_options()
        check_is_fitted(self)
        mixture = self._parameters
        rows, offsets = self._as_rows(X, offsets, mixture.locations.shape[1])
        sizes = np.diff(offsets)
        out = np.zeros((len(sizes), 2 * mixture.locations.size), rows.dtype)
        posteriors = mixture.sparse_posteriors(rows, self.threshold)
        form = linear_sign_form(mixture)
        if form is None or len(rows) <= FEW_ROWS:
            add_sets(out, mixture, rows, offsets, posteriors)
            normalise(out, sizes, self.factor(), self.power, self.norm, self.intra_norm)
        else:
            self._encode_compiled(out, mixture, form, rows, offsets, posteriors)
        if (sizes == 0).any():
            warnings.warn(
                f"{(sizes == 0).sum()} of {len(sizes)} sets are empty: their vectors are 0",
                FishermixWarning,
                stacklevel=2,
            )
        return out

    def factor(self) -> np.ndarray:
        """1 / sqrt(information of one row), (2, K, D): the factor of the bare gradients, 1/sqrt(N) apart."""
        if self.information == "empirical":
            if not hasattr(self, "information_"):
                raise NotFittedError("information='empirical' is estimated from data: call fit first")
            information = self.information_
        else:
            information = closed_form_information(self._parameters)
        return information_factor(information)

    @property
    def _parameters(self) -> MixtureParameters:
        return getattr(self, "mixture_", self.mixture).parameters_

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """location_k_d for every component k and dimension d, then scale_k_d."""
        check_is_fitted(self)
        n_components, dimension = self._parameters.locations.shape
        names = [f"{half}_{k}_" for half in ("location", "scale") for k in range(n_components)]
        return np.array([f"{name}{d}" for name in names for d in range(dimension)], dtype=object)

    def set_params(self, **params) -> FisherEncoder:
        """As always; but `mixture__n_components=8` and the like ask for another fit: in place of a fitted
        mixture the encoder then holds an unfitted clone with these parameters, and the given one stays."""
        mixture = params.get("mixture", self.mixture)
        if any(name.startswith("mixture__") for name in params) and _is_fitted(mixture):
            params["mixture"] = clone(mixture)
        return super().set_params(**params)

    def __sklearn_clone__(self) -> FisherEncoder:
        new = super().__sklearn_clone__()
        if _is_fitted(self.mixture):
            new.mixture = copy.copy(self.mixture)  # scikit-learn's clone forgets the fit
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
                f"mixture is a {kind.__module__}.{kind.__qualname__}, not a mixture of fishermix: give "
                "fishermix.GaussianMixture, LaplacianMixture, HybridMixture or Mixture"
            )
        if not 0 < self.power <= 1:
            raise FishermixError(f"power={self.power} is not in (0, 1]")
        if self.norm not in ("l2", None):
            raise FishermixError(f"norm={self.norm!r} is neither 'l2' nor None")
        if self.information not in INFORMATION:
            raise FishermixError(f"information={self.information!r} is not one of {', '.join(INFORMATION)}")
        if not 0 <= self.threshold < 1:
            raise FishermixError(f"threshold={self.threshold} is not in [0, 1), where posteriors lie")

    def _as_rows(self, X, offsets, dimension: int | None) -> tuple[np.ndarray, np.ndarray]:
        """All rows one under the other (n, D), and where each set begins (n_sets + 1,) int64."""
        if isinstance(X, tuple) and len(X) == 2 and offsets is None and np.ndim(X[1]) == 1:
            X, offsets = X
        if isinstance(X, Iterator) or (getattr(X, "dtype", None) == np.dtype(object) and np.ndim(X) == 1):
            X = list(X)
        sets = None
        if isinstance(X, (list, tuple)) and any(np.ndim(member) == 2 for member in X):
            sets = [
                np.reshape(member, (0, dimension or 0)) if np.size(member) == 0 else member for member in X
            ]
        elif isinstance(X, np.ndarray) and X.ndim == 3:
            sets = list(X)
        if sets is not None:
            if offsets is not None:
                raise FishermixError("offsets go with one array of all rows, not with a list of sets")
            sizes = [len(member) for member in sets]
            offsets = np.concatenate([[0], np.cumsum(sizes)])
            filled = [np.asarray(member) for member in sets if len(member)]
            if len({member.shape[1:] for member in filled}) > 1:
                raise FishermixError(f"the sets differ in dimension: {sorted({m.shape[1:] for m in filled})}")
            X = np.concatenate(filled) if filled else np.zeros((0, dimension or 0))
        elif isinstance(X, (list, tuple)) and len(X) == 0 and dimension is not None:
            X = np.zeros((0, dimension))
        rows = check_array(
            X, dtype=[np.float64, np.float32], order="C", estimator=self, input_name="X",
            ensure_min_samples=0 if dimension else 1, ensure_min_features=1 if dimension is None else 0,
        )  # fmt: skip
        if dimension is not None and rows.shape[1] != dimension:
            found = rows.shape[1]
            raise FishermixError(
                f"X has {found} features, but FisherEncoder is expecting {dimension} features as input"
            )
        return rows, np.arange(len(rows) + 1) if offsets is None else _checked_offsets(offsets, len(rows))

    def _encode_compiled(self, out, mixture, form, rows, offsets, posteriors) -> None:
        from fishermix.fisher import kernels as fisher_kernels

        encode_sets: Any = fisher_kernels.encode_sets
        kind, factor = rows.dtype, self.factor()
        entries = typed_entries(posteriors, kind)
        constants = [*typed_constants(mixture, form, kind), factor.astype(kind)]
        options = float(self.power), bool(self.intra_norm), self.norm == "l2"

        def encode(offsets: np.ndarray, finished: bool, out: np.ndarray) -> None:
            def encode_run(first: int, last: int) -> None:
                run = offsets[first : last + 1]
                encode_sets(rows, run, *entries, *constants, *options, finished, out[first:last])

            fisher_kernels.in_threads(encode_run, len(out))

        huge = np.flatnonzero(np.diff(offsets) > HUGE_ROWS)
        ends = [*huge.tolist(), len(out)]
        for first, last in zip([0, *(huge + 1).tolist()], ends):
            if first < last:
                encode(offsets[first : last + 1], True, out[first:last])
        for s in huge.tolist():
            # A huge set is cut into pieces, so that all cores work. The cuts depend on its size alone, so the
            # sum is the same bits on any number of cores.
            cuts = np.linspace(offsets[s], offsets[s + 1], PIECES + 1).astype(np.int64)
            sums = np.zeros((PIECES, out.shape[1]), kind)
            encode(cuts, False, sums)
            sums.sum(axis=0, out=out[s])
            size = offsets[s + 1] - offsets[s]
            normalise(out[s : s + 1], size, factor, self.power, self.norm, self.intra_norm)


def _checked_offsets(offsets, n_rows: int) -> np.ndarray:
    given = np.asarray(offsets)
    checked = given.astype(np.int64)
    fits = given.ndim == 1 and len(given) > 0 and (checked == given).all()
    if not fits or checked[0] != 0 or checked[-1] != n_rows or (np.diff(checked) < 0).any():
        raise FishermixError(f"offsets have to be whole numbers that rise from 0 to the {n_rows} rows of X")
    return checked


def _is_fitted(estimator) -> bool:
    try:
        check_is_fitted(estimator)
    except (NotFittedError, TypeError):  # a TypeError says that it is no estimator at all
        return False
    return True
