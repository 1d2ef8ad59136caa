"""The parameters of a mixture, and the E step (paper, equations of the HGLMM's E step).

log p(x, k) = log tau_k + sum_d [ log f_{kd}((x_d - location_kd) / scale_kd) - log scale_kd ]
T_k(x)      = p(x, k) / sum_j p(x, j)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, NamedTuple, TypeVar

import numpy as np
from msgspec import Meta

from fishermix.errors import FishermixError
from fishermix.mixture.families import Family, FamilyConfig, Gaussian, Laplace, family_from_config
from fishermix.mixture.numpy_kernels import choose_kernels
from fishermix.mixture.statistics import PanelPosteriors, Posteriors
from fishermix.rows.blocks import PANEL, Statistics
from fishermix.schemas import Count, Name, Number, Positive, Seed, Size, Struct, Text, field
from fishermix.storage import require_tensors
from fishermix.threads import count_threads

T = TypeVar("T")
NEGLIGIBLE = {
    "f": 1e-6,
    "d": 1e-15,
}  # posteriors that rounding of the densities would hide, by type of the rows
NEGLIGIBLE_LOG = {"f": -24.0, "d": -40.0}  # log posteriors that rounding of the densities would hide
FARTHEST = -1e290  # log density of a row whose distances overflow float64
FEW_ROWS = 64  # up to here NumPy is as fast as a kernel, and a single query does not wait for the compiler
FEW_NUMBERS = 2_000_000  # rows * K * D that the NumPy version may expand to
SHORTEST, LONGEST = 1e-15, 1e15  # lengths whose squares float32 can sum over a panel
UNROLLED = 4  # dimensions per inner loop of the kernels; the parameters are padded to a multiple of it

# The compiled form of a family: log f(z) = at_center - square z² - linear |z|. Others are called row by row.
COMPILED: dict[type[Family], tuple[float, float, float]] = {
    Gaussian: (-0.5 * np.log(2 * np.pi), 0.5, 0.0),
    Laplace: (-np.log(2.0), 0.0, 1.0),
}


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
    random_state: Seed | None = None


class MixtureConfig(StateConfig, kw_only=True):
    """A saved mixture."""

    class_name: Text = field(default="Mixture", name="class")
    parameters: EstimatorParameters = field(default_factory=EstimatorParameters)
    converged: bool = False
    first_iteration: Count = 0
    feature_names_in: list[Text] | None = None


class _Compiled(NamedTuple):
    """The arguments of `kernels.log_densities`, and the (k, d) whose families have no compiled form."""

    location: np.ndarray  # (K, padded D), as are the next two
    square: np.ndarray
    linear: np.ndarray
    constant: np.ndarray  # (K,)
    others: list[tuple[Family, int, np.ndarray]]  # family, component, dimensions


@dataclass(frozen=True)
class MixtureParameters:
    """Parameters of a mixture: weights (K,); locations, scales, and choice (K, D), an index of `families`."""

    families: Sequence[Family]
    weights: np.ndarray
    locations: np.ndarray
    scales: np.ndarray
    choice: np.ndarray

    @classmethod
    def from_tensors(
        cls, config: StateConfig, tensors: Mapping[str, np.ndarray], where: str | os.PathLike
    ) -> MixtureParameters:
        """Read what `Mixture.to_tensors` wrote; error messages name `where`."""
        weights, choice, fits = parse_tensors(tensors, len(config.families), ("location", "scale"), where)
        families = [family_from_config(family) for family in config.families]
        locations, scales = (choose(list(fits[name]), choice) for name in ("location", "scale"))
        return cls(families, weights, locations, scales, choice)

    # Posteriors

    def sparse_posteriors(self, rows: np.ndarray, threshold: float, threads: int | None = None) -> Posteriors:
        """Return the posteriors (n, K) of rows (n, D) that are at least the threshold.

        A few rows are computed in NumPy, without the compiler.
        """
        if len(rows) == 0:
            return Posteriors.of_dense(np.zeros((0, len(self.weights))), threshold)
        if len(rows) <= FEW_ROWS and rows.size * len(self.weights) <= FEW_NUMBERS:
            dense = self._posteriors_in_numpy(rows)
            if dense is not None:
                return Posteriors.of_dense(dense, threshold)
        threads = min(count_threads(threads), len(range(0, len(rows), PANEL)))
        return Posteriors.of_panels(self._list_panels(rows, threshold, threads), len(self.weights))

    def _list_panels(self, rows: np.ndarray, threshold: float, threads: int) -> list[tuple[np.ndarray, ...]]:
        """The sparse posteriors of each panel of rows, as `Posteriors.of_panels` takes them."""
        from fishermix.mixture.posterior_kernels import list_large

        keep = partial(keep_large, threshold=threshold)
        suits = rows.dtype == np.float64 or suits_float32(self.locations, self.scales)
        compiled = self._compile(rows.dtype)
        if compiled.others or not suits:
            return self.map_panels(rows, keep, threads)

        def list_panel(start: int) -> tuple[np.ndarray, ...]:
            panel = rows[start : start + PANEL]
            found = list_large(panel, compiled[:4], NEGLIGIBLE_LOG[rows.dtype.char], threshold)
            return self.map_panels(panel, keep)[0] if found is None else found

        return map_in_threads(list_panel, range(0, len(rows), PANEL), threads)

    def _posteriors_in_numpy(self, rows: np.ndarray) -> np.ndarray | None:
        """Return the posteriors (n, K) of a few rows, or None if a row is too far out for NumPy."""
        inverse_scales, constant = self._numpy_constants
        z = rows.astype(np.float64)[:, None, :] - self.locations
        with np.errstate(over="ignore", invalid="ignore"):
            z *= inverse_scales
            joint = constant + self._sum_log_densities(z)
        highest = joint.max(axis=1, keepdims=True)
        if not np.isfinite(highest).all():
            return None
        joint -= highest
        posterior = np.exp(joint, out=joint)
        posterior /= posterior.sum(axis=1, keepdims=True)
        return posterior

    @cached_property
    def _numpy_constants(self) -> tuple[np.ndarray, np.ndarray]:
        """The inverse scales (K, D), and what depends on the component only in the log densities (K,)."""
        with np.errstate(divide="ignore"):
            return 1 / self.scales, np.log(self.weights) - np.log(self.scales).sum(axis=1)

    def _sum_log_densities(self, z: np.ndarray) -> np.ndarray:
        """The sum (n, K) over d of the families' log densities at z (n, K, D)."""
        chosen = [index for index in range(len(self.families)) if (self.choice == index).any()]
        forms = [COMPILED.get(type(self.families[index])) for index in chosen]
        if forms == [COMPILED[Gaussian]]:
            at_center, square, _ = COMPILED[Gaussian]
            return z.shape[2] * at_center - square * np.einsum("nkd,nkd->nk", z, z)
        density = np.empty_like(z)
        for index in chosen:
            where = self.choice == index
            density[:, where] = self.families[index].log_density(z[:, where])
        return density.sum(axis=2)

    def posteriors(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the posteriors (n, K) and log likelihoods (n,) of rows (n, D) of any magnitude."""
        panels = self.map_panels(rows, lambda *posteriors: posteriors)
        posterior, log_likelihood = (np.concatenate(part, axis=-1) for part in zip(*panels))
        return np.ascontiguousarray(posterior.T), log_likelihood

    def map_panels(
        self,
        rows: np.ndarray,
        use: Callable[[np.ndarray, np.ndarray], T],
        threads: int = 1,
        size: float = np.inf,
    ) -> list[T]:
        """Return use(posteriors (K, n), log likelihoods (n,)) of each panel of rows (n, D), in order.

        Rows too far out for float32, and all rows if the parameters are, are computed in float64. See
        `numpy_kernels.choose_kernels` for `size`.
        """
        if rows.dtype == np.float32 and not suits_float32(self.locations, self.scales):
            rows = rows.astype(np.float64)
        compiled = self._compile(rows.dtype)

        def use_panel(start: int) -> T:
            panel = rows[start : start + PANEL]
            posterior, log_likelihood = self._e_step(panel, compiled, size)
            far = ~np.isfinite(log_likelihood)
            if far.any():
                wide = np.dtype(np.float64)
                posterior[:, far], log_likelihood[far] = self._e_step(
                    panel[far].astype(wide), self._compile(wide), size
                )
            return use(posterior, log_likelihood)

        return map_in_threads(use_panel, range(0, len(rows), PANEL), threads)

    def panel_posteriors(
        self,
        panels: Sequence[np.ndarray],
        weight: np.ndarray,
        threshold: float,
        quantum: float,
        size: float = np.inf,
    ) -> tuple[list[PanelPosteriors], Statistics]:
        """The E step of EM: the sparse posteriors of each panel of a block, and the sums over them.

        weight (n,) are the sample weights of the block. The log likelihood is -inf where the type of the
        panels overflows. See `kernels.list_posteriors` for `quantum`, `choose_kernels` for `size`.
        """
        kernels = choose_kernels(size)
        n_components, found, first = len(self.weights), [], 0
        compiled, capacity = self._compile(panels[0].dtype), len(panels[0]) * n_components
        # Buffers for a dense panel, used for all of them: new ones each time would cost page faults.
        joint, rows, weights = np.empty(capacity), np.empty(capacity, np.int32), np.empty(capacity)
        zeros = {name: np.zeros(n_components) for name in ("weight", "squared")}
        sums = Statistics(log_likelihood=0.0, rows=np.zeros(n_components, np.int64), **zeros)
        for panel in panels:
            sample_weight = weight[first : first + len(panel)]
            first += len(panel)
            posterior, log_likelihood = self._e_step(panel, compiled, size, joint)
            start = np.empty(n_components + 1, np.int64)
            kernels.list_posteriors(
                posterior,
                sample_weight,
                threshold,
                quantum,
                start,
                rows,
                weights,
                sums["weight"],
                sums["squared"],
            )
            found.append(PanelPosteriors(start, rows[: start[-1]].copy(), weights[: start[-1]].copy()))
            sums["log_likelihood"] += float(np.dot(sample_weight, log_likelihood))
            sums["rows"] += start[1:] - start[:-1]
        return found, sums

    def _e_step(
        self, x: np.ndarray, compiled: _Compiled, size: float, buffer: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Posteriors (K, n) and log likelihoods (n,) of a panel; -inf where the type of x overflows.

        The posteriors are written to `buffer` (n K or more,) if it is given.
        """
        kernels = choose_kernels(size)
        shape, log_likelihood = (len(self.weights), len(x)), np.empty(len(x))
        joint = np.empty(shape) if buffer is None else buffer[: shape[0] * shape[1]].reshape(shape)
        kernels.log_densities(x, *compiled[:4], joint)
        for family, k, dimensions in compiled.others:
            location, scale = (part[k, dimensions].astype(x.dtype) for part in (self.locations, self.scales))
            z = (x[:, dimensions] - location) / scale
            joint[k] += family.log_density(z).sum(axis=1, dtype=np.float64)
        kernels.normalize(joint, self.weights, NEGLIGIBLE_LOG[x.dtype.char], log_likelihood)
        if x.dtype == np.float64:
            np.maximum(log_likelihood, FARTHEST, out=log_likelihood)
        return joint, log_likelihood

    @cached_property
    def _compiled(self) -> dict[str, _Compiled]:
        return {}

    def _compile(self, dtype: np.dtype) -> _Compiled:
        """Prepare the E step of rows of this type, once."""
        if dtype.char in self._compiled:
            return self._compiled[dtype.char]
        forms = np.array([COMPILED.get(type(family), (0.0, 0.0, 0.0)) for family in self.families])
        at_center, square, linear = forms.T[:, self.choice]
        constant = np.log(self.weights) + (at_center - np.log(self.scales)).sum(axis=1)
        n_components, d = square.shape
        padded = np.zeros((3, n_components, d + -d % UNROLLED), dtype)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            square = np.where(square > 0, square / self.scales**2, 0.0)
            padded[:, :, :d] = self.locations, square, linear / self.scales
        others = [
            (family, k, dimensions)
            for index, family in enumerate(self.families)
            if type(family) not in COMPILED
            for k in range(len(self.weights))
            if len(dimensions := np.flatnonzero(self.choice[k] == index))
        ]
        return self._compiled.setdefault(
            dtype.char, _Compiled(padded[0], padded[1], padded[2], constant, others)
        )

    # Everything else

    @property
    def n_free(self) -> int:
        """The number of free parameters; the choices are not counted."""
        return len(self.weights) - 1 + self.locations.size + self.scales.size

    def sample(self, n_samples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows (n, D), component after component; returns them and their components (n,)."""
        labels = np.sort(rng.choice(len(self.weights), size=n_samples, p=self.weights))
        z = np.empty((n_samples, self.locations.shape[1]))
        for index, family in enumerate(self.families):
            chosen = self.choice[labels] == index
            z[chosen] = family.sample(rng, int(chosen.sum()))
        return self.locations[labels] + self.scales[labels] * z, labels


def choose(parts: Sequence[np.ndarray], choice: np.ndarray) -> np.ndarray:
    """Return the array (K, D) with parts[choice[k, d]][k, d], of parts (families, K, D)."""
    chosen = parts[0].copy()
    for index in range(1, len(parts)):
        np.copyto(chosen, parts[index], where=choice == index)
    return chosen


def keep_large(
    posterior: np.ndarray, log_likelihood: np.ndarray, threshold: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The entries of `posterior` (K, n) that are positive and at least the threshold, row by row.

    Returns the number of entries per row (n,), their components and their values.
    """
    kept = Posteriors.of_dense(posterior.T, threshold)
    return np.diff(kept.indptr), kept.components, kept.values


def map_in_threads(use: Callable[[int], T], starts: Sequence[int], threads: int) -> list[T]:
    """[use(start) for start in starts], in so many threads."""
    if min(threads, len(starts)) <= 1:
        return [use(start) for start in starts]
    from concurrent.futures import ThreadPoolExecutor  # 10 ms that a search does not wait for

    with ThreadPoolExecutor(min(threads, len(starts))) as pool:
        return list(pool.map(use, starts))


def suits_float32(locations: np.ndarray, scales: np.ndarray) -> bool:
    """Return whether float32 can square lengths like these, of any shape, without overflow or underflow."""
    largest = max(np.abs(locations).max(), scales.max())
    return bool(largest <= LONGEST and scales.min() >= SHORTEST)


# Checks of given and of saved parameters


def check_parameters(
    weights: np.ndarray, locations: np.ndarray, scales: np.ndarray, choice: np.ndarray, n_families: int
) -> None:
    """Raise an error that names the first array that cannot be part of a mixture."""
    if locations.ndim != 2 or 0 in locations.shape or not np.isfinite(locations).all():
        raise FishermixError(
            f"locations must be finite numbers of shape (K, D), got shape {locations.shape}."
        )
    n_components = len(locations)
    if weights.shape != (n_components,) or not (weights > 0).all() or not np.isclose(weights.sum(), 1):
        raise FishermixError(
            f"weights must be {n_components} positive numbers that sum to 1, one per row of locations."
        )
    if scales.shape != locations.shape or not (np.isfinite(scales) & (scales > 0)).all():
        raise FishermixError(
            f"scales must be positive numbers of the shape of locations, {locations.shape}; theirs is "
            f"{scales.shape}."
        )
    whole = choice.dtype.kind in "iu" and choice.shape == locations.shape
    if not whole or (choice < 0).any() or (choice >= n_families).any():
        raise FishermixError(
            f"choice must be integers from 0 to {n_families - 1}, an index into families, of the shape of "
            f"locations, {locations.shape}."
        )


def parse_tensors(
    tensors: Mapping[str, np.ndarray], n_families: int, names: Sequence[str], where: str | os.PathLike
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Read the weights (K,), the choice (K, D) and the tensors `names` (families, K, D) of a saved mixture.

    "scale" is among the names.
    """
    shapes = {"weights": "K", "choice": "int K D"} | dict.fromkeys(names, f"{n_families} K D")
    weights, choice, *fits = require_tensors(tensors, shapes, where)
    weights = weights.astype(np.float64, copy=False)
    if not n_families or len(weights) == 0 or (weights <= 0).any() or not np.isclose(weights.sum(), 1):
        raise FishermixError(f"Tensor 'weights' of {where} must be positive and sum to 1.")
    if choice.shape[1] == 0 or (choice < 0).any() or (choice >= n_families).any():
        raise FishermixError(f"Tensor 'choice' of {where} must hold indices of the {n_families} families.")
    parts = {name: values.astype(np.float64, copy=False) for name, values in zip(names, fits)}
    if (parts["scale"] <= 0).any():
        raise FishermixError(f"Tensor 'scale' of {where} must be positive.")
    return weights, choice.astype(np.int64), parts
