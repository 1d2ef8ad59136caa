"""scikit-learn's own tests of its GaussianMixture, run against fishermix's.

`DIFFERENCES` lists where fishermix does otherwise, and why.
"""

import pytest
from shipped_tests import load_tests, select_tests
from sklearn_shim import GaussianMixture

pytestmark = pytest.mark.slow  # our own tests have the same promises
INTERNAL = "tests private functions of scikit-learn, not the estimator"
WORDING = (
    "the error is raised, but names the parameter of fishermix (weights_init, locations_init, scales_init)"
)
NO_ZERO = "max_iter is at least 1; Mixture.from_parameters makes a mixture without EM"
DIFFERENCES = {
    "test_check_weights": WORDING,
    "test_check_means": WORDING,
    "test_check_precisions": WORDING,
    "test_gaussian_mixture_fit_convergence_warning": "a ConvergenceWarning is given in other words",
    "test_regularisation": "a collapsed component is kept at min_scale with a warning instead of an error",
    "test_init_means_not_duplicated": NO_ZERO,
    "test_max_iter_zero": NO_ZERO,
    "test_gaussian_mixture_precisions_init_diag": "the default start is k-means++, without k-means",
    "test_gaussian_mixture_precisions_init": INTERNAL,
    "test_gaussian_mixture_all_init_does_not_estimate_gaussian_parameters": INTERNAL,
    "test_suffstat_sk_full": INTERNAL,
    "test_suffstat_sk_tied": INTERNAL,
    "test_suffstat_sk_diag": INTERNAL,
    "test_gaussian_suffstat_sk_spherical": INTERNAL,
    "test_compute_log_det_cholesky": INTERNAL,
    "test_gaussian_mixture_log_probabilities": INTERNAL,
    "test_gaussian_mixture_array_api_compliance": "fishermix computes in numpy and has no array API",
    "test_gaussian_mixture_raises_where_array_api_not_implemented": "fishermix has no array API",
}

names = load_tests(
    "sklearn", "mixture/tests/test_gaussian_mixture.py", {"sklearn.mixture.GaussianMixture": GaussianMixture}
)
if names:
    ALL, DIAGONAL = list(names["COVARIANCE_TYPE"]), ["diag"]
    make_data = names["RandomData"].__init__

    def make_data_of_every_type(self, *given, **options):
        names["COVARIANCE_TYPE"][:] = ALL
        try:
            make_data(self, *given, **options)
        finally:
            names["COVARIANCE_TYPE"][:] = DIAGONAL

    names["RandomData"].__init__ = make_data_of_every_type
    names["COVARIANCE_TYPE"][:] = DIAGONAL  # for the loops in the tests: fishermix has no other

    consistency = names["test_fitted_precision_covariance_concistency"]
    consistency.pytestmark = [
        mark for mark in consistency.pytestmark if mark.name != "parametrize"
    ]  # over all covariance types
    names[consistency.__name__] = pytest.mark.parametrize("covar_type", DIAGONAL)(consistency)
globals().update(select_tests(names, DIFFERENCES))


def test_scikit_learn_ships_its_tests():
    assert len([name for name in names if name.startswith("test_")]) > 30
