"""Checkpoints: of fits that converge, of other data, damaged, and where there is none."""

import json

import numpy as np
import pytest
from fishermix.mixture import GaussianMixture, HybridMixture, LaplacianMixture, Mixture
from oracles import interrupt_em
from refuses import refuses
from sklearn.base import clone

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
FITTED = ("weights_", "locations_", "scales_", "choice_", "lower_bounds_", "n_iter_", "converged_")


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return (1.5 * rng.integers(3, size=(9000, 1)) + rng.laplace(size=(9000, 4))).astype(np.float32)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoint"


def assert_same_bits(one, other):
    for name in FITTED:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name, strict=True)


def interrupted_at(iteration):
    def interrupt(state):
        if state.iteration == iteration:
            raise KeyboardInterrupt

    return interrupt


@pytest.mark.slow
@pytest.mark.parametrize("name", [Mixture, GaussianMixture, LaplacianMixture, HybridMixture])
@pytest.mark.parametrize("n_init", [1, 2])
def test_a_fit_that_converges(name, n_init, X, folder, monkeypatch):
    mixture = name(3, random_state=0, n_init=n_init, tol=2e-4)
    whole = clone(mixture).fit(X)
    assert whole.converged_ is True  # a number of JSON, not of numpy
    assert whole.n_iter_ > 6
    mixture.set_params(checkpoint=folder)
    with monkeypatch.context() as patch:
        interrupt_em(patch, interrupted_at(6))
        with pytest.raises(KeyboardInterrupt):
            clone(mixture).fit(X)
    assert_same_bits(clone(mixture).fit(X), whole)
    interrupt_em(monkeypatch, interrupted_at(0))
    assert_same_bits(clone(mixture).fit(X), whole)  # it has converged: nothing is done again


def test_a_single_changed_number_is_other_data(X, folder, tmp_path):
    weight = np.ones(len(X))
    mixture = GaussianMixture(2, random_state=0, max_iter=2, checkpoint=folder).fit(X, sample_weight=weight)
    for row in (1, 4444, len(X) - 2):
        changed, heavier = X.copy(), weight.copy()
        changed[row, 2] += 1
        heavier[[row, row - 1]] = 1.5, 0.5
        for other in ((changed, weight), (X, heavier), (X, None)):
            with refuses("other_data"):
                clone(mixture).fit(other[0], sample_weight=other[1])
    np.save(tmp_path / "changed.npy", changed)
    with refuses("other_data"):
        clone(mixture).fit(tmp_path / "changed.npy", sample_weight=weight)


@pytest.mark.slow
def test_the_same_rows_in_a_file_are_the_same_data(X, folder, tmp_path, monkeypatch):
    mixture = HybridMixture(3, random_state=0, max_iter=4, checkpoint=folder)
    whole = clone(mixture).fit(X)
    np.save(tmp_path / "rows.npy", X)
    interrupt_em(monkeypatch, interrupted_at(0))
    assert_same_bits(clone(mixture).fit(tmp_path / "rows.npy"), whole)


def test_a_checkpoint_is_a_folder(X, tmp_path):
    (tmp_path / "a_file").write_text("mine")
    with refuses("wrong_folder"):
        HybridMixture(2, checkpoint=tmp_path / "a_file").fit(X)


def damaged_tensors(folder):
    (file,) = folder.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-9])


def damaged_json(folder):
    (folder / "config.json").write_text("{")


def without(name):
    def damage(folder):
        config = json.loads((folder / "config.json").read_text())
        del config[name]
        (folder / "config.json").write_text(json.dumps(config))

    return damage


@pytest.mark.parametrize("damage", [damaged_tensors, damaged_json, *map(without, ("key", "state", "start"))])
def test_a_damaged_one_says_what_to_do(X, folder, damage):
    mixture = HybridMixture(2, random_state=0, max_iter=1, checkpoint=folder).fit(X)
    damage(folder)
    with refuses("damaged"):
        mixture.fit(X)
