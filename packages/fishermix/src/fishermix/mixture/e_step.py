"""The parameters of a mixture, and the E step (paper, equations of the HGLMM's E step).

log p(x, k) = log tau_k + sum_d [ log f_{kd}((x_d - location_kd) / scale_kd) - log scale_kd ]
T_k(x)      = p(x, k) / sum_j p(x, j)

`MixtureParameters.e_step` is the only one: EM, predictions and Fisher vectors call it for panels of rows. Its
loops are compiled (`kernels`). Data so small that compiling would take longer than fitting go through the
same formulas in NumPy, at the end of this file: these sum in float64 and differ from the kernels by rounding.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fishermix.errors import FishermixError
from fishermix.mixture.families import Family, Gaussian, Laplace
from fishermix.rows import PANEL, Block, Statistics, cut, map_in_threads

if TYPE_CHECKING:
    from fishermix.mixture.m_step import FamilyFit

# Posteriors, and their logarithms, that rounding of the densities would hide, by type of the rows.
NEGLIGIBLE = {"f": 1e-6, "d": 1e-15}
NEGLIGIBLE_LOG = {"f": -24.0, "d": -40.0}
FARTHEST = -1e290  # log density of a row whose distances overflow float64
SMALL = 16_384  # N K D: up to here an iteration in NumPy takes less than a millisecond
FEW_ROWS = 64  # up to here NumPy is as fast as a kernel, and a single query does not wait for the compiler
FEW_NUMBERS = 2_000_000  # rows * K * D that the NumPy version may expand to
SHORTEST, LONGEST = 1e-15, 1e15  # lengths whose squares float32 can sum over a panel
UNROLLED = 4  # dimensions per inner loop of the kernels; the parameters are padded to a multiple of it
FINEST = 2.0**-60  # posteriors are rounded to multiples of it where they are not summed exactly
BYTES_PER_POSTERIOR = 12  # an int32 row and a float64 weight
MOST_LISTED = 2**25  # bytes of posteriors of a block; if there are more, each fit computes them by panels
FLOAT64 = np.dtype(np.float64)

# The tensors of a saved mixture of F families, see `storage.require_tensors`.
MIXTURE_TENSORS = {"weights": "K", "choice": "int K D", "location": "F K D", "scale": "F K D"}
# The compiled form of a family: log f(z) = at_center - square z² - linear |z|. Others are called row by row.
COMPILED: dict[type[Family], tuple[float, float, float]] = {
    Gaussian: (-0.5 * np.log(2 * np.pi), 0.5, 0.0),
    Laplace: (-np.log(2.0), 0.0, 1.0),
}


class PanelPosteriors(NamedTuple):
    """Sparse posteriors of a panel of rows, component after component.

    Component k has the rows row[start[k]:start[k+1]] of the panel. Their weights, in the same slice of
    `weight`, are the posteriors times the sample weights.
    """

    start: np.ndarray
    row: np.ndarray
    weight: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.row.nbytes + self.weight.nbytes


@dataclass(frozen=True)
class Posteriors:
    """Sparse posteriors (n, K): row i has `values[indptr[i]:indptr[i + 1]]`, of as many `components`.

    A CSR matrix without SciPy's class, whose import takes longer than a query.
    """

    indptr: np.ndarray
    components: np.ndarray
    values: np.ndarray

    @classmethod
    def of_dense(cls, dense: np.ndarray, threshold: float) -> Posteriors:
        """Keep the entries of `dense` (K, n) that are positive and at least the threshold."""
        by_row = np.ascontiguousarray(dense.T)
        kept = (by_row > 0) & (by_row >= threshold)
        indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        return cls(indptr, np.nonzero(kept)[1], by_row[kept])

    @classmethod
    def join(cls, panels: Sequence[Posteriors]) -> Posteriors:
        """The posteriors of all rows, given those of consecutive panels."""
        counts = np.concatenate([np.diff(panel.indptr) for panel in panels])
        return cls(
            np.concatenate([[0], np.cumsum(counts)]),
            np.concatenate([panel.components for panel in panels]),
            np.concatenate([panel.values for panel in panels]),
        )


class _Prepared(NamedTuple):
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
        cls, families: Sequence[Family], tensors: Mapping[str, np.ndarray], where: str | os.PathLike
    ) -> MixtureParameters:
        """The mixture of saved tensors, which have the shapes `MIXTURE_TENSORS`; errors name `where`."""
        weights = tensors["weights"].astype(np.float64, copy=False)
        choice = tensors["choice"].astype(np.int64)
        locations, scales = (tensors[name].astype(np.float64, copy=False) for name in ("location", "scale"))
        if len(locations) != len(families):
            raise FishermixError(
                f"{where}: there are {len(families)} families, but {len(locations)} locations."
            )
        for location, scale in zip(locations, scales):
            check_parameters(cls(families, weights, location, scale, choice), f"{where}: ")
        location, scale = (np.take_along_axis(part, choice[None], axis=0)[0] for part in (locations, scales))
        return cls(families, weights, location, scale, choice)

    def e_step(
        self, rows: np.ndarray, compiled: bool = True, buffer: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Posteriors (K, n) and log likelihoods (n,) of a panel of rows; -inf where their type overflows.

        The posteriors are written to `buffer` (n K or more,), if given.
        """
        prepared, negligible = self._prepare(rows.dtype), NEGLIGIBLE_LOG[rows.dtype.char]
        shape, log_likelihood = (len(self.weights), len(rows)), np.empty(len(rows))
        joint = np.empty(shape) if buffer is None else buffer[: shape[0] * shape[1]].reshape(shape)
        if compiled:
            from fishermix.mixture import kernels

            kernels.log_densities(rows, *prepared[:4], joint)
        else:
            _write_log_densities(rows, prepared, joint)
        for family, k, dimensions in prepared.others:
            location = self.locations[k, dimensions].astype(rows.dtype)
            z = (rows[:, dimensions] - location) / self.scales[k, dimensions].astype(rows.dtype)
            joint[k] += family.log_density(z).sum(axis=1, dtype=np.float64)
        if compiled:
            kernels.normalize(joint, self.weights, negligible, *np.empty((2, len(rows))), log_likelihood)
        else:
            _normalize(joint, self.weights, negligible, log_likelihood)
        if rows.dtype == np.float64:
            np.maximum(log_likelihood, FARTHEST, out=log_likelihood)
        return joint, log_likelihood

    def posteriors(self, rows: np.ndarray, compiled: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Posteriors (K, n) and log likelihoods (n,) of a panel of rows of any magnitude.

        Rows too far out for float32, and all rows if the parameters are, are computed in float64.
        """
        if not self.suits(rows.dtype):
            rows = rows.astype(FLOAT64)
        with np.errstate(over="ignore", invalid="ignore"):
            posterior, log_likelihood = self.e_step(rows, compiled)
            far = ~np.isfinite(log_likelihood)
            if far.any():
                posterior[:, far], log_likelihood[far] = self.e_step(rows[far].astype(FLOAT64), compiled)
        return posterior, log_likelihood

    def list_panel(self, rows: np.ndarray, threshold: float) -> PanelPosteriors:
        """The posteriors of a panel of rows of any magnitude that are at least the threshold."""
        from fishermix.mixture import kernels

        posterior, _ = self.posteriors(rows)
        start, row = np.empty(len(posterior) + 1, np.int64), np.empty(posterior.size, np.int32)
        weight, sums = np.empty(posterior.size), np.zeros((2, len(posterior)))
        ones, rounded = np.ones((2, len(rows)))
        kernels.list_posteriors(posterior, ones, threshold, FINEST, rounded, start, row, weight, *sums)
        return PanelPosteriors(start, row[: start[-1]], weight[: start[-1]])

    def sparse_posteriors(self, rows: np.ndarray, threshold: float, few: int = FEW_ROWS) -> Posteriors:
        """The posteriors of rows (n, D) that are at least the threshold; a few rows without the compiler."""
        if len(rows) <= few and rows.size * len(self.weights) <= FEW_NUMBERS:
            return Posteriors.of_dense(self.posteriors(rows.astype(FLOAT64), compiled=False)[0], threshold)

        def list_panel(panel: slice) -> Posteriors:
            return Posteriors.of_dense(self.posteriors(rows[panel])[0], threshold)

        return Posteriors.join(list(map_in_threads(list_panel, cut(len(rows), PANEL))))

    def suits(self, dtype: np.dtype) -> bool:
        """Whether this type can hold and square the parameters."""
        largest = max(np.abs(self.locations).max(), self.scales.max())
        return dtype == np.float64 or bool(largest <= LONGEST and self.scales.min() >= SHORTEST)

    @cached_property
    def _prepared(self) -> dict[str, _Prepared]:
        return {}

    def _prepare(self, dtype: np.dtype) -> _Prepared:
        """Prepare the E step of rows of this type, once."""
        if dtype.char in self._prepared:
            return self._prepared[dtype.char]
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
        prepared = _Prepared(padded[0], padded[1], padded[2], constant, others)
        return self._prepared.setdefault(dtype.char, prepared)

    @property
    def n_free(self) -> int:
        """The number of free parameters; the choices are not counted."""
        return len(self.weights) - 1 + self.locations.size + self.scales.size

    def sample(self, n_samples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows (n, D), component after component; returns them and their components (n,)."""
        labels = np.sort(rng.choice(len(self.weights), size=n_samples, p=self.weights / self.weights.sum()))
        z = np.empty((n_samples, self.locations.shape[1]))
        for index, family in enumerate(self.families):
            chosen = self.choice[labels] == index
            z[chosen] = family.sample(rng, int(chosen.sum()))
        return self.locations[labels] + self.scales[labels] * z, labels


class BlockPosteriors:
    """The E step of EM: the sparse posteriors of the panels of a block, computed in each iteration over them.

    weight (n,) are the sample weights of the block; see `kernels.list_posteriors` for `quantum`. `sums` are
    those of the last iteration; their log likelihood is -inf where the type of the panels overflows.
    """

    def __init__(
        self,
        parameters: MixtureParameters,
        panels: Sequence[np.ndarray],
        weight: np.ndarray,
        quantum: float,
        compiled: bool,
    ):
        self.parameters, self.panels, self.weight = parameters, panels, weight
        self.quantum, self.compiled, self.sums = quantum, compiled, Statistics()

    def __iter__(self) -> Iterator[PanelPosteriors]:
        threshold = NEGLIGIBLE[self.panels[0].dtype.char]
        n_components, first = len(self.parameters.weights), 0
        capacity = len(self.panels[0]) * n_components
        # Buffers for a dense panel, used for all of them: new ones each time would cost page faults.
        joint, rows, weights = np.empty(capacity), np.empty(capacity, np.int32), np.empty(capacity)
        totals = np.zeros(n_components), np.zeros(n_components)
        self.sums.update(log_likelihood=0.0, rows=np.zeros(n_components, np.int64))
        self.sums.update(weight=totals[0], squared=totals[1])
        for panel in self.panels:
            sample_weight = self.weight[first : first + len(panel)]
            first += len(panel)
            posterior, log_likelihood = self.parameters.e_step(panel, self.compiled, joint)
            start = np.empty(n_components + 1, np.int64)
            listed = start, rows, weights
            if self.compiled:
                from fishermix.mixture import kernels

                rounded = np.empty(len(panel))
                kernels.list_posteriors(
                    posterior, sample_weight, threshold, self.quantum, rounded, *listed, *totals
                )
            else:
                _list_posteriors(posterior, sample_weight, threshold, self.quantum, listed, totals)
            self.sums["log_likelihood"] += float(np.dot(sample_weight, log_likelihood))
            self.sums["rows"] += start[1:] - start[:-1]
            yield PanelPosteriors(start, rows[: start[-1]].copy(), weights[: start[-1]].copy())

    def list_all(self) -> tuple[list[PanelPosteriors] | None, float]:
        """All posteriors and their bytes, or None if the first panel says that there are too many to list."""
        size = BYTES_PER_POSTERIOR * len(self.weight) * len(self.parameters.weights)
        if size > MOST_LISTED and next(iter(self)).nbytes * len(self.panels) > MOST_LISTED:
            return None, np.inf
        listed = list(self)
        return listed, sum(panel.nbytes for panel in listed)


@dataclass(frozen=True)
class Pass:
    """What a pass of EM computes on each block: the E step, then statistics of the fits that are not done.

    `dtype` is the same for all blocks and passes of an iteration, or posteriors would differ between them.
    """

    parameters: MixtureParameters
    fits: tuple[FamilyFit, ...]
    dtype: np.dtype
    quantum: float
    again: bool  # in the same iteration: the posteriors are those of the pass before
    memo_bytes: float  # per row, that a block may keep for the next pass
    compiled: bool = True

    def __call__(self, block: Block) -> Statistics:
        panels, n_rows = cut_panels(block.rows.astype(self.dtype, copy=False)), len(block.rows)
        weight = np.ones(n_rows) if block.weight is None else block.weight
        statistics = Statistics()
        computed = BlockPosteriors(self.parameters, panels, weight, self.quantum, self.compiled)
        posteriors = block.memo.get("posteriors") if self.again else None
        with np.errstate(over="ignore", invalid="ignore"):  # `run_em` checks the sums
            if posteriors is None:
                listed, size = computed.list_all()
                block.memo["posteriors"] = listed if size <= self.memo_bytes * n_rows else None
                posteriors = listed or computed
            for number, fit in enumerate(self.fits):
                if not fit.done:
                    statistics[f"fit{number}"] = fit.summarize(panels, posteriors)
            if not self.again:
                statistics.update(computed.sums)
        return statistics


def cut_panels(rows: np.ndarray) -> list[np.ndarray]:
    """The rows of a block in panels."""
    return [rows[first : first + PANEL] for first in range(0, len(rows), PANEL)]


def is_worth_compiling(size: float) -> bool:
    """Whether data of this size N K D use the kernels, which are then imported.

    N counts all rows, wherever they are, so that the bits do not depend on blocks. The import is here because
    its warning, in a thread, would not point at the caller.
    """
    if size <= SMALL:
        return False
    import fishermix.mixture.kernels  # noqa: F401

    return True


def check_parameters(parameters: MixtureParameters, where: str = "") -> None:
    """Raise an error that names the first array that cannot be part of a mixture, and `where` it is."""
    weights, locations, scales = parameters.weights, parameters.locations, parameters.scales
    shape = locations.shape
    choice, n_families = parameters.choice, len(parameters.families)
    if locations.ndim != 2 or 0 in shape or not np.isfinite(locations).all():
        raise FishermixError(f"{where}locations must be finite numbers of shape (K, D), got shape {shape}.")
    if weights.shape != shape[:1] or not (weights > 0).all() or not np.isclose(weights.sum(), 1):
        raise FishermixError(
            f"{where}weights must be {shape[0]} positive numbers that sum to 1, one per row of locations."
        )
    if scales.shape != shape or not (np.isfinite(scales) & (scales > 0)).all():
        raise FishermixError(
            f"{where}scales must be positive numbers of the shape of locations, {shape}; theirs is "
            f"{scales.shape}."
        )
    whole = choice.dtype.kind in "iu" and choice.shape == shape
    if not whole or (choice < 0).any() or (choice >= n_families).any():
        raise FishermixError(
            f"{where}choice must be integers from 0 to {n_families - 1}, an index into families, of the "
            f"shape of locations, {shape}."
        )


# The kernels of the same names in NumPy. No sum uses BLAS, whose threads would change bits.


def _write_log_densities(rows: np.ndarray, prepared: _Prepared, out: np.ndarray) -> None:
    parts = prepared.location, prepared.square, prepared.linear
    location, square, linear = (part[:, None, : rows.shape[1]].astype(np.float64) for part in parts)
    gap = np.abs(rows - location)
    slope = square * gap
    slope += linear
    np.subtract(prepared.constant[:, None], np.einsum("knd,knd->kn", slope, gap), out=out)


def _normalize(joint: np.ndarray, prior: np.ndarray, negligible: float, log_likelihood: np.ndarray) -> None:
    top = np.fmax.reduce(joint, axis=0)
    far = ~np.isfinite(top)
    joint -= np.where(far, 0.0, top)
    np.copyto(joint, -np.inf, where=~(joint > negligible))
    np.exp(joint, out=joint)
    joint[:, far] = prior[:, None]
    total = joint.sum(axis=0)
    log_likelihood[:] = np.where(far, -np.inf, top + np.log(total))
    joint[:, ~far] /= total[~far]


def _list_posteriors(
    posterior: np.ndarray,
    weight: np.ndarray,
    threshold: float,
    quantum: float,
    listed: Sequence[np.ndarray],
    sums: Sequence[np.ndarray],
) -> None:
    start, row, row_weight = listed
    large = np.where(posterior >= threshold, posterior, 0.0)
    rounded = np.floor(large * weight / quantum + 0.5) * quantum
    kept = rounded > 0
    start[0] = 0
    np.cumsum(kept.sum(axis=1), out=start[1:])
    row[: start[-1]] = np.nonzero(kept)[1]
    row_weight[: start[-1]] = rounded[kept]
    sums[0][:] += rounded.sum(axis=1)
    sums[1][:] += np.einsum("kn,kn->k", rounded, rounded)
