"""scikit-learn's tests that its mixtures share, run against fishermix's GaussianMixture."""

from shipped_tests import load_tests, select_tests
from sklearn_shim import GaussianMixture

names = load_tests(
    "sklearn", "mixture/tests/test_mixture.py", {"sklearn.mixture.GaussianMixture": GaussianMixture}
)
globals().update(select_tests(names, {}))
