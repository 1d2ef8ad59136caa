"""Data that fits have stumbled over: ties, numbers near the ends of their type, huge weights."""

import numpy as np
import pytest

from fishermix.mixture import HybridMixture, LaplacianMixture

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape)


def assert_finite(mixture):
    for name in ("weights_", "locations_", "scales_", "lower_bounds_"):
        assert np.isfinite(getattr(mixture, name)).all(), name


@pytest.mark.parametrize("cls", [LaplacianMixture, HybridMixture])
@pytest.mark.parametrize(
    "X",
    [
        np.maximum(normal(5000, 8), 0).astype(np.float32),
        np.maximum(normal(5000, 8), 0) + 1,
        np.round(np.random.default_rng(0).laplace(size=(9000, 5))),
        np.random.default_rng(0).integers(-9, 9, (5000, 8)).astype(np.int8),
        np.maximum(normal(20_000, 16), 0).astype(np.float32),
    ],
    ids=["relu float32", "relu float64 + 1", "rounded", "int8", "more relu"],
)
def test_tied_values(cls, X):
    mixture = cls(4, random_state=0).fit(X)
    assert_finite(mixture)
    laplacian = next(fit for fit in mixture._last.fits if fit.family.name == "laplace")
    assert np.isin(laplacian.location, X).all()
