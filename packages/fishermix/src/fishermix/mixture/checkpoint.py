"""Checkpoints: the progress of a fit in a folder, from which it is resumed."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.mixture.em import FitProgress
from fishermix.mixture.saved import StateConfig, pack_state, unpack_state
from fishermix.mixture.sums import Sums
from fishermix.rows import Block, RowSource
from fishermix.saved import Count, Digest, FolderKind, Struct, is_vacant, load_folder, save_folder


class CheckpointConfig(Struct, kw_only=True):
    """The progress of a fit: the current start, and the best of those that ended."""

    key: Digest
    start: Count
    best_converged: bool
    finished: bool
    converged: bool
    state: StateConfig
    best: StateConfig | None = None


CHECKPOINT_KIND = FolderKind("mixture checkpoint", 1, CheckpointConfig)


class Checkpoint:
    """A folder that holds the progress of one particular fit, so that it can be resumed.

    A fit is identified by its parameters and by all its rows and weights, which are read once for that.
    Whether they come from an array or from a file, and the name of the file, do not matter.
    """

    def __init__(self, folder: str | os.PathLike, parameters: dict[str, Any], source: RowSource):
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise FishermixError(f"checkpoint={self.folder} is a file. Name a folder.", code="wrong_folder")
        digest = hashlib.sha256(json.dumps(parameters, sort_keys=True, default=repr).encode())
        digest.update(repr((source.shape, str(source.dtype))).encode())
        for of_block in source.total(hash_block).digests:
            digest.update(of_block)
        self.key = digest.hexdigest()

    def read(self) -> FitProgress | None:
        """Read the progress, or return None if there is none; raise an error if it belongs to another fit."""
        if is_vacant(self.folder, CHECKPOINT_KIND):
            return None
        try:
            saved = load_folder(self.folder, CHECKPOINT_KIND)
            config, tensors = saved.config, saved.tensors
            states = [
                unpack_state(state, _find_tensors(tensors, name), self.folder) if state else None
                for name, state in (("state", config.state), ("best", config.best))
            ]
        except FishermixError as error:
            raise FishermixError(
                f"{error} The fit cannot be resumed from this checkpoint: name another folder, or delete "
                f"the folder {self.folder} if it holds nothing else you need.",
                code="damaged",
            ) from error
        if config.key != self.key:
            raise FishermixError(
                f"The checkpoint in {self.folder} belongs to a fit with other data or other parameters: "
                "delete the folder to start again, or name another one.",
                code="other_data",
            )
        assert states[0] is not None
        flags = config.best_converged, config.finished, config.converged
        return FitProgress(states[0], config.start, states[1], *flags)

    def write(self, progress: FitProgress) -> None:
        """Replace the checkpoint."""
        configs: list[StateConfig | None] = []
        tensors: dict[str, np.ndarray] = {}
        for name, state in (("state", progress.state), ("best", progress.best)):
            packed, of_state = pack_state(state) if state is not None else (None, {})
            configs.append(packed)
            tensors.update({f"{name}.{key}": value for key, value in of_state.items()})
        assert configs[0] is not None
        config = CheckpointConfig(
            key=self.key,
            start=progress.start,
            best_converged=bool(progress.best_converged),
            finished=bool(progress.finished),
            converged=bool(progress.converged),
            state=configs[0],
            best=configs[1],
        )
        save_folder(self.folder, CHECKPOINT_KIND, config, tensors)


@dataclass
class Digests(Sums):
    """SHA-256 of the rows and weights of each block."""

    digests: list[bytes]


def hash_block(block: Block) -> Digests:
    """Hash the rows and weights of a block."""
    digest = hashlib.sha256(block.rows.data)
    if block.weight is not None:
        digest.update(np.ascontiguousarray(block.weight).data)
    return Digests([digest.digest()])


def _find_tensors(tensors: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {key.split(".", 1)[1]: value for key, value in tensors.items() if key.startswith(f"{name}.")}
