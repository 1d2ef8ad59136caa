"""Sampling, repetition, the choice among candidates, and the confidence of the chosen sentence."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
import toy
from fishermix.text.tokens import STOP_WORDS
from fishermix_photos.model.captioner import consensus
from fishermix_photos.model.captioner.captioner import Captioner
from fishermix_photos.model.captioner.consensus import Confidence
from fishermix_photos.model.captioner.decoding import Decoder, Hypothesis, make_state, step
from fishermix_photos.model.captioner.vocabulary import END, CaptionVocabulary, encode_words

WORDS = [END, "a", "on", "dog", "cat", "runs"]
ONCE = np.array([word not in STOP_WORDS for word in WORDS])


def search_beam(network, beam, max_words, once=None):
    weights, starts, inputs = network
    return Decoder(weights, inputs, max_words, once).search_beam(starts, beam, 0.0)


def sample(network, samples, max_words, temperature, once=None):
    weights, starts, inputs = network
    return Decoder(weights, inputs, max_words, once).sample(starts, samples, temperature)


def repeats_content_word(sentence):
    content = [word for word in sentence.split() if word not in STOP_WORDS]
    return len(set(content)) < len(content)


@pytest.fixture
def network():
    weights = toy.random_weights(6, 8, len(WORDS), seed=3)
    rng = np.random.default_rng(5)
    return weights, rng.standard_normal((3, 6), np.float32), rng.standard_normal((len(WORDS), 6), np.float32)


def log_probability(network, image, words, once=None):
    """log p of a sentence, ENDSENT included, word by word."""
    weights, starts, inputs = network
    total, state, given = 0.0, make_state(weights, 1), starts[image : image + 1]
    for word in (*words, 0):
        log_p, state = step(weights, given, state)
        total += float(log_p[0, word])
        given = inputs[word : word + 1]
    return total


def may_be_written(words):
    content = [word for word in words if ONCE[word]]
    return len(set(content)) == len(content)


def test_the_beam_finds_the_best_sentences_without_repetition(network):
    """A beam as wide as the search space against all sentences of up to three words."""
    found = search_beam(network, 500, 3, ONCE)
    for image, few in enumerate(found):
        sentences = [words for n in range(3) for words in product(range(1, len(WORDS)), repeat=n)]
        wanted = {
            words: log_probability(network, image, words) for words in sentences if may_be_written(words)
        }
        short = {one.words: one.log_probability for one in few if len(one.words) < 3}
        assert short == pytest.approx(wanted, abs=1e-4)
        assert all(may_be_written(one.words) for one in few)
    # Without the rule the same sentences would repeat words.
    assert not all(may_be_written(one.words) for few in search_beam(network, 500, 3) for one in few)


def test_a_beam_without_any_word_left_ends(network):
    only_content = np.ones(len(WORDS), bool)
    for few in search_beam(network, 2000, 9, only_content):
        assert few
        assert max(len(one.words) for one in few) <= len(WORDS) - 1
        assert all(math.isfinite(one.log_probability) for one in few)


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_samples_follow_the_distribution(network, temperature):
    n = 4000
    log_p, _ = step(network[0], network[1], make_state(network[0], 3))
    wanted = np.exp(log_p / temperature) / np.exp(log_p / temperature).sum(axis=1, keepdims=True)
    for image, few in enumerate(sample(network, n, 1, temperature)):
        counts = Counter(one.words[0] if one.words else 0 for one in few)
        share = np.array([counts[word] / n for word in range(len(WORDS))])
        np.testing.assert_allclose(share, wanted[image], atol=0.03)


def test_samples_know_their_probability_and_repeat_no_content_word(network):
    for image, few in enumerate(sample(network, 50, 8, 1.0, ONCE)):
        for one in few:
            assert may_be_written(one.words)
            if len(one.words) < 8:
                assert one.log_probability == pytest.approx(
                    log_probability(network, image, one.words), abs=1e-4
                )


def test_the_samples_of_an_image_do_not_depend_on_the_others(network):
    weights, starts, inputs = network
    together = sample((weights, starts, inputs), 20, 8, 0.6, ONCE)
    alone = [sample((weights, starts[i : i + 1], inputs), 20, 8, 0.6, ONCE)[0] for i in range(3)]
    assert [[one.words for one in few] for few in alone] == [[one.words for one in few] for few in together]


def naive_agreement(a, b):
    """The mean cosine of the n-gram counts of two sentences, orders that neither has left out."""
    cosines = []
    for n in range(1, 5):
        x, y = (Counter(tuple(s[i : i + n]) for i in range(len(s) - n + 1)) for s in (a, b))
        if x or y:
            norm = math.hypot(*x.values()) * math.hypot(*y.values())
            cosines.append(sum(x[g] * y[g] for g in x) / norm if norm else 0.0)
    return math.exp(-((len(a) - len(b)) ** 2) / 72) * sum(cosines) / max(len(cosines), 1)


def test_agreement_is_the_mean_cosine_of_ngrams():
    sentences = [(1, 2, 3, 4, 5), (1, 2, 3), (1, 2, 1, 2, 1, 2), (7,), (5, 4, 3, 2, 1)]
    found = consensus.measure_agreement(sentences)
    wanted = [[naive_agreement(a, b) for b in sentences] for a in sentences]
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    np.testing.assert_allclose(np.diag(found), 1)


def test_the_winner_agrees_best_matches_the_photo_and_has_no_rare_word():
    changed = [find_winner(seed) for seed in range(20)]
    assert any(changed)


def find_winner(seed):
    """Compare the winner with a naive one; whether the rare words changed it."""
    rng = np.random.default_rng(seed)
    few = [Hypothesis(words, float(rng.uniform(-9, -2))) for words in product((1, 3, 4), (2, 5), (3, 4, 5))]
    vectors = {" ".join(map(str, one.words)): 0.05 * rng.standard_normal(4) for one in few}
    image = rng.standard_normal(4)

    def encode(texts):
        return np.array([vectors[text] for text in texts])

    def join(words):
        return " ".join(map(str, words))

    (found,) = consensus.choose_by_consensus([few], image[None], join, encode)
    cosine = np.array([vectors[join(one.words)] @ image for one in few])
    weight = np.exp([0.2 * one.log_probability + 0.15 * 4 + 15 * c for one, c in zip(few, cosine)])
    agreement = np.array([[naive_agreement(a.words, b.words) for b in few] for a in few])
    weight /= weight.sum()
    expected = agreement @ weight
    support = [min(weight[[word in b.words for b in few]].sum() for word in a.words) for a in few]
    best = int(np.argmax(expected + 3 * cosine + support))
    assert found.sentence == join(few[best].words)
    assert (found.cosine, found.agreement) == pytest.approx((cosine[best], expected[best]))
    assert found.confidence is None
    assert not found.unsure
    return best != int(np.argmax(expected + 3 * cosine))


def test_sentences_without_a_content_word_are_not_compared_with_the_photo():
    drafts = [[Hypothesis((0,), -1.0), Hypothesis((1, 2), -9.0)]]

    def encode(texts):
        assert texts == ["dogs run"]
        return np.ones((1, 4))

    words = ["the", "dogs", "run"]
    (found,) = consensus.choose_by_consensus(
        drafts, np.ones((1, 4)), lambda rows: " ".join(words[row] for row in rows), encode
    )
    assert found.sentence == "dogs run"


@pytest.fixture
def captioner() -> Captioner:
    points = np.concatenate(
        [np.zeros((1, toy.DIMENSION), np.float32), encode_words(WORDS[1:], toy.encode_text, toy.DIMENSION)]
    )
    weights = toy.random_weights(toy.DIMENSION, 12, len(WORDS), seed=1, sharpness=2)
    return Captioner(CaptionVocabulary(WORDS), points, weights)


IMAGES = toy.encode_text(["dog beach", "cat street", "bird lake", "horse"])


def test_a_sentence_does_not_depend_on_the_batch(captioner):
    together = captioner.describe(IMAGES, encode_text=toy.encode_text)
    alone = [captioner.describe(image, encode_text=toy.encode_text)[0] for image in IMAGES]
    assert [one.sentence for one in together] == [one.sentence for one in alone]
    assert not any(repeats_content_word(one.sentence) for one in together)


def test_confidence_is_saved_and_judges(captioner, tmp_path):
    assert all(one.confidence is None for one in captioner.describe(IMAGES, encode_text=toy.encode_text))
    captioner.confidence = Confidence(intercept=0.0, cosine=3.0, agreement=0.0, threshold=0.5)
    captioner.save(tmp_path / "c", half=False)
    loaded = Captioner.load(tmp_path / "c")
    assert loaded.confidence == captioner.confidence
    for one in loaded.describe(IMAGES, encode_text=toy.encode_text):
        assert one.confidence == pytest.approx(1 / (1 + math.exp(-3 * one.cosine)))
        assert one.unsure == (one.cosine < 0)
    # The network alone has no cosine to judge by.
    assert all(one.confidence is None for one in loaded.describe(IMAGES))
    assert all(one.confidence is None for one in loaded.describe(IMAGES, beam=1))
