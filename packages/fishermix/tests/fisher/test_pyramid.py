"""A spatial pyramid is the encoder's vectors of the cells, side by side."""

import pickle

import numpy as np
import pytest
from fishermix import BagOfWordsEncoder, FisherEncoder, GaussianMixture, OnRows, SpatialPyramid
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from refuses import refuses
from sklearn import config_context
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

RNG = np.random.default_rng(0)
IMAGES = [np.hstack([RNG.normal(size=(n, 3)), RNG.uniform(size=(n, 2))]) for n in (40, 5, 70)]
ENCODER = FisherEncoder(GaussianMixture(2, random_state=0))


def test_a_cell_is_encoded_as_a_set_of_its_own():
    found = SpatialPyramid(ENCODER, [(1, 1), (2, 3)]).fit(IMAGES)
    encoder = clone(ENCODER).fit([image[:, :3] for image in IMAGES])
    vectors = found.transform(IMAGES)
    assert vectors.shape == (3, 7 * 12)
    assert_allclose(vectors[:, :12], encoder.transform([image[:, :3] for image in IMAGES]), atol=1e-12)
    for image, vector in zip(IMAGES, vectors):
        x, y = image[:, 3], image[:, 4]
        for cell in range(6):
            row, column = divmod(cell, 2)
            inside = (x >= column / 2) & (x < (column + 1) / 2) & (y >= row / 3) & (y < (row + 1) / 3)
            part = vector[12 * (cell + 1) : 12 * (cell + 2)]
            if inside.any():
                assert_allclose(part, encoder.transform([image[inside, :3]])[0], atol=1e-12)
            else:
                assert not part.any()
    names = found.get_feature_names_out()
    assert len(names) == len(set(names)) == 84
    assert names[12] == "cell_1_location_0_0"


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([[(1, 1)], [(3, 1)], [(2, 2), (1, 4)]]))
def test_the_counts_of_the_cells_are_those_of_the_image(seed, grids):
    rng = np.random.default_rng(seed)
    images = [
        np.hstack([rng.normal(size=(n, 2)), rng.choice([0, 0.25, 1 / 3, 0.5, 0.999, 1], (n, 2))])
        for n in rng.integers(1, 30, 4)
    ]
    kmeans = KMeans(2, n_init=1, random_state=0).fit(RNG.normal(size=(50, 2)))
    encoder = FrozenEstimator(BagOfWordsEncoder.from_fitted(kmeans, None))
    pyramid = SpatialPyramid(encoder, grids).fit(images)
    found, whole = pyramid.transform(images), encoder.transform([image[:, :2] for image in images])
    first = 0
    for columns, rows in grids:
        width = 2 * columns * rows
        assert_array_equal(found[:, first : first + width].reshape(4, -1, 2).sum(axis=1), whole)
        first += width
    assert_array_equal(pyramid.transform(images[2:3])[0], found[2])


def test_every_form_of_the_sets_gives_the_same():
    expected = SpatialPyramid(ENCODER).fit(IMAGES).transform(IMAGES)
    assert_array_equal(SpatialPyramid(ENCODER).fit_transform(iter(IMAGES)), expected)
    rows, offsets = np.concatenate(IMAGES), np.cumsum([0, 40, 5, 70])
    assert_array_equal(SpatialPyramid(ENCODER).fit_transform((rows, offsets)), expected)
    single = SpatialPyramid(ENCODER).fit_transform([image.astype(np.float32) for image in IMAGES])
    assert single.dtype == np.float32


def test_it_works_around_a_pipeline_and_passes_weights_on():
    inner = make_pipeline(OnRows(PCA(2)), ENCODER)
    found = SpatialPyramid(inner, [(1, 1)]).fit(IMAGES)
    alone = clone(inner).fit([image[:, :3] for image in IMAGES])
    assert_allclose(found.transform(IMAGES), alone.transform([image[:, :3] for image in IMAGES]), atol=1e-9)
    weights = [1, 3, 0]
    expected = clone(ENCODER).fit([image[:, :3] for image in IMAGES], sample_weight=weights).mixture_
    plain = SpatialPyramid(ENCODER).fit(IMAGES, sample_weight=weights)
    with config_context(enable_metadata_routing=True):
        asking = clone(ENCODER).set_fit_request(sample_weight=True)
        routed = make_pipeline(SpatialPyramid(asking)).fit(IMAGES, sample_weight=weights)[0]
    for pyramid in (plain, routed):
        assert_array_equal(pyramid.encoder_.mixture_.locations_, expected.locations_)


def test_empty_images_are_zero():
    pyramid = SpatialPyramid(ENCODER).fit(IMAGES)
    with pytest.warns(UserWarning, match="1 of 2 sets are empty"):
        found = pyramid.transform([np.zeros((0, 5)), IMAGES[0]])
    assert not found[0].any()
    assert_array_equal(found[1], pyramid.transform(IMAGES[:1])[0])
    with pytest.warns(UserWarning, match="1 of 1 sets are empty"):
        assert pyramid.transform([np.zeros((0, 5))]).shape == (1, 60)


def test_a_second_fit_a_clone_and_a_pickle_are_the_same():
    used = SpatialPyramid(ENCODER, [(2, 1)]).fit([image[:, 1:] for image in IMAGES])
    used.set_params(grids=[(1, 2)], encoder=clone(ENCODER).set_params(power=1)).fit(IMAGES)
    new = SpatialPyramid(clone(ENCODER).set_params(power=1), [(1, 2)]).fit(IMAGES)
    expected = new.transform(IMAGES)
    for same in (used, clone(new).fit(IMAGES), pickle.loads(pickle.dumps(new))):
        assert_array_equal(same.transform(IMAGES), expected)


def test_mistakes_are_named():
    with pytest.raises(NotFittedError):
        SpatialPyramid(ENCODER).transform(IMAGES)
    in_pixels = [image * [1, 1, 1, 640, 480] for image in IMAGES]
    for method in ("fit_transform", "transform"):
        with refuses("out_of_range"):
            getattr(SpatialPyramid(ENCODER).fit(IMAGES), method)(in_pixels)
    with refuses("out_of_range"):
        SpatialPyramid(ENCODER).fit(in_pixels)
    for grids in (2, [2, 2], [], [(0, 2)], [(1, 2, 3)], [(0.5, 2)]):
        with refuses("wrong_parameter"):
            SpatialPyramid(ENCODER, grids).fit(IMAGES)
        with refuses("wrong_parameter"):
            SpatialPyramid(ENCODER).fit(IMAGES).set_params(grids=grids).transform(IMAGES)
    with refuses("wrong_shape"):
        SpatialPyramid(ENCODER).fit([np.ones((5, 2))])
