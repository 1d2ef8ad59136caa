"""Training with few sentences: inner products of sentences instead of covariances of features."""

import warnings

import numpy as np
import pytest
from fishermix import HybridMixture, SentenceEncoder, WordVectors
from fishermix.cca.dual import choose_method
from fishermix.joint.ranks import task_ranks
from fishermix_lab import training
from fishermix_lab.datasets.readers import Dataset
from fishermix_lab.recipe import Recipe
from fishermix_lab.stages import Stages

N_IMAGES, PER_IMAGE = 60, 4


@pytest.fixture(scope="module")
def encoder():
    rng = np.random.default_rng(0)
    words = [f"word{number}" for number in range(120)]
    vectors = WordVectors(words, rng.laplace(size=(120, 8)).astype(np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # three iterations on few rows do
        mixtures = [
            HybridMixture(24, max_iter=3, random_state=seed).fit(vectors.vectors) for seed in range(2)
        ]
    return SentenceEncoder.from_fitted(vectors, mixtures=mixtures)


@pytest.fixture(scope="module")
def pairs():
    """Photos, of which some features are counts of words in their sentences."""
    rng = np.random.default_rng(1)
    topics = rng.integers(120, size=(N_IMAGES, 3))
    image_of = np.repeat(np.arange(N_IMAGES), PER_IMAGE)
    drawn = [np.append(topics[image], rng.integers(120, size=4)) for image in image_of]
    sentences = [" ".join(f"word{word}" for word in of) for of in drawn]
    features = rng.standard_normal((N_IMAGES, 130)).astype(np.float32)
    np.add.at(features, (np.repeat(np.arange(N_IMAGES), 3), topics.ravel()), 4)
    names = [str(image) for image in range(N_IMAGES)]
    splits = np.where(np.arange(N_IMAGES) < 50, "train", "dev")
    return Dataset("drawn", names, names, sentences, image_of, splits), features


def fit(pairs, encoder, folder, recipe):
    dataset, features = pairs
    cca, space = training.fit_joint_space(
        dataset, features, [features.shape[1]], encoder, recipe, Stages(folder)
    )
    ranks = task_ranks(
        space.embed_left(features),
        space.embed_right(encoder.transform(dataset.sentences)),
        dataset.image_of,
    )
    return cca, ranks["search"]


@pytest.mark.slow
@pytest.mark.parametrize("csls", [0, 5])
def test_few_sentences_take_the_dual_route_and_give_the_same_model(
    csls, pairs, encoder, tmp_path, monkeypatch
):
    recipe = Recipe(n_components=20, correlation_powers=(0.5, 1.0), csls_neighbors=csls, csls_bank_size=30)
    dual, ranks = fit(pairs, encoder, tmp_path, recipe)
    monkeypatch.setattr(training, "ROWS_IN_DOUBLE", 0)
    primal, primal_ranks = fit(pairs, encoder, tmp_path, recipe)
    assert (dual.method_, primal.method_) == ("dual", "streaming")
    assert (dual.reg_x, dual.reg_y, dual.correlation_power) == (
        primal.reg_x,
        primal.reg_y,
        primal.correlation_power,
    )
    np.testing.assert_allclose(dual.ridged_correlations_, primal.ridged_correlations_, rtol=1e-6)
    np.testing.assert_array_equal(ranks, primal_ranks)


def test_the_ridges_of_the_large_side_are_reckoned_in():
    dual = {
        shape: choose_method(*shape) for shape in [(800, 4000, 1752, 18000, 3), (800, 4000, 4096, 18000, 3)]
    }
    assert set(dual.values()) == {"dual"}
    assert choose_method(30_000, 30_000, 100, 500, 12) == "primal"
    # The dual maps its solutions back to features for each ridge, which in the end costs more.
    assert [choose_method(4000, 4000, 3000, 5000, ridges) for ridges in (1, 12)] == ["dual", "primal"]


@pytest.mark.slow
def test_one_map_for_all_ridges_equals_separate_fits(pairs, encoder):
    from fishermix.cca.covariances import CovarianceSums
    from fishermix.cca.dual import GramSums
    from fishermix.cca.estimator import RegularizedCCA

    dataset, features = pairs
    features, sentences = features.astype(np.float64), encoder.transform(dataset.sentences).astype(np.float64)
    cca = RegularizedCCA(10, correlation_power=0)
    grid = [0.01, 0.1, 0.5], [0.02, 0.2]
    dual = list(cca.path(GramSums(features, sentences, dataset.image_of), *grid))
    primal = list(cca.path(CovarianceSums.from_blocks(features, [sentences], dataset.image_of), *grid))
    for one, other in zip(dual, primal, strict=True):
        assert (one.reg_x, one.reg_y) == (other.reg_x, other.reg_y)
        alone = RegularizedCCA(10, reg_x=one.reg_x, reg_y=one.reg_y, correlation_power=0, method="dual")
        alone.fit(features, sentences, dataset.image_of)
        np.testing.assert_allclose(one.ridged_correlations_, other.ridged_correlations_, rtol=1e-8)
        for reference in (other, alone):
            np.testing.assert_allclose(
                one.transform_y(sentences), reference.transform_y(sentences), atol=1e-6
            )
