"""The E step: densities and posteriors of a panel of rows (paper, equations of the HGLMM's E step).

log p(x, k) = log tau_k + sum_d [ log f_{kd}((x_d - location_kd) / scale_kd) - log scale_kd ]
T_k(x)      = p(x, k) / sum_j p(x, j)
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.mixture.families import Family, Gaussian, Laplace, family_from_config
from fishermix.mixture.statistics import ActiveRows, Posteriors
from fishermix.rows.blocks import PANEL
from fishermix.storage import require_tensor
from fishermix.threads import available_threads

NEGLIGIBLE = {"f": -24.0, "d": -40.0}  # logarithms of shares that are lost in the rounding of the densities
FARTHEST = -1e290  # log density of a row whose distances overflow float64
FEW_ROWS = 64  # up to here numpy is as fast as a kernel, and a single query does not wait for a compiler
FEW_NUMBERS = 2_000_000  # rows * K * D that numpy may expand to
SHORTEST, LONGEST = 1e-15, 1e15  # lengths whose squares, summed over a panel, are at home in float32


@dataclass(frozen=True)
class MixtureParameters:
    """Parameters of a mixture: weights (K,), locations, scales, choice (K, D) among the families."""

    families: Sequence[Family]
    weights: np.ndarray
    locations: np.ndarray
    scales: np.ndarray
    choice: np.ndarray

    @classmethod
    def from_tensors(
        cls, config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], where: str | os.PathLike
    ) -> MixtureParameters:
        """Read what `Mixture.to_tensors` wrote; errors name `where`."""
        families = checked_families(config, where)
        weights, choice = checked_choice(tensors, len(families), where)
        of_family = checked_fits(tensors, ("location", "scale"), (len(families), *choice.shape), where)
        locations, scales = (np.take_along_axis(part, choice[None], 0)[0] for part in of_family.values())
        return cls(families, weights, locations, scales, choice)

    def sparse_posteriors(self, rows: np.ndarray, threshold: float, threads: int | None = None) -> Posteriors:
        """Posteriors (n, K) of rows (n, D) without those below the threshold; a few rows need no compiler."""
        if len(rows) == 0:
            return Posteriors.of_dense(np.zeros((0, len(self.weights))), threshold)
        if len(rows) <= FEW_ROWS and rows.size * len(self.weights) <= FEW_NUMBERS:
            dense = self._few_posteriors(rows)
            if dense is not None:
                return Posteriors.of_dense(dense, threshold)
        from fishermix.mixture import kernels

        def of_panel(start: int) -> tuple[np.ndarray, ...]:
            posterior, _ = self.safe_posteriors(rows[start : start + PANEL])
            return kernels.keep_large(posterior, threshold)

        starts = range(0, len(rows), PANEL)
        threads = min(threads or available_threads(), len(starts))
        if threads == 1:
            panels = list(map(of_panel, starts))
        else:
            from concurrent.futures import ThreadPoolExecutor  # 10 ms that a search does not wait for

            with ThreadPoolExecutor(threads) as pool:
                panels = list(pool.map(of_panel, starts))
        return Posteriors.of_panels(panels, len(self.weights))

    def _few_posteriors(self, rows: np.ndarray) -> np.ndarray | None:
        """Posteriors (n, K) of a few rows in numpy, or None if a row is too far out for it."""
        z = (rows[:, None, :].astype(np.float64) - self.locations) / self.scales
        density = np.zeros_like(z)
        with np.errstate(divide="ignore", over="ignore"):
            for index in np.unique(self.choice):
                chosen = self.choice == index
                density[:, chosen] = self.families[index].log_density(z[:, chosen])
            joint = np.log(self.weights) + (density - np.log(self.scales)).sum(axis=2)
        highest = joint.max(axis=1, keepdims=True)
        if not np.isfinite(highest).all():
            return None
        posterior = np.exp(joint - highest)
        return posterior / posterior.sum(axis=1, keepdims=True)

    def joint(self, x: np.ndarray) -> np.ndarray:
        """log p(x, k) of a panel x (n, D): (n, K) in float64."""
        from fishermix.mixture import kernels

        out = np.empty((len(x), len(self.weights)))
        kernels.log_densities(x, *self._coefficients[x.dtype.char], self._constant, out)
        for family, k, dimensions in self._others:
            location, scale = (part[k, dimensions].astype(x.dtype) for part in (self.locations, self.scales))
            z = (x[:, dimensions] - location) / scale
            out[:, k] += family.log_density(z).sum(axis=1, dtype=np.float64)
        return out

    def posteriors(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Posteriors (n, K) and log likelihoods (n,) of a panel; -inf where the type of x overflows."""
        from fishermix.mixture import kernels

        posterior = self.joint(x)
        log_likelihood = np.empty(len(x))
        kernels.normalise(posterior, self.weights, NEGLIGIBLE[x.dtype.char], log_likelihood)
        if x.dtype == np.float64:
            np.maximum(log_likelihood, FARTHEST, out=log_likelihood)
        return posterior, log_likelihood

    def safe_posteriors(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same; rows too far out for float32, and all if the components are, are taken in float64."""
        if x.dtype == np.float32 and not suits_float32(self.locations, self.scales):
            x = x.astype(np.float64)
        posterior, log_likelihood = self.posteriors(x)
        far = ~np.isfinite(log_likelihood)
        if far.any():
            posterior[far], log_likelihood[far] = self.posteriors(x[far].astype(np.float64))
        return posterior, log_likelihood

    def active_rows(
        self, x: np.ndarray, weight: np.ndarray | None, threshold: float, quantum: float
    ) -> tuple[ActiveRows, float]:
        """Posteriors of a panel of at least `threshold`, and the sum of its weighted log likelihoods."""
        from fishermix.mixture import kernels

        posterior, log_likelihood = self.posteriors(x)
        weight = np.ones(len(x)) if weight is None else weight
        start = np.empty(len(self.weights) + 1, np.int64)
        row = np.empty(posterior.size, np.int32)
        share = np.empty(posterior.size)
        kernels.list_active(posterior, weight, threshold, quantum, start, row, share)
        active = ActiveRows(start, row[: start[-1]].copy(), share[: start[-1]].copy())
        return active, float(np.dot(weight, log_likelihood))

    @cached_property
    def _constant(self) -> np.ndarray:
        at_centre = np.array([_density_at_centre(family) for family in self.families])
        return np.log(self.weights) + (at_centre[self.choice] - np.log(self.scales)).sum(axis=1)

    @cached_property
    def _coefficients(self) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Location, square and linear coefficient (K, padded D) of the compiled families, for each type."""
        from fishermix.mixture import kernels

        square = np.zeros_like(self.scales)
        linear = np.zeros_like(self.scales)
        for index, family in enumerate(self.families):
            chosen = self.choice == index
            if type(family) is Gaussian:
                square[chosen] = 0.5 / self.scales[chosen] ** 2
            elif type(family) is Laplace:
                linear[chosen] = 1 / self.scales[chosen]
        padding = ((0, 0), (0, -square.shape[1] % kernels.UNROLLED))
        with np.errstate(over="ignore"):
            location, square, linear = (np.pad(a, padding) for a in (self.locations, square, linear))
            return {
                kind: (location.astype(kind), square.astype(kind), linear.astype(kind)) for kind in ("f", "d")
            }

    @cached_property
    def _others(self) -> list[tuple[Family, int, np.ndarray]]:
        """(family, component, dimensions) of the families that have no compiled form."""
        return [
            (family, k, dimensions)
            for index, family in enumerate(self.families)
            if type(family) not in (Gaussian, Laplace)
            for k in range(len(self.weights))
            if len(dimensions := np.flatnonzero(self.choice[k] == index))
        ]


def suits_float32(locations: np.ndarray, scales: np.ndarray) -> bool:
    """Whether float32 can square such lengths, any shape, without overflow and underflow."""
    largest = max(np.abs(locations).max(), scales.max())
    return bool(largest <= LONGEST and scales.min() >= SHORTEST)


def _density_at_centre(family: Family) -> float:
    """The part of log f that the compiled form leaves out."""
    return float(family.log_density(np.zeros(1))[0]) if type(family) in (Gaussian, Laplace) else 0.0


def checked_families(config: Mapping[str, Any], where: str | os.PathLike) -> list[Family]:
    """The families that a saved mixture chooses among."""
    try:
        return [family_from_config(family) for family in config["families"]]
    except (KeyError, TypeError) as error:
        raise FishermixError(f"{where} lacks {error}: the file is damaged") from error


def checked_choice(
    tensors: Mapping[str, np.ndarray], n_families: int, where: str | os.PathLike
) -> tuple[np.ndarray, np.ndarray]:
    """The weights (K,) and the choice (K, D) of a saved mixture."""
    weights = require_tensor(tensors, "weights", (None,), where)
    if not n_families or len(weights) == 0 or (weights <= 0).any() or not np.isclose(weights.sum(), 1):
        raise FishermixError(f"{where}: the weights are not positive numbers that sum to one")
    choice = require_tensor(tensors, "choice", (len(weights), None), where)
    if choice.dtype.kind not in "iu" or (choice < 0).any() or (choice >= n_families).any():
        raise FishermixError(f"{where}: tensor 'choice' does not number the {n_families} families")
    return weights, choice.astype(np.int64)


def checked_fits(
    tensors: Mapping[str, np.ndarray], names: Sequence[str], shape: tuple[int, ...], where: str | os.PathLike
) -> dict[str, np.ndarray]:
    """Tensors (families, K, D) of a saved mixture, "scale" among them."""
    parts = {name: require_tensor(tensors, name, shape, where) for name in names}
    if (parts["scale"] <= 0).any():
        raise FishermixError(f"{where}: tensor 'scale' is not positive everywhere")
    return parts
