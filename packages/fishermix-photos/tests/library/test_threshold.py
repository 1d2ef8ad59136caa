"""The threshold of queries without probabilities keeps what it promises."""

import numpy as np
import pytest
from fishermix_photos.search.calibration import estimate_threshold
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize("n", [50, 1000, 20_000])
def test_hardly_anything_unrelated_passes_the_threshold(n):
    rng = np.random.default_rng(0)
    passed = [
        np.sum(scores >= estimate_threshold(scores, scores.max()))
        for scores in rng.normal(0.1, 0.05, size=(40, n))
    ]
    assert 0.2 < np.mean(passed) < 3


def test_matches_pass_the_cut_and_do_not_raise_it():
    rng = np.random.default_rng(1)
    background = rng.normal(0, 0.05, size=1000)
    matches = rng.normal(0.5, 0.05, size=150)
    threshold = estimate_threshold(np.concatenate([background, matches]), matches.max())
    assert np.mean(matches >= threshold) > 0.99
    assert np.mean(background >= threshold) < 0.01


@settings(deadline=None)
@given(st.floats(0.01, 10), st.floats(-5, 5))
def test_the_threshold_moves_with_the_scores(scale, shift):
    scores = np.random.default_rng(2).normal(size=200)
    for best in (0.5, 9.0):
        moved = estimate_threshold(scale * scores + shift, scale * best + shift)
        assert moved == pytest.approx(scale * estimate_threshold(scores, best) + shift, abs=1e-9)


def test_a_photo_that_stands_far_out_leaves_the_half_matches_behind():
    scores = np.random.default_rng(3).normal(0, 0.05, size=1000)
    assert estimate_threshold(scores, 0.2) < 0.2
    assert estimate_threshold(scores, 0.9) == pytest.approx(0.45, abs=0.01)


def test_a_handful_of_photos_has_no_threshold():
    assert estimate_threshold(np.array([0.1, 0.2, 0.9]), 0.9) == -np.inf
