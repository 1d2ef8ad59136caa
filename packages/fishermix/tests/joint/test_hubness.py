"""The score is the cosine less the hubness, however it is computed, and hubs no longer displace answers."""

import numpy as np
import pytest
from fishermix.joint.hubness import HUBNESS_KIND, HubnessCorrection
from fishermix.joint.ranks import recall_sum
from fishermix.saved import load_folder
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from refuses import refuses


def unit(points):
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)


def random_points(seed, n, d=8):
    return unit(np.random.default_rng(seed).normal(size=(n, d)))


def naive(points, bank, k):
    """Mean of the k largest cosines with the bank, one row at a time."""
    return np.array([np.mean(sorted(float(b @ point) for b in bank)[-k:]) for point in points])


@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(1, 12), st.integers(1, 40), st.integers(1, 40))
def test_the_score_is_the_cosine_less_half_of_both_hubnesses(seed, k, m, n):
    images, sentences = random_points(seed, 5), random_points(seed + 1, 7)
    bank_images, bank_sentences = random_points(seed + 2, m), random_points(seed + 3, n)
    hubness = HubnessCorrection.from_embeddings(bank_images, bank_sentences, k)
    scores = hubness.csls_right(sentences) @ hubness.csls_left(images).T
    around_images = naive(images, bank_sentences, k) - naive(bank_images, bank_sentences, k).mean()
    around_sentences = naive(sentences, bank_images, k) - naive(bank_sentences, bank_images, k).mean()
    expected = sentences @ images.T - around_images / 2 - around_sentences[:, None] / 2
    np.testing.assert_allclose(scores, expected, atol=0.02)  # the banks are kept in bytes


def test_over_the_banks_the_hubness_is_zero_on_average():
    hubness = HubnessCorrection.from_embeddings(random_points(0, 50), random_points(1, 80), 5)
    assert hubness.of_left(hubness.left_bank).mean() == pytest.approx(0, abs=1e-6)
    assert hubness.of_right(hubness.right_bank).mean() == pytest.approx(0, abs=1e-6)


def test_a_sentence_without_a_known_word_matches_nothing_and_joins_no_bank():
    sentences = random_points(0, 6)
    sentences[2] = 0
    hubness = HubnessCorrection.from_embeddings(random_points(1, 4), sentences, 2)
    assert len(hubness.right) == 5
    scores = hubness.csls_right(sentences) @ hubness.csls_left(random_points(2, 3)).T
    assert not scores[2].any()
    assert scores[[0, 1, 3, 4, 5]].all()


@given(hnp.arrays(np.float32, (4, 6), elements=st.floats(-1, 1, width=32)))
def test_bytes_keep_the_direction(points):
    points = points[np.abs(points).max(axis=1) > 1e-3]
    if not len(points):
        return
    kept = HubnessCorrection.from_embeddings(unit(points), unit(points), 1).left_bank
    assert (kept * unit(points)).sum(axis=1).min() > 0.999


def test_it_takes_hubs_out_of_the_way():
    """Images that lean to the mean of all sentences push in front of others by the cosine alone."""
    rng = np.random.default_rng(0)
    d, n, direction = 20, 200, np.full(20, 1.0)
    meaning, train_meaning = rng.normal(size=(n, d)), rng.normal(size=(500, d))

    def points(of, noise):
        lean = rng.uniform(0, 3, (len(of), 1)) * (rng.random((len(of), 1)) < 0.3)
        return unit(of + noise * rng.normal(size=of.shape) + lean * direction)

    images, sentences = points(meaning, 1.0), unit(meaning + rng.normal(size=(n, d)) + 0.5 * direction)
    banks = points(train_meaning, 1.0), unit(train_meaning + rng.normal(size=(500, d)) + 0.5 * direction)
    hubness = HubnessCorrection.from_embeddings(*banks, 10)
    plain = recall_sum(images, sentences, np.arange(n))
    corrections = hubness.of_left(images), hubness.of_right(sentences)
    assert recall_sum(images, sentences, np.arange(n), *corrections) > plain + 10


def test_saved_and_loaded_it_is_the_same(tmp_path):
    hubness = HubnessCorrection.from_embeddings(random_points(0, 30), random_points(1, 40), 3)
    hubness.save(tmp_path / "c")
    again = HubnessCorrection.from_saved(load_folder(tmp_path / "c", HUBNESS_KIND), 8)
    images = random_points(2, 5)
    np.testing.assert_array_equal(again.csls_left(images), hubness.csls_left(images))
    assert again.key == hubness.key
    with refuses("damaged"):
        HubnessCorrection.from_saved(load_folder(tmp_path / "c", HUBNESS_KIND), 9)
    config = tmp_path / "c" / "config.json"
    config.write_text(config.read_text().replace('"neighbors": 3', '"neighbors": "many"'))
    with refuses("damaged"):
        HubnessCorrection.from_saved(load_folder(tmp_path / "c", HUBNESS_KIND), 8)
