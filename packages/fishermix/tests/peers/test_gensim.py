"""gensim, if it is installed: the word2vec files it writes are read with the same vectors."""

import numpy as np
import pytest
from fishermix import WordVectors
from numpy.testing import assert_array_equal

gensim = pytest.importorskip("gensim.models", reason="gensim is not installed")


def test_keyed_vectors_are_word_vectors():
    theirs = gensim.KeyedVectors(4)
    theirs.add_vectors(["dog", "New_York"], np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32))
    ours = WordVectors(theirs)
    assert list(ours.words) == ["dog", "New_York"]
    assert_array_equal(ours["New_York"], theirs["New_York"])


@pytest.mark.parametrize("binary", [False, True])
def test_files_of_gensim(tmp_path, binary):
    theirs = gensim.KeyedVectors(4)
    words = ["dog", "New_York", "naïve"]
    theirs.add_vectors(words, np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32))
    theirs.save_word2vec_format(tmp_path / "vectors", binary=binary)
    ours = WordVectors.load(tmp_path / "vectors")
    assert list(ours.words) == words
    assert_array_equal(ours.vectors, theirs.vectors)
