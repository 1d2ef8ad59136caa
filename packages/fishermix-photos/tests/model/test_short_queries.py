"""What completes short queries."""

import numpy as np
import pytest
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.model.phrases import Phrases, find_phrase, split_query
from hypothesis import given
from hypothesis import strategies as st
from refuses import refuses


@pytest.fixture
def phrases():
    directions = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]], np.float32)
    return Phrases(["red car", "two dogs", "blue", "bus"], directions, weight=0.5)


@pytest.mark.parametrize("query", ["red car", "a red car", "The red car on"])
def test_a_phrase_moves_toward_its_captions(phrases, query):
    point = np.array([0.6, 0, 0.8], np.float32)
    moved = np.array([0.6, 0.5, 0.8]) / np.sqrt(0.36 + 0.25 + 0.64)
    np.testing.assert_allclose(phrases.complete(split_query(query), point), moved, atol=1e-6)


@pytest.mark.parametrize("query", ["blue bus", "a bus on the blue", "bus of blue"])
def test_a_phrase_of_few_captions_has_the_directions_of_its_words(phrases, query):
    point = np.array([0.0, 0, 1], np.float32)
    moved = np.array([0.5 / np.sqrt(2), 0.5 / np.sqrt(2), 1])
    expected = moved / np.linalg.norm(moved) if len(find_phrase(query.split())) <= 3 else point
    np.testing.assert_allclose(phrases.complete(split_query(query), point), expected, atol=1e-6)


@pytest.mark.parametrize("query", ["car", "blue car", "old red car", "red cars", "car red", "a", ""])
def test_other_queries_stay_as_they_are(phrases, query):
    point = np.array([0.6, 0, 0.8], np.float32)
    assert phrases.complete(split_query(query), point) is point


def test_a_query_without_a_known_word_stays_zero(phrases):
    assert not phrases.complete(["two", "dogs"], np.zeros(3, np.float32)).any()


@given(st.lists(st.sampled_from(["the", "of", "two", "bowl", "soup"]), max_size=6))
def test_only_words_at_the_ends_are_dropped(words):
    found = find_phrase(words)
    assert found == [] or {found[0], found[-1]} <= {"two", "bowl", "soup"}
    starts = [start for start in range(len(words) + 1) if words[start : start + len(found)] == found]
    assert starts
    assert sum(word in {"two", "bowl", "soup"} for word in words) == sum(
        word in {"two", "bowl", "soup"} for word in found
    )


def test_saved_phrases_have_the_same_directions(tmp_path):
    directions = np.random.default_rng(0).normal(size=(20, 16)).astype(np.float32)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    names = [f"phrase {number}" for number in range(20)]
    Phrases(names, directions, 0.7).save(tmp_path / "phrases", "key")
    again = Phrases.load(tmp_path / "phrases", "key", 16)
    assert (list(again.phrases), again.weight) == (names, 0.7)
    assert (again.directions * directions).sum(axis=1).min() > 0.9999
    with refuses("wrong_sentences"):
        Phrases.load(tmp_path / "phrases", "another key", 16)
    with refuses("damaged"):
        Phrases.load(tmp_path / "phrases", "key", 17)


@pytest.mark.slow
def test_a_query_alone_has_the_point_that_it_has_among_others():
    model = ImageTextModel.load()
    queries = ["A girl swings the club .", "red jacket", "the Beach", "a kayak", "Zorblax!"]
    alone = np.stack([model.encode_query(query)[0] for query in queries])
    np.testing.assert_allclose(alone, model.encode_queries(queries), atol=1e-5)
    longer = ["A girl swings the club ."]  # is not completed
    np.testing.assert_allclose(alone[:1], model.encode_text(longer), atol=1e-5)
    assert np.abs(alone[1] - model.encode_text(["red jacket"])[0]).max() > 0.01
