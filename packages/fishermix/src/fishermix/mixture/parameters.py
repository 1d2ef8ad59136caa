"""The parameters of a mixture, and the E step (paper, equations of the HGLMM's E step).

log p(x, k) = log tau_k + sum_d [ log f_{kd}((x_d - location_kd) / scale_kd) - log scale_kd ]
T_k(x)      = p(x, k) / sum_j p(x, j)

`MixtureParameters.e_step` is the only one: EM, predictions and Fisher vectors call it for tiles of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fishermix.errors import FishermixError
from fishermix.mixture.families import DensityForm, Family
from fishermix.mixture.loops import COMPILED, PLAIN, Loops
from fishermix.mixture.posteriors import EStepSums, Posteriors, TilePosteriors
from fishermix.rows import PANEL, cut, map_in_threads

NEGLIGIBLE_LOG = {"f": -24.0, "d": -40.0}  # log posteriors that rounding of the densities would hide
FARTHEST = -1e290  # log density of a row whose distances overflow float64
FEW_ROWS = 64  # up to here NumPy is as fast as a kernel, and a single query does not wait for the compiler
LARGEST = 1e150  # numbers whose squares float64 can sum
SHORTEST, LONGEST = 1e-15, 1e15  # lengths whose squares float32 can sum over a tile


class Prepared(NamedTuple):
    """Coefficients of the forms for rows of one type, and the (k, d) whose families have no form."""

    location: np.ndarray  # (K, padded D), as are the next two
    square: np.ndarray
    linear: np.ndarray
    constant: np.ndarray  # (K,)
    others: list[tuple[Family, int, np.ndarray]]  # family, component, dimensions


@dataclass(frozen=True)
class MixtureParameters:
    """Parameters of a mixture: weights (K,); locations, scales, and choice (K, D), an index of `families`.

    shapes (K, D) are those of the cells whose family has a free one, and NaN in the others.
    """

    families: Sequence[Family]
    weights: np.ndarray
    locations: np.ndarray
    scales: np.ndarray
    choice: np.ndarray
    shapes: np.ndarray | None = None

    def find_family(self, index: int, components: Any, dimensions: Any) -> Family:
        """The family of this index, with the shapes [components][dimensions] if it has a free one."""
        family = self.families[index]
        if not family.has_free_shape:
            return family
        assert self.shapes is not None
        return family.with_shape(self.shapes[components][dimensions])

    def e_step(
        self, rows: np.ndarray, loops: Loops = COMPILED, buffer: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Posteriors (K, n) and log likelihoods (n,) of a tile of rows; -inf where their type overflows.

        The posteriors are written to `buffer` (n K or more,), if given.
        """
        prepared, shape = self._prepare(rows.dtype), (len(self.weights), len(rows))
        joint = np.empty(shape) if buffer is None else buffer[: shape[0] * shape[1]].reshape(shape)
        loops.write_log_densities(rows, prepared, joint)
        for family, k, dimensions in prepared.others:
            location = self.locations[k, dimensions].astype(rows.dtype)
            z = (rows[:, dimensions] - location) / self.scales[k, dimensions].astype(rows.dtype)
            joint[k] += family.log_density(z).sum(axis=1, dtype=np.float64)
        log_likelihood = loops.normalize(joint, self.weights, NEGLIGIBLE_LOG[rows.dtype.char])
        if rows.dtype == np.float64:
            np.maximum(log_likelihood, FARTHEST, out=log_likelihood)
        return joint, log_likelihood

    def posteriors(self, rows: np.ndarray, loops: Loops = COMPILED) -> tuple[np.ndarray, np.ndarray]:
        """Posteriors (K, n) and log likelihoods (n,) of a tile of rows of any magnitude.

        The log likelihood is -inf where the density is 0. Rows too far out for float32, and all rows if the
        parameters are, are computed in float64.
        """
        if not self.suits(rows.dtype):
            rows = rows.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            posterior, log_likelihood = self.e_step(rows, loops)
            far = ~np.isfinite(log_likelihood)
            if far.any():
                posterior[:, far], log_likelihood[far] = self.e_step(rows[far].astype(np.float64), loops)
            # Distances do not overflow there: the density is 0.
            outside = (log_likelihood <= FARTHEST) & (np.abs(rows).max(axis=1) < LARGEST)
            log_likelihood[outside] = -np.inf
        return posterior, log_likelihood

    def tile_posteriors(self, rows: np.ndarray, threshold: float) -> TilePosteriors:
        """The posteriors of a tile of rows of any magnitude that are at least the threshold."""
        finest = 2.0**-60  # they are rounded to multiples of it, because nobody sums them exactly
        posterior, _ = self.posteriors(rows)
        buffers, sums = TilePosteriors.make_buffers(*posterior.shape), EStepSums.zeros(len(posterior))
        COMPILED.list_posteriors(posterior, np.ones(len(rows)), threshold, finest, buffers, sums)
        return buffers.used

    def sparse_posteriors(self, rows: np.ndarray, threshold: float, few: int = FEW_ROWS) -> Posteriors:
        """The posteriors of rows (n, D) that are at least the threshold; a few rows without the compiler."""
        most_numbers = 2_000_000  # rows * K * D that NumPy may expand to
        if len(rows) <= few and rows.size * len(self.weights) <= most_numbers:
            return Posteriors.of_dense(self.posteriors(rows.astype(np.float64), PLAIN)[0], threshold)

        def list_tile(tile: slice) -> Posteriors:
            return Posteriors.of_dense(self.posteriors(rows[tile])[0], threshold)

        return Posteriors.join(list(map_in_threads(list_tile, cut(len(rows), PANEL))))

    def suits(self, dtype: np.dtype) -> bool:
        """Whether this type can hold and square the parameters."""
        largest = max(np.abs(self.locations).max(), self.scales.max())
        return dtype == np.float64 or bool(largest <= LONGEST and self.scales.min() >= SHORTEST)

    @cached_property
    def _prepared(self) -> dict[str, Prepared]:
        return {}

    def _prepare(self, dtype: np.dtype) -> Prepared:
        """Prepare the E step of rows of this type, once."""
        if dtype.char in self._prepared:
            return self._prepared[dtype.char]
        unrolled = 4  # dimensions per inner loop of `kernels.log_densities`: the others are padded with zeros
        no_form = DensityForm(at_center=0.0, square=0.0, linear=0.0)
        forms = np.array([family.density_form or no_form for family in self.families])
        at_center, square, linear = forms.T[:, self.choice]
        constant = np.log(self.weights) + (at_center - np.log(self.scales)).sum(axis=1)
        n_components, d = square.shape
        padded = np.zeros((3, n_components, d + -d % unrolled), dtype)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            padded[0, :, :d] = self.locations
            padded[1, :, :d] = np.where(square > 0, square / self.scales**2, 0.0)
            padded[2, :, :d] = linear / self.scales
        others = [
            (self.find_family(index, k, dimensions), k, dimensions)
            for index, family in enumerate(self.families)
            if family.density_form is None
            for k in range(len(self.weights))
            if len(dimensions := np.flatnonzero(self.choice[k] == index))
        ]
        prepared = Prepared(padded[0], padded[1], padded[2], constant, others)
        return self._prepared.setdefault(dtype.char, prepared)

    @property
    def n_free(self) -> int:
        """The number of free parameters; the choices are not counted."""
        free = np.array([family.has_free_shape for family in self.families])
        return len(self.weights) - 1 + self.locations.size + self.scales.size + int(free[self.choice].sum())

    def sample(self, n_samples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows (n, D), component after component; returns them and their components (n,)."""
        labels = np.sort(rng.choice(len(self.weights), size=n_samples, p=self.weights / self.weights.sum()))
        z = np.empty((n_samples, self.locations.shape[1]))
        for index in range(len(self.families)):
            chosen = self.choice[labels] == index
            z[chosen] = self.find_family(index, labels, chosen).sample(rng, int(chosen.sum()))
        return self.locations[labels] + self.scales[labels] * z, labels


def check_parameters(parameters: MixtureParameters, where: str = "") -> None:
    """Raise an error that names the first array that cannot be part of a mixture, and `where` it is."""
    weights, locations, scales = parameters.weights, parameters.locations, parameters.scales
    shape = locations.shape
    choice, n_families = parameters.choice, len(parameters.families)
    if locations.ndim != 2 or 0 in shape or not np.isfinite(locations).all():
        raise FishermixError(
            f"{where}locations must be finite numbers of shape (K, D), got shape {shape}.",
            code="wrong_parameter",
        )
    if weights.shape != shape[:1] or not (weights > 0).all() or not np.isclose(weights.sum(), 1):
        raise FishermixError(
            f"{where}weights must be {shape[0]} positive numbers that sum to 1, one per row of locations.",
            code="wrong_parameter",
        )
    if scales.shape != shape or not (np.isfinite(scales) & (scales > 0)).all():
        raise FishermixError(
            f"{where}scales must be positive numbers of the shape of locations, {shape}; theirs is "
            f"{scales.shape}.",
            code="wrong_parameter",
        )
    whole = choice.dtype.kind in "iu" and choice.shape == shape
    if not whole or (choice < 0).any() or (choice >= n_families).any():
        raise FishermixError(
            f"{where}choice must be integers from 0 to {n_families - 1}, an index into families, of the "
            f"shape of locations, {shape}.",
            code="wrong_parameter",
        )


def check_shapes(parameters: MixtureParameters, where: str = "") -> None:
    """Raise an error if shapes do not fit the families that are chosen, and say `where` they are."""
    shape, choice = parameters.choice.shape, parameters.choice
    shapes = np.full(shape, np.nan) if parameters.shapes is None else parameters.shapes
    for index, family in enumerate(parameters.families):
        if family.has_free_shape:
            values, chosen = family.shape_values, choice == index
            if shapes.shape != shape or not ((shapes >= values[0]) & (shapes <= values[-1]))[chosen].all():
                raise FishermixError(
                    f"{where}shapes must be of the shape of locations, {shape}, and from {values[0]:g} to "
                    f"{values[-1]:g} where {family} is chosen.",
                    code="wrong_parameter",
                )
