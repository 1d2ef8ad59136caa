import numpy as np
import toy
from fishermix_photos.model.captioner.vocabulary import (
    IGNORED,
    LONGEST,
    CaptionSet,
    CaptionVocabulary,
    WordTable,
)
from hypothesis import given
from hypothesis import strategies as st
from refuses import refuses

SENTENCES = [["a", "dog", "runs"], ["a", "zebra", "runs"], ["a", "dog"]]


def table() -> WordTable:
    return WordTable(
        SENTENCES, CaptionVocabulary.from_sentences(SENTENCES, 2), toy.encode_text, toy.DIMENSION
    )


def test_a_rare_word_enters_but_is_never_a_target():
    words = table()
    batch = words.make_batch(SENTENCES[1:], np.array([4, 7]))
    row = words.row
    assert words.vocabulary.words == ["ENDSENT", "a", "dog", "runs"]
    assert batch.images.tolist() == [4, 7]
    assert batch.inputs.T.tolist() == [[row["a"], row["zebra"], row["runs"]], [row["a"], row["dog"], 0]]
    assert batch.targets.T.tolist() == [
        [row["a"], IGNORED, row["runs"], 0],
        [row["a"], row["dog"], 0, IGNORED],
    ]
    assert not words.points[0].any()


def test_a_cut_sentence_has_no_end():
    batch = table().make_batch([["dog"] * (LONGEST + 5)], np.array([0]))
    assert batch.inputs.shape == (LONGEST, 1)
    assert batch.targets[-1, 0] == IGNORED


@given(st.integers(1, 40), st.integers(1, 50), st.one_of(st.none(), st.integers(0, 100)))
def test_batches_hold_every_sentence_once(n, size, seed):
    rng = np.random.default_rng(n)
    sentences = [" ".join(["dog"] * rng.integers(1, 9)) for _ in range(n)]
    captions = CaptionSet(np.zeros((n, 4)), sentences, np.arange(n))
    order = None if seed is None else np.random.default_rng(seed)
    batches = list(table().make_batches(captions, size, order))
    assert sorted(np.concatenate([batch.images for batch in batches])) == list(range(n))
    for batch in batches:
        lengths = (batch.targets == table().row["dog"]).sum(axis=0)
        assert lengths.tolist() == [len(sentences[image].split()) for image in batch.images]


def test_references_are_grouped_by_image():
    captions = CaptionSet(np.zeros((2, 4)), ["One dog.", "A cat", "Dogs"], np.array([1, 0, 1]))
    assert captions.references() == [["A cat"], ["One dog.", "Dogs"]]
    assert captions.words[0] == ["one", "dog"]


def test_empty_and_unmatched_sets_are_refused():
    with refuses("too_few"):
        CaptionSet(np.zeros((2, 4)), [], np.array([], int))
    with refuses("wrong_shape"):
        CaptionSet(np.zeros((2, 4)), ["a"], np.array([0, 1]))
