"""Look up, cut, save, map, and refuse damaged folders."""

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from fishermix.errors import FishermixError
from fishermix.text.vocabulary import Vocabulary
from fishermix.text.word_vectors import WordVectors
from hypothesis import given
from hypothesis import strategies as st
from refuses import refuses

RNG = np.random.default_rng(0)
MASK = np.array([False, True, True, False, False, False])
WORDS = ["dog", "cat", "car", "naïve", "日本", ""]


@pytest.fixture
def vectors():
    return WordVectors(WORDS, RNG.normal(size=(6, 5)).astype(np.float32))


@given(st.lists(st.text(), unique=True), st.text())
def test_a_vocabulary_is_the_list(words, other):
    packed = Vocabulary.from_words(words)
    assert list(packed) == words
    assert packed.rows(words) == list(range(len(words)))
    assert (other in packed) == (other in words)
    assert packed[-2:] == words[-2:]


def test_a_vocabulary_survives_equal_hashes(monkeypatch):
    monkeypatch.setattr("fishermix.text.vocabulary._hash", lambda word: len(word))
    packed = Vocabulary.from_words(["ab", "cd", "e", "fg"])
    assert packed.rows(["fg", "cd", "e", "zz"]) == [3, 1, 2, -1]
    with refuses("repeated"):
        Vocabulary.from_words(["cd", "ab", "x", "cd"])


def test_lookup(vectors):
    assert "cat" in vectors
    assert "boat" not in vectors
    assert 3 not in vectors
    np.testing.assert_array_equal(vectors["日本"], vectors.vectors[4])
    assert vectors.rows(["car", "boat", "dog"]).tolist() == [2, -1, 0]
    with pytest.raises(KeyError):
        vectors["boat"]


def test_rows_by_number_and_words_by_iteration(vectors):
    for row in (3, -3, np.int64(3)):
        np.testing.assert_array_equal(vectors[row], vectors.vectors[3])
    assert list(vectors) == WORDS
    for row in (6, -7):
        with pytest.raises(IndexError):
            vectors[row]


def test_cutting_gives_vectors_again(vectors):
    for part in (
        vectors[1:3],
        vectors[[1, 2]],
        vectors[np.array([1, 2])],
        vectors[MASK],
    ):
        assert list(part.words) == ["cat", "car"]
        np.testing.assert_array_equal(part.vectors, vectors.vectors[1:3])


def test_most_similar_is_the_sorted_cosine(vectors):
    unit = vectors.vectors / np.linalg.norm(vectors.vectors, axis=1, keepdims=True)
    cosines = unit @ unit[0]
    expected = [i for i in np.argsort(-cosines) if i != 0]
    found = vectors.most_similar("dog", n=100)
    assert [word for word, _ in found] == [WORDS[i] for i in expected]
    np.testing.assert_allclose([cosine for _, cosine in found], cosines[expected], rtol=1e-5)
    assert vectors.most_similar(vectors["dog"], n=1)[0][0] == "dog"
    for bad, code in (("boat", "unknown_word"), (np.ones(3), "wrong_shape")):
        with refuses(code):
            vectors.most_similar(bad)


@pytest.mark.parametrize(
    ("words", "shape", "code"),
    [
        (["a"], (2, 3), "wrong_shape"),
        (["a", "a"], (2, 3), "repeated"),
        (["a"], (3,), "wrong_shape"),
    ],
)
def test_words_and_vectors_have_to_fit(words, shape, code):
    with refuses(code):
        WordVectors(words, np.zeros(shape))


@pytest.mark.parametrize("dtype", [None, "float32", "float16"])
def test_saved_and_loaded_are_the_same(vectors, tmp_path, dtype):
    vectors.save(tmp_path / "out", dtype=dtype)
    loaded = WordVectors.load(tmp_path / "out")
    assert list(loaded.words) == WORDS
    assert isinstance(loaded.vectors, np.memmap)
    np.testing.assert_array_equal(loaded.vectors, vectors.vectors.astype(dtype or "float32"))
    assert loaded["cat"].dtype == np.float32
    loaded.save(tmp_path / "out")
    assert WordVectors.load(tmp_path / "out").rows(WORDS).tolist() == list(range(6))


def test_limit_and_vocabulary_of_a_folder(vectors, tmp_path):
    vectors.save(tmp_path / "out")
    assert list(WordVectors.load(tmp_path / "out", limit=2).words) == ["dog", "cat"]
    part = WordVectors.load(tmp_path / "out", vocabulary=["日本", "dog", "boat"])
    assert list(part.words) == ["dog", "日本"]


def test_float16_refuses_large_numbers(tmp_path):
    with refuses("not_finite"):
        WordVectors(["a"], [[1e6]]).save(tmp_path / "out", dtype="float16")


def test_no_words_at_all(tmp_path):
    WordVectors([], np.zeros((0, 3))).save(tmp_path / "out")
    assert len(WordVectors.load(tmp_path / "out")) == 0


def test_damaged_folders(vectors, tmp_path):
    folder = tmp_path / "out"
    vectors.save(folder)
    (tensors,) = folder.glob("*.safetensors")
    content = bytearray(tensors.read_bytes())
    tensors.write_bytes(content[:-20])
    with refuses("damaged"):
        WordVectors.load(folder)
    tensors.write_bytes(b"\xff" * 100)
    with refuses("damaged"):
        WordVectors.load(folder)
    with refuses("not_found"):
        WordVectors.load(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "version": 99}))
    with refuses("newer_version"):
        WordVectors.load(folder)


@pytest.mark.slow
def test_opening_reads_next_to_nothing(tmp_path):
    """200,000 x 300 (240 MB): opening and one lookup may not bring the vectors into memory."""
    n = 200_000
    WordVectors((f"w{i}" for i in range(n)), np.zeros((n, 300), np.float32)).save(tmp_path / "out")
    script = (
        "import sys, psutil; from fishermix.text.word_vectors import WordVectors; p = psutil.Process();"
        "before = p.memory_info().rss; v = WordVectors.load(sys.argv[1]); v['w777'];"
        "print(p.memory_info().rss - before)"
    )
    grown = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "out"], capture_output=True, text=True, check=True
    )
    assert int(grown.stdout) < 20e6


def test_the_real_vectors(word2vec):
    vectors = WordVectors.load(word2vec)
    assert vectors.vectors.shape == (26_423, 300)
    assert vectors.most_similar("dog", n=1)[0][0] == "dogs"
    np.testing.assert_allclose(np.linalg.norm(vectors.vectors, axis=1), 1, atol=1e-5)


def test_vectors_with_an_index_of_words_are_taken_as_they_are():
    """As gensim's KeyedVectors; tests/peers has the real ones."""
    keyed = SimpleNamespace(index_to_key=["dog", "cat"], vectors=np.eye(2, 3, dtype=np.float32))
    ours = WordVectors(keyed)
    assert list(ours) == ["dog", "cat"]
    np.testing.assert_array_equal(ours.vectors, keyed.vectors)
    with pytest.raises(FishermixError):
        WordVectors(["dog", "cat"])


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_vector_with_a_number_that_is_not_finite_is_refused_with_its_word(number):
    with pytest.raises(FishermixError) as raised:
        WordVectors(["good", "bad"], [[1, 2], [number, 1]])
    assert raised.value.code == "not_finite"
    assert "bad" in str(raised.value)
