import subprocess
import sys

import numpy as np
import pytest
import toy
from fishermix.errors import FishermixError
from fishermix_photos.model.captioner.vocabulary import END, CaptionVocabulary, draw_stand_in, encode_words
from refuses import refuses

SENTENCES = [["a", "dog", "runs"], ["a", "cat"], ["a", "dog", "sleeps"]]


def test_words_by_falling_count_then_abc():
    assert CaptionVocabulary.from_sentences(SENTENCES, 1).words == [END, "a", "dog", "cat", "runs", "sleeps"]
    assert CaptionVocabulary.from_sentences(SENTENCES, 2).words == [END, "a", "dog"]


def test_no_word_often_enough():
    with refuses("too_few"):
        CaptionVocabulary.from_sentences(SENTENCES, 4)


@pytest.mark.parametrize("words", [[], ["a", END], [END, "a", "a"]])
def test_a_damaged_vocabulary_is_refused(words):
    with pytest.raises(FishermixError, match=END):
        CaptionVocabulary(words)


def test_stand_in_is_a_unit_vector_that_depends_on_the_word_only():
    one, other = draw_stand_in("a", 512), draw_stand_in("of", 512)
    np.testing.assert_allclose(np.linalg.norm(one), 1, rtol=1e-6)
    assert abs(one @ other) < 0.2
    code = (
        "from fishermix_photos.model.captioner.vocabulary import draw_stand_in\n"
        "print(draw_stand_in('a', 512)[:4].tolist())"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == str(one[:4].tolist())


def test_known_words_keep_their_point_and_the_others_get_a_stand_in():
    points = encode_words(["dog", "a"], toy.encode_text, 10)
    np.testing.assert_array_equal(points[0], toy.encode_text(["dog"])[0, :10])
    np.testing.assert_array_equal(points[1], draw_stand_in("a", 10))
