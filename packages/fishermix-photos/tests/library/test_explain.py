"""Explanations add up."""

import numpy as np
import pytest
from fishermix import HybridMixture, RegularizedCCA, SentenceEncoder, WordVectors
from fishermix.errors import FishermixError
from fishermix.joint import JointSpace
from fishermix_photos import ImageTextModel
from fishermix_photos.explain import Explainer
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
    model.cca = cca
    return model


@pytest.fixture(scope="module")
def photo(model):
    point = np.random.default_rng(1).normal(size=model.dimension).astype(np.float32)
    return point / np.linalg.norm(point)


def test_parts_of_components_add_up_to_the_cosine(model, photo):
    sentence = "ae bo hu ca ae"
    found = Explainer(model).explain(sentence, photo)
    assert found.score == pytest.approx(float(model.encode_text([sentence])[0] @ photo), abs=1e-6)
    parts = Explainer(model)._split_cosine(sentence.split(), photo)
    assert parts.sum() == pytest.approx(found.score, abs=1e-5)
    assert sum(component.part for component in found.components) + found.rest == pytest.approx(found.score)
    assert {word for component in found.components for word in component.words} == {"ae", "bo", "hu", "ca"}


def test_a_component_s_part_is_its_blocks_alone(model, photo):
    """Against the definition: set all coordinates but the component's to their mean, and project."""
    encoder, cca = model.sentence_encoder, model.cca
    sentence = "ae bo"
    vector = encoder.transform([sentence])[0]
    length = np.linalg.norm(cca.transform_y(vector[None]))
    explainer = Explainer(model)
    found = explainer.explain(sentence, photo)
    expected, start = [], 0
    for number, mixture in enumerate(encoder.mixtures):
        components, dimensions = mixture.locations_.shape
        for component in range(components):
            masked = cca.y_mean_.astype(np.float32).copy()
            for half in range(2):
                first = start + (half * components + component) * dimensions
                masked[first : first + dimensions] = vector[first : first + dimensions]
            if (number, component) in explainer._words_of_components(["ae", "bo"]):
                expected.append(float((cca.transform_y(masked[None])[0] @ photo) / length))
        start += 2 * components * dimensions
    assert [part.part for part in found.components] == pytest.approx(sorted(expected, reverse=True), abs=1e-5)


def test_similar_words_are_the_component_s_own(model):
    explainer = Explainer(model)
    for mixture, near in zip(model.sentence_encoder.mixtures, explainer._similar_words):
        for component, words in enumerate(near):
            vectors = np.stack([model.sentence_encoder.vectors[word] for word in words])
            assert (mixture.predict(vectors) == component).all()


def test_words_count_by_what_the_score_loses_without_them(model, photo):
    found = Explainer(model).explain("ae bo unknownword", photo)
    without = model.encode_text(["bo", "ae"]) @ photo
    assert [part.word for part in found.words] == ["ae", "bo", "unknownword"]
    assert [part.drop for part in found.words] == pytest.approx([*(found.score - without), 0], abs=1e-6)


def test_models_without_mixtures_explain_words_only():
    point = np.eye(7, dtype=np.float32)[0]
    found = Explainer(TinyModel()).explain("red", point)
    assert (found.components, found.rest) == ([], found.score)
    with pytest.raises(FishermixError, match="out of the model's vocabulary"):
        Explainer(TinyModel()).explain("zorblax", point)
