"""Recipes for training a captioner: the default and fine-tuning, chosen on Flickr8K's dev split, and the
paper's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class CaptionRecipe:
    """The hyperparameters of a training.

    "adamw" divides the loss of a batch by the number of its words. "sgd" uses the sum, as the paper's program
    (CURRENNT) does, so that its learning rate means the same for any batch size.
    """

    name: str
    units: int = 512  # of the LSTM layer
    dimension: int = 512  # the leading coordinates of the joint space that it reads
    min_count: int = 4  # words that come less often in the training sentences are not written
    optimizer: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = 2e-3  # the highest
    momentum: float = 0.0  # of "sgd"
    weight_decay: float = 0.0  # of "adamw"
    batch_size: int = 128  # sentences per step
    epochs: int = 12  # at most
    warmup: float = 0.0  # the share of all steps in which the learning rate rises to its full value
    floor: float = 1.0  # the share of the learning rate at the end of the cosine; 1 for a constant rate
    clip: float = 0.0  # the longest gradient; 0 for no limit
    label_smoothing: float = 0.0  # the share of each target that is spread over all words
    recurrent_dropout: float = 0.0
    output_dropout: float = 0.0  # before the softmax
    average: float = 0.0  # decay of the running mean of the weights, which is evaluated and saved; 0: no mean
    patience: int = 3  # training stops after this many epochs without a better value on dev
    choose_by: str = "loss"  # the criterion on dev for the best epoch: "loss", or a key of `caption_scores`
    seed: int = 0  # of the first weights, the order of the sentences and dropout

    def compute_rate(self, step: int, total: int) -> float:
        """The learning rate at one of `total` steps: a linear rise, then a cosine down to the floor."""
        rise = self.warmup * total
        if step < rise:
            return self.learning_rate * (step + 1) / (rise + 1)
        fall = 0.5 * (1 + math.cos(math.pi * (step - rise) / max(total - rise, 1)))
        return self.learning_rate * (self.floor + (1 - self.floor) * fall)


DEFAULT = CaptionRecipe(
    name="default",
    weight_decay=1e-2,
    epochs=15,
    warmup=0.05,
    floor=0.02,
    clip=5.0,
    label_smoothing=0.1,
    recurrent_dropout=0.2,
    output_dropout=0.5,
    average=0.998,
    choose_by="cider_d",
)
# A captioner that is trained already, on a few epochs of other sentences.
FINE_TUNE = replace(DEFAULT, name="fine-tune", learning_rate=1e-3, epochs=3, average=0.99)
PAPER = CaptionRecipe(
    name="paper",
    optimizer="sgd",
    learning_rate=1e-5,
    momentum=0.5,
    epochs=300,
    patience=300,
)
CAPTION_RECIPES = {recipe.name: recipe for recipe in (DEFAULT, FINE_TUNE, PAPER)}
