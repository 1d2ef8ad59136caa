"""Train a captioner with torch on a CPU, with checkpoints and early stopping on dev.

Every random choice depends on (seed, epoch) or (seed, step) only, so a checkpoint needs no state of a
generator, and a resumed training gives the same result as an uninterrupted one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from fishermix.errors import FishermixError
from fishermix.progress import progress
from fishermix.saved import (
    Count,
    FolderKind,
    Json,
    Name,
    Number,
    SavedFolder,
    Struct,
    hash_values,
    is_vacant,
    load_folder,
    remove_saved,
    require_tensor,
    save_folder,
)
from fishermix_photos.model.captioner.captioner import Captioner, scale_points
from fishermix_photos.model.captioner.vocabulary import Batch, CaptionSet, CaptionVocabulary, WordTable

from fishermix_lab.captions.measures import caption_scores
from fishermix_lab.captions.network import CaptionNetwork, Dropout, copy_weights, cross_entropy
from fishermix_lab.captions.recipe import DEFAULT, CaptionRecipe

SECONDS_BETWEEN_CHECKPOINTS = 120.0  # what a kill can lose


@dataclass
class Position:
    """The state of a training: finished epochs, steps of the current one, and its losses so far.

    history : of each finished epoch its number, the losses, and the scores of greedy search on dev
    """

    epoch: Count = 0
    step: Count = 0
    loss: Number = 0.0
    words: Count = 0
    best: Number | None = None
    best_epoch: Count = 0
    history: list[dict[Name, Count | Number]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if len(self.history) != self.epoch or self.best_epoch > self.epoch:
            raise ValueError("epoch, best_epoch and history do not fit together")


class TrainingConfig(Struct):
    """`config.json` of a checkpoint."""

    fingerprint: dict[Name, Json]
    position: Position


TRAINING_KIND = FolderKind("captioner training", 1, TrainingConfig)


class Training:
    """The training of a captioner; `run` resumes from the checkpoint in `folder` if there is one.

    The checkpoint: `state/` contains network, running mean, optimizer and position, `best/` the best
    captioner so far. That of other data, another recipe or seed is rejected.

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
        self.table = WordTable(
            sentences=[*train.words, *dev.words],
            vocabulary=vocabulary,
            encode_text=encode_text,
            dimension=self.dimension,
        )
        self._word_inputs = torch.from_numpy(scale_points(self.table.points, self.dimension))
        self._train_inputs = torch.from_numpy(scale_points(train.points, self.dimension))
        self._dev_inputs = torch.from_numpy(scale_points(dev.points, self.dimension))
        self.network = CaptionNetwork(
            dimension=self.dimension, units=recipe.units, n_words=len(vocabulary), seed=recipe.seed
        )
        if start is not None:
            self.network.load_weights(start.weights)
        self.mean = {name: value.detach().clone() for name, value in self.network.named_parameters()}
        self.optimizer = _make_optimizer(self.network, recipe)
        self.position = Position()
        self._start = start
        self.best: Captioner | None = None
        self.steps_per_epoch = -(-len(train.sentences) // recipe.batch_size)
        self.folder = None
        if folder is not None:
            self.folder = Path(folder)
            self._restore(self.folder)

    @cached_property
    def _fingerprint(self) -> dict:
        """What must be equal for a checkpoint to be resumed.

        Of a captioner to start from, only the words: an interrupted training has replaced its weights.
        """
        sets = [[part.points, part.sentences, part.image_of] for part in (self.train, self.dev)]
        return {
            "version": 1,  # increase it when a step of the training computes other numbers
            "recipe": asdict(self.recipe),
            "data": hash_values(*sets),
            "words": hash_values(list(self.table.vocabulary.words), self.table.points),
            "starts from a captioner": self._start is not None,
        }

    def run(self) -> Captioner:
        """Train until the last epoch or early stopping; returns the captioner of the best epoch.

        Nobody else may train in the folder of the checkpoint meanwhile.
        """
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
                    if time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
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
        seed = recipe.seed * 1_000_003 + step  # by a prime: it differs for all seeds and steps of a training
        dropout = Dropout(recipe.recurrent_dropout, recipe.output_dropout, seed)
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
        record = {
            "epoch": position.epoch + 1,
            "train_loss": position.loss / max(position.words, 1),
            "dev_loss": self.compute_dev_loss(),
            **caption_scores(captioner.caption(self.dev.points, beam=1), self.dev.references()),
        }
        position.history.append(record)
        position.epoch, position.step, position.loss, position.words = position.epoch + 1, 0, 0.0, 0
        value = -record["dev_loss"] if self.recipe.choose_by == "loss" else record[self.recipe.choose_by]
        if position.best is None or value > position.best:
            position.best = value
            position.best_epoch = position.epoch
            self.best = captioner
            if self.folder:
                captioner.save(self.folder / "best", half=False)
        self._save()

    def _save(self) -> None:
        if self.folder is None:
            return
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        tensors |= {f"mean.{name}": value for name, value in self.mean.items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            kept = {name: value for name, value in state.items() if value is not None}
            tensors |= {f"optimizer.{number}.{name}": value for name, value in kept.items()}
        arrays = {name: value.detach().numpy() for name, value in tensors.items()}
        config = TrainingConfig(self._fingerprint, self.position)
        save_folder(self.folder / "state", TRAINING_KIND, config, arrays)

    def _restore(self, folder: Path) -> None:
        """Load the saved state, if there is one."""
        if is_vacant(folder / "state", TRAINING_KIND):
            return
        saved = load_folder(folder / "state", TRAINING_KIND)
        if saved.config.fingerprint != self._fingerprint:
            raise FishermixError(
                f"{folder} contains the checkpoint of another training (other data, recipe or seed). "
                "Delete the folder to start again, or repeat the command that created it.",
                code="other_training",
            )
        parameters = self.network.state_dict()
        weights = _pick_tensors(saved, "network", parameters)
        means = _pick_tensors(saved, "mean", {name: parameters[name] for name in self.mean})
        states = self._select_states(saved)
        self.network.load_state_dict(weights)
        for name, value in means.items():
            self.mean[name].copy_(value)
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": states})
        self.position = saved.config.position
        self.best = Captioner.load(folder / "best") if self.position.best_epoch else None

    def _select_states(self, saved: SavedFolder) -> dict[int, dict[str, torch.Tensor]]:
        """The optimizer's state of each parameter; none has one before the first step."""
        if not any(name.startswith("optimizer.") for name in saved.tensors):
            return {}
        states = {}
        for number, parameter in enumerate(self.optimizer.param_groups[0]["params"]):
            like = {"momentum_buffer": parameter}
            if isinstance(self.optimizer, torch.optim.AdamW):
                like = {"step": torch.zeros(1), "exp_avg": parameter, "exp_avg_sq": parameter}
            states[number] = _pick_tensors(saved, f"optimizer.{number}", like)
        return states

    def remove_checkpoint(self) -> None:
        """Remove the files of the checkpoint, and the folder if nothing else is in it."""
        if self.folder is None:
            return
        for name in ("state", "best"):
            remove_saved(self.folder / name)
        with suppress(OSError):  # other files are there
            self.folder.rmdir()

    def make_captioner(self) -> Captioner:
        """A captioner with the current mean weights."""
        vocabulary = self.table.vocabulary
        points = self.table.points[: len(vocabulary)]
        confidence = self._start.confidence if self._start else None
        return Captioner(vocabulary, points, copy_weights(self.mean), confidence=confidence)

    @torch.no_grad()
    def compute_dev_loss(self) -> float:
        """The mean -log p per word of the dev sentences, with the mean weights."""
        batch_size = 256  # sentences
        total, count = 0.0, 0
        for batch in self.table.make_batches(self.dev, batch_size):
            starts = self._dev_inputs[torch.from_numpy(batch.images)]
            inputs = (starts, torch.from_numpy(batch.inputs), self._word_inputs)
            scores = torch.func.functional_call(self.network, self.mean, inputs)
            loss, words = cross_entropy(scores, torch.from_numpy(batch.targets))
            total, count = total + loss.item(), count + words
        return total / max(count, 1)


def _pick_tensors(
    saved: SavedFolder, prefix: str, like: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The saved tensors that belong to those of `like`, checked."""
    shapes = {name: tuple(value.shape) for name, value in like.items()}
    return {
        name: torch.from_numpy(require_tensor(saved.tensors, f"{prefix}.{name}", shape, saved.folder))
        for name, shape in shapes.items()
    }


def _check_start(start: Captioner, dimension: int, units: int) -> None:
    if (start.dimension, start.weights.units) != (dimension, units):
        raise FishermixError(
            f"The captioner to start from has {start.weights.units} units on {start.dimension} dimensions. "
            f"The recipe and the model have {units} on {dimension}.",
            code="wrong_shape",
        )


def _make_optimizer(network: CaptionNetwork, recipe: CaptionRecipe) -> torch.optim.Optimizer:
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(network.parameters(), recipe.learning_rate, momentum=recipe.momentum)
    return torch.optim.AdamW(
        network.parameters(), recipe.learning_rate, betas=(0.9, 0.99), weight_decay=recipe.weight_decay
    )
