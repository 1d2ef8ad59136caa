"""Sentences drawn from the captioner's distribution, several per image."""

from __future__ import annotations

import numpy as np

from fishermix.caption.decoding import Hypothesis, Weights, block_used_words, make_state, step

SEED = 0


def sample_sentences(
    weights: Weights,
    starts: np.ndarray,
    word_inputs: np.ndarray,
    samples: int,
    max_words: int,
    temperature: float,
    once: np.ndarray | None = None,
) -> list[list[Hypothesis]]:
    """`samples` sentences per start, each word drawn from p^(1/temperature).

    Sample j of every start uses the same random numbers: the sentences of an image do not depend on the
    images next to it. `once` (V,) marks the words that a sentence may not use twice. A sentence of
    `max_words` words ends there. The log probabilities are those of temperature 1.
    """
    rows = len(starts) * samples
    uniforms = np.random.default_rng(SEED).random((max_words, samples), np.float32)
    sentences: list[tuple[int, ...]] = [() for _ in range(rows)]
    totals = np.zeros(rows)
    open_rows = np.arange(rows)
    inputs, state = np.repeat(starts, samples, axis=0), make_state(weights, rows)
    for uniform in uniforms:
        if not len(open_rows):
            break
        log_probabilities, state = step(weights, inputs, state)
        block_used_words(log_probabilities, [sentences[row] for row in open_rows], once)
        words = _draw(log_probabilities, temperature, uniform[open_rows % samples])
        totals[open_rows] += log_probabilities[np.arange(len(words)), words]
        going = words != 0
        open_rows, words = open_rows[going], words[going]
        state = (state[0][going], state[1][going])
        for row, word in zip(open_rows, words):
            sentences[row] = (*sentences[row], int(word))
        inputs = word_inputs[words]
    found = [Hypothesis(words, float(total)) for words, total in zip(sentences, totals)]
    return [found[first : first + samples] for first in range(0, rows, samples)]


def _draw(log_probabilities: np.ndarray, temperature: float, uniform: np.ndarray) -> np.ndarray:
    """One word per row (n, V), by inverting the cumulative distribution at uniform (n,) in [0, 1)."""
    sharpened = log_probabilities / np.float32(temperature)
    sharpened -= sharpened.max(axis=1, keepdims=True)
    cumulative = np.cumsum(np.exp(sharpened), axis=1, dtype=np.float64)
    aims = uniform * cumulative[:, -1]
    words = (cumulative <= aims[:, None]).sum(axis=1)
    return np.minimum(words, log_probabilities.shape[1] - 1)
