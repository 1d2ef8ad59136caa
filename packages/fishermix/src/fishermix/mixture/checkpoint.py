"""Saved mixtures and checkpoints: the state of a fit as tensors and plain numbers, written and checked."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from fishermix.errors import FishermixError
from fishermix.mixture.e_step import MixtureParameters, check_parameters
from fishermix.mixture.em import FitProgress, FitState
from fishermix.mixture.families import REGISTERED, Family
from fishermix.rows import Block, RowSource, Statistics
from fishermix.storage import (
    Count,
    Digest,
    FolderKind,
    Json,
    Name,
    Number,
    Positive,
    Seed,
    Size,
    Struct,
    Text,
    field,
    is_vacant,
    load_folder,
    require_tensor,
    require_tensors,
    save_folder,
)

# Tensor in the file: attribute of a fit.
TENSORS = {"location": "location", "scale": "scale", "reach": "reach", "quality": "expected_log_likelihood"}


class FamilyConfig(Struct):
    """A family in a saved mixture."""

    name: Name
    parameters: dict[Name, Json] = field(default_factory=dict)


class StateConfig(Struct, kw_only=True):
    """The numbers of a fit in a saved folder, next to its tensors."""

    families: Annotated[list[FamilyConfig], Meta(min_length=1)]
    min_scale: Positive
    seed: Seed
    iteration: Count
    lower_bounds: list[Number]


class EstimatorParameters(Struct, kw_only=True):
    """The parameters of `Mixture` that are saved."""

    tol: Number = 1e-3
    max_iter: Count = 100
    n_init: Size = 1
    init_params: Name = "k-means++"
    min_scale: Positive = 1e-3
    random_state: Annotated[int, Meta(ge=0, le=2**32 - 1)] | None = None  # as NumPy's RandomState takes it


class MixtureConfig(StateConfig, kw_only=True):
    """A saved mixture."""

    class_name: Text = field(default="Mixture", name="class")
    parameters: EstimatorParameters = field(default_factory=EstimatorParameters)
    converged: bool = False
    first_iteration: Count = 0
    feature_names_in: list[Text] | None = None


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


def family_to_config(family: Family) -> FamilyConfig:
    """Return the name and parameters of a registered family; a saved mixture never holds code."""
    if REGISTERED.get(getattr(family, "name", "")) is not type(family):
        raise FishermixError(
            f"The family {type(family).__name__} is not registered. Call "
            f"fishermix.mixture.register_family({type(family).__name__}) before saving and before loading."
        )
    return FamilyConfig(family.name, family.parameters())


def family_from_config(config: FamilyConfig) -> Family:
    """Return the family that `family_to_config` described."""
    name = config.name
    if name not in REGISTERED:
        raise FishermixError(
            f"The saved mixture uses the family '{name}', which is not registered. Import the module that "
            "defines it and call fishermix.mixture.register_family first."
        )
    try:
        return REGISTERED[name](**config.parameters)
    except (TypeError, ValueError) as error:
        raise FishermixError(f"The saved parameters of the family '{name}' are invalid ({error}).") from error


def pack_state(state: FitState) -> tuple[StateConfig, dict[str, np.ndarray]]:
    """Return config and tensors from which a fit continues to the same bits."""
    config = StateConfig(
        families=[family_to_config(fit.family) for fit in state.fits],
        min_scale=float(state.fits[0].floor),
        seed=int(state.seed),
        iteration=state.iteration,
        lower_bounds=[float(bound) for bound in state.lower_bounds],
    )
    tensors = {
        "weights": state.weights,
        "choice": state.choice.astype(np.int64),
        "rows": np.asarray(state.rows, np.float64),
        "reseeds": state.reseeds,
    }
    for name, attribute in TENSORS.items():
        tensors[name] = np.stack([np.asarray(getattr(fit, attribute), np.float64) for fit in state.fits])
    return config, tensors


def unpack_state(config: StateConfig, tensors: dict[str, np.ndarray], where: str | os.PathLike) -> FitState:
    """Check and read what `pack_state` returned."""
    families, weights, choice, parts = parse_tensors(config, tensors, list(TENSORS), where)
    start = weights, parts["location"][0], parts["scale"][0]
    state = FitState.start(families, start, config.min_scale, 1.0, config.seed)
    fits = tuple(
        replace(fit, **{attribute: parts[name][number] for name, attribute in TENSORS.items()})
        for number, fit in enumerate(state.fits)
    )
    return replace(
        state,
        fits=fits,
        choice=choice,
        rows=require_tensor(tensors, "rows", weights.shape, where).astype(np.float64, copy=False),
        iteration=config.iteration,
        lower_bounds=config.lower_bounds,
        reseeds=require_tensor(tensors, "reseeds", weights.shape, where, kinds="iu"),
    )


def read_parameters(
    config: StateConfig, tensors: Mapping[str, np.ndarray], where: str | os.PathLike
) -> MixtureParameters:
    """Read the plain mixture of what `Mixture.to_tensors` wrote; error messages name `where`."""
    families, weights, choice, fits = parse_tensors(config, tensors, ("location", "scale"), where)
    locations, scales = (np.take_along_axis(part, choice[None], axis=0)[0] for part in fits.values())
    return MixtureParameters(families, weights, locations, scales, choice)


def parse_tensors(
    config: StateConfig, tensors: Mapping[str, np.ndarray], names: Sequence[str], where: str | os.PathLike
) -> tuple[list[Family], np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Read the families, weights (K,), choice (K, D) and tensors `names` (families, K, D) of a saved mixture.

    "location" and "scale" are among the names.
    """
    families = [family_from_config(family) for family in config.families]
    shapes = {"weights": "K", "choice": "int K D"} | dict.fromkeys(names, f"{len(families)} K D")
    weights, choice, *fits = require_tensors(tensors, shapes, where)
    weights, choice = weights.astype(np.float64, copy=False), choice.astype(np.int64)
    parts = {name: values.astype(np.float64, copy=False) for name, values in zip(names, fits)}
    for location, scale in zip(parts["location"], parts["scale"]):
        check_parameters(MixtureParameters(families, weights, location, scale, choice), f"{where}: ")
    return families, weights, choice, parts


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
                f"the folder {self.folder} if it holds nothing else you need."
            ) from error
        if config.key != self.key:
            raise FishermixError(
                f"The checkpoint in {self.folder} belongs to a fit with other data or other parameters: "
                "delete the folder to start again, or name another one."
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


def hash_block(block: Block) -> Statistics:
    """Hash the rows and weights of a block."""
    digest = hashlib.sha256(block.rows.data)
    if block.weight is not None:
        digest.update(np.ascontiguousarray(block.weight).data)
    return Statistics(digests=[digest.digest()])


def _find_tensors(tensors: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {key.split(".", 1)[1]: value for key, value in tensors.items() if key.startswith(f"{name}.")}
