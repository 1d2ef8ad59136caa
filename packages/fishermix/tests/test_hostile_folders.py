"""Folders whose files contradict each other, and work folders that two users want at once."""

import json
import os
import resource
import threading
import time

import numpy as np
import pytest
from fishermix import HybridMixture, Mixture, WordVectors
from fishermix.errors import FishermixError
from fishermix.saved import load_folder, save_folder
from fishermix.text.word_vectors import VECTORS_KIND, VectorsConfig
from refuses import refuses

RNG = np.random.default_rng(0)
WORDS = ["red", "green", "blue", "photo"]


def test_a_mixture_in_half_precision_works(tmp_path):
    from fishermix.mixture.saved import KIND as MIXTURE

    rows = RNG.laplace(size=(300, 3))
    mixture = HybridMixture(2, max_iter=5, random_state=0).fit(rows)
    mixture.weights_ = np.array([0.25, 0.75])  # in half precision, others do not sum to 1
    mixture.save(tmp_path / "x")
    saved = load_folder(tmp_path / "x", MIXTURE)
    config, tensors = saved.config, saved.tensors
    half = {
        name: value.astype(np.float16) if value.dtype.kind == "f" else value
        for name, value in tensors.items()
    }
    save_folder(tmp_path / "half", MIXTURE, config, half)
    again = Mixture.load(tmp_path / "half")
    assert again.weights_.dtype == again.locations_.dtype == np.float64
    np.testing.assert_allclose(again.predict_proba(rows), mixture.predict_proba(rows), atol=0.02)


def test_weights_that_are_rounded_can_be_sampled(tmp_path):
    mixture = HybridMixture(2, max_iter=5, random_state=0).fit(RNG.laplace(size=(300, 3)))
    mixture.weights_ = np.array([0.333331, 0.666662])
    mixture.save(tmp_path / "x")
    assert Mixture.load(tmp_path / "x").sample(5)[0].shape == (5, 3)


def test_a_seed_that_numpy_does_not_take_is_damage(tmp_path):
    HybridMixture(2, max_iter=5, random_state=17).fit(RNG.laplace(size=(300, 3))).save(tmp_path / "x")
    config = tmp_path / "x" / "config.json"
    config.write_text(config.read_text().replace('"random_state": 17', '"random_state": -1'))
    with refuses("damaged"):
        Mixture.load(tmp_path / "x")


@pytest.mark.parametrize("name", ["word_order", "word_hashes", "word_offsets", "words"])
def test_contradictory_tables_of_words_are_damage(tmp_path, name):
    vectors = WordVectors(WORDS, RNG.normal(size=(4, 3)).astype(np.float32))
    tensors = vectors._to_tensors()
    changed = tensors[name].copy()
    changed[[1, 2]] = changed[[2, 1]]
    save_folder(tmp_path / "x", VECTORS_KIND, VectorsConfig(4, 3, "float32"), tensors | {name: changed})
    with refuses("damaged"):
        WordVectors.load(tmp_path / "x")


def test_a_fit_in_the_checkpoint_of_another_process_is_told(holder, tmp_path):
    rows = RNG.laplace(size=(60, 3))
    other = holder(tmp_path / "c")
    mixture = HybridMixture(2, max_iter=3, random_state=0, checkpoint=tmp_path / "c")
    with refuses("in_use"):
        mixture.fit(rows)
    other.communicate("")
    mixture.fit(rows)
    np.testing.assert_array_equal(
        HybridMixture(2, max_iter=3, random_state=0, checkpoint=tmp_path / "c").fit(rows).weights_,
        mixture.weights_,
    )


def test_a_fit_in_the_checkpoint_of_another_thread_is_told(tmp_path):
    begun, go_on = threading.Event(), threading.Event()

    class Rows:
        """Blocks of rows; reading the first one waits."""

        def __iter__(self):
            begun.set()
            go_on.wait(60)
            yield np.random.default_rng(0).laplace(size=(60, 3))

    first = HybridMixture(2, max_iter=3, random_state=0, checkpoint=tmp_path / "c")
    thread = threading.Thread(target=first.fit, args=(Rows(),))
    thread.start()
    assert begun.wait(60)
    with refuses("in_use"):
        HybridMixture(2, max_iter=3, random_state=0, checkpoint=tmp_path / "c").fit(RNG.normal(size=(60, 3)))
    go_on.set()
    thread.join()
    assert hasattr(first, "weights_")


def save_words(folder):
    WordVectors(WORDS, np.eye(4, dtype=np.float32)).save(folder)


def test_a_huge_config_is_refused_before_it_is_read(tmp_path):
    save_words(tmp_path / "x")
    os.truncate(tmp_path / "x" / "config.json", 3 * 2**30)  # sparse: it takes no space
    before = peak_memory()
    with pytest.raises(FishermixError):
        WordVectors.load(tmp_path / "x")
    with pytest.raises(FishermixError):
        save_words(tmp_path / "x")
    assert peak_memory() - before < 2**28


def test_tensors_longer_than_their_header_says_are_refused_before_they_are_hashed(tmp_path):
    save_words(tmp_path / "x")
    [tensors] = (tmp_path / "x").glob("*.safetensors")
    os.truncate(tensors, 40 * 2**30)
    start = time.process_time()
    with pytest.raises(FishermixError):
        load_folder(tmp_path / "x", VECTORS_KIND)
    assert time.process_time() - start < 1


def test_tensors_larger_than_the_memory_are_refused_before_they_are_read(tmp_path):
    save_words(tmp_path / "x")
    [tensors] = (tmp_path / "x").glob("*.safetensors")
    size = 4 * 2**40
    header = {"vectors": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    text = json.dumps(header).encode()
    tensors.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(tensors, 8 + len(text) + size)
    start = time.process_time()
    with pytest.raises(FishermixError):
        load_folder(tmp_path / "x", VECTORS_KIND)
    assert time.process_time() - start < 1


def peak_memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
