"""`FisherEncoder`: the scikit-learn estimator around `FisherScores`."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.mixture import GaussianMixture as SklearnMixture
from sklearn.utils.validation import check_array, check_is_fitted

from fishermix.errors import FishermixError, FishermixWarning
from fishermix.fisher.scores import FisherScores
from fishermix.fisher.sets import open_sets
from fishermix.mixture.convert import check_convertible, from_sklearn
from fishermix.rows.blocks import is_table

if TYPE_CHECKING:
    from fishermix.mixture import Mixture

INFORMATION = ("closed-form", "empirical")
# Not an attribute: `transform` must not change an encoder, and copies and files need not hold this.
_last_scores: WeakKeyDictionary[FisherEncoder, FisherScores] = WeakKeyDictionary()


class FisherEncoder(TransformerMixin, BaseEstimator):
    """Map sets of vectors to Fisher vectors (n_sets, 2 K D).

    A Fisher vector holds the location blocks of all components, then the scale blocks.
    `fishermix.fisher.scores` gives the formulas.

    Parameters
    ----------
    mixture : Mixture or sklearn.mixture.GaussianMixture
        A fitted mixture is used as it is, also in clones of the encoder (cross-validation). If it is not
        fitted, `fit` fits a clone of it on all rows. One of scikit-learn must be diagonal or spherical;
        `fishermix.mixture.from_sklearn` converts it.
    power : float, default 0.5
        Exponent of the power normalization, 1 for none.
    norm : {"l2", None}, default "l2"
        "l2" scales each Fisher vector to unit length.
    intra_norm : bool, default False
        Scale the 2D numbers of each component to unit length, after the power and before `norm`
        (Arandjelović and Zisserman, All about VLAD, 2013).
    information : {"closed-form", "empirical"}, default "closed-form"
        "closed-form": the paper's approximation. "empirical": the mean squared gradient over the rows given
        to `fit`, an estimate of its definition (Jaakkola and Haussler, Exploiting generative models in
        discriminative classifiers, 1998).
    threshold : float, optional
        Posteriors below it count as 0; at least 0 and less than 1. None is 1e-6 for float32 rows and 1e-15
        for float64 rows, below which rounding hides them.

    Attributes
    ----------
    mixture_ : Mixture
        The mixture after `fit`: the given one, or the fitted clone.
    information_ : ndarray of shape (2, K, D)
        The information of one row, if `information` is "empirical".
    n_features_in_ : int
        Number of features D of the rows.

    Examples
    --------
    >>> from fishermix import GaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> encoder = FisherEncoder(GaussianMixture(2, random_state=0).fit(rng.normal(size=(100, 3))))
    >>> encoder.transform([rng.normal(size=(5, 3)), rng.normal(size=(8, 3))]).shape
    (2, 12)
    """

    mixture_: Mixture
    information_: np.ndarray
    n_features_in_: int

    def __init__(
        self,
        mixture: Mixture | SklearnMixture,
        power: float = 0.5,
        norm: str | None = "l2",
        *,
        intra_norm: bool = False,
        information: str = "closed-form",
        threshold: float | None = None,
    ):
        self.mixture = mixture
        self.power = power
        self.norm = norm
        self.intra_norm = intra_norm
        self.information = information
        self.threshold = threshold

    def fit(self, X: Any, y: Any = None, *, offsets: ArrayLike | None = None) -> Self:
        """Fit the mixture if it is not fitted yet, and estimate the information if it is "empirical".

        X and offsets are as in `transform`; y is ignored.

        Parameters
        ----------
        X : list of arrays (n_i, D), array of shape (n, rows, D), or rows of shape (N, D)
            The sets.
        y : ignored
            Present for the interface of scikit-learn.
        offsets : array of shape (n_sets + 1,), optional
            Set i is `X[offsets[i]:offsets[i + 1]]`.
        """
        self._check_options()
        rows, _ = self._parse_sets(X, offsets, None)
        fitted = self.mixture if _is_fitted(self.mixture) else clone(self.mixture).fit(rows)
        self.mixture_ = _convert(fitted)
        self.n_features_in_ = self.mixture_.n_features_in_
        if rows.shape[1] != self.n_features_in_:
            raise FishermixError(
                f"The mixture has {self.n_features_in_} dimensions, but X has {rows.shape[1]}."
            )
        self.__dict__.pop("information_", None)  # of an earlier fit
        if self.information == "empirical":
            scores = FisherScores(self.mixture_.parameters_, threshold=self.threshold)
            self.information_ = scores.estimate_information(rows)
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
        scores = self._scores()
        rows, offsets = self._parse_sets(X, offsets, scores.parameters.locations.shape[1])
        out = scores.encode(rows, offsets)
        if n_empty := int((offsets[1:] == offsets[:-1]).sum()):
            message = f"{n_empty} of {len(out)} sets are empty. Their vectors are 0."
            warnings.warn(message, FishermixWarning, stacklevel=2)
        return out

    def factor(self) -> np.ndarray:
        """1 / sqrt(information of one row), (2, K, D): multiplies the gradients, besides 1/sqrt(N)."""
        return self._scores().factor.copy()

    def _scores(self) -> FisherScores:
        """The object that computes, made of the fitted mixture and the current parameters.

        It prepares constants of the mixture, so the one of the last call is used again if nothing changed.
        """
        information = None
        if self.information == "empirical":
            if not hasattr(self, "information_"):
                raise NotFittedError("information='empirical' is estimated from data: call fit first.")
            information = self.information_
        parameters = self._find_mixture().parameters_
        scores = FisherScores(parameters, self.power, self.norm, self.intra_norm, self.threshold, information)
        if type(self).__hash__ is None:  # a subclass that defines == has no place among the keys
            return scores
        last = _last_scores.get(self)
        if last is None or not scores.equals(last):
            last = _last_scores[self] = scores.copy()
        return last

    def _find_mixture(self) -> Mixture:
        if hasattr(self, "mixture_"):
            return self.mixture_
        if not hasattr(self.mixture, "weights_"):
            check_is_fitted(self)
        return _convert(self.mixture)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """location_k_d for every component k and dimension d, then scale_k_d.

        Parameters
        ----------
        input_features : ignored
            Present for the interface of scikit-learn.
        """
        check_is_fitted(self)
        n_components, dimension = self._find_mixture().parameters_.locations.shape
        names = [f"{half}_{k}_" for half in ("location", "scale") for k in range(n_components)]
        return np.array([f"{name}{d}" for name in names for d in range(dimension)], dtype=object)

    def set_params(self, **params: Any) -> FisherEncoder:
        """Set parameters. Parameters of the mixture, such as `mixture__n_components=8`, ask for another fit:
        the encoder then holds an unfitted clone with these parameters, and the given mixture is unchanged."""
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
            check_convertible(self.mixture)
        if not 0 < self.power <= 1:
            raise FishermixError(f"power={self.power} is not in (0, 1].")
        if self.norm not in ("l2", None):
            raise FishermixError(f"norm={self.norm!r} is neither 'l2' nor None.")
        if self.information not in INFORMATION:
            raise FishermixError(f"information={self.information!r} is not one of {', '.join(INFORMATION)}.")
        if self.threshold is not None and not 0 <= self.threshold < 1:
            raise FishermixError(f"threshold={self.threshold} is not in [0, 1), the range of posteriors.")

    def _parse_sets(self, X, offsets, dimension: int | None) -> tuple[np.ndarray, np.ndarray]:
        """All rows one under the other (n, D), and where each set begins (n_sets + 1,) int64."""
        X, sets = open_sets(X, dimension or 0, offsets)
        rows = X
        if not is_table(X):
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


def _convert(fitted: Any) -> Mixture:
    return from_sklearn(fitted) if isinstance(fitted, SklearnMixture) else fitted


def _is_fitted(estimator: Any) -> bool:
    try:
        check_is_fitted(estimator)
    except (NotFittedError, TypeError):  # a TypeError: it is not an estimator at all
        return False
    return True
