"""VLAD and bags of words against their definitions and laws."""

import numpy as np
import pytest
from fishermix import BagOfWordsEncoder, GaussianMixture, OnRows, VLADEncoder
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from refuses import refuses
from sklearn.base import clone
from sklearn.cluster import DBSCAN, KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

RNG = np.random.default_rng(0)
SETS = [RNG.normal(size=(n, 3)) + 100 for n in (1, 5, 40, 2, 30)]
ROWS = np.concatenate(SETS)
KMEANS = KMeans(4, n_init=1, random_state=0).fit(ROWS)
MIXTURE = GaussianMixture(4, random_state=0).fit(ROWS)
clusterers = pytest.mark.parametrize(
    ("clusterer", "centers"),
    [(KMEANS, KMEANS.cluster_centers_), (MIXTURE, MIXTURE.locations_)],
    ids=["k-means", "mixture"],
)


@clusterers
@pytest.mark.parametrize("norm", ["intra", "l2", None])
@pytest.mark.parametrize("power", [1, 0.5])
def test_vlad_is_the_sum_of_differences_from_the_center(clusterer, centers, norm, power):
    found = VLADEncoder.from_fitted(clusterer, power, norm).transform(SETS)
    for members, vector in zip(SETS, found, strict=True):
        expected = np.zeros((4, 3))
        for x, k in zip(members, clusterer.predict(members), strict=True):
            expected[k] += x - centers[k]
        expected = np.sign(expected) * np.abs(expected) ** power
        if norm == "intra":
            expected /= np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-12)
        if norm is not None:
            expected /= np.linalg.norm(expected)
        assert_allclose(vector, expected.ravel(), atol=1e-9)


@clusterers
def test_a_bag_of_words_is_a_histogram(clusterer, centers):
    counts = [np.bincount(clusterer.predict(members), minlength=4) for members in SETS]
    found = {
        norm: BagOfWordsEncoder.from_fitted(clusterer, norm).transform(SETS) for norm in ("l1", "l2", None)
    }
    assert_array_equal(found[None], counts)
    assert_allclose(found["l1"], [count / count.sum() for count in counts])
    assert_allclose(found["l2"], [count / np.linalg.norm(count) for count in counts])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([KMEANS, MIXTURE]))
def test_laws(seed, clusterer):
    rng = np.random.default_rng(seed)
    a, b = (100 + rng.normal(size=(rng.integers(1, 60), 3)) for _ in range(2))
    both = np.concatenate([a, b])
    for encoder in (
        VLADEncoder.from_fitted(clusterer, 1, None),
        BagOfWordsEncoder.from_fitted(clusterer, None),
    ):
        together = encoder.transform([both, rng.permutation(both), np.repeat(both, 2, axis=0)])
        assert_allclose(together[1], together[0], atol=1e-9)
        assert_allclose(together[2], 2 * together[0], atol=1e-9)
        assert_allclose(encoder.transform([a, b]).sum(axis=0), together[0], atol=1e-9)
        assert_array_equal(encoder.transform([a])[0], encoder.transform([b, a])[1])


@pytest.mark.parametrize("make", [VLADEncoder, BagOfWordsEncoder])
def test_fit_fits_a_clone_and_a_fitted_one_is_kept(make):
    kmeans = KMeans(4, n_init=1, random_state=0)
    encoder = make(kmeans)
    with pytest.raises(NotFittedError):
        encoder.transform(SETS)
    expected = encoder.fit_transform(iter(SETS))
    assert not hasattr(kmeans, "cluster_centers_")
    assert_array_equal(make.from_fitted(KMEANS).transform(SETS), expected)
    kept = make(FrozenEstimator(kmeans.fit(ROWS))).fit(SETS[:1])
    kmeans.set_params(random_state=3).fit(-ROWS)
    assert_array_equal(kept.transform(SETS), expected)
    with pytest.raises(NotFittedError):
        make.from_fitted(KMeans(2))
    weighted = make(clone(kmeans)).fit(SETS, sample_weight=[1, 0, 2, 1, 1])
    by_rows = clone(kmeans).fit(ROWS, sample_weight=np.repeat([1, 0, 2, 1, 1], [1, 5, 40, 2, 30]))
    assert_array_equal(weighted.clusterer_.cluster_centers_, by_rows.cluster_centers_)


@pytest.mark.parametrize("make", [VLADEncoder, BagOfWordsEncoder])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_empty_sets_are_zero_and_the_type_is_kept(make, dtype):
    encoder = make(KMeans(2, n_init=1, random_state=0)).fit([one.astype(dtype) for one in SETS])
    with pytest.warns(UserWarning, match="1 of 2 sets are empty"):
        found = encoder.transform([np.zeros((0, 3), dtype), SETS[1].astype(dtype)])
    assert found.dtype == dtype
    assert not found[0].any()
    assert found[1].any()
    assert encoder.transform([]).shape == (0, found.shape[1])
    assert len(encoder.get_feature_names_out()) == found.shape[1]


@pytest.mark.slow
@pytest.mark.parametrize("make", [VLADEncoder, BagOfWordsEncoder])
def test_they_classify_in_a_pipeline(make):
    rng = np.random.default_rng(0)
    sets = [rng.normal(size=(30, 4)) * (1 + i % 2) for i in range(30)]
    pipeline = make_pipeline(
        OnRows(PCA(3)), make(KMeans(8, n_init=1, random_state=0)), LogisticRegression(C=100)
    )
    assert cross_val_score(pipeline, sets, np.arange(30) % 2, cv=3, error_score="raise").mean() > 0.8


def test_mistakes_are_named():
    for wrong in (
        VLADEncoder(KMEANS, power=0),
        VLADEncoder(KMEANS, norm="l1"),
        BagOfWordsEncoder(KMEANS, "intra"),
    ):
        with refuses("wrong_parameter"):
            wrong.fit(SETS)
    with refuses("wrong_parameter"):
        VLADEncoder(DBSCAN()).fit(SETS)


OF_KMEANS = "the starts of KMeans are drawn by weight: scikit-learn exempts KMeans itself"


@pytest.mark.slow
@parametrize_with_checks(
    [
        VLADEncoder(KMeans(2, n_init=1, random_state=0)),
        BagOfWordsEncoder(KMeans(2, n_init=1, random_state=0)),
        VLADEncoder(GaussianMixture(2, random_state=0)),
    ],
    expected_failed_checks=lambda encoder: (
        {"check_sample_weight_equivalence_on_dense_data": OF_KMEANS}
        if isinstance(encoder.clusterer, KMeans)
        else {}
    ),
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
