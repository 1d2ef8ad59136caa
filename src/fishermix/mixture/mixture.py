"""`Mixture(families=[...])` and its three names."""

from __future__ import annotations

import numpy as np
import scipy.sparse
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from fishermix.errors import FishermixError
from fishermix.mixture.families import as_family, family_from_config, family_to_config
from fishermix.storage import load_folder, require_tensor, save_folder


class Mixture(DensityMixin, BaseEstimator):
    """Diagonal mixture: each (component, dimension) takes the family that fits it best."""

    def __init__(
        self,
        n_components=30,
        *,
        families=("gaussian", "laplace"),
        tol=1e-3,
        max_iter=100,
        min_scale=1e-3,
        random_state=None,
    ):
        self.n_components = n_components
        self.families = families
        self.tol = tol
        self.max_iter = max_iter
        self.min_scale = min_scale
        self.random_state = random_state

    def fit(self, X, y=None, sample_weight=None):
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        n, K = len(X), self.n_components
        if n < K:
            raise ValueError(
                f"Expected n_samples >= n_components but got n_components = {K}, n_samples = {n}"
            )
        weight = np.ones(n) if sample_weight is None else np.asarray(sample_weight, float)
        rng = check_random_state(self.random_state)
        self.families_ = [as_family(f) for f in self.families]
        self.weights_ = np.full(K, 1 / K)
        self.locations_ = X[rng.permutation(n)[:K]].astype(float)
        self.scales_ = np.maximum(np.tile(X.std(0, dtype=float), (K, 1)), self.min_scale)
        self.choice_ = np.zeros(self.locations_.shape, np.int64)
        self.lower_bounds_, self.converged_ = [], False
        for _ in range(self.max_iter):
            joint = self._joint(X)
            norm = logsumexp(joint, axis=1)
            posterior = np.exp(joint - norm[:, None]) * weight[:, None]
            self.lower_bounds_.append(float(weight @ norm / weight.sum()))
            total = posterior.sum(0)
            self.weights_ = total / total.sum()
            for k in range(K):
                best = None
                for f, family in enumerate(self.families_):
                    m, s = family.fit(X, posterior[:, k])
                    s = np.maximum(s, self.min_scale)
                    q = posterior[:, k] @ family.log_density((X - m) / s) - total[k] * np.log(s)
                    better = np.ones(len(q), bool) if best is None else q > best
                    best = q if best is None else np.maximum(best, q)
                    self.locations_[k, better], self.scales_[k, better] = m[better], s[better]
                    self.choice_[k, better] = f
            if len(self.lower_bounds_) > 1 and abs(np.diff(self.lower_bounds_[-2:])[0]) < self.tol:
                self.converged_ = True
                break
        self.n_iter_ = len(self.lower_bounds_)
        return self

    def _joint(self, X):
        joint = np.log(self.weights_) - np.log(self.scales_).sum(1) + np.zeros((len(X), 1))
        for k in range(len(self.weights_)):
            for f, family in enumerate(self.families_):
                dims = np.flatnonzero(self.choice_[k] == f)
                z = (X[:, dims] - self.locations_[k, dims]) / self.scales_[k, dims]
                joint[:, k] += family.log_density(z).sum(1)
        return joint

    def _check(self, X):
        check_is_fitted(self)
        return self._joint(validate_data(self, X, reset=False, dtype=[np.float64, np.float32]))

    def score_samples(self, X):
        return logsumexp(self._check(X), axis=1)

    def score(self, X, y=None):
        return float(self.score_samples(X).mean())

    def predict_proba(self, X):
        joint = self._check(X)
        return np.exp(joint - logsumexp(joint, axis=1, keepdims=True))

    def predict(self, X):
        return self._check(X).argmax(1)

    def sparse_posteriors(self, X, threshold=1e-6):
        posterior = self.predict_proba(X)
        return scipy.sparse.csr_matrix(np.where(posterior < threshold, 0, posterior))

    def save(self, folder):
        check_is_fitted(self)
        config = {"families": [family_to_config(f) for f in self.families_], "class": type(self).__name__}
        tensors = {name: getattr(self, name + "_") for name in ("weights", "locations", "scales", "choice")}
        save_folder(folder, "mixture", 1, config, tensors)

    @staticmethod
    def load(folder):
        config, tensors = load_folder(folder, "mixture", 1)
        names = {c.__name__: c for c in (Mixture, GaussianMixture, LaplacianMixture, HybridMixture)}
        if config.get("class") not in names:
            raise FishermixError(f"{folder} holds an unknown kind of mixture")
        self = names[config["class"]]()
        self.weights_ = require_tensor(tensors, "weights", (None,), folder)
        self.locations_ = require_tensor(tensors, "locations", (len(self.weights_), None), folder)
        self.scales_ = require_tensor(tensors, "scales", self.locations_.shape, folder)
        self.choice_ = require_tensor(tensors, "choice", self.locations_.shape, folder)
        self.families_ = [family_from_config(f) for f in config["families"]]
        self.n_components, self.n_features_in_ = self.locations_.shape
        return self


class GaussianMixture(Mixture):
    def __init__(self, n_components=30, *, tol=1e-3, max_iter=100, min_scale=1e-3, random_state=None):
        super().__init__(
            n_components,
            families=("gaussian",),
            tol=tol,
            max_iter=max_iter,
            min_scale=min_scale,
            random_state=random_state,
        )


class LaplacianMixture(Mixture):
    def __init__(self, n_components=30, *, tol=1e-3, max_iter=100, min_scale=1e-3, random_state=None):
        super().__init__(
            n_components,
            families=("laplace",),
            tol=tol,
            max_iter=max_iter,
            min_scale=min_scale,
            random_state=random_state,
        )


class HybridMixture(Mixture):
    def __init__(self, n_components=30, *, tol=1e-3, max_iter=100, min_scale=1e-3, random_state=None):
        super().__init__(
            n_components,
            families=("gaussian", "laplace"),
            tol=tol,
            max_iter=max_iter,
            min_scale=min_scale,
            random_state=random_state,
        )
