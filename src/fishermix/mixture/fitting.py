"""The loop around EM's iterations: several starts, stopping, checkpoints, interruption."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.mixture.callbacks import IterationCallbacks
from fishermix.mixture.checkpoint import pack, unpack
from fishermix.mixture.em import State, iterate
from fishermix.rows.blocks import Block, RowSource, Totals
from fishermix.storage import is_vacant, load_folder, save_folder

CHECKPOINT = "mixture checkpoint"
ITERATIONS_BETWEEN_CHECKPOINTS = 5


@dataclass
class Progress:
    """What a fit has come to: the best of the finished starts, and the start under way."""

    state: State
    start: int = 0
    best: State | None = None
    best_converged: bool = False
    finished: bool = False
    converged: bool = False

    def keep_better(self) -> None:
        """Let the start under way be the best if it is."""
        bounds = self.state.lower_bounds
        if self.best is None or (bounds and bounds[-1] > self.best.lower_bounds[-1]):
            self.best, self.best_converged = self.state, self.converged

    def reopen(self, max_iter: int) -> None:
        """Let a single start that ended for want of iterations go on if more are allowed now."""
        if self.finished and self.start == 1 and not self.converged and self.state.iteration < max_iter:
            self.finished, self.start, self.best = False, 0, None


def run(
    progress: Progress,
    source: RowSource,
    *,
    new_start: Callable[[int], State],
    n_starts: int,
    max_iter: int,
    tol: float,
    callbacks: IterationCallbacks,
    checkpoint: Checkpoint | None,
) -> None:
    """Iterate every start until it converges, and leave the best in `progress`.

    `progress` is whole after every iteration: when this is interrupted, it holds the last good state.
    A callback may ask to stop.
    """
    while not progress.finished:
        stopped = False
        while not (progress.converged or stopped) and progress.state.iteration < max_iter:
            callbacks.before_iteration()
            reseeds = progress.state.reseeds.sum()
            progress.state = iterate(progress.state, source)
            bounds = progress.state.lower_bounds
            gain = abs(bounds[-1] - bounds[-2]) if len(bounds) > 1 else np.inf
            progress.converged = bool(gain < tol and progress.state.reseeds.sum() == reseeds)
            stopped = callbacks.after_iteration(progress.state)
            if checkpoint and (stopped or progress.state.iteration % ITERATIONS_BETWEEN_CHECKPOINTS == 0):
                checkpoint.write(progress)
        progress.keep_better()
        if stopped:
            return
        progress.start += 1
        progress.finished = progress.start >= n_starts
        if not progress.finished:
            progress.state, progress.converged = new_start(progress.start), False
    if checkpoint:
        checkpoint.write(progress)


class Checkpoint:
    """A folder that holds the progress of one particular fit, so that it can be taken up again.

    A fit is known by its parameters and by all its rows and weights, which are read once for that; where they
    come from, an array or a file of any name, does not matter.
    """

    def __init__(self, folder: str | os.PathLike, parameters: dict[str, Any], source: RowSource):
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise FishermixError(f"checkpoint={self.folder} is a file: name a folder")
        digest = hashlib.sha256(json.dumps(parameters, sort_keys=True, default=repr).encode())
        digest.update(repr((source.shape, str(source.dtype))).encode())
        for of_block in source.total(digest_of)["digests"]:
            digest.update(of_block)
        self.key = digest.hexdigest()

    def read(self) -> Progress | None:
        """What was written, or None where nothing was; refused if it belongs to another fit."""
        if is_vacant(self.folder, CHECKPOINT):
            return None
        try:
            config, tensors = load_folder(self.folder, CHECKPOINT, 1)
            key = config["key"]
            states = {
                name: unpack(config[name], _inside(tensors, name), self.folder)
                for name in ("state", "best")
                if name in config
            }
            progress = Progress(
                states["state"],
                int(config["start"]),
                states.get("best"),
                bool(config["best_converged"]),
                bool(config["finished"]),
                bool(config["converged"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = error if isinstance(error, FishermixError) else f"{self.folder} is damaged ({error!r})"
            raise FishermixError(
                f"{reason}. No fit can go on from this checkpoint: delete the folder {self.folder} (if you "
                "keep nothing else in it) to start anew, or name another one"
            ) from error
        if key != self.key:
            raise FishermixError(
                f"the checkpoint in {self.folder} belongs to a fit with other data or other parameters: "
                "delete the folder to start anew, or name another one"
            )
        return progress

    def write(self, progress: Progress) -> None:
        config: dict[str, Any] = {
            "key": self.key,
            "start": progress.start,
            "best_converged": progress.best_converged,
            "finished": progress.finished,
            "converged": progress.converged,
        }
        tensors: dict[str, np.ndarray] = {}
        for name, state in (("state", progress.state), ("best", progress.best)):
            if state is not None:
                config[name], of_state = pack(state)
                tensors.update({f"{name}.{key}": value for key, value in of_state.items()})
        save_folder(self.folder, CHECKPOINT, 1, config, tensors)


def digest_of(block: Block) -> Totals:
    """The hash of the rows and weights of a block, in a list that grows block by block."""
    digest = hashlib.sha256(block.rows.data)
    if block.weight is not None:
        digest.update(np.ascontiguousarray(block.weight).data)
    return Totals(digests=[digest.digest()])


def _inside(tensors: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {key.split(".", 1)[1]: value for key, value in tensors.items() if key.startswith(f"{name}.")}
