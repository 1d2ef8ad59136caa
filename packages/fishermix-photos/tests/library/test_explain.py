"""Explanations say what each word contributes."""

import numpy as np
import pytest
from fishermix import HybridMixture, RegularizedCCA, SentenceEncoder, WordVectors
from fishermix.errors import FishermixError
from fishermix.joint import JointSpace
from fishermix_photos import ImageTextModel
from fishermix_photos.describe import explain_score
from tiny_model import TinyModel

WORDS = [f"{first}{second}" for first in "abcdefgh" for second in "aeiou"]


@pytest.fixture(scope="module", params=[1, 2])
def model(request):
    """A real model on made-up words: four bunches of words, one or two mixtures."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 6)) * 4
    bunch = np.arange(len(WORDS)) % 4
    vectors = WordVectors(WORDS, (centres[bunch] + rng.normal(size=(len(WORDS), 6))).astype(np.float32))
    mixtures = [HybridMixture(k, random_state=0).fit(vectors.vectors) for k in (4, 3)[: request.param]]
    encoder = SentenceEncoder(vectors, mixtures=mixtures)
    sentences = [" ".join(rng.choice(WORDS, 4)) for _ in range(200)]
    images = rng.normal(size=(200, 5))
    cca = RegularizedCCA(3, scale=1.0).fit(images, encoder.transform(sentences))
    model = ImageTextModel(encoder, None, JointSpace(cca.projections_, 1.0, image_widths=[5]))
    return model


@pytest.fixture(scope="module")
def photo(model):
    point = np.random.default_rng(1).normal(size=model.dimension).astype(np.float32)
    return point / np.linalg.norm(point)


def test_words_count_by_what_the_score_loses_without_them(model, photo):
    found = explain_score("ae bo unknownword", photo, ["ca"], model)
    without = model.encode_text(["bo", "ae"]) @ photo
    assert [part.word for part in found.words] == ["ae", "bo", "unknownword"]
    assert [part.drop for part in found.words] == pytest.approx([*(found.score - without), 0], abs=1e-6)
    assert found.out_of_vocabulary == ["unknownword"]
    [part] = found.subtracted
    assert part.sentence == "ca"
    assert part.score == pytest.approx(float(model.encode_text(["ca"])[0] @ photo), abs=1e-6)


def test_unknown_words_alone_cannot_be_explained():
    with pytest.raises(FishermixError, match="no word that fishermix knows"):
        explain_score("zorblax", np.eye(7, dtype=np.float32)[0], (), TinyModel())
