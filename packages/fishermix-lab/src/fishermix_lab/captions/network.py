"""The network of the captioner in torch, for training; `decoding.step` is the same function in numpy."""

from __future__ import annotations

import numpy as np
import torch
from fishermix_photos.model.captioner.decoding import Weights
from fishermix_photos.model.captioner.vocabulary import IGNORED
from torch import Tensor, nn
from torch.nn import functional


class CaptionNetwork(nn.Module):
    """One LSTM layer of H units on points of d dimensions, and a softmax over V words.

    The loop over time is explicit: the input half of the gates is computed once per *different* word of a
    batch, a quarter of the work, and dropout can be applied inside.
    """

    def __init__(self, dimension: int, units: int, n_words: int, seed: int = 0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def uniform(*shape: int, fan_in: int) -> nn.Parameter:
            values = torch.empty(shape).uniform_(-1, 1, generator=generator)
            return nn.Parameter(values / fan_in**0.5)

        self.units = units
        self.input_weights = uniform(4 * units, dimension, fan_in=dimension)
        self.recurrent_weights = uniform(4 * units, units, fan_in=units)
        # A forget gate that starts open keeps the point of the image until the end of the sentence.
        bias = torch.zeros(4 * units)
        bias[units : 2 * units] = 1.0
        self.gate_bias = nn.Parameter(bias)
        self.output_weights = uniform(n_words, units, fan_in=units)
        self.output_bias = nn.Parameter(torch.zeros(n_words))

    def forward(
        self, starts: Tensor, words: Tensor, word_inputs: Tensor, dropout: Dropout | None = None
    ) -> Tensor:
        """Scores (T + 1, n, V) before the softmax.

        starts (n, d): the inputs of the images; words (T, n): rows of word_inputs (R, d), the inputs of the
        steps after the first.
        """
        different, position = torch.unique(words, return_inverse=True)
        dropout = dropout or Dropout()
        word_gates = functional.linear(word_inputs[different], self.input_weights, self.gate_bias)
        start_gates = functional.linear(starts, self.input_weights, self.gate_bias)
        from_words = functional.embedding(position, word_gates)
        hidden = starts.new_zeros(len(starts), self.units)
        cell = hidden
        keep_recurrent = dropout.draw_recurrent_mask(hidden)
        outputs = []
        for time in range(len(words) + 1):
            gates = torch.addmm(
                start_gates if time == 0 else from_words[time - 1],
                hidden if keep_recurrent is None else hidden * keep_recurrent,
                self.recurrent_weights.T,
            )
            enter, keep, leave = torch.sigmoid(gates[:, : 3 * self.units]).chunk(3, dim=1)
            cell = torch.addcmul(keep * cell, enter, torch.tanh(gates[:, 3 * self.units :]))
            hidden = leave * torch.tanh(cell)
            outputs.append(hidden)
        return functional.linear(
            dropout.drop_outputs(torch.stack(outputs)), self.output_weights, self.output_bias
        )

    @torch.no_grad()
    def load_weights(self, weights: Weights) -> None:
        """Start from the weights of a captioner of the same size."""
        for name, value in self.named_parameters():
            value.copy_(torch.from_numpy(getattr(weights, name)))


def copy_weights(parameters: dict[str, Tensor] | dict[str, nn.Parameter]) -> Weights:
    """A float32 copy of the parameters for decoding."""
    return Weights(
        **{name: np.array(value.detach().numpy(), np.float32) for name, value in parameters.items()}
    )


class Dropout:
    """Dropout with its own generator, so that a training step depends on nothing but its seed.

    recurrent: drops units, the same ones during a whole sentence; output: drops units before the softmax. The
    other values are scaled by 1 / (1 - p).
    """

    def __init__(self, recurrent: float = 0.0, output: float = 0.0, seed: int = 0):
        self._recurrent, self._output = recurrent, output
        self._generator = torch.Generator().manual_seed(seed)

    def _draw_mask(self, like: Tensor, p: float) -> Tensor:
        return torch.empty_like(like).bernoulli_(1 - p, generator=self._generator) / (1 - p)

    def draw_recurrent_mask(self, hidden: Tensor) -> Tensor | None:
        return self._draw_mask(hidden, self._recurrent) if self._recurrent else None

    def drop_outputs(self, hidden: Tensor) -> Tensor:
        return hidden * self._draw_mask(hidden, self._output) if self._output else hidden


def cross_entropy(scores: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> tuple[Tensor, int]:
    """The sum of -log p over the targets (T + 1, n) that are not ignored, and their number."""
    loss = functional.cross_entropy(
        scores.flatten(0, 1),
        targets.flatten(),
        ignore_index=IGNORED,
        label_smoothing=label_smoothing,
        reduction="sum",
    )
    return loss, int((targets != IGNORED).sum())
