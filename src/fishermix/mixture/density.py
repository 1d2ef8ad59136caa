"""What a fitted mixture says about rows: posteriors, likelihoods, criteria, and rows of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from fishermix.mixture import kernels
from fishermix.mixture.families import Family
from fishermix.mixture.parameters import MixtureParameters
from fishermix.mixture.statistics import Posteriors
from fishermix.rows.blocks import PANEL, Block, RowSource, Totals
from fishermix.rows.open import opened
from fishermix.threads import count_threads

Use = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, ...]]


class FittedDensity(DensityMixin, BaseEstimator):
    """The part of a mixture that needs its fitted attributes only, whoever has set them."""

    families_: list[Family]
    weights_: np.ndarray
    locations_: np.ndarray
    scales_: np.ndarray
    choice_: np.ndarray
    n_features_in_: int

    @property
    def parameters_(self) -> MixtureParameters:
        """The fitted parameters as one plain object."""
        check_is_fitted(self)
        return MixtureParameters(self.families_, self.weights_, self.locations_, self.scales_, self.choice_)

    def _panels(self, X, use: Use) -> list[tuple[np.ndarray, ...]]:
        """use(posteriors, log likelihoods) of every panel of X in order, from threads.

        X may be all that `fit` takes, rows that are not in memory too.
        """
        components = self.parameters_
        threads = count_threads(self.n_jobs)
        source = X if isinstance(X, RowSource) else opened(X, None, threads)
        if source is not None:
            if source.shape[0] < 1 or source.shape[1] != self.n_features_in_:
                raise ValueError(f"X is {source.shape}, but expected rows of {self.n_features_in_} features.")
            return source.total(_OnPanels(components, use))["parts"]
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32], order="C")
        panels = [X[start : start + PANEL] for start in range(0, len(X), PANEL)]
        if min(threads, len(panels)) == 1:
            return [use(*components.safe_posteriors(panel)) for panel in panels]
        with ThreadPoolExecutor(min(threads, len(panels))) as pool:
            return list(pool.map(lambda panel: use(*components.safe_posteriors(panel)), panels))

    def predict_proba(self, X):
        """Posteriors (N, K)."""
        return np.concatenate([posterior for (posterior,) in self._panels(X, _posterior)])

    def sparse_posteriors(self, X, threshold=1e-6):
        """Posteriors as a `scipy.sparse.csr_matrix` (N, K) without those below the threshold."""
        parts = self._panels(X, partial(_large_posteriors, threshold=threshold))
        found = Posteriors.of_panels(parts, len(self.weights_))
        shape = len(found.indptr) - 1, found.n_components
        return scipy.sparse.csr_matrix((found.values, found.components, found.indptr), shape)

    def predict(self, X):
        """The likeliest component of each row (N,)."""
        return self.predict_proba(X).argmax(axis=1)

    def score_samples(self, X):
        """Log likelihood of each row (N,)."""
        return np.concatenate([log_likelihood for (log_likelihood,) in self._panels(X, _log_likelihood)])

    def score(self, X, y=None):
        """Mean log likelihood of a row."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples=1):
        """Rows (n, D) drawn from the mixture and the component (n,) of each, component after component."""
        check_is_fitted(self)
        if n_samples < 1:
            raise ValueError(
                f"Invalid value for 'n_samples': {n_samples}. The sampling requires at least one."
            )
        random_state = check_random_state(self.random_state)
        rng = np.random.default_rng(random_state.randint(np.iinfo(np.int32).max))
        labels = np.sort(rng.choice(len(self.weights_), size=n_samples, p=self.weights_))
        z = np.empty((n_samples, self.n_features_in_))
        for index, family in enumerate(self.families_):
            chosen = self.choice_[labels] == index
            z[chosen] = family.sample(rng, int(chosen.sum()))
        return self.locations_[labels] + self.scales_[labels] * z, labels

    def _n_parameters(self) -> int:
        return len(self.weights_) - 1 + self.locations_.size + self.scales_.size

    def bic(self, X):
        """Bayesian information criterion on X; the lower the better. The choices are not counted."""
        log_likelihood = self.score_samples(X)
        return float(-2 * log_likelihood.sum() + self._n_parameters() * np.log(len(log_likelihood)))

    def aic(self, X):
        """Akaike information criterion on X; the lower the better. The choices are not counted."""
        return float(-2 * self.score_samples(X).sum() + 2 * self._n_parameters())


@dataclass(frozen=True)
class _OnPanels:
    """A step that keeps what `use` makes of the panels of a block, in their order."""

    components: MixtureParameters
    use: Use

    def __call__(self, block: Block) -> Totals:
        panels = (block.rows[panel] for panel in block.panels())
        return Totals(parts=[self.use(*self.components.safe_posteriors(panel)) for panel in panels])


def _posterior(posterior: np.ndarray, log_likelihood: np.ndarray) -> tuple[np.ndarray, ...]:
    return (posterior,)


def _log_likelihood(posterior: np.ndarray, log_likelihood: np.ndarray) -> tuple[np.ndarray, ...]:
    return (log_likelihood,)


def _large_posteriors(
    posterior: np.ndarray, log_likelihood: np.ndarray, threshold: float
) -> tuple[np.ndarray, ...]:
    return kernels.keep_large(posterior, threshold)
