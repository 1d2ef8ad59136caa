"""Suggestions are short queries that many photos answer, each about something else."""

from types import SimpleNamespace

import numpy as np
import pytest
from fishermix_photos.model.calibration import Calibration
from fishermix_photos.search.suggestions import LONGEST, suggest_queries

SENTENCES = [
    "a red wall",
    "a red car",
    "a blue sea",
    "a green hill",
    f"a yellow {'very ' * LONGEST}house",
    "sky",
]
STEEP = Calibration(model_key="", intercept=-10, score=20, deviations=0, log_photos=0, log_words=0)


def make_photos(**likely):
    """100 photos; for each color, how many show it."""
    photos, first = np.zeros((100, 7), np.float32), 0
    for color, number in likely.items():
        for row, sentence in enumerate(SENTENCES):
            if color in sentence:
                photos[first : first + number, row] = 0.9
        first += number
    return photos


@pytest.fixture
def pool():
    return SimpleNamespace(sentences=SENTENCES, vectors=np.eye(7, dtype=np.float32)[:6])


def test_the_sentence_of_most_photos_is_first_and_each_is_about_something_else(pool):
    photos = make_photos(blue=10, red=20, green=2, yellow=20, sky=30)
    assert suggest_queries(pool, photos, 100, STEEP) == ["a red wall", "a blue sea"]


def test_photos_count_for_one_suggestion(pool):
    photos = make_photos(red=20, blue=10)
    photos[:10, 3] = 0.9  # ten of the red ones show a green hill, and nothing else does
    photos[50:52, 3] = 0.9
    assert suggest_queries(pool, photos, 100, STEEP) == ["a red wall", "a blue sea"]
    photos[52, 3] = 0.9
    assert suggest_queries(pool, photos, 100, STEEP) == ["a red wall", "a blue sea", "a green hill"]


def test_nothing_is_suggested_without_photos(pool):
    assert suggest_queries(pool, np.empty((0, 7), np.float32), 0, STEEP) == []
    assert suggest_queries(pool, make_photos(), 100, STEEP) == []
