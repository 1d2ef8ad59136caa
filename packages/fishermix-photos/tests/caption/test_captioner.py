import json
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import toy
from fishermix_photos.model.captioner import captioner as module
from fishermix_photos.model.captioner.captioner import Captioner
from fishermix_photos.model.captioner.vocabulary import END, CaptionVocabulary, encode_words
from refuses import refuses

WORDS = [END, "a", "dog", "cat", "runs", "sleeps", "beach"]


@pytest.fixture
def captioner() -> Captioner:
    points = np.concatenate(
        [np.zeros((1, toy.DIMENSION), np.float32), encode_words(WORDS[1:], toy.encode_text, toy.DIMENSION)]
    )
    # Sharp enough that rounding to half precision changes no choice.
    weights = toy.random_weights(toy.DIMENSION, 12, len(WORDS), seed=1, sharpness=3)
    return Captioner(CaptionVocabulary(WORDS), points, weights, model_key="abc")


IMAGES = toy.encode_text(["dog beach", "cat street", "bird lake", "horse"])


@pytest.mark.parametrize("half", [True, False])
def test_save_and_load_write_the_same_sentences(captioner, tmp_path, half):
    captioner.save(tmp_path / "c", half=half)
    loaded = Captioner.load(tmp_path / "c")
    assert loaded.model_key == "abc"
    for beam in (1, 3):
        assert loaded.caption(IMAGES, beam=beam) == captioner.caption(IMAGES, beam=beam)
    if not half:
        for name, value in vars(captioner.weights).items():
            np.testing.assert_array_equal(getattr(loaded.weights, name), value)


def test_the_input_is_the_leading_coordinates(captioner):
    wider = np.concatenate([IMAGES, np.full((len(IMAGES), 3), 9.0, np.float32)], axis=1)
    assert captioner.caption(wider) == captioner.caption(IMAGES)
    with refuses("wrong_shape"):
        captioner.caption(IMAGES[:, :5])


def test_candidates_hold_the_caption_first(captioner):
    found = captioner.candidates(IMAGES, beam=4)
    assert [one[0][0] for one in found] == captioner.caption(IMAGES, beam=4, samples=0)
    assert all(len({text for text, _ in one}) == len(one) for one in found)


def test_reranking_adds_the_cosine_with_the_image(captioner):
    plain = captioner.candidates(IMAGES, beam=4)
    reranked = captioner.candidates(IMAGES, beam=4, encode_text=toy.encode_text)
    for image, few, again in zip(IMAGES, plain, reranked):
        cosine = {text: float(toy.encode_text([text])[0] @ image) for text, _ in few}
        expected = {text: score + 8 * cosine[text] for text, score in few}
        assert dict(again) == pytest.approx(expected, abs=1e-5)
        assert all(first >= second for (_, first), (_, second) in pairwise(again))
    options = {"beam": 4, "samples": 0, "encode_text": toy.encode_text}
    assert captioner.caption(IMAGES, **options) == [few[0][0] for few in reranked]


def test_many_images_go_through_in_parts(captioner, monkeypatch):
    whole = captioner.caption(IMAGES, beam=3, encode_text=toy.encode_text)
    monkeypatch.setattr(module, "IMAGES_AT_ONCE", 3)
    assert captioner.caption(IMAGES, beam=3, encode_text=toy.encode_text) == whole


def test_the_same_every_time_and_no_images_give_no_sentences(captioner):
    assert captioner.caption(IMAGES) == captioner.caption(IMAGES)
    assert captioner.caption(IMAGES[:0]) == []
    assert captioner.caption(IMAGES[:0], beam=1) == []


def test_max_words_bounds_the_sentence(captioner, monkeypatch):
    monkeypatch.setattr(module, "MAX_WORDS", 2)
    for beam in (1, 3):
        sentences = captioner.caption(IMAGES, beam=beam)
        assert all(len(sentence.split()) <= 2 for sentence in sentences)


def test_damage_is_named(captioner, tmp_path):
    captioner.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for name, value, code in [
        ("words", WORDS[:-1], "damaged"),
        ("units", None, "damaged"),
        ("kind", "x", "not_found"),
    ]:
        (tmp_path / "config.json").write_text(json.dumps({**config, name: value}))
        with refuses(code):
            Captioner.load(tmp_path)


def test_writing_sentences_imports_neither_torch_nor_scikit_learn(captioner, tmp_path):
    captioner.save(tmp_path)
    code = (
        "import sys, numpy as np\nfrom fishermix_photos import Captioner\n"
        f"print(Captioner.load({str(tmp_path)!r}).caption(np.ones((1, {toy.DIMENSION})))[0])\n"
        "print([name for name in ('torch', 'sklearn', 'scipy', 'numba') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [captioner.caption(np.ones((1, toy.DIMENSION)))[0], "[]"]
