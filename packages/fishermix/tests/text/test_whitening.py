"""Whitening makes white, keeps every dimension, agrees with scikit-learn, and survives storage."""

import numpy as np
import pytest
from fishermix.errors import FishermixError
from fishermix.text.whitening import Whitening
from refuses import refuses
from sklearn.decomposition import PCA, FastICA
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

RNG = np.random.default_rng(0)
MIXING = RNG.normal(size=(6, 6))
SOURCES = RNG.laplace(size=(4000, 6))
X = SOURCES @ MIXING.T + 3


@pytest.mark.parametrize("kind", ["ica", "pca"])
def test_the_result_is_white(kind):
    white = Whitening(kind).fit(X).transform(X)
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(white.T @ white / len(X), np.eye(6), atol=1e-8)


def test_ica_finds_the_independent_sources():
    white = Whitening().fit(X).transform(X)
    correlation = np.abs(np.corrcoef(white.T, SOURCES.T)[:6, 6:])
    assert (correlation.max(axis=1) > 0.99).all()
    assert sorted(correlation.argmax(axis=1)) == list(range(6))


def test_ica_is_scikit_learns():
    ours = Whitening(tol=1e-4, max_iter=200, random_state=3).fit(X)
    theirs = FastICA(whiten="unit-variance", random_state=3, max_iter=200).fit(X)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), atol=1e-8)


def test_pca_is_scikit_learns():
    ours = Whitening("pca").fit(X).transform(X)
    theirs = PCA(whiten=True).fit_transform(X) * np.sqrt(4000 / 3999)
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-8)


def test_unit_length_before_and_after():
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(
        Whitening("pca", l2_before=True).fit(X).transform(X),
        Whitening("pca").fit(unit).transform(unit),
        atol=1e-10,
    )
    after = Whitening("pca", l2_after=True).fit(X).transform(X)
    np.testing.assert_allclose(np.linalg.norm(after, axis=1), 1)
    assert (Whitening("none", l2_after=True).fit(X).transform(np.zeros((1, 6))) == 0).all()


@pytest.mark.parametrize("kind", ["ica", "pca"])
def test_fewer_dimensions_are_those_of_the_largest_variance(kind):
    whitening = Whitening(kind, n_components=2).fit(X)
    white = whitening.transform(X)
    np.testing.assert_allclose(white.T @ white / len(X), np.eye(2), atol=1e-8)
    pca = Whitening("pca").fit(X).transform(X)[:, :2]
    np.testing.assert_allclose(np.linalg.svd(white.T @ pca / len(X))[1], 1)  # the same plane
    assert whitening.get_feature_names_out().tolist() == ["whitening0", "whitening1"]
    back = Whitening._from_tensors(whitening._to_tensors())
    np.testing.assert_array_equal(back.transform(X), white)
    assert back.n_components == 2
    for wrong in (0, 7):
        with pytest.raises(FishermixError):
            Whitening(kind, n_components=wrong).fit(X)
    np.testing.assert_array_equal(Whitening("none", n_components=2).fit_transform(X), X)


def test_none_changes_nothing():
    np.testing.assert_array_equal(Whitening("none").fit(X).transform(X), X)


def test_float32_stays_float32():
    whitening = Whitening("pca").fit(X.astype(np.float32))
    white = whitening.transform(X.astype(np.float32))
    assert white.dtype == np.float32
    assert whitening.matrix_.dtype == np.float64
    np.testing.assert_allclose(white, whitening.transform(X), atol=1e-4)


@pytest.mark.parametrize("kind", ["ica", "pca", "none"])
def test_tensors_bring_it_back(kind):
    whitening = Whitening(kind, l2_before=True).fit(X)
    back = Whitening._from_tensors(whitening._to_tensors())
    np.testing.assert_array_equal(back.transform(X), whitening.transform(X))


@pytest.mark.parametrize("kind", ["ica", "pca", "none"])
def test_a_second_fit_equals_the_first_of_a_new_object(kind):
    used = Whitening("pca", l2_after=True).fit(X[:500, :4] + 1)
    used.set_params(kind=kind, l2_after=False).fit(X)
    new = Whitening(kind).fit(X)
    np.testing.assert_array_equal(used.transform(X), new.transform(X))
    assert used.n_features_in_ == new.n_features_in_ == 6
    assert used.n_iter_ == new.n_iter_


def test_mistakes_are_named():
    with refuses("wrong_parameter"):
        Whitening("zca").fit(X)
    for kind in ("ica", "pca"):
        with refuses("too_few"):
            Whitening(kind).fit(X[:4])
    with refuses("damaged"):
        Whitening._from_tensors({"whitening_mean": np.zeros(3)})
    with pytest.warns(ConvergenceWarning, match="Increase max_iter"):
        Whitening(max_iter=1).fit(X)


@parametrize_with_checks(
    [Whitening(), Whitening("pca"), Whitening("pca", n_components=1), Whitening("none", l2_after=True)]
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
