"""scikit-image's Fisher vectors: its own tests if it ships them, and its encoder on our mixture."""

import fishermix
import numpy as np
import pytest
from numpy.testing import assert_allclose
from shipped_tests import load_tests, select_tests
from sklearn_shim import GaussianMixture as Shim

skimage = pytest.importorskip("skimage.feature", reason="scikit-image is not installed")

names = next(
    filter(
        None,
        (
            load_tests("skimage", path, {"sklearn.mixture.GaussianMixture": Shim})
            for path in ("feature/tests/test_fisher_vector.py", "_tests/feature/test_fisher_vector.py")
        ),
    ),
    {},
)
globals().update(select_tests(names, {}))


@pytest.mark.skipif(bool(names), reason="its own tests run")
def test_scikit_images_own_tests():
    pytest.skip("the wheel of scikit-image (0.26) ships no tests; the comparison below runs instead")


@pytest.fixture
def sets():
    rng = np.random.default_rng(0)
    return [rng.normal(size=(60, 5)) + rng.integers(0, 2, (60, 1)) * 3 for _ in range(30)]


@pytest.mark.slow
@pytest.mark.parametrize("improved", [False, True])
def test_a_mixture_learned_by_it_gives_the_same_fisher_vectors(sets, improved):
    """`learn_gmm` returns scikit-learn's GaussianMixture."""
    theirs = skimage.learn_gmm(sets, n_modes=3, gm_args={"covariance_type": "diag", "random_state": 0})
    options = {"power": 0.5, "norm": "l2"} if improved else {"power": 1, "norm": None}
    ours = fishermix.FisherEncoder.from_fitted(theirs, weight_gradients=True, **options).transform(sets)
    for one, mine in zip(sets, ours, strict=True):
        vector = np.roll(skimage.fisher_vector(one, theirs, improved=improved), -3)  # the weights last
        vector[15:30] *= -1  # its sigma half has the opposite sign
        assert_allclose(mine / np.linalg.norm(mine), vector / np.linalg.norm(vector), atol=1e-10)
