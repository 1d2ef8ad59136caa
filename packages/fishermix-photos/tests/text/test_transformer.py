"""The sentence transformer in the package, next to Fisher vectors."""

import pickle
import shutil

import numpy as np
import pytest
from fishermix import HybridMixture, SentenceEncoder, WordVectors
from fishermix.saved import sha256_of_file
from fishermix_photos.model.network import open_session
from fishermix_photos.model.transformer import (
    DEFAULT_TRANSFORMER,
    GRAPH,
    SHIPPED_TRANSFORMERS,
    TOKENIZER,
    SentenceTransformer,
)
from refuses import refuses
from tokenizers import Tokenizer

SENTENCES = ["A dog runs on the beach.", "two dogs", "the beach on a dog runs", "bycicle", "x " * 400]


@pytest.fixture(scope="module")
def transformer():
    return SentenceTransformer.find(DEFAULT_TRANSFORMER)


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    words = ["dog", "dogs", "beach", "runs", "two", *(f"word{n}" for n in range(95))]
    return WordVectors(words, rng.laplace(size=(100, 4)).astype(np.float32))


def test_the_graph_is_the_published_file():
    digest = "afdb6f1a0e45b715d0bb9b11772f032c399babd23bfc31fed1c170afc848bdb1"
    assert sha256_of_file(SHIPPED_TRANSFORMERS / DEFAULT_TRANSFORMER / GRAPH) == digest


def test_a_vector_is_the_normalized_mean_of_the_token_vectors(transformer):
    tokenizer = Tokenizer.from_file(str(SHIPPED_TRANSFORMERS / DEFAULT_TRANSFORMER / TOKENIZER))
    tokenizer.no_padding()
    session = open_session(SHIPPED_TRANSFORMERS / DEFAULT_TRANSFORMER / GRAPH)
    for sentence, vector in zip(SENTENCES[:4], transformer.encode(SENTENCES[:4])):
        ids = np.array([tokenizer.encode(sentence).ids])
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        (tokens,) = session.run(None, inputs)
        mean = tokens[0].mean(axis=0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)


def test_a_vector_does_not_depend_on_the_other_sentences(transformer):
    together = transformer.encode(SENTENCES)
    alone = np.vstack([transformer.encode([sentence]) for sentence in SENTENCES])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)


def test_it_knows_meaning_order_and_misspelled_words(transformer):
    dog, hound, plane, chases, chased, bicycle, typo = transformer.encode(
        [
            "a dog runs on the beach",
            "a puppy is running along the seashore",
            "an airplane in the sky",
            "a dog chases a cat",
            "a cat chases a dog",
            "a man rides a bicycle",
            "a man rides a bycicle",
        ]
    )
    assert dog @ hound > dog @ plane + 0.3
    assert chases @ chased < 0.99
    assert bicycle @ typo > bicycle @ dog


def test_next_to_fisher_vectors(transformer, vectors):
    mixture = HybridMixture(3, random_state=0, max_iter=5, tol=0).fit(vectors.vectors)
    plain = SentenceEncoder.from_fitted(vectors, mixtures=[mixture])
    both = SentenceEncoder.from_fitted(
        vectors, mixtures=[mixture], transformer=transformer, transformer_weight=0.5
    )
    sentences = ["two dogs", "zorblax", "!!!"]
    with pytest.warns(UserWarning, match="1 of 3 sentences"):
        found = both.transform(sentences)
    with pytest.warns(UserWarning, match="2 of 3 sentences"):
        fisher = plain.transform(sentences)
    assert both.n_features == plain.n_features + 384 == len(both.get_feature_names_out())
    np.testing.assert_array_equal(found[:, :-384], fisher)
    np.testing.assert_array_equal(found[:2, -384:], 0.5 * transformer.encode(sentences[:2]))
    assert found[1].any()
    assert not found[2].any()
    tokens = both.transform([["two", "dogs"]])
    np.testing.assert_array_equal(tokens[0, -384:], 0.5 * transformer.encode(["two dogs"])[0])
    blocks = np.vstack(list(both.blocks(["two dogs", "a dog", "beach"], rows=2)))
    np.testing.assert_array_equal(blocks, both.transform(["two dogs", "a dog", "beach"]))
    same = pickle.loads(pickle.dumps(both)).transform(["two dogs"])
    np.testing.assert_array_equal(same[0], found[0])


def test_next_to_the_mean_of_the_words(transformer, vectors):
    found = SentenceEncoder(vectors, transformer=transformer).transform(["two dogs"])
    np.testing.assert_allclose(found[0, :4], (vectors["two"] + vectors["dogs"]) / 2, rtol=1e-6)
    np.testing.assert_array_equal(found[0, 4:], transformer.encode(["two dogs"])[0])


def test_another_one_is_found_by_its_folder_or_by_its_name(transformer, tmp_path, monkeypatch):
    monkeypatch.setenv("FISHERMIX_HOME", str(tmp_path))
    mine = tmp_path / "transformers" / "mine"
    shutil.copytree(SHIPPED_TRANSFORMERS / DEFAULT_TRANSFORMER, mine)
    for name in (mine, "mine"):
        found = SentenceTransformer.find(name)
        assert found.key == transformer.key
        np.testing.assert_array_equal(found.encode(["two dogs"]), transformer.encode(["two dogs"]))
    with refuses("not_found"):
        SentenceTransformer.find("yours")
    (mine / TOKENIZER).unlink()
    with refuses("not_found"):
        SentenceTransformer.find("mine")


@pytest.mark.parametrize("name", [GRAPH, TOKENIZER])
def test_damaged_files_are_named(tmp_path, name):
    shutil.copytree(SHIPPED_TRANSFORMERS / DEFAULT_TRANSFORMER, tmp_path / "mine")
    (tmp_path / "mine" / name).write_bytes(b"damaged")
    with refuses("damaged"):
        SentenceTransformer.find(tmp_path / "mine").encode(["two dogs"])
