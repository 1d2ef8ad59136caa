"""`OnRows`: any transformer on the rows of sets, in the classic pipeline."""

import numpy as np
import pandas as pd
import pytest
from fishermix import FisherEncoder, HybridMixture, OnRows
from numpy.testing import assert_allclose, assert_array_equal
from refuses import refuses
from sklearn import config_context
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks


@pytest.fixture
def images():
    """40 ragged sets (n_i, 8) of two classes that differ in the spread of two columns, and the classes."""
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    spread = np.ones((2, 8))
    spread[1, :2] = 3
    return [spread[label] * rng.normal(size=(rng.integers(20, 40), 8)) for label in labels], labels


def as_object_array(sets):
    array = np.empty(len(sets), dtype=object)
    array[:] = sets
    return array


def test_rows_are_transformed_as_if_they_were_stacked(images):
    sets, _ = images
    expected = PCA(3, random_state=0).fit(np.concatenate(sets))
    found = OnRows(PCA(3, random_state=0)).fit(sets)
    for mine, one in zip(found.transform(sets), sets, strict=True):
        assert_allclose(mine, expected.transform(one), atol=1e-12)
    assert found.get_feature_names_out().tolist() == ["pca0", "pca1", "pca2"]


def test_sets_keep_their_form(images):
    sets, _ = images
    on_rows = OnRows(StandardScaler()).fit(sets)
    expected = on_rows.transform(sets)
    assert isinstance(expected, list)
    ragged = on_rows.transform(as_object_array(sets))
    assert isinstance(ragged, list)
    assert len(ragged) == 40
    offsets = np.cumsum([0, *map(len, sets)])
    rows, same_offsets = on_rows.transform((np.concatenate(sets), offsets))
    assert_array_equal(same_offsets, offsets)
    assert_array_equal(rows, np.concatenate(expected))
    for one, mine, other in zip(expected, ragged, on_rows.transform(iter(sets)), strict=True):
        assert_array_equal(one, mine)
        assert_array_equal(one, other)
    cube = np.stack([one[:20] for one in sets])
    assert_allclose(on_rows.transform(cube), np.stack([one[:20] for one in expected]), atol=1e-12)
    assert on_rows.transform(sets[0]).shape == sets[0].shape
    assert on_rows.transform([]) == []
    with_empty = on_rows.transform([np.zeros((0, 8)), sets[0]])
    assert [one.shape for one in with_empty] == [(0, 8), sets[0].shape]
    assert [one.shape for one in on_rows.transform([np.zeros((0, 8))])] == [(0, 8)]
    assert on_rows.transform(cube.astype(np.float32)).dtype == np.float32


@pytest.mark.slow
@pytest.mark.parametrize("form", ["list", "object", "3-D"])
def test_the_classic_pipeline_in_a_grid_search(images, form):
    sets, labels = images
    if form == "object":
        sets = as_object_array(sets)
    elif form == "3-D":
        sets = np.stack([one[:20] for one in sets])
    pipeline = make_pipeline(
        OnRows(PCA(2, random_state=0)),
        FisherEncoder(HybridMixture(2, random_state=0, max_iter=10, tol=0)),
        LinearSVC(random_state=0),
    )
    grid = {"onrows__transformer__n_components": [2, 4], "fisherencoder__mixture__n_components": [1, 2]}
    search = GridSearchCV(pipeline, grid, cv=3, n_jobs=2, error_score="raise").fit(sets, labels)
    assert search.best_score_ > 0.9
    assert search.predict(sets[:2]).shape == (2,)


def test_a_supervised_transformer_gets_the_label_of_each_row(images):
    sets, labels = images
    rows, of_rows = np.concatenate(sets), np.repeat(labels, [len(one) for one in sets])
    expected = LinearDiscriminantAnalysis().fit(rows, of_rows).transform(rows)
    found = OnRows(LinearDiscriminantAnalysis()).fit_transform(sets, labels)
    assert_allclose(np.concatenate(found), expected)
    assert_array_equal(OnRows(SelectKBest(k=2)).fit(sets, labels).transform(sets)[0].shape[1], 2)


def test_weights_of_sets_reach_the_transformer_and_the_mixture(images):
    sets, labels = images
    weights = np.arange(1, 41) % 4
    copies = [one for one, weight in zip(sets, weights) for _ in range(weight)]
    mixture = HybridMixture(1, max_iter=5, tol=0)
    scaler = StandardScaler().fit(np.concatenate(copies))
    expected = HybridMixture(1, max_iter=5, tol=0).fit(scaler.transform(np.concatenate(copies)))

    def check(pipeline):
        np.testing.assert_allclose(pipeline[0].transformer_.mean_, scaler.mean_, atol=1e-12)
        np.testing.assert_allclose(pipeline[1].mixture_.locations_, expected.locations_, atol=1e-9)

    pipeline = make_pipeline(OnRows(StandardScaler()), FisherEncoder(mixture), LinearSVC())
    check(pipeline.fit(sets, labels, onrows__sample_weight=weights, fisherencoder__sample_weight=weights))
    with config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(
            OnRows(StandardScaler().set_fit_request(sample_weight=True)),
            FisherEncoder(mixture).set_fit_request(sample_weight=True),
            LinearSVC().set_fit_request(sample_weight=False),
        )
        check(pipeline.fit(sets, labels, sample_weight=weights))
        unasked = make_pipeline(OnRows(StandardScaler()), FisherEncoder(mixture))
        with pytest.raises(UnsetMetadataPassedError):
            unasked.fit(sets, labels, sample_weight=weights)


def test_a_frozen_transformer_is_not_fitted_again(images):
    sets, _ = images
    frozen = PCA(2).fit(sets[0])
    found = OnRows(FrozenEstimator(frozen)).fit(sets[1:]).transform(sets[:1])
    assert_allclose(found[0], frozen.transform(sets[0]))


def test_missing_values_sparse_results_and_data_frames_are_left_to_the_transformer():
    sets = [np.array([[1.0, np.nan], [3.0, 4.0]]), np.array([[5.0, 6.0]])]
    assert_array_equal(OnRows(SimpleImputer()).fit_transform(sets)[0], [[1, 5], [3, 4]])
    assert OnRows(OneHotEncoder()).fit_transform([np.array([["a"], ["b"]])])[0].tolist() == [[1, 0], [0, 1]]
    frames = [pd.DataFrame({"u": [1.0, 2.0], "v": [0.0, 1.0]}) for _ in range(2)]
    assert OnRows(StandardScaler().set_output(transform="pandas")).fit_transform(frames)[0].shape == (2, 2)
    pipeline = make_pipeline(OnRows(StandardScaler()), FisherEncoder(HybridMixture(1, min_scale=0.1)))
    pipeline.set_output(transform="pandas")
    assert list(pipeline.fit_transform(frames).columns) == [
        "location_0_0", "location_0_1", "scale_0_0", "scale_0_1",
    ]  # fmt: skip


def test_mistakes_are_named():
    class Doubling(StandardScaler):
        def transform(self, X):
            return np.concatenate([X, X])

    sets = [np.ones((2, 3)), np.zeros((1, 3))]
    with pytest.raises(NotFittedError):
        OnRows(StandardScaler()).transform(sets)
    with refuses("wrong_shape"):
        OnRows(Doubling()).fit(sets).transform(sets)
    with refuses("wrong_shape"):
        OnRows(StandardScaler()).fit([np.ones((2, 3)), np.ones((2, 2))])


@parametrize_with_checks([OnRows(StandardScaler()), OnRows(PCA(1))])
def test_sklearn_checks(estimator, check):
    check(estimator)
