"""One rule for the parts of estimators: `fit` fits a clone of a part, a frozen part is used as it is."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from fishermix.callbacks import fit_with_callbacks
from fishermix.errors import FishermixError
from fishermix.mixture import GaussianMixture, Mixture


def freeze(part: Any) -> Any:
    """The part as one that no fit changes. None stays None."""
    return part if part is None or isinstance(part, FrozenEstimator) else FrozenEstimator(part)


def fit_clone(part: Any, rows: np.ndarray, sample_weight: np.ndarray | None = None, owner: Any = None) -> Any:
    """A clone of the part, fitted to rows (n, D); callbacks of the owner see the fit."""
    fitted = clone(part)
    weights = {} if sample_weight is None else {"sample_weight": sample_weight}
    with fit_with_callbacks(owner, fitted):
        fitted.fit(rows, None, **weights)
    return fitted


def fit_mixture(
    mixture: Any, rows: np.ndarray, sample_weight: np.ndarray | None = None, owner: Any = None
) -> Mixture:
    """A clone of the mixture fitted to rows (n, D), or a copy of the mixture if it is frozen."""
    return own_mixture(fit_clone(mixture, rows, sample_weight, owner))


def own_mixture(fitted: Any) -> Mixture:
    """A fitted mixture of fishermix that nobody else refits: a copy, if it is frozen."""
    mixture = copy.deepcopy(fitted.estimator) if isinstance(fitted, FrozenEstimator) else fitted
    if not isinstance(mixture, Mixture):  # one of scikit-learn
        check_is_fitted(mixture)
        deviations = np.sqrt(mixture.covariances_)
        return GaussianMixture.from_parameters(mixture.weights_, mixture.means_, deviations)
    if not hasattr(mixture, "weights_"):
        raise NotFittedError("The mixture is not fitted. Call its fit first.")
    return mixture


def check_mixture(mixture: Any, name: str = "mixture") -> None:
    """Raise an error if this is neither a mixture of fishermix nor a diagonal one of scikit-learn."""
    inner = mixture.estimator if isinstance(mixture, FrozenEstimator) else mixture
    if not isinstance(inner, Mixture) and getattr(inner, "covariance_type", None) != "diag":
        if isinstance(inner, type):
            raise FishermixError(
                f"{name} is a class. Give an object, {inner.__name__}(…).", code="wrong_parameter"
            )
        kind = type(inner)
        raise FishermixError(
            f"{name} is a {kind.__module__}.{kind.__qualname__}, not a mixture of fishermix. scikit-learn's "
            "GaussianMixture(covariance_type='diag') will do; from_parameters makes a mixture of arrays.",
            code="wrong_parameter",
        )
