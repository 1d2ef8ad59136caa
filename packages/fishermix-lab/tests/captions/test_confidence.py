"""When a written sentence counts as right, and the confidence that is fitted to that."""

import numpy as np
import pytest
from fishermix_lab.captions.confidence import fit_confidence, is_right


def test_a_sentence_is_right_if_people_used_half_of_its_content_words():
    people = ["Two dogs run on the beach.", "Dogs playing"]
    assert is_right("a dogs run", people)
    assert is_right("dogs on a street", people)
    assert not is_right("a cat sleeps on the beach", people)
    assert not is_right("the man and the car", people)


def test_confidence_is_calibrated_and_random_captions_are_unsure():
    """Photos whose true probability of a right sentence is a logistic function of the cosine."""
    rng = np.random.default_rng(0)
    cosines, agreements = rng.uniform(0, 1, 20_000), rng.uniform(0, 1, 20_000)
    right = rng.random(20_000) < 1 / (1 + np.exp(2 - 6 * cosines))
    random_cosines = rng.uniform(-0.3, 0.4, 20_000)
    found = fit_confidence(cosines, agreements, right, random_cosines)
    assert (found.intercept, found.cosine) == pytest.approx((-2, 6), abs=0.3)
    assert found.agreement == pytest.approx(0, abs=0.3)
    unsure = [found.estimate(c, a) < found.threshold for c, a in zip(random_cosines, agreements)]
    assert np.mean(unsure) == pytest.approx(0.95, abs=0.005)


@pytest.mark.parametrize("right", [True, False])
def test_confidence_of_photos_that_are_all_alike(right):
    found = fit_confidence(np.ones(5), np.ones(5), np.full(5, right), np.zeros(5))
    assert (found.estimate(1.0, 1.0) > 0.9) == right
