"""cca-zoo: its own tests if it ships them, and its CCA and ridge CCA against ours."""

import numpy as np
import pytest
from fishermix import RegularizedCCA
from numpy.testing import assert_allclose
from shipped_tests import load_tests, select_tests

linear = pytest.importorskip("cca_zoo.linear", reason="cca-zoo is not installed (pip install --group bench)")
names = load_tests("cca_zoo", "tests/test_linear.py", {})
globals().update(select_tests(names, {}))


@pytest.mark.skipif(bool(names), reason="its own tests run")
def test_cca_zoos_own_tests():
    pytest.skip("the wheel of cca-zoo (4.0) ships no tests; the comparison below runs instead")


@pytest.fixture
def views():
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(300, 3))
    return [latent @ rng.normal(size=(3, d)) + rng.normal(size=(300, d)) for d in (6, 9)]


def absolute_correlations(x, y):
    return [abs(np.corrcoef(a, b)[0, 1]) for a, b in zip(x.T, y.T)]


def test_correlations_of_cca(views):
    theirs = linear.CCA(n_components=3).fit(views)
    ours = RegularizedCCA(3, reg_x=0, reg_y=0, correlation_power=0).fit(*views)
    assert_allclose(ours.correlations_, absolute_correlations(*theirs.transform(views)), atol=1e-6)
    assert_allclose(
        absolute_correlations(*ours.transform(*views)),
        absolute_correlations(*theirs.transform(views)),
        atol=1e-6,
    )


def test_directions_of_the_canonical_ridge(views):
    """Its ridge (1 - c) S + c I is ours, S + r I, up to a factor; its S divides by n - 1."""
    shrinkage, n = (0.1, 0.4), len(views[0])
    theirs = linear.RidgeCCA(n_components=3, shrinkage=list(shrinkage)).fit(views)
    ridges = [
        c / (1 - c) * (n - 1) / n / np.linalg.eigvalsh(np.cov(view.T, bias=True))[-1]
        for c, view in zip(shrinkage, views)
    ]
    ours = RegularizedCCA(3, reg_x=ridges[0], reg_y=ridges[1]).fit(*views)
    for mine, other in zip((ours.x_weights_, ours.y_weights_), theirs.weights_):
        cosines = (
            np.einsum("dk,dk->k", mine, other) / np.linalg.norm(mine, axis=0) / np.linalg.norm(other, axis=0)
        )
        assert_allclose(np.abs(cosines), 1, atol=1e-9)
