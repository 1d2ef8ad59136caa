"""The checkpoint of a training on disk: safetensors and JSON, written atomically."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch

from fishermix.caption.captioner import Captioner
from fishermix.errors import FishermixError
from fishermix.schemas import Count, Json, Name, Number, Struct
from fishermix.storage import (
    LOCK_FILES,
    FolderKind,
    is_vacant,
    load_folder,
    remove_saved,
    require_tensor,
    save_folder,
)


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


KIND = FolderKind("captioner training", 1, TrainingConfig)


class Checkpoint:
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
        save_folder(self.folder / "state", KIND, TrainingConfig(self.fingerprint, position), arrays)

    def restore(
        self,
        network: torch.nn.Module,
        mean: dict[str, torch.Tensor],
        optimizer: torch.optim.Optimizer,
        position: Position,
    ) -> Captioner | None:
        """Load the saved state, if there is one, into these four; returns the best captioner so far."""
        if is_vacant(self.folder / "state", KIND):
            return None
        config, arrays = load_folder(self.folder / "state", KIND)
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
            for name in LOCK_FILES:
                (self.folder / name).unlink(missing_ok=True)
            self.folder.rmdir()
