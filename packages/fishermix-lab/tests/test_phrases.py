"""Phrases of captions, and the precision of the first five photos, against twenty naive lines."""

from __future__ import annotations

import numpy as np
import pytest
from fishermix_lab.datasets.dataset import Dataset
from fishermix_lab.phrases import (
    AT_NO_END,
    FIRST,
    average_captions,
    find_phrases,
    list_phrases,
    measure_phrases,
)
from fishermix_lab.training import image_features
from fishermix_photos import ImageTextModel
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

COLORS = {"red": (220, 20, 20), "green": (20, 160, 20), "blue": (20, 20, 220), "yellow": (240, 230, 20)}


def test_phrases_have_no_stop_word_at_their_ends():
    assert list(find_phrases("Two dogs run on the beach")) == [
        *("two", "two dogs", "two dogs run", "dogs", "dogs run", "run", "beach")
    ]


@given(st.lists(st.sampled_from(["red", "car", "on", "the", "two"]), max_size=9))
def test_phrases_are_the_short_runs_of_words(words):
    runs = [words[a:b] for a in range(len(words)) for b in range(a + 1, min(a + 3, len(words)) + 1)]
    wanted = [" ".join(run) for run in runs if run[0] not in AT_NO_END and run[-1] not in AT_NO_END]
    assert list(find_phrases(" ".join(words))) == wanted


def test_a_photo_has_a_phrase_if_one_of_its_captions_does():
    sentences = ["a red car", "a car", "a red bus", "the red car", "a bus"]
    phrases, has = list_phrases(sentences, np.array([0, 0, 1, 2, 3]), 4, 2, 3)
    found = {phrase: np.flatnonzero(column).tolist() for phrase, column in zip(phrases, has.toarray().T)}
    assert found == {"red": [0, 1, 2], "red car": [0, 2], "car": [0, 2], "bus": [1, 3]}


def test_a_phrase_leads_from_all_captions_to_those_that_contain_it():
    sentences = ["a red car", "the red car", "a red bus", "a bus"]
    embeddings = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    found = average_captions(sentences, embeddings, 2, 0.5)
    assert set(found.phrases) == {"red", "red car", "car", "bus"}
    for phrase, direction in zip(found.phrases, found.directions, strict=True):
        with_it = [row for row, text in enumerate(sentences) if phrase in find_phrases(text)]
        naive = embeddings[with_it].mean(axis=0) - embeddings.mean(axis=0)
        np.testing.assert_allclose(direction, naive / np.linalg.norm(naive), atol=1e-5)


@pytest.mark.slow
def test_the_precision_of_the_first_five(tmp_path):
    random, paths, sentences = np.random.default_rng(0), [], []
    for number in range(96):
        word = random.choice(list(COLORS), p=[0.08, 0.08, 0.08, 0.76])
        pixels = np.clip(random.normal(COLORS[word], 30, (40, 40, 3)), 0, 255).astype(np.uint8)
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray(pixels).save(paths[-1])
        sentences.append(f"a {word} wall")
    photos = [path.name for path in paths]
    dataset = Dataset("walls", photos, paths, sentences, np.arange(96), np.full(96, "test"))
    model = ImageTextModel.load()
    measured = measure_phrases(model, dataset, tmp_path / "work")

    _, features = image_features(dataset, model.image_encoder, tmp_path / "work")
    space, right = model.joint_space, []
    embeddings = space.csls_left(space.embed_left(features))
    asked = [
        phrase
        for phrase in sorted({phrase for text in sentences for phrase in find_phrases(text)})
        if 6 <= sum(phrase in find_phrases(text) for text in sentences) <= 8
    ]
    for phrase in asked:
        scores = embeddings @ space.csls_right(model.encode_query(phrase)[0][None])[0]
        best = np.argsort(-scores)[:FIRST]
        right.append(np.mean([phrase in find_phrases(sentences[photo]) for photo in best]))
    assert measured.n_phrases == len(asked) > 0
    assert abs(measured.precision - np.mean(right)) < 1e-9
