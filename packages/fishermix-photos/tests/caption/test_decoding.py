"""The numpy network against torch's, greedy and beam search against enumeration."""

from itertools import product

import numpy as np
import pytest
import toy
from fishermix_photos.model.captioner.decoding import Decoder, make_state, step
from hypothesis import given, settings
from hypothesis import strategies as st
from refuses import refuses

torch = pytest.importorskip("torch")


def test_numpy_forward_equals_the_training_network():
    from fishermix_lab.captions.network import CaptionNetwork, copy_weights

    network = CaptionNetwork(dimension=9, units=7, n_words=11, seed=3)
    rng = np.random.default_rng(0)
    starts = rng.standard_normal((5, 9)).astype(np.float32)
    word_inputs = rng.standard_normal((11, 9)).astype(np.float32)
    words = rng.integers(0, 11, (4, 5))
    with torch.no_grad():
        scores = network(torch.from_numpy(starts), torch.from_numpy(words), torch.from_numpy(word_inputs))
        expected = torch.log_softmax(scores, dim=2).numpy()
    weights = copy_weights(dict(network.named_parameters()))
    state, inputs = make_state(weights, 5), starts
    for time in range(5):
        found, state = step(weights, inputs, state)
        np.testing.assert_allclose(found, expected[time], atol=2e-6)
        if time < 4:
            inputs = word_inputs[words[time]]


def test_numpy_forward_equals_torchs_own_lstm():
    weights = toy.random_weights(6, 5, 8)
    lstm = torch.nn.LSTM(6, 5)
    # torch orders the gates input, forget, candidate, output.
    order = np.r_[0:10, 15:20, 10:15]
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(torch.from_numpy(weights.input_weights[order]))
        lstm.weight_hh_l0.copy_(torch.from_numpy(weights.recurrent_weights[order]))
        lstm.bias_ih_l0.copy_(torch.from_numpy(weights.gate_bias[order]))
        lstm.bias_hh_l0.zero_()
        inputs = torch.randn(7, 3, 6, generator=torch.Generator().manual_seed(0))
        hidden = lstm(inputs)[0].numpy()
    state = make_state(weights, 3)
    for time in range(7):
        _, state = step(weights, inputs[time].numpy(), state)
        np.testing.assert_allclose(state[0], hidden[time], atol=1e-6)


def log_probability(weights, start, word_inputs, words, ends=True) -> float:
    state, inputs, total = make_state(weights, 1), start[None], 0.0
    for word in [*words, 0] if ends else words:
        log_probabilities, state = step(weights, inputs, state)
        total += float(log_probabilities[0, word])
        inputs = word_inputs[[word]]
    return total


def space(seed, n=3, n_words=5):
    weights = toy.random_weights(4, 6, n_words, seed, sharpness=1.5)
    rng = np.random.default_rng(seed + 1)
    return (
        weights,
        rng.standard_normal((n, 4)).astype(np.float32),
        rng.standard_normal((n_words, 4)).astype(np.float32),
    )


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_a_beam_of_one_takes_the_best_word_of_each_step(seed):
    weights, starts, word_inputs = space(seed)
    for start, [found] in zip(starts, Decoder(weights, word_inputs, 6).search_beam(starts, 1, 0.7)):
        state, inputs = make_state(weights, 1), start[None]
        for word in [*found.words, 0][:6]:
            log_probabilities, state = step(weights, inputs, state)
            assert log_probabilities[0].argmax() == word
            inputs = word_inputs[[word]]


@pytest.mark.slow
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.7, 1.0]))
@settings(max_examples=15, deadline=None)
def test_a_wide_beam_finds_the_best_of_all_sentences(seed, length_norm):
    weights, starts, word_inputs = space(seed, n=2, n_words=4)
    found = Decoder(weights, word_inputs, 4).search_beam(starts, 500, length_norm)
    for start, hypotheses in zip(starts, found):
        every = {}
        for length in range(5):
            for words in product(range(1, 4), repeat=length):
                every[words] = log_probability(weights, start, word_inputs, words, ends=length < 4)
        assert {one.words for one in hypotheses} == set(every)
        for one in hypotheses:
            np.testing.assert_allclose(one.log_probability, every[one.words], atol=1e-5)
        best = max(every, key=lambda words: every[words] / (len(words) + 1) ** length_norm)
        assert hypotheses[0].words == best


@pytest.mark.parametrize("beam", [2, 3, 5])
def test_beam_scores_are_sums_of_log_probabilities_and_sorted(beam):
    weights, starts, word_inputs = space(4, n=6, n_words=12)
    for start, hypotheses in zip(starts, Decoder(weights, word_inputs, 7).search_beam(starts, beam, 0.7)):
        assert 1 <= len(hypotheses) <= beam
        scores = [one.score(0.7) for one in hypotheses]
        assert scores == sorted(scores, reverse=True)
        for one in hypotheses:
            total = log_probability(weights, start, word_inputs, one.words, ends=len(one.words) < 7)
            np.testing.assert_allclose(one.log_probability, total, atol=1e-5)


def test_a_batch_equals_one_by_one():
    weights, starts, word_inputs = space(9, n=8, n_words=12)
    together = Decoder(weights, word_inputs, 7).search_beam(starts, 3, 0.7)
    alone = [Decoder(weights, word_inputs, 7).search_beam(start[None], 3, 0.7)[0] for start in starts]
    assert [[one.words for one in found] for found in together] == [
        [one.words for one in found] for found in alone
    ]


def test_no_starts_and_no_beam():
    weights, starts, word_inputs = space(0)
    assert Decoder(weights, word_inputs, 5).search_beam(starts[:0], 3, 0.7) == []
    with refuses("wrong_parameter"):
        Decoder(weights, word_inputs, 5).search_beam(starts, 0, 0.7)
