"""The state of a fit as named tensors and plain numbers: for saved mixtures and for checkpoints alike."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.mixture.em import State
from fishermix.mixture.families import family_from_config, family_to_config
from fishermix.mixture.fits import start_fit
from fishermix.storage import require_tensor

_OF_FITS = ("location", "scale", "reach", "quality")


def pack(state: State) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Config and tensors; nothing is lost, so that a fit goes on from them to the same bits."""
    config = {
        "families": [family_to_config(family) for family in state.families],
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
    for name in _OF_FITS:
        tensors[name] = np.stack([np.asarray(getattr(fit, name), np.float64) for fit in state.fits])
    return config, tensors


def unpack(config: dict[str, Any], tensors: dict[str, np.ndarray], where: str | os.PathLike) -> State:
    """The checked opposite of `pack`."""
    try:
        families = [family_from_config(family) for family in config["families"]]
        floor, seed = float(config["min_scale"]), int(config["seed"])
        iteration, bounds = int(config["iteration"]), [float(bound) for bound in config["lower_bounds"]]
    except (KeyError, TypeError) as error:
        raise FishermixError(f"{where} lacks {error}: the file is damaged") from error
    weights = require_tensor(tensors, "weights", (None,), where)
    if not families or len(weights) == 0 or (weights <= 0).any() or not np.isclose(weights.sum(), 1):
        raise FishermixError(f"{where}: the weights are not positive numbers that sum to one")
    choice = require_tensor(tensors, "choice", (len(weights), None), where)
    if choice.dtype.kind not in "iu" or (choice < 0).any() or (choice >= len(families)).any():
        raise FishermixError(f"{where}: tensor 'choice' does not number the {len(families)} families")
    shape = (len(families), *choice.shape)
    parts = {name: require_tensor(tensors, name, shape, where) for name in _OF_FITS}
    if (parts["scale"] <= 0).any():
        raise FishermixError(f"{where}: tensor 'scale' is not positive everywhere")
    fits = []
    for number, family in enumerate(families):
        fit = start_fit(family, parts["location"][number], parts["scale"][number], floor)
        of_family = {name: parts[name][number] for name in _OF_FITS}
        fits.append(replace(fit, **of_family))  # exactly as saved, whatever the floor
    return State(
        weights=weights,
        fits=tuple(fits),
        choice=choice.astype(np.int64),
        rows=require_tensor(tensors, "rows", weights.shape, where),
        seed=seed,
        iteration=iteration,
        lower_bounds=bounds,
        reseeds=require_tensor(tensors, "reseeds", weights.shape, where),
    )
