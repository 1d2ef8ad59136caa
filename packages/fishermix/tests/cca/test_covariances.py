"""The sums are additive: blocks, order and shifts do not matter."""

import numpy as np
import pytest
from fishermix.cca.covariances import CovarianceSums
from hypothesis import given, settings
from hypothesis import strategies as st
from refuses import refuses


def data(seed=0, images=30, per_image=3, p=4, q=7):
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(np.repeat(np.arange(images), per_image))
    return rng.standard_normal((images, p)) + 3, rng.standard_normal((len(pairs), q)) - 5, pairs


def assert_covariances(sums, X, Y):
    """`sums` against numpy's covariance of the rows X and Y written out."""
    problem = sums.problem()
    p = X.shape[1]
    expected = np.cov(X.T, Y.T, bias=True)
    np.testing.assert_allclose(sums.xx.dense() / problem.n, expected[:p, :p], atol=1e-10)
    np.testing.assert_allclose(sums.yy.dense() / problem.n, expected[p:, p:], atol=1e-10)
    np.testing.assert_allclose(sums.yx / problem.n, expected[p:, :p], atol=1e-10)
    np.testing.assert_allclose(sums.x_mean, X.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(sums.y_mean, Y.mean(axis=0), atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), step=st.integers(1, 100))
def test_blocks_give_the_covariances_of_the_written_out_pairs(seed, step):
    X, Y, pairs = data(seed)
    blocks = (Y[start : start + step] for start in range(0, len(Y), step))
    assert_covariances(CovarianceSums.from_blocks(X, blocks, pairs), X[pairs], Y)


def test_blocks_of_both_sides():
    X, Y, pairs = data()
    sums = CovarianceSums(X.shape[1], Y.shape[1], Y.dtype)
    for start in range(0, len(Y), 11):
        sums.add(X[pairs[start : start + 11]], Y[start : start + 11])
    assert_covariances(sums, X[pairs], Y)


def test_more_may_be_added_after_a_solution():
    X, Y, pairs = data()
    sums = CovarianceSums.from_blocks(X, [Y[:50]], pairs[:50])
    sums.problem()
    sums.add(X, Y[50:], pairs[50:])
    assert_covariances(sums, X[pairs], Y)


@pytest.mark.slow
def test_a_large_mean_does_not_spoil_single_precision():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 3)).astype(np.float32)
    Y = (rng.standard_normal((5000, 2100)) + 1000).astype(np.float32)
    sums = CovarianceSums.from_blocks(X, (Y[start : start + 500] for start in range(0, 5000, 500)))
    assert sums.yy.dtype == np.float32
    assert sums.xx.dtype == np.float64
    sums.problem()
    exact = np.cov(Y[:, :50].T.astype(np.float64), bias=True) * 5000
    np.testing.assert_allclose(sums.yy.dense()[:50, :50], exact, atol=5e-6 * exact.max())


@pytest.mark.parametrize(
    ("blocks", "pairs", "code"),
    [
        ([], [], "too_few"),
        ([np.ones((2, 3))], [0, 1, 0], "wrong_pairs"),
        ([np.ones((4, 3))], [0, 1, 0], "wrong_pairs"),
        ([np.ones((2, 3))], [0, 2], "wrong_pairs"),
        ([np.ones((2, 3))], [0, -1], "wrong_pairs"),
    ],
)
def test_mistakes_are_named(blocks, pairs, code):
    with refuses(code):
        CovarianceSums.from_blocks(np.ones((2, 2)), blocks, pairs)


@pytest.mark.parametrize("side", [0, 1])
def test_not_a_number_is_refused_and_spoils_nothing(side):
    X, Y, pairs = data()
    sums = CovarianceSums.from_blocks(X, [Y], pairs)
    block = [X[:5].copy(), Y[:5].copy()]
    block[side][3, 1] = np.nan
    with refuses("not_finite", side="XY"[side]):
        sums.add(*block)
    assert_covariances(sums, X[pairs], Y)


def test_blocks_of_other_sizes_are_not_added():
    sums = CovarianceSums(4, 7)
    X, Y, pairs = data()
    with refuses("wrong_shape", side="X"):
        sums.add(X[:, :3], Y, pairs)
    with refuses("wrong_pairs"):
        sums.add(X, Y, pairs[:-1])
    with refuses("wrong_pairs"):
        sums.add(X, Y)
    assert sums.n == 0


@pytest.mark.parametrize(
    ("X", "blocks"),
    [
        (np.ones((4, 2)), np.ones((4, 3))),
        (np.ones((4, 2)), [np.ones((2, 3)), np.ones((2, 5))]),
    ],
)
def test_blocks_of_the_wrong_form_are_named(X, blocks):
    with refuses("wrong_shape", side="Y"):
        CovarianceSums.from_blocks(X, blocks, np.arange(4))


def test_one_pair_is_too_few():
    with refuses("too_few"):
        CovarianceSums.from_blocks(np.ones((1, 2)), [np.ones((1, 2))]).problem()


def test_sums_over_groups_of_columns_are_the_covariances():
    """Y is zero in whole groups of columns, and its mean is far from zero elsewhere."""
    X, Y, pairs = data(q=12)
    zero = np.random.default_rng(1).random((len(Y), 3)) < 0.6
    Y = (Y.reshape(len(Y), 2, 3, 2) * ~zero[:, None, :, None]).reshape(len(Y), 12)
    groups = [[slice(2 * k, 2 * k + 2), slice(6 + 2 * k, 8 + 2 * k)] for k in range(3)]
    blocks = (Y[:20], Y[20:21], Y[21:])
    sums = CovarianceSums.from_blocks(X, blocks, pairs, groups)
    assert_covariances(sums, X[pairs], Y)
    given = Y.copy()
    sums.add(X, Y, pairs)  # more pairs after the sums were moved to the mean
    assert_covariances(sums, np.tile(X[pairs], (2, 1)), np.tile(Y, (2, 1)))
    np.testing.assert_array_equal(Y, given)
