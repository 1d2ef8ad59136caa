"""Train a captioner with torch on a CPU, with checkpoints and early stopping on dev.

Every random choice depends on (seed, epoch) or (seed, step) only, so a checkpoint needs no state of a
generator, and a resumed training gives the same result as an uninterrupted one.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fishermix.caption.batches import Batch, CaptionSet, WordTable
from fishermix.caption.captioner import Captioner, scale_points
from fishermix.caption.checkpoint import Checkpoint, Position
from fishermix.caption.network import CaptionNetwork, Dropout, copy_weights, cross_entropy
from fishermix.caption.recipe import DEFAULT, Recipe
from fishermix.caption.vocabulary import CaptionVocabulary
from fishermix.errors import FishermixError
from fishermix.evaluation.captions import caption_scores
from fishermix.locks import hold_folder
from fishermix.progress import progress

SECONDS_BETWEEN_CHECKPOINTS = 120.0  # what a kill can lose
SEED_STEP = 1_000_003  # a prime: seeds of dropout differ for all seeds and steps of a training
DEV_BATCH_SIZE = 256


class Training:
    """The training of a captioner; `run` resumes from the checkpoint in `folder` if there is one.

    Parameters
    ----------
    recipe : Recipe
        The hyperparameters.
    seed : int
        The seed.
    train, dev
        Points and sentences, to train on and to choose the best epoch.
    encode_text
        Gives one point (a row) per one-word sentence, zeros for a word out of vocabulary.
    folder
        The folder of the checkpoint, or None for no checkpoint.
    model_key
        The key of the model to whose joint space the points belong.
    start
        The captioner whose words and weights the training starts from; None for new ones.
    """

    def __init__(
        self,
        train: CaptionSet,
        dev: CaptionSet,
        encode_text: Callable[[list[str]], np.ndarray],
        recipe: Recipe = DEFAULT,
        *,
        folder: str | os.PathLike | None = None,
        seed: int = 0,
        model_key: str = "",
        start: Captioner | None = None,
    ):
        self.train, self.dev, self.recipe, self.seed, self.model_key = train, dev, recipe, seed, model_key
        self.dimension = min(recipe.dimension, train.points.shape[1])
        if start is None:
            vocabulary = CaptionVocabulary.from_sentences(train.words, recipe.min_count)
        else:
            _check_start(start, self.dimension, recipe.units)
            vocabulary = start.vocabulary
        self.table = WordTable.from_sentences(
            [*train.words, *dev.words], vocabulary, encode_text, self.dimension
        )
        self._word_inputs = torch.from_numpy(scale_points(self.table.points, self.dimension))
        self._train_inputs = torch.from_numpy(scale_points(train.points, self.dimension))
        self._dev_inputs = torch.from_numpy(scale_points(dev.points, self.dimension))
        self.network = CaptionNetwork(self.dimension, recipe.units, len(vocabulary), seed)
        if start is not None:
            self.network.load_weights(start.weights)
        self.mean = {name: value.detach().clone() for name, value in self.network.named_parameters()}
        self.optimizer = _make_optimizer(self.network, recipe)
        self.position = Position()
        self._start = start
        self.best: Captioner | None = None
        self.steps_per_epoch = -(-len(train.sentences) // recipe.batch_size)
        self.checkpoint = None
        if folder is not None:
            self.checkpoint = Checkpoint(Path(folder), self._fingerprint())
            self._restore()

    def _restore(self) -> None:
        assert self.checkpoint
        self.best = self.checkpoint.restore(self.network, self.mean, self.optimizer, self.position)

    def _fingerprint(self) -> dict:
        """What must be equal for a checkpoint to be resumed.

        Of a captioner to start from, only the words: an interrupted training has replaced its weights.
        """
        words = " ".join(self.table.vocabulary.words).encode()
        started = {"started words": hashlib.sha256(words).hexdigest()} if self._start else {}
        return started | {
            "recipe": asdict(self.recipe),
            "seed": self.seed,
            "sentences": [len(self.train.sentences), len(self.dev.sentences)],
            "points": float(np.abs(self.train.points).sum(dtype=np.float64)),
            "words": len(self.table.points),
        }

    def run(self) -> Captioner:
        """Train until the last epoch or early stopping; returns the captioner of the best epoch.

        Nobody else may train in the folder of the checkpoint meanwhile.
        """
        if self.checkpoint is None:
            return self._run()
        with hold_folder(self.checkpoint.folder, "--checkpoint (in Python: folder=)"):
            self._restore()  # another training may have gone on since
            return self._run()

    def _run(self) -> Captioner:
        total = self.recipe.epochs * self.steps_per_epoch
        position = self.position
        with progress("training the captioner", total) as bar:
            bar.advance(position.epoch * self.steps_per_epoch + position.step)
            saved = time.monotonic()
            while position.epoch < self.recipe.epochs and not self._is_out_of_patience():
                rng = np.random.default_rng([self.seed, position.epoch])
                batches = self.table.make_batches(self.train, self.recipe.batch_size, rng)
                for batch in islice(batches, position.step, None):
                    self._step(batch, position.epoch * self.steps_per_epoch + position.step, total)
                    position.step += 1
                    bar.advance(1, self._describe_progress())
                    if self.checkpoint and time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
                        self._save()
                        saved = time.monotonic()
                self._finish_epoch()
                saved = time.monotonic()
        assert self.best is not None
        return self.best

    def _is_out_of_patience(self) -> bool:
        return self.position.epoch - self.position.best_epoch >= self.recipe.patience

    def _describe_progress(self) -> str:
        position = self.position
        note = f"epoch {position.epoch + 1}, loss {position.loss / max(position.words, 1):.3f}"
        if position.history:
            last = position.history[-1]
            note += f"; last epoch: dev loss {last['dev_loss']:.3f}, CIDEr-D {last['cider_d']:.1f}"
        return note

    def _step(self, batch: Batch, step: int, total: int) -> None:
        recipe = self.recipe
        dropout = Dropout(
            recipe.input_dropout,
            recipe.recurrent_dropout,
            recipe.output_dropout,
            seed=self.seed * SEED_STEP + step,
        )
        scores = self.network(
            self._train_inputs[torch.from_numpy(batch.images)],
            torch.from_numpy(batch.inputs),
            self._word_inputs,
            dropout,
        )
        targets = torch.from_numpy(batch.targets)
        loss, words = cross_entropy(scores, targets, recipe.label_smoothing)
        self.optimizer.zero_grad()
        (loss if recipe.optimizer == "sgd" else loss / max(words, 1)).backward()
        if recipe.clip:
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), recipe.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.compute_rate(step, total)
        self.optimizer.step()
        # The decay rises to the recipe's over the first steps, so that the mean forgets the initial weights.
        decay = min(recipe.average, (1 + step) / (10 + step))
        for name, value in self.network.named_parameters():
            self.mean[name].lerp_(value.detach(), 1 - decay)
        self.position.loss += loss.item()
        self.position.words += words

    def _finish_epoch(self) -> None:
        """Evaluate the mean weights on dev, keep them if they are the best so far, and save."""
        position = self.position
        captioner = self.make_captioner()
        record: Any = {
            "epoch": position.epoch + 1,
            "train_loss": position.loss / max(position.words, 1),
            "dev_loss": self.compute_dev_loss(),
            **caption_scores(captioner.caption(self.dev.points, beam=1), self.dev.references()),
        }
        position.history.append(record)
        position.epoch, position.step, position.loss, position.words = position.epoch + 1, 0, 0.0, 0
        value = -record["dev_loss"] if self.recipe.choose_by == "loss" else record[self.recipe.choose_by]
        if position.best is None or value > position.best:
            position.best, position.best_epoch, self.best = value, position.epoch, captioner
            if self.checkpoint:
                self.checkpoint.save_best(captioner)
        self._save()

    def _save(self) -> None:
        if self.checkpoint:
            self.checkpoint.save(self.network, self.mean, self.optimizer, self.position)

    def remove_checkpoint(self) -> None:
        """Delete the checkpoint."""
        if self.checkpoint:
            self.checkpoint.remove()

    def make_captioner(self) -> Captioner:
        """A captioner with the current mean weights."""
        vocabulary = self.table.vocabulary
        return Captioner(
            vocabulary,
            self.table.points[: len(vocabulary)],
            copy_weights(self.mean),
            self.model_key,
            self._start.confidence if self._start else None,
        )

    @torch.no_grad()
    def compute_dev_loss(self) -> float:
        """The mean -log p per word of the dev sentences, with the mean weights."""
        total, count = 0.0, 0
        for batch in self.table.make_batches(self.dev, DEV_BATCH_SIZE):
            starts = self._dev_inputs[torch.from_numpy(batch.images)]
            inputs = (starts, torch.from_numpy(batch.inputs), self._word_inputs)
            scores = torch.func.functional_call(self.network, self.mean, inputs)
            loss, words = cross_entropy(scores, torch.from_numpy(batch.targets))
            total, count = total + loss.item(), count + words
        return total / max(count, 1)


def _check_start(start: Captioner, dimension: int, units: int) -> None:
    if start.image_map is not None:
        raise FishermixError(
            "A captioner that was adapted from another model cannot be trained further. Train a new one with "
            "--recipe default."
        )
    if (start.dimension, start.weights.units) != (dimension, units):
        raise FishermixError(
            f"The captioner to start from has {start.weights.units} units on {start.dimension} dimensions. "
            f"The recipe and the model have {units} on {dimension}."
        )


def _make_optimizer(network: CaptionNetwork, recipe: Recipe) -> torch.optim.Optimizer:
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(network.parameters(), recipe.learning_rate, momentum=recipe.momentum)
    return torch.optim.AdamW(
        network.parameters(), recipe.learning_rate, betas=(0.9, 0.99), weight_decay=recipe.weight_decay
    )
