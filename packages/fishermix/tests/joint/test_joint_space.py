"""The joint space: what a sentence vector without known words means."""

import numpy as np
import pytest
from fishermix import RegularizedCCA, RegularizedCCACV
from fishermix.joint.projections import CanonicalProjections
from fishermix.joint.space import JointSpace
from refuses import refuses


@pytest.fixture
def projections():
    rng = np.random.default_rng(0)
    return CanonicalProjections(
        np.array([0.9, 0.5, 0.3]), *(rng.normal(size=shape) for shape in ((5, 3), (8, 3), (5,), (8,)))
    )


def test_without_known_words_the_word_part_counts_as_its_mean(projections):
    space = JointSpace(projections, 1.0, right_optional=6)
    known = np.random.default_rng(1).normal(size=8).astype(np.float32)
    unknown, nothing = known.copy(), np.zeros(8, np.float32)
    unknown[:6] = 0
    as_mean = unknown.copy()
    as_mean[:6] = projections.y_mean[:6]
    found = space.embed_right(np.stack([known, unknown, nothing]))
    plain = JointSpace(projections, 1.0)
    np.testing.assert_allclose(found[:2], plain.embed_right(np.stack([known, as_mean])), atol=1e-6)
    assert not found[2].any()
    for vector, point in zip((known, as_mean), found):
        weights = projections.y_weights * projections.correlations
        expected = (vector - projections.y_mean) @ weights
        np.testing.assert_allclose(point, expected / np.linalg.norm(expected), atol=1e-5)


def test_without_a_transformer_zeros_stay_zeros(projections):
    vectors = np.zeros((1, 8), np.float32)
    vectors[0, 7] = 1
    expected = (vectors[0] - projections.y_mean) @ (projections.y_weights * projections.correlations)
    found = JointSpace(projections, 1.0).embed_right(vectors)[0]
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-5)


@pytest.mark.parametrize("kind", [RegularizedCCA, lambda k: RegularizedCCACV(k, ridges=[0.1, 1], cv=2)])
@pytest.mark.filterwarnings("ignore::fishermix.errors.FishermixWarning")
def test_it_takes_a_fitted_cca_and_keeps_its_numbers(kind):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(40, 4)), rng.normal(size=(40, 5))
    cca = kind(2).fit(X, Y)
    space = JointSpace(cca, power=1.0)
    points = cca.transform(X)
    np.testing.assert_allclose(
        space.embed_left(X), points / np.linalg.norm(points, axis=1)[:, None], atol=1e-5
    )
    before = space.embed_right(Y)
    cca.fit(X, rng.normal(size=(40, 5)))
    np.testing.assert_array_equal(space.embed_right(Y), before)
    with refuses("not_fitted"):
        JointSpace(RegularizedCCA(2), power=1.0)
