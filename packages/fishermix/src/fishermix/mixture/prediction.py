"""What a fitted mixture says of rows: posteriors, likelihoods, criteria; and rows that it draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from fishermix.mixture.e_step import MixtureParameters, is_worth_compiling
from fishermix.mixture.families import Family
from fishermix.rows.blocks import ArraySource, Block, Statistics
from fishermix.rows.sources import open_rows

Use = Callable[[np.ndarray, np.ndarray], Any]


class PredictionMixin:
    """The methods of `Mixture` that use the fitted parameters and change nothing."""

    families_: Sequence[Family]
    weights_: np.ndarray
    locations_: np.ndarray
    scales_: np.ndarray
    choice_: np.ndarray
    lower_bounds_: list[float]
    n_features_in_: int
    n_jobs: int | None
    random_state: int | np.random.RandomState | None

    @property
    def lower_bound_(self) -> float:
        """Mean log likelihood per row in the last iteration."""
        check_is_fitted(self, "weights_")
        if not self.lower_bounds_:
            raise AttributeError(
                "lower_bound_ is known after fit; this mixture was made of given parameters."
            )
        return float(self.lower_bounds_[-1])

    @property
    def parameters_(self) -> MixtureParameters:
        """The fitted attributes as one plain object, which does the computing."""
        check_is_fitted(self, "weights_")
        return MixtureParameters(self.families_, self.weights_, self.locations_, self.scales_, self.choice_)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the posteriors (N, K). X may be all that `fit` takes, here and below.

        Returns
        -------
        posteriors : ndarray of shape (N, K)
            Each row sums to 1.
        """
        return np.concatenate(self._map_panels(X, lambda posterior, _: np.ascontiguousarray(posterior.T)))

    def predict(self, X: Any) -> np.ndarray:
        """Return the most likely component of each row (N,).

        Returns
        -------
        components : ndarray of shape (N,)
            Indices from 0 to K - 1.
        """
        return self.predict_proba(X).argmax(axis=1)

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log likelihood of each row (N,).

        Returns
        -------
        log_likelihoods : ndarray of shape (N,)
        """
        return np.concatenate(self._map_panels(X, lambda _, log_likelihood: log_likelihood))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log likelihood per row.

        Returns
        -------
        score : float
        """
        return float(self.score_samples(X).mean())

    def bic(self, X: Any) -> float:
        """Bayesian information criterion on X; lower is better. The choices are not counted.

        Returns
        -------
        bic : float
        """
        log_likelihood = self.score_samples(X)
        return float(-2 * log_likelihood.sum() + self.parameters_.n_free * np.log(len(log_likelihood)))

    def aic(self, X: Any) -> float:
        """Akaike information criterion on X; lower is better. The choices are not counted.

        Returns
        -------
        aic : float
        """
        return float(-2 * self.score_samples(X).sum() + 2 * self.parameters_.n_free)

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows (n, D), component after component; returns them and their components (n,).

        Returns
        -------
        rows, components : ndarrays of shape (n, D) and (n,)
        """
        parameters = self.parameters_
        if n_samples < 1:
            raise ValueError(
                f"Invalid value for 'n_samples': {n_samples}. The sampling requires at least one."
            )
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        return parameters.sample(n_samples, np.random.default_rng(seed))

    def _map_panels(self, X: Any, use: Use) -> list[Any]:
        """Return use(posteriors, log likelihoods) of each panel of X, which may be all that `fit` takes."""
        parameters = self.parameters_
        source = open_rows(X, None, self.n_jobs)
        if source is None:
            X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32], order="C")
            source = ArraySource(X, threads=self.n_jobs)
        elif source.shape[0] < 1 or source.shape[1] != self.n_features_in_:
            raise ValueError(f"X is {source.shape}, but expected rows of {self.n_features_in_} features.")
        compiled = is_worth_compiling(source.shape[0] * parameters.choice.size)
        return source.total(partial(_use_panels, parameters, compiled, use))["panels"]


def _use_panels(parameters: MixtureParameters, compiled: bool, use: Use, block: Block) -> Statistics:
    """A step that keeps use(posteriors (K, n), log likelihoods (n,)) of each panel of a block."""
    panels = block.panels(block.rows.dtype)
    return Statistics(panels=[use(*parameters.posteriors(panel, compiled)) for panel in panels])
