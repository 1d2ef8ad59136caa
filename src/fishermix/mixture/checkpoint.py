"""The state of a fit as tensors and plain numbers, for saved mixtures and for checkpoints."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.mixture.em import Progress, State
from fishermix.mixture.families import family_to_config
from fishermix.mixture.parameters import parse_choice, parse_families, parse_fits
from fishermix.rows.blocks import Block, RowSource, Statistics
from fishermix.storage import is_vacant, load_folder, require_tensor, save_folder

KIND, VERSION = "mixture checkpoint", 1
# Tensor in the file: attribute of a fit. The files keep the names of 0.1.
TENSORS = {"location": "location", "scale": "scale", "reach": "reach", "quality": "expected_log_likelihood"}


def pack_state(state: State) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return config and tensors from which a fit continues to the same bits."""
    config = {
        "families": [family_to_config(fit.family) for fit in state.fits],
        "min_scale": state.fits[0].floor,
        "seed": state.seed,
        "iteration": state.iteration,
        "lower_bounds": state.lower_bounds,
    }
    tensors = {
        "weights": state.weights,
        "choice": state.choice.astype(np.int64),
        "rows": np.asarray(state.rows, np.float64),
        "reseeds": state.reseeds,
    }
    for name, attribute in TENSORS.items():
        tensors[name] = np.stack([np.asarray(getattr(fit, attribute), np.float64) for fit in state.fits])
    return config, tensors


def unpack_state(config: dict[str, Any], tensors: dict[str, np.ndarray], where: str | os.PathLike) -> State:
    """Check and read what `pack_state` returned."""
    families = parse_families(config, where)
    try:
        floor, seed = float(config["min_scale"]), int(config["seed"])
        iteration, bounds = int(config["iteration"]), [float(bound) for bound in config["lower_bounds"]]
    except (KeyError, TypeError) as error:
        raise FishermixError(f"{error} is missing or invalid in {where}. The file is damaged.") from error
    weights, choice = parse_choice(tensors, len(families), where)
    parts = parse_fits(tensors, list(TENSORS), (len(families), *choice.shape), where)
    start = weights, parts["location"][0], parts["scale"][0]
    state = State.start(families, start, floor, 1.0, seed)
    fits = tuple(
        replace(fit, **{attribute: parts[name][number] for name, attribute in TENSORS.items()})
        for number, fit in enumerate(state.fits)
    )
    return replace(
        state,
        fits=fits,
        choice=choice,
        rows=require_tensor(tensors, "rows", weights.shape, where),
        iteration=iteration,
        lower_bounds=bounds,
        reseeds=require_tensor(tensors, "reseeds", weights.shape, where),
    )


class Checkpoint:
    """A folder that holds the progress of one particular fit, so that it can be resumed.

    A fit is identified by its parameters and by all its rows and weights, which are read once for that.
    Whether they come from an array or from a file, and the name of the file, do not matter.
    """

    def __init__(self, folder: str | os.PathLike, parameters: dict[str, Any], source: RowSource):
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise FishermixError(f"checkpoint={self.folder} is a file. Name a folder.")
        digest = hashlib.sha256(json.dumps(parameters, sort_keys=True, default=repr).encode())
        digest.update(repr((source.shape, str(source.dtype))).encode())
        for of_block in source.total(hash_block)["digests"]:
            digest.update(of_block)
        self.key = digest.hexdigest()

    def read(self) -> Progress | None:
        """Read the progress, or return None if there is none; raise an error if it belongs to another fit."""
        if is_vacant(self.folder, KIND):
            return None
        try:
            config, tensors = load_folder(self.folder, KIND, VERSION)
            key = config["key"]
            states = {
                name: unpack_state(config[name], _find_tensors(tensors, name), self.folder)
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
            reason = error if isinstance(error, FishermixError) else f"{self.folder} is damaged ({error!r})."
            raise FishermixError(
                f"{reason} The fit cannot be resumed from this checkpoint: name another folder, or delete "
                f"the folder {self.folder} if it holds nothing else you need."
            ) from error
        if key != self.key:
            raise FishermixError(
                f"The checkpoint in {self.folder} belongs to a fit with other data or other parameters: "
                "delete the folder to start again, or name another one."
            )
        return progress

    def write(self, progress: Progress) -> None:
        """Replace the checkpoint."""
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
                config[name], of_state = pack_state(state)
                tensors.update({f"{name}.{key}": value for key, value in of_state.items()})
        save_folder(self.folder, KIND, VERSION, config, tensors)


def hash_block(block: Block) -> Statistics:
    """Hash the rows and weights of a block."""
    digest = hashlib.sha256(block.rows.data)
    if block.weight is not None:
        digest.update(np.ascontiguousarray(block.weight).data)
    return Statistics(digests=[digest.digest()])


def _find_tensors(tensors: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {key.split(".", 1)[1]: value for key, value in tensors.items() if key.startswith(f"{name}.")}
