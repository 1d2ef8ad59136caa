"""fishermix.GaussianMixture with the parameters of scikit-learn's, for scikit-learn's own tests."""

import fishermix
import numpy as np

INIT = {"kmeans": "k-means++", "random_from_data": "random"}


class GaussianMixture(fishermix.GaussianMixture):
    """The names of scikit-learn's parameters; always diagonal, whatever `covariance_type` says."""

    def __init__(
        self,
        n_components=1,
        *,
        covariance_type="full",
        tol=1e-3,
        reg_covar=1e-6,
        max_iter=100,
        n_init=1,
        init_params="kmeans",
        weights_init=None,
        means_init=None,
        precisions_init=None,
        random_state=None,
        warm_start=False,
        verbose=0,
    ):
        self.n_components, self.covariance_type, self.tol = n_components, covariance_type, tol
        self.reg_covar, self.max_iter, self.n_init = reg_covar, max_iter, n_init
        self.init_params, self.weights_init, self.means_init = init_params, weights_init, means_init
        self.precisions_init, self.random_state = precisions_init, random_state
        self.warm_start, self.verbose = warm_start, verbose
        self.families, self.checkpoint, self.n_jobs = ("gaussian",), None, None
        self.working_memory = 256

    def fit(self, X, y=None, sample_weight=None):
        self.min_scale = max(np.sqrt(self.reg_covar), 1e-150)
        self.locations_init = self.means_init
        self.scales_init = None if self.precisions_init is None else self._find_scales()
        given = self.init_params
        self.init_params = INIT.get(given, given)
        try:
            return super().fit(X, sample_weight=sample_weight)
        finally:
            self.init_params = given

    def _validate_params(self):
        names = {"min_scale", "locations_init", "scales_init"}
        fishermix.GaussianMixture(
            self.n_components, tol=self.tol, max_iter=self.max_iter, n_init=self.n_init,
            init_params=self.init_params, weights_init=self.weights_init, random_state=self.random_state,
            warm_start=self.warm_start, verbose=self.verbose, **{name: getattr(self, name) for name in names},
        )._validate_params()  # fmt: skip

    def _find_scales(self):
        precisions = np.asarray(self.precisions_init, float)
        if self.covariance_type == "spherical":
            precisions = np.repeat(precisions[:, None], np.shape(self.means_init)[1], axis=1)
        elif self.covariance_type == "tied":
            precisions = np.tile(np.diag(precisions), (self.n_components, 1))
        elif self.covariance_type == "full":
            precisions = np.diagonal(precisions, axis1=1, axis2=2)
        return 1 / np.sqrt(precisions)

    def _n_parameters(self):
        return self._parameters.n_free
