"""The checkpoint of a training on disk: safetensors and JSON, written atomically."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fishermix.caption.captioner import Captioner
from fishermix.errors import FishermixError
from fishermix.storage import is_vacant, load_folder, save_folder

if TYPE_CHECKING:
    from fishermix.caption.trainer import Position

KIND = "captioner training"
VERSION = 1


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
        config = {"fingerprint": self.fingerprint, "position": asdict(position)}
        arrays = {name: value.detach().numpy() for name, value in tensors.items()}
        save_folder(self.folder / "state", KIND, VERSION, config, arrays)

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
        config, arrays = load_folder(self.folder / "state", KIND, VERSION)
        if config.get("fingerprint") != self.fingerprint:
            raise FishermixError(
                f"{self.folder} contains the checkpoint of another training (other data, recipe or seed). "
                "Delete the folder to start again, or repeat the command that created it."
            )
        tensors = {name: torch.from_numpy(value) for name, value in arrays.items()}
        network.load_state_dict(_select(tensors, "network."))
        for name, value in _select(tensors, "mean.").items():
            mean[name].copy_(value)
        states: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in _select(tensors, "optimizer.").items():
            number, key = name.split(".")
            states.setdefault(int(number), {})[key] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": states})
        for name, value in config["position"].items():
            setattr(position, name, value)
        return Captioner.load(self.folder / "best") if position.best_epoch else None

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _select(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
