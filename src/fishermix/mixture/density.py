"""What a fitted mixture says about rows: posteriors, likelihoods, criteria, and rows of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from fishermix.mixture import kernels
from fishermix.mixture.blocks import PANEL, available_threads
from fishermix.mixture.components import Components
from fishermix.mixture.families import Family


class FittedDensity(DensityMixin, BaseEstimator):
    """The part of a mixture that needs its fitted attributes only, whoever has set them."""

    families_: list[Family]
    weights_: np.ndarray
    locations_: np.ndarray
    scales_: np.ndarray
    choice_: np.ndarray
    n_features_in_: int

    def _components(self) -> Components:
        check_is_fitted(self)
        return Components(self.families_, self.weights_, self.locations_, self.scales_, self.choice_)

    def _panels(self, X, use: Callable[[slice, np.ndarray, np.ndarray], None]) -> None:
        """Call use(rows, posteriors, log likelihoods) for all panels of X, in threads."""
        components = self._components()
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32], order="C")
        panels = [slice(start, start + PANEL) for start in range(0, len(X), PANEL)]

        def work(panel: slice) -> None:
            use(panel, *components.safe_posteriors(X[panel]))

        threads = min(self.n_jobs or available_threads(), len(panels))
        if threads == 1:
            for panel in panels:
                work(panel)
        else:
            with ThreadPoolExecutor(threads) as pool:
                for _ in pool.map(work, panels):
                    pass

    def predict_proba(self, X):
        """Posteriors (N, K)."""
        parts: dict[int, np.ndarray] = {}
        self._panels(X, lambda rows, posterior, _: parts.__setitem__(rows.start, posterior))
        return np.concatenate([parts[start] for start in sorted(parts)])

    def sparse_posteriors(self, X, threshold=1e-6):
        """Posteriors as a `scipy.sparse.csr_matrix` (N, K) without those below the threshold."""
        parts: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

        def keep(rows: slice, posterior: np.ndarray, _: np.ndarray) -> None:
            parts[rows.start] = kernels.keep_large(posterior, threshold)

        self._panels(X, keep)
        counts, components, values = (
            np.concatenate(part) for part in zip(*(parts[start] for start in sorted(parts)))
        )
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return scipy.sparse.csr_matrix((values, components, indptr), (len(counts), len(self.weights_)))

    def predict(self, X):
        """The likeliest component of each row (N,)."""
        return self.predict_proba(X).argmax(axis=1)

    def score_samples(self, X):
        """Log likelihood of each row (N,)."""
        parts: dict[int, np.ndarray] = {}
        self._panels(X, lambda rows, _, log_likelihood: parts.__setitem__(rows.start, log_likelihood))
        return np.concatenate([parts[start] for start in sorted(parts)])

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
