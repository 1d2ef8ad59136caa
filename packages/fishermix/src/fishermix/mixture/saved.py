"""What is saved of a mixture: numbers for `config.json`, tensors for the safetensors file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np
from msgspec import Meta, structs

from fishermix.errors import FishermixError
from fishermix.mixture.em import FitState
from fishermix.mixture.families import Family, describe_family, make_family
from fishermix.mixture.parameters import MixtureParameters, check_parameters, check_shapes
from fishermix.saved import (
    Count,
    FolderKind,
    Json,
    Name,
    Number,
    Positive,
    Seed,
    Size,
    Struct,
    Text,
    check_feature_names,
    field,
    list_feature_names,
    require_tensor,
    require_tensors,
)

if TYPE_CHECKING:
    from fishermix.mixture.estimator import Mixture

# The shapes of the tensors of a mixture of F families, see `fishermix.saved.require_tensors`.
MIXTURE_TENSORS = {"weights": "K", "choice": "int K D", "location": "F K D", "scale": "F K D"}
# Tensor: attribute of a fit.
FIT_TENSORS = {
    "location": "location",
    "scale": "scale",
    "reach": "reach",
    "quality": "expected_log_likelihood",
}


# Next to these if a family has a free shape: zero for the other families.
SHAPE_TENSORS = {"shape": "F K D", "stride": "int F K D"}


class FamilyConfig(Struct):
    """A family in a saved mixture."""

    name: Name
    parameters: dict[Name, Json] = msgspec.field(default_factory=dict)


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


KIND = FolderKind("mixture", 1, MixtureConfig)


def pack_state(state: FitState) -> tuple[StateConfig, dict[str, np.ndarray]]:
    """Return the numbers and tensors from which a fit continues to the same bits."""
    config = StateConfig(
        families=[FamilyConfig(*describe_family(fit.family)) for fit in state.fits],
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
    for name, attribute in FIT_TENSORS.items():
        tensors[name] = np.stack([np.asarray(getattr(fit, attribute), np.float64) for fit in state.fits])
    if any(fit.family.has_free_shape for fit in state.fits):
        grid = state.choice.shape
        shapes = [np.broadcast_to(np.nan_to_num(fit.shape), grid) for fit in state.fits]
        strides = [np.broadcast_to(fit.stride, grid) for fit in state.fits]
        tensors |= {"shape": np.stack(shapes), "stride": np.stack(strides)}
    return config, tensors


def unpack_state(config: StateConfig, tensors: dict[str, np.ndarray], where: str | os.PathLike) -> FitState:
    """Check and read what `pack_state` returned; errors name `where`."""
    families = [make_family(family.name, family.parameters) for family in config.families]
    shapes = MIXTURE_TENSORS | dict.fromkeys(FIT_TENSORS, "F K D") | {"rows": "K", "reseeds": "int K"}
    if any(family.has_free_shape for family in families):
        shapes |= SHAPE_TENSORS
    require_tensors(tensors, shapes, where)
    chosen = unpack_parameters(families, tensors, where)
    of_fits = {name: tensors[name].astype(np.float64, copy=False) for name in FIT_TENSORS}
    start = chosen.weights, of_fits["location"][0], of_fits["scale"][0]
    state = FitState.start(families, start, config.min_scale, 1.0, config.seed)
    fits = [
        replace(fit, **{attribute: of_fits[name][number] for name, attribute in FIT_TENSORS.items()})
        for number, fit in enumerate(state.fits)
    ]
    for number, fit in enumerate(fits):
        if fit.family.has_free_shape:
            shape, stride = (np.array(tensors[name][number]) for name in SHAPE_TENSORS)
            fits[number] = replace(fit, shape=shape.astype(np.float64), stride=stride.astype(np.int64))
    return replace(
        state,
        fits=tuple(fits),
        choice=chosen.choice,
        rows=tensors["rows"].astype(np.float64, copy=False),
        iteration=config.iteration,
        lower_bounds=config.lower_bounds,
        reseeds=tensors["reseeds"],
    )


def unpack_parameters(
    families: Sequence[Family], tensors: Mapping[str, np.ndarray], where: str | os.PathLike
) -> MixtureParameters:
    """The mixture of saved tensors, which have the shapes `MIXTURE_TENSORS`; errors name `where`.

    If a family has a free shape, there is also the tensor "shape" (F, K, D).
    """
    weights = tensors["weights"].astype(np.float64, copy=False)
    choice = tensors["choice"].astype(np.int64)
    locations, scales = (tensors[name].astype(np.float64, copy=False) for name in ("location", "scale"))
    if len(locations) != len(families):
        raise FishermixError(
            f"{where}: there are {len(families)} families, but {len(locations)} locations.", code="damaged"
        )
    for location, scale in zip(locations, scales):
        check_parameters(MixtureParameters(families, weights, location, scale, choice), f"{where}: ")
    location, scale = (np.take_along_axis(part, choice[None], axis=0)[0] for part in (locations, scales))
    shapes = np.full(choice.shape, np.nan)
    for index, family in enumerate(families):
        if family.has_free_shape:
            saved = require_tensor(tensors, "shape", locations.shape, where)
            np.copyto(shapes, saved[index], where=choice == index)
    parameters = MixtureParameters(families, weights, location, scale, choice, shapes)
    check_shapes(parameters, f"{where}: ")
    return parameters


def pack_mixture(mixture: Mixture) -> tuple[MixtureConfig, dict[str, np.ndarray]]:
    """Return the numbers and tensors from which `unpack_mixture` makes the same fitted mixture."""
    state = mixture._recover_state()
    fit, tensors = pack_state(state)
    tensors["seen"] = getattr(mixture, "_seen", state.rows)
    seed = int(mixture.random_state) if isinstance(mixture.random_state, Integral) else None
    parameters = EstimatorParameters(
        tol=mixture.tol,
        max_iter=mixture.max_iter,
        n_init=mixture.n_init,
        init_params=mixture.init_params,
        min_scale=mixture.min_scale,
        random_state=seed,
    )
    config = MixtureConfig(
        **structs.asdict(fit),
        class_name=type(mixture).__name__,
        parameters=parameters,
        converged=bool(mixture.converged_),
        first_iteration=min(getattr(mixture, "_first_iteration", 0), state.iteration),
        feature_names_in=list_feature_names(mixture),
    )
    return config, tensors


def unpack_mixture(
    config: MixtureConfig, tensors: dict[str, np.ndarray], where: str | os.PathLike
) -> Mixture:
    """Read what `pack_mixture` returned; errors name the folder `where`."""
    from fishermix import mixture as package

    state = unpack_state(config, tensors, where)
    parameters = structs.asdict(config.parameters)
    if config.class_name in ("GaussianMixture", "LaplacianMixture", "HybridMixture"):
        mixture = getattr(package, config.class_name)(len(state.weights), **parameters)
    else:
        families = [fit.family for fit in state.fits]
        mixture = package.Mixture(len(state.weights), families=families, **parameters)
    mixture.n_features_in_ = state.choice.shape[1]
    seen = require_tensor(tensors, "seen", state.weights.shape, where).astype(np.float64, copy=False)
    mixture._set_state(state, config.converged, seen, config.first_iteration)
    if names := check_feature_names(config.feature_names_in, mixture.n_features_in_, where):
        mixture.feature_names_in_ = np.array(names, object)
    return mixture
