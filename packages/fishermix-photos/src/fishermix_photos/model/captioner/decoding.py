"""From a point of the joint space to a sentence: the LSTM in numpy, with a batched beam search and sampling.

One step, with the gates in the order input, forget, output, candidate:

    i, f, o = sigmoid(W x + U h + b),  g = tanh(W x + U h + b)
    c' = f c + i g,  h' = o tanh(c'),  log p = log softmax(V h' + a)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from fishermix.errors import FishermixError

SEED = 0  # of sampled sentences


@dataclass(frozen=True)
class Weights:
    """The five arrays of the network, all float32: H units, points of d dimensions, V words.

    input_weights (4H, d), recurrent_weights (4H, H), gate_bias (4H,), output_weights (V, H), output_bias
    (V,).
    """

    input_weights: np.ndarray
    recurrent_weights: np.ndarray
    gate_bias: np.ndarray
    output_weights: np.ndarray
    output_bias: np.ndarray

    @property
    def units(self) -> int:
        return self.recurrent_weights.shape[1]

    @property
    def dimension(self) -> int:
        return self.input_weights.shape[1]


LSTMState = tuple[np.ndarray, np.ndarray]


def make_state(weights: Weights, n: int) -> LSTMState:
    """The hidden and cell states (n, H) before the first step: zeros."""
    return np.zeros((n, weights.units), np.float32), np.zeros((n, weights.units), np.float32)


def step(weights: Weights, inputs: np.ndarray, state: LSTMState) -> tuple[np.ndarray, LSTMState]:
    """The log probabilities (n, V) of the next word and the new state, given `inputs` (n, d)."""
    hidden, cell = state
    gates = inputs @ weights.input_weights.T + hidden @ weights.recurrent_weights.T + weights.gate_bias
    units = weights.units
    sigmoids = 0.5 * np.tanh(0.5 * gates[:, : 3 * units]) + 0.5
    enter, keep, leave = np.split(sigmoids, 3, axis=1)
    cell = keep * cell + enter * np.tanh(gates[:, 3 * units :])
    hidden = leave * np.tanh(cell)
    scores = hidden @ weights.output_weights.T + weights.output_bias
    scores -= scores.max(axis=1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return scores, (hidden, cell)


@dataclass(frozen=True)
class Hypothesis:
    """A finished sentence and the sum of its log probabilities, ENDSENT included."""

    words: tuple[int, ...]
    log_probability: float

    def score(self, length_norm: float) -> float:
        """log p / length^length_norm, where the length counts ENDSENT."""
        return self.log_probability / (len(self.words) + 1) ** length_norm


@dataclass(frozen=True)
class Decoder:
    """Writes sentences with a network.

    word_inputs (V, d) : the inputs of the words; row 0 is ENDSENT, which ends a sentence
    max_words : a sentence of this many words ends there, without the cost of ENDSENT
    once (V,) : marks the words that a sentence may not use twice; None for none
    """

    weights: Weights
    word_inputs: np.ndarray
    max_words: int
    once: np.ndarray | None = None

    def search_beam(self, starts: np.ndarray, beam: int, length_norm: float) -> list[list[Hypothesis]]:
        """Up to `beam` sentences per image, sorted by `Hypothesis.score`, the best first.

        starts (n, d) are the inputs of the images. A beam of 1 takes the most probable word at each step, as
        in the paper. All images advance together as n x beam rows. A sentence that ends keeps its place in
        the beam, so the beam narrows until it is empty. Ties go to the earlier row and the lower word, so the
        result is deterministic.
        """
        if beam < 1:
            raise FishermixError(f"beam must be at least 1, not {beam}.", code="wrong_parameter")
        finished: list[list[Hypothesis]] = [[] for _ in starts]
        owner = np.arange(len(starts))
        prefixes: list[tuple[int, ...]] = [() for _ in starts]
        totals = np.zeros(len(starts))
        inputs = starts
        state = make_state(self.weights, len(starts))
        for _ in range(self.max_words):
            if not len(owner):
                break
            log_probabilities, state = step(self.weights, inputs, state)
            self._block_used_words(log_probabilities, prefixes)
            parents, words, totals = _extend(log_probabilities, owner, totals, beam, finished)
            going = words != 0
            for parent, total in zip(parents[~going], totals[~going]):
                finished[owner[parent]].append(Hypothesis(prefixes[parent], float(total)))
            parents, words, totals = parents[going], words[going], totals[going]
            prefixes = [(*prefixes[parent], int(word)) for parent, word in zip(parents, words)]
            owner = owner[parents]
            state = (state[0][parents], state[1][parents])
            inputs = self.word_inputs[words]
        for row, prefix, total in zip(owner, prefixes, totals):
            finished[row].append(Hypothesis(prefix, float(total)))
        return [
            sorted(of_image, key=lambda sentence: (-sentence.score(length_norm), sentence.words))[:beam]
            for of_image in finished
        ]

    def sample(self, starts: np.ndarray, samples: int, temperature: float) -> list[list[Hypothesis]]:
        """`samples` sentences per image, each word drawn from p^(1/temperature).

        Sample j of every image uses the same random numbers: the sentences of an image do not depend on the
        images next to it. The log probabilities are those of temperature 1.
        """
        rows = len(starts) * samples
        uniforms = np.random.default_rng(SEED).random((self.max_words, samples), np.float32)
        sentences: list[tuple[int, ...]] = [() for _ in range(rows)]
        totals = np.zeros(rows)
        open_rows = np.arange(rows)
        inputs = np.repeat(starts, samples, axis=0)
        state = make_state(self.weights, rows)
        for uniform in uniforms:
            if not len(open_rows):
                break
            log_probabilities, state = step(self.weights, inputs, state)
            self._block_used_words(log_probabilities, [sentences[row] for row in open_rows])
            words = _draw(log_probabilities, temperature, uniform[open_rows % samples])
            totals[open_rows] += log_probabilities[np.arange(len(words)), words]
            going = words != 0
            open_rows, words = open_rows[going], words[going]
            state = (state[0][going], state[1][going])
            for row, word in zip(open_rows, words):
                sentences[row] = (*sentences[row], int(word))
            inputs = self.word_inputs[words]
        drawn = [Hypothesis(words, float(total)) for words, total in zip(sentences, totals)]
        return [drawn[first : first + samples] for first in range(0, rows, samples)]

    def _block_used_words(self, log_probabilities: np.ndarray, prefixes: Sequence[Sequence[int]]) -> None:
        """Set log p of the words of each prefix that may come only once to minus infinity, in place."""
        if self.once is None:
            return
        for row, prefix in enumerate(prefixes):
            used = [word for word in prefix if self.once[word]]
            if used:
                log_probabilities[row, used] = -np.inf


def _extend(
    log_probabilities: np.ndarray,
    owner: np.ndarray,
    totals: np.ndarray,
    beam: int,
    finished: list[list[Hypothesis]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The best continuations of the open sentences of each start, up to the free places in its beam.

    Returns (parent row, word, total) sorted by start, then by total.
    """
    width = min(beam, log_probabilities.shape[1])
    top = np.argpartition(-log_probabilities, width - 1, axis=1)[:, :width]
    candidate_totals = (totals[:, None] + np.take_along_axis(log_probabilities, top, axis=1)).ravel()
    candidate_parents = np.repeat(np.arange(len(owner)), width)
    candidate_words = top.ravel()
    candidate_owner = owner[candidate_parents]
    order = np.lexsort((candidate_words, candidate_parents, -candidate_totals, candidate_owner))
    sorted_owner = candidate_owner[order]
    place = np.arange(len(order)) - np.searchsorted(sorted_owner, sorted_owner)
    room = beam - np.array([len(found) for found in finished])
    possible = np.isfinite(candidate_totals[order])  # not the words that are blocked
    kept = order[(place < room[sorted_owner]) & possible]
    return candidate_parents[kept], candidate_words[kept], candidate_totals[kept]


def _draw(log_probabilities: np.ndarray, temperature: float, uniform: np.ndarray) -> np.ndarray:
    """One word per row (n, V), by inverting the cumulative distribution at uniform (n,) in [0, 1)."""
    sharpened = log_probabilities / np.float32(temperature)
    sharpened -= sharpened.max(axis=1, keepdims=True)
    cumulative = np.cumsum(np.exp(sharpened), axis=1, dtype=np.float64)
    aims = uniform * cumulative[:, -1]
    words = (cumulative <= aims[:, None]).sum(axis=1)
    return np.minimum(words, log_probabilities.shape[1] - 1)
