"""The E step: densities and posteriors of a panel of rows (paper, equations of the HGLMM's E step).

log p(x, k) = log tau_k + sum_d [ log f_{kd}((x_d - location_kd) / scale_kd) - log scale_kd ]
T_k(x)      = p(x, k) / sum_j p(x, j)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fishermix.mixture import kernels
from fishermix.mixture.families import Family, Gaussian, Laplace
from fishermix.mixture.statistics import ActiveRows

NEGLIGIBLE = {"f": -24.0, "d": -40.0}  # logarithms of shares that are lost in the rounding of the densities
FARTHEST = -1e290  # log density of a row whose distances overflow float64
SHORTEST, LONGEST = 1e-15, 1e15  # lengths whose squares, summed over a panel, are at home in float32


@dataclass(frozen=True)
class MixtureParameters:
    """Parameters of a mixture: weights (K,), locations, scales, choice (K, D) among the families."""

    families: Sequence[Family]
    weights: np.ndarray
    locations: np.ndarray
    scales: np.ndarray
    choice: np.ndarray

    def joint(self, x: np.ndarray) -> np.ndarray:
        """log p(x, k) of a panel x (n, D): (n, K) in float64."""
        out = np.empty((len(x), len(self.weights)))
        kernels.log_densities(x, *self._coefficients[x.dtype.char], self._constant, out)
        for family, k, dimensions in self._others:
            location, scale = (part[k, dimensions].astype(x.dtype) for part in (self.locations, self.scales))
            z = (x[:, dimensions] - location) / scale
            out[:, k] += family.log_density(z).sum(axis=1, dtype=np.float64)
        return out

    def posteriors(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Posteriors (n, K) and log likelihoods (n,) of a panel; -inf where the type of x overflows."""
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
