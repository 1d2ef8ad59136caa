"""Train a captioner with torch on a CPU, with checkpoints and early stopping on dev.

Every random choice depends on (seed, epoch) or (seed, step) only, so a checkpoint needs no state of a
generator, and a resumed training gives the same result as an uninterrupted one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch

from fishermix.caption.captioner import Captioner, scale_points
from fishermix.caption.network import CaptionNetwork, Dropout, copy_weights, cross_entropy
from fishermix.caption.recipe import DEFAULT, CaptionRecipe
from fishermix.caption.vocabulary import Batch, CaptionSet, CaptionVocabulary, WordTable
from fishermix.errors import FishermixError
from fishermix.measures.captions import caption_scores
from fishermix.progress import progress
from fishermix.storage import (
    LOCK,
    Count,
    FolderKind,
    Json,
    Name,
    Number,
    Struct,
    hash_values,
    hold_folder,
    is_vacant,
    load_folder,
    remove_saved,
    require_tensor,
    save_folder,
)

SECONDS_BETWEEN_CHECKPOINTS = 120.0  # what a kill can lose
SEED_STEP = 1_000_003  # a prime: seeds of dropout differ for all seeds and steps of a training
DEV_BATCH_SIZE = 256


class EpochRecord(TypedDict):
    """What a finished epoch came to: the losses, and the scores of greedy search on dev."""

    epoch: Count
    train_loss: Number
    dev_loss: Number
    bleu1: Number
    bleu2: Number
    bleu3: Number
    bleu4: Number
    rouge_l: Number
    cider_d: Number


@dataclass
class Position:
    """The state of a training: finished epochs, steps of the current one, and its losses so far."""

    epoch: Count = 0
    step: Count = 0
    loss: Number = 0.0
    words: Count = 0
    best: Number | None = None
    best_epoch: Count = 0
    history: list[EpochRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        if len(self.history) != self.epoch or self.best_epoch > self.epoch:
            raise ValueError("epoch, best_epoch and history do not fit together")


class TrainingConfig(Struct):
    """`config.json` of a checkpoint."""

    fingerprint: dict[Name, Json]
    position: Position


VERSION = 1  # increase it when a step of the training computes other numbers
TRAINING_KIND = FolderKind("captioner training", 1, TrainingConfig)


class TrainingCheckpoint:
    """A folder: `state/` contains network, running mean, optimizer and position, `best/` the best captioner.

    fingerprint : identifies data, recipe and seed; the checkpoint of another training is rejected
    """

    def __init__(self, folder: Path, fingerprint: dict[str, Any]):
        self.folder, self.fingerprint = folder, fingerprint

    def save_best(self, captioner: Captioner) -> None:
        captioner.save(self.folder / "best", half=False)

    def save(
        self,
        network: torch.nn.Module,
        mean: dict[str, torch.Tensor],
        optimizer: torch.optim.Optimizer,
        position: Position,
    ) -> None:
        tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
        tensors |= {f"mean.{name}": value for name, value in mean.items()}
        for number, state in optimizer.state_dict()["state"].items():
            tensors |= {
                f"optimizer.{number}.{name}": value for name, value in state.items() if value is not None
            }
        arrays = {name: value.detach().numpy() for name, value in tensors.items()}
        save_folder(self.folder / "state", TRAINING_KIND, TrainingConfig(self.fingerprint, position), arrays)

    def restore(
        self,
        network: torch.nn.Module,
        mean: dict[str, torch.Tensor],
        optimizer: torch.optim.Optimizer,
        position: Position,
    ) -> Captioner | None:
        """Load the saved state, if there is one, into these four; returns the best captioner so far."""
        if is_vacant(self.folder / "state", TRAINING_KIND):
            return None
        saved = load_folder(self.folder / "state", TRAINING_KIND)
        config, arrays = saved.config, saved.tensors
        if config.fingerprint != self.fingerprint:
            raise FishermixError(
                f"{self.folder} contains the checkpoint of another training (other data, recipe or seed). "
                "Delete the folder to start again, or repeat the command that created it."
            )
        parameters = network.state_dict()
        weights = self._select(arrays, "network", parameters)
        means = self._select(arrays, "mean", {name: parameters[name] for name in mean})
        states = self._select_states(arrays, optimizer)
        network.load_state_dict(weights)
        for name, value in means.items():
            mean[name].copy_(value)
        optimizer.load_state_dict({**optimizer.state_dict(), "state": states})
        for attribute in fields(Position):
            setattr(position, attribute.name, getattr(config.position, attribute.name))
        return Captioner.load(self.folder / "best") if position.best_epoch else None

    def _select(
        self, arrays: Mapping[str, np.ndarray], prefix: str, like: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """The saved tensors that belong to those of `like`, checked."""
        return {
            name: torch.from_numpy(
                require_tensor(arrays, f"{prefix}.{name}", tuple(value.shape), self.folder / "state")
            )
            for name, value in like.items()
        }

    def _select_states(
        self, arrays: Mapping[str, np.ndarray], optimizer: torch.optim.Optimizer
    ) -> dict[int, dict[str, torch.Tensor]]:
        """The optimizer's state of each parameter; none has one before the first step."""
        if not any(name.startswith("optimizer.") for name in arrays):
            return {}
        parameters = optimizer.param_groups[0]["params"]
        states = {}
        for number, parameter in enumerate(parameters):
            like = {"momentum_buffer": parameter}
            if isinstance(optimizer, torch.optim.AdamW):
                like = {"step": torch.zeros(1), "exp_avg": parameter, "exp_avg_sq": parameter}
            states[number] = self._select(arrays, f"optimizer.{number}", like)
        return states

    def remove(self) -> None:
        """Remove the files of the checkpoint, and the folder if nothing else is in it."""
        for name in ("state", "best"):
            remove_saved(self.folder / name)
        with suppress(OSError):  # Windows: the lock is held; or other files are there
            (self.folder / LOCK).unlink(missing_ok=True)
            self.folder.rmdir()


class Training:
    """The training of a captioner; `run` resumes from the checkpoint in `folder` if there is one.

    train, dev : points and sentences, to train on and to choose the best epoch
    encode_text : gives one point (a row) per one-word sentence, zeros for a word out of vocabulary
    start : the captioner whose words and weights the training starts from; None for new ones
    """

    def __init__(
        self,
        train: CaptionSet,
        dev: CaptionSet,
        encode_text: Callable[[list[str]], np.ndarray],
        recipe: CaptionRecipe = DEFAULT,
        *,
        folder: str | os.PathLike | None = None,
        start: Captioner | None = None,
    ):
        self.train, self.dev, self.recipe = train, dev, recipe
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
        self.network = CaptionNetwork(self.dimension, recipe.units, len(vocabulary), recipe.seed)
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
            self.checkpoint = TrainingCheckpoint(Path(folder), self._fingerprint())
            self._restore()

    def _restore(self) -> None:
        assert self.checkpoint
        self.best = self.checkpoint.restore(self.network, self.mean, self.optimizer, self.position)

    def _fingerprint(self) -> dict:
        """What must be equal for a checkpoint to be resumed.

        Of a captioner to start from, only the words: an interrupted training has replaced its weights.
        """
        sets = [[part.points, part.sentences, part.image_of] for part in (self.train, self.dev)]
        return {
            "version": VERSION,
            "recipe": asdict(self.recipe),
            "data": hash_values(*sets),
            "words": hash_values(list(self.table.vocabulary.words), self.table.points),
            "starts from a captioner": self._start is not None,
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
                rng = np.random.default_rng([self.recipe.seed, position.epoch])
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
        seed = recipe.seed * SEED_STEP + step
        dropout = Dropout(recipe.recurrent_dropout, recipe.output_dropout, seed)
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.bfloat16):
            scores = self.network(
                self._train_inputs[torch.from_numpy(batch.images)],
                torch.from_numpy(batch.inputs),
                self._word_inputs,
                dropout,
            ).float()
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
        points = self.table.points[: len(vocabulary)]
        confidence = self._start.confidence if self._start else None
        return Captioner(vocabulary, points, copy_weights(self.mean), confidence=confidence)

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
    if (start.dimension, start.weights.units) != (dimension, units):
        raise FishermixError(
            f"The captioner to start from has {start.weights.units} units on {start.dimension} dimensions. "
            f"The recipe and the model have {units} on {dimension}."
        )


def _make_optimizer(network: CaptionNetwork, recipe: CaptionRecipe) -> torch.optim.Optimizer:
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(network.parameters(), recipe.learning_rate, momentum=recipe.momentum)
    return torch.optim.AdamW(
        network.parameters(), recipe.learning_rate, betas=(0.9, 0.99), weight_decay=recipe.weight_decay
    )
