"""The vectors of a sentence transformer on disk."""

import sqlite3
import stat

import numpy as np
import pytest
from fishermix_lab.stages import SENTENCES_FILE, CachedTransformer
from fishermix_photos.model.transformer import DEFAULT_TRANSFORMER, SentenceTransformer
from refuses import refuses

SENTENCES = ["a dog runs on the beach", "two dogs", "two dogs", "caf\u00e9 \ud800", ""]


class Counting(SentenceTransformer):
    """The packaged transformer; remembers what it was asked to encode."""

    def __init__(self, folder):
        super().__init__(folder)
        self.asked = []

    def encode(self, sentences):
        self.asked += sentences
        return super().encode([text.encode("utf8", "replace").decode() for text in sentences])


@pytest.fixture
def transformer():
    return Counting(SentenceTransformer.find(DEFAULT_TRANSFORMER).folder)


def test_cached_vectors_are_the_bits_of_the_transformer(transformer, tmp_path):
    cached = CachedTransformer(transformer, tmp_path)
    expected = transformer.encode(SENTENCES)
    transformer.asked.clear()
    np.testing.assert_array_equal(cached.encode(SENTENCES), expected)
    assert transformer.asked == list(dict.fromkeys(SENTENCES))  # a repeated sentence runs once
    assert (cached.n_features, cached.key) == (transformer.n_features, transformer.key)
    assert stat.S_IMODE((tmp_path / SENTENCES_FILE).stat().st_mode) == 0o600


@pytest.mark.slow
def test_a_second_run_encodes_only_what_is_new(transformer, tmp_path):
    first = CachedTransformer(transformer, tmp_path).encode(SENTENCES)
    transformer.asked.clear()
    again = CachedTransformer(transformer, tmp_path).encode([*SENTENCES[::-1], "a red car"])
    np.testing.assert_array_equal(again[:-1], first[::-1])
    assert transformer.asked == ["a red car"]
    assert CachedTransformer(transformer, tmp_path).encode([]).shape == (0, transformer.n_features)


def test_vectors_of_another_transformer_are_not_used(transformer, tmp_path):
    CachedTransformer(transformer, tmp_path).encode(["two dogs"])
    with sqlite3.connect(tmp_path / SENTENCES_FILE) as database:
        database.execute("UPDATE vectors SET encoder = 'another'")
    transformer.asked.clear()
    CachedTransformer(transformer, tmp_path).encode(["two dogs"])
    assert transformer.asked == ["two dogs"]


def test_a_damaged_file_is_reported(transformer, tmp_path):
    cached = CachedTransformer(transformer, tmp_path)
    cached.encode(["two dogs"])
    with sqlite3.connect(tmp_path / SENTENCES_FILE) as database:
        database.execute("UPDATE vectors SET vector = x'00'")
    with refuses("wrong_folder"):
        cached.encode(["two dogs"])
    (tmp_path / SENTENCES_FILE).write_bytes(b"not a database" * 1000)
    with refuses("wrong_folder"):
        cached.encode(["two dogs"])
