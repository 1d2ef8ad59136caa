"""The state of a fit as named tensors and plain numbers: for saved mixtures and for checkpoints alike."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.mixture.em import State
from fishermix.mixture.families import family_to_config
from fishermix.mixture.m_step import start_fit
from fishermix.mixture.parameters import checked_choice, checked_families, checked_fits
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
    families = checked_families(config, where)
    try:
        floor, seed = float(config["min_scale"]), int(config["seed"])
        iteration, bounds = int(config["iteration"]), [float(bound) for bound in config["lower_bounds"]]
    except (KeyError, TypeError) as error:
        raise FishermixError(f"{where} lacks {error}: the file is damaged") from error
    weights, choice = checked_choice(tensors, len(families), where)
    parts = checked_fits(tensors, _OF_FITS, (len(families), *choice.shape), where)
    fits = []
    for number, family in enumerate(families):
        fit = start_fit(family, parts["location"][number], parts["scale"][number], floor)
        of_family = {name: parts[name][number] for name in _OF_FITS}
        fits.append(replace(fit, **of_family))  # exactly as saved, whatever the floor
    return State(
        weights=weights,
        fits=tuple(fits),
        choice=choice,
        rows=require_tensor(tensors, "rows", weights.shape, where),
        seed=seed,
        iteration=iteration,
        lower_bounds=bounds,
        reseeds=require_tensor(tensors, "reseeds", weights.shape, where),
    )
