"""Explanations say what each word contributes."""

from functools import partial

import numpy as np
import pytest
from fishermix import HybridMixture, RegularizedCCA, SentenceEncoder, WordVectors
from fishermix.joint.space import JointSpace
from fishermix_photos import ImageTextModel
from fishermix_photos.model.explain import explain_score
from fishermix_photos.search.vectors import UnknownTerm, encode_sentence
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
    encoder = SentenceEncoder.from_fitted(vectors, mixtures=mixtures)
    sentences = [" ".join(rng.choice(WORDS, 4)) for _ in range(200)]
    images = rng.normal(size=(200, 5))
    cca = RegularizedCCA(3, correlation_power=1.0).fit(images, encoder.transform(sentences))
    model = ImageTextModel(encoder, None, JointSpace(cca, 1.0, left_widths=[5]))
    return model


@pytest.fixture(scope="module")
def photo(model):
    point = np.random.default_rng(1).normal(size=model.dimension).astype(np.float32)
    return point / np.linalg.norm(point)


@pytest.mark.slow
def test_words_count_by_what_the_score_loses_without_them(model, photo):
    found = explain_score("ae bo unknownword", photo, [("ca", 2.0)], model, model.encode_query)
    whole, *without = model.encode_text(["ae bo", "bo", "ae"]) @ photo
    assert [part.word for part in found.words] == ["ae", "bo", "unknownword"]
    assert [part.drop for part in found.words] == pytest.approx([*(whole - without), 0], abs=1e-6)
    assert found.out_of_vocabulary == ["unknownword"]
    [part] = found.subtracted
    assert part.sentence == "ca"
    assert part.score == pytest.approx(float(model.encode_text(["ca"])[0] @ photo), abs=1e-6)
    lost = max(0, part.score - 0.1) + 4 * max(0, part.score - 0.2)
    assert part.drop == pytest.approx(2 * lost, abs=1e-6)
    assert found.score == pytest.approx(whole - part.drop, abs=1e-6)


def test_unknown_words_alone_cannot_be_explained():
    encode = partial(encode_sentence, model=TinyModel())
    with pytest.raises(UnknownTerm):
        explain_score("zorblax", np.eye(7, dtype=np.float32)[0], (), TinyModel(), encode)
