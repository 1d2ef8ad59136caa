"""The sentences that come with a model."""

import numpy as np
import pytest
from fishermix_photos.model.sentences import PooledSentences, SentencePool
from refuses import refuses
from tiny_model import NAMES, TinyModel


@pytest.fixture
def pool():
    model = TinyModel.load()
    sentences = [f"a {name} thing" for name in NAMES]
    return PooledSentences(sentences, model.encode_text(sentences), "our own")


def test_a_saved_pool_has_the_directions_of_its_points(pool, tmp_path):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(50, 16)).astype(np.float32)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    sentences = [f"sentence {n}" for n in range(50)]
    PooledSentences(sentences, points, "our own").save(tmp_path / "pool", "key")
    again = PooledSentences.load(tmp_path / "pool", "key", 16)
    assert (list(again.sentences), again.source) == (sentences, "our own")
    assert (again.points * points).sum(axis=1).min() > 0.9999
    np.testing.assert_allclose(np.linalg.norm(again.points, axis=1), 1, atol=1e-6)


def test_a_pool_belongs_to_one_model(pool, tmp_path):
    pool.save(tmp_path / "pool", "tiny")
    with refuses("wrong_sentences"):
        PooledSentences.load(tmp_path / "pool", "another", len(NAMES))
    with refuses("damaged"):
        PooledSentences.load(tmp_path / "pool", "tiny", len(NAMES) + 1)


def test_annotation_ranks_the_pool_unless_it_is_given_sentences(pool):
    model = TinyModel.load()
    assert len(SentencePool(model, ["a red thing"]).sentences) == 1
    red = model.encode_text(["red"])
    model.pool = pool
    ((best, score), *_), = SentencePool(model).rank_for_photos(red, 3)  # fmt: skip
    assert best == "a red thing"
    assert score == pytest.approx(1, abs=1e-4)
    assert SentencePool(model, ["a blue thing"]).sentences == ["a blue thing"]
