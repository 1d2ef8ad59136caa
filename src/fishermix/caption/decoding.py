"""From a point of the joint space to a sentence: the LSTM in numpy, with batched greedy and beam search.

One step, with the gates in the order input, forget, output, candidate:

    i, f, o = sigmoid(W x + U h + b),  g = tanh(W x + U h + b)
    c' = f c + i g,  h' = o tanh(c'),  log p = log softmax(V h' + a)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fishermix.errors import FishermixError


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

    def as_dict(self) -> Mapping[str, np.ndarray]:
        return dict(vars(self))


State = tuple[np.ndarray, np.ndarray]


def make_state(weights: Weights, n: int) -> State:
    """The hidden and cell states (n, H) before the first step: zeros."""
    return np.zeros((n, weights.units), np.float32), np.zeros((n, weights.units), np.float32)


def step(weights: Weights, inputs: np.ndarray, state: State) -> tuple[np.ndarray, State]:
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


def search_greedily(
    weights: Weights, starts: np.ndarray, word_inputs: np.ndarray, max_words: int
) -> list[list[int]]:
    """The most probable word at each step, as in the paper: rows of words without the final ENDSENT.

    starts (n, d) are the inputs of the images, word_inputs (V, d) those of the words; row 0 is ENDSENT.
    """
    sentences: list[list[int]] = [[] for _ in starts]
    open_rows = np.arange(len(starts))
    inputs, state = starts, make_state(weights, len(starts))
    for _ in range(max_words):
        if not len(open_rows):
            break
        log_probabilities, state = step(weights, inputs, state)
        words = log_probabilities.argmax(axis=1)
        going = words != 0
        open_rows, words = open_rows[going], words[going]
        state = (state[0][going], state[1][going])
        for row, word in zip(open_rows, words):
            sentences[row].append(int(word))
        inputs = word_inputs[words]
    return sentences


@dataclass(frozen=True)
class Hypothesis:
    """A finished sentence and the sum of its log probabilities, ENDSENT included."""

    words: tuple[int, ...]
    log_probability: float

    def score(self, length_norm: float) -> float:
        """log p / length^length_norm, where the length counts ENDSENT."""
        return self.log_probability / (len(self.words) + 1) ** length_norm


def search_beam(
    weights: Weights,
    starts: np.ndarray,
    word_inputs: np.ndarray,
    beam: int,
    max_words: int,
    length_norm: float,
    once: np.ndarray | None = None,
) -> list[list[Hypothesis]]:
    """Up to `beam` finished sentences per start, sorted by `Hypothesis.score`, the best first.

    All starts advance together as n x beam rows. A sentence that ends keeps its place in the beam, so the
    beam narrows until it is empty. A sentence of `max_words` words counts as finished, without the cost of
    ENDSENT. Ties go to the earlier row and the lower word, so the result is deterministic. `once` (V,) marks
    the words that a sentence may not use twice.
    """
    if beam < 1:
        raise FishermixError(f"beam must be at least 1, not {beam}.")
    finished: list[list[Hypothesis]] = [[] for _ in starts]
    owner = np.arange(len(starts))
    prefixes: list[tuple[int, ...]] = [() for _ in starts]
    totals = np.zeros(len(starts))
    inputs, state = starts, make_state(weights, len(starts))
    for _ in range(max_words):
        if not len(owner):
            break
        log_probabilities, state = step(weights, inputs, state)
        block_used_words(log_probabilities, prefixes, once)
        parents, words, totals = _extend(log_probabilities, owner, totals, beam, finished)
        going = words != 0
        for parent, total in zip(parents[~going], totals[~going]):
            finished[owner[parent]].append(Hypothesis(prefixes[parent], float(total)))
        parents, words, totals = parents[going], words[going], totals[going]
        prefixes = [(*prefixes[parent], int(word)) for parent, word in zip(parents, words)]
        owner = owner[parents]
        state = (state[0][parents], state[1][parents])
        inputs = word_inputs[words]
    for row, prefix, total in zip(owner, prefixes, totals):
        finished[row].append(Hypothesis(prefix, float(total)))
    return [sorted(found, key=lambda one: (-one.score(length_norm), one.words))[:beam] for found in finished]


def block_used_words(
    log_probabilities: np.ndarray, prefixes: Sequence[Sequence[int]], once: np.ndarray | None
) -> None:
    """Set log p of the words of each prefix that may come only `once` to minus infinity, in place."""
    if once is None:
        return
    for row, prefix in enumerate(prefixes):
        used = [word for word in prefix if once[word]]
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
