"""A captioner for another joint space of the same photos."""

import numpy as np
import pytest
import toy

from fishermix.caption.adapting import fit_image_map
from fishermix.caption.captioner import Captioner
from fishermix.caption.vocabulary import END, CaptionVocabulary
from fishermix.errors import FishermixError

WORDS = [END, "a", "on", "dog", "cat", "runs", "park", "lake"]


@pytest.fixture
def captioner() -> Captioner:
    points = np.random.default_rng(2).standard_normal((len(WORDS), toy.DIMENSION)).astype(np.float32)
    weights = toy.random_weights(toy.DIMENSION, 12, len(WORDS), seed=1, sharpness=3)
    return Captioner(CaptionVocabulary(WORDS), points, weights, model_key="old")


def test_an_adapted_captioner_writes_the_same_sentences(captioner, tmp_path):
    """A rotation into a larger space; least squares with its ridge undoes it up to a factor."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((400, toy.DIMENSION)).astype(np.float32)
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    rotation = np.linalg.qr(rng.standard_normal((20, 20)))[0][: toy.DIMENSION].astype(np.float32)
    adapted = fit_image_map(captioner, images, images @ rotation, "new")
    wanted = captioner.caption(images, beam=1)
    assert len(set(wanted)) > 5
    assert adapted.caption(images @ rotation, beam=1) == wanted
    assert adapted.model_key == "new"
    adapted.save(tmp_path / "c", half=False)
    assert Captioner.load(tmp_path / "c").caption(images @ rotation, beam=1) == wanted
    # Adapting it again composes the maps.
    again = fit_image_map(adapted, images @ rotation, images[:, ::-1], "newer")
    assert again.caption(images[:, ::-1], beam=1) == wanted
    with pytest.raises(FishermixError, match="at least 20 dimensions"):
        adapted.caption(images)
