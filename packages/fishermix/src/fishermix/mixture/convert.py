"""Mixtures that were fitted elsewhere: scikit-learn's `GaussianMixture` as one of fishermix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.mixture import GaussianMixture as SklearnMixture
from sklearn.utils.validation import check_is_fitted

from fishermix.errors import FishermixError
from fishermix.mixture.mixture import GaussianMixture

KEPT_PARAMETERS = ("tol", "max_iter", "n_init", "random_state", "warm_start")


def from_sklearn(mixture: SklearnMixture) -> GaussianMixture:
    """Return a fitted scikit-learn mixture as a `fishermix.GaussianMixture`, with the same densities.

    Parameters
    ----------
    mixture : sklearn.mixture.GaussianMixture
        Fitted, with ``covariance_type="diag"`` or ``"spherical"``. Mixtures of fishermix are diagonal, so
        "full" and "tied" covariances are refused.

    Returns
    -------
    mixture : GaussianMixture
        Its `predict_proba`, `score_samples`, `bic` and `aic` equal the given mixture's. (The BIC and AIC of a
        spherical mixture differ, because fishermix counts one scale per dimension.)

    Examples
    --------
    >>> from sklearn.mixture import GaussianMixture as SklearnMixture
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> theirs = SklearnMixture(2, covariance_type="diag", random_state=0).fit(X)
    >>> np.allclose(from_sklearn(theirs).score_samples(X), theirs.score_samples(X))
    True
    """
    check_convertible(mixture)
    check_is_fitted(mixture)
    covariances = np.asarray(mixture.covariances_, np.float64)
    if mixture.covariance_type == "spherical":
        covariances = np.repeat(covariances[:, None], np.shape(mixture.means_)[1], axis=1)
    ours = GaussianMixture.from_parameters(mixture.weights_, mixture.means_, np.sqrt(covariances))
    ours.set_params(**{name: getattr(mixture, name) for name in KEPT_PARAMETERS})
    bounds = [float(bound) for bound in getattr(mixture, "lower_bounds_", [mixture.lower_bound_])]
    state = replace(ours._recover_state(), iteration=int(mixture.n_iter_), lower_bounds=bounds)
    ours._set_state(state, bool(mixture.converged_), state.rows)
    if hasattr(mixture, "feature_names_in_"):
        ours.feature_names_in_ = mixture.feature_names_in_
    return ours


def check_convertible(mixture: Any) -> None:
    """Raise an error unless `from_sklearn` can convert this mixture, once it is fitted."""
    kind = type(mixture)
    if not isinstance(mixture, SklearnMixture):
        raise FishermixError(
            f"mixture is a {kind.__module__}.{kind.__qualname__}, neither a mixture of fishermix nor "
            "sklearn.mixture.GaussianMixture. Use fishermix.GaussianMixture, LaplacianMixture, HybridMixture "
            "or Mixture."
        )
    if mixture.covariance_type not in ("diag", "spherical"):
        raise FishermixError(
            f"This {kind.__qualname__} has covariance_type='{mixture.covariance_type}', but mixtures and "
            "Fisher vectors of fishermix are diagonal: one scale per dimension, no correlations. "
            "Fit it with covariance_type='diag', after PCA if the dimensions are correlated."
        )
