"""Folders that 0.1 wrote are loaded and give the numbers that 0.1 computed (see folders_of_0_1/)."""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

from fishermix import HybridMixture, ImageEncoder, ImageTextModel, RegularizedCCA, WordVectors
from fishermix.retrieval.index import PhotoIndex
from fishermix.vision.feature_cache import extract

OLD = Path(__file__).parent / "folders_of_0_1"
EXPECTED = json.loads((OLD / "expected.json").read_text())
PHOTOS = [OLD / "photos" / f"{number}.png" for number in range(3)]
SENTENCES = ["red green", "a blue photo", "zorblax"]


@pytest.fixture(autouse=True)
def without_deprecations():
    """Reading an old folder warns of nothing: its owner cannot change it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        yield


def rows_to_fit():
    rng = np.random.default_rng(0)
    return 4.0 * rng.integers(2, size=(200, 1)) + rng.laplace(size=(200, 3))


def assert_mixture(mixture, expected):
    for name in ("weights", "locations", "scales", "lower_bounds"):
        np.testing.assert_allclose(getattr(mixture, f"{name}_"), expected[name], rtol=1e-10, err_msg=name)
    np.testing.assert_array_equal(mixture.choice_, expected["choice"])


def test_mixture():
    mixture = HybridMixture.load(OLD / "mixture")
    assert_mixture(mixture, EXPECTED["mixture"])
    assert mixture.score(rows_to_fit()) == pytest.approx(EXPECTED["mixture"]["score"], rel=1e-10)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_mixture_checkpoint(tmp_path):
    """A fit that 0.1 stopped after three iterations ends where an uninterrupted one of 0.1 does."""
    shutil.copytree(OLD / "checkpoint", tmp_path / "checkpoint")
    resumed = HybridMixture(2, max_iter=6, tol=0, random_state=0, checkpoint=tmp_path / "checkpoint")
    assert_mixture(resumed.fit(rows_to_fit()), EXPECTED["checkpoint"])
    assert resumed.n_iter_ == 6


def test_cca():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 4))
    y = x @ rng.normal(size=(4, 5)) + rng.normal(size=(40, 5))
    cca, expected = RegularizedCCA.load(OLD / "cca"), EXPECTED["cca"]
    assert cca.get_params() == expected["params"]
    assert cca.method_ == expected["method"]
    assert [cca.x_ridge_, cca.y_ridge_] == expected["ridges"]
    np.testing.assert_array_equal(cca.correlations_, expected["correlations"])
    np.testing.assert_allclose(cca.transform(x[:3]), expected["x"], rtol=1e-12)
    np.testing.assert_allclose(cca.transform_y(y[:3]), expected["y"], rtol=1e-12)


def test_word_vectors():
    vectors = WordVectors.load(OLD / "word_vectors")
    assert list(vectors.words) == EXPECTED["word_vectors"]["words"]
    np.testing.assert_array_equal(vectors["red"], EXPECTED["word_vectors"]["red"])


@pytest.mark.filterwarnings("ignore:.*known word")
@pytest.mark.parametrize("again", [False, True], ids=["as 0.1 wrote it", "saved again"])
def test_model(again, tmp_path):
    model, expected = ImageTextModel.load(OLD / "model"), EXPECTED["model"]
    if again:
        model.save(tmp_path / "model")
        model = ImageTextModel.load(tmp_path / "model")
    assert (model.key, model.space_key) == (expected["key"], expected["space_key"])
    features = np.random.default_rng(4).gamma(0.3, size=(2, len(model.cca.x_weights_)))
    np.testing.assert_allclose(model.encode_text(SENTENCES), expected["text"], atol=1e-6)
    np.testing.assert_allclose(model.image_points(features), expected["points"], atol=1e-6)
    np.testing.assert_allclose(model.similarity(SENTENCES, PHOTOS), expected["similarity"], atol=1e-4)
    # 0.1 took the best of a beam of 8, and a word could come twice.
    model.captioner._once[:] = False
    assert model.caption(PHOTOS, beam=8, samples=0) == expected["captions"]
    recipe, old = model.recipe, expected["recipe"]
    assert (recipe.variant, recipe.mixture_components) == (old["row"], old["components"])
    assert (recipe.n_components, recipe.correlation_powers) == (old["kept"], tuple(old["scales"]))
    assert (recipe.csls_neighbours, recipe.csls_bank_size) == (old["neighbours"], old["bank"])


def test_features(tmp_path):
    shutil.copytree(OLD / "features", tmp_path / "features")
    found = extract(PHOTOS, ImageEncoder(), tmp_path / "features")
    assert found.encoded == 0
    assert not found.failed
    np.testing.assert_allclose(found.features.sum(axis=1), EXPECTED["features"]["sum"], rtol=1e-6)
    np.testing.assert_array_equal(found.features[:, :5], np.float32(EXPECTED["features"]["first"]))


def test_index(tmp_path):
    shutil.copytree(OLD / "index", tmp_path / "index")
    shutil.copytree(OLD / "photos", tmp_path / "photos")
    model = ImageTextModel.load(OLD / "model")
    with PhotoIndex(tmp_path / "photos", model, tmp_path / "index") as index:
        changes = index.update()
        assert not changes.another_model
        assert changes.encoded == 0
        hits = [(hit.path, hit.score) for hit in index.search("a red photo", n=3)]
    assert [path for path, _ in hits] == [path for path, _ in EXPECTED["index"]]
    np.testing.assert_allclose([s for _, s in hits], [s for _, s in EXPECTED["index"]], atol=1e-5)
