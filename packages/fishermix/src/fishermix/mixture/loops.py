"""The inner loops of EM, once in NumPy and once compiled. A fit decides once which of the two it uses.

Compiling, or reading what was compiled, takes longer than fitting small data, so these go through NumPy. Both
compute the same formulas; NumPy sums in float64, so results differ by rounding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from fishermix.errors import install_command, warn_user
from fishermix.mixture.compiling import HAS_NUMBA

if TYPE_CHECKING:
    from fishermix.mixture.m_step.moments import MomentSums
    from fishermix.mixture.parameters import Prepared
    from fishermix.mixture.posteriors import EStepSums, TilePosteriors

SMALL = 16_384  # N K D: up to here an iteration in NumPy takes less than a millisecond


class Loops(ABC):
    """The loops over the rows of a tile."""

    @abstractmethod
    def write_log_densities(self, rows: np.ndarray, prepared: Prepared, joint: np.ndarray) -> None:
        """Write log tau_k + log p_k (K, n) of rows (n, D), for the families with a form, into `joint`."""

    @abstractmethod
    def normalize(self, joint: np.ndarray, prior: np.ndarray, negligible: float) -> np.ndarray:
        """Turn joint log densities (K, n) into posteriors in place; return the log likelihoods (n,).

        Rows so far out that all densities are 0 get the prior (K,). Densities below the largest of their row
        times e^negligible count as 0.
        """

    @abstractmethod
    def list_posteriors(
        self,
        posterior: np.ndarray,
        weight: np.ndarray,
        threshold: float,
        quantum: float,
        listed: TilePosteriors,
        sums: EStepSums,
    ) -> None:
        """Write posteriors (K, n) of at least the threshold into the buffers `listed`, and add to the sums.

        They are multiplied by the sample weights (n,) and rounded to multiples of the power of two `quantum`.
        """

    @abstractmethod
    def add_moments(
        self, tile: np.ndarray, posteriors: TilePosteriors, center: np.ndarray, sums: MomentSums
    ) -> None:
        """Add to the sums of rows (n, D) about the center (K, D)."""

    @abstractmethod
    def find_medians(
        self, columns: np.ndarray, order: np.ndarray, weight: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Medians (K, D) of columns (D, n) weighted by weight (K, n), and sums of weight |x - median|.

        order (D, n) sorts the columns.
        """


class PlainLoops(Loops):
    """The loops in NumPy. No sum uses BLAS, whose threads would change bits."""

    def write_log_densities(self, rows: np.ndarray, prepared: Prepared, joint: np.ndarray) -> None:
        location, square, linear = (
            part[:, None, : rows.shape[1]].astype(np.float64)
            for part in (prepared.location, prepared.square, prepared.linear)
        )
        gap = np.abs(rows - location)
        slope = square * gap
        slope += linear
        np.subtract(prepared.constant[:, None], np.einsum("knd,knd->kn", slope, gap), out=joint)

    def normalize(self, joint: np.ndarray, prior: np.ndarray, negligible: float) -> np.ndarray:
        top = np.fmax.reduce(joint, axis=0)
        far = ~np.isfinite(top)
        joint -= np.where(far, 0.0, top)
        np.copyto(joint, -np.inf, where=~(joint > negligible))
        np.exp(joint, out=joint)
        joint[:, far] = prior[:, None]
        total = np.where(far, 1.0, joint.sum(axis=0))
        joint /= total
        return np.where(far, -np.inf, top + np.log(total))

    def list_posteriors(
        self,
        posterior: np.ndarray,
        weight: np.ndarray,
        threshold: float,
        quantum: float,
        listed: TilePosteriors,
        sums: EStepSums,
    ) -> None:
        large = np.where(posterior >= threshold, posterior, 0.0)
        rounded = np.floor(large * weight / quantum + 0.5) * quantum
        kept = rounded > 0
        counts = kept.sum(axis=1)
        listed.start[0] = 0
        np.cumsum(counts, out=listed.start[1:])
        end = listed.start[-1]
        listed.row[:end] = np.nonzero(kept)[1]
        listed.weight[:end] = rounded[kept]
        sums.rows += counts
        sums.weight += rounded.sum(axis=1)
        sums.squared += np.einsum("kn,kn->k", rounded, rounded)

    def add_moments(
        self, tile: np.ndarray, posteriors: TilePosteriors, center: np.ndarray, sums: MomentSums
    ) -> None:
        dense = posteriors.to_dense(len(tile))
        gap = tile - center[:, None].astype(np.float64)
        sums.first += np.einsum("kn,knd->kd", dense, gap)
        sums.second += np.einsum("kn,knd,knd->kd", dense, gap, gap)

    def find_medians(
        self, columns: np.ndarray, order: np.ndarray, weight: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        most_numbers = 2_000_000  # K D n that NumPy may expand to
        step = max(1, most_numbers // weight.size)
        if step < len(columns):
            parts = [slice(start, start + step) for start in range(0, len(columns), step)]
            found = [self.find_medians(columns[part], order[part], weight) for part in parts]
            medians, sums = zip(*found)
            return np.hstack(medians), np.hstack(sums)
        reached = np.cumsum(weight[:, order], axis=2)
        place = np.count_nonzero(reached < 0.5 * reached[:, :, -1:], axis=2)
        d = np.arange(len(columns))
        median = columns[d, order[d, place]] + 0.0  # never -0.0, whichever came first
        return median, np.einsum("kn,kdn->kd", weight, np.abs(columns - median[:, :, None]))


class CompiledLoops(Loops):
    """The loops of `kernels`, with the work space that these are given."""

    def write_log_densities(self, rows: np.ndarray, prepared: Prepared, joint: np.ndarray) -> None:
        from fishermix.mixture import kernels

        kernels.log_densities(
            x=rows,
            location=prepared.location,
            square=prepared.square,
            linear=prepared.linear,
            constant=prepared.constant,
            out=joint,
        )

    def normalize(self, joint: np.ndarray, prior: np.ndarray, negligible: float) -> np.ndarray:
        from fishermix.mixture import kernels

        n_rows = joint.shape[1]
        log_likelihood = np.empty(n_rows)
        kernels.normalize(
            joint=joint,
            prior=prior,
            negligible=negligible,
            top=np.empty(n_rows),
            total=np.empty(n_rows),
            log_likelihood=log_likelihood,
        )
        return log_likelihood

    def list_posteriors(
        self,
        posterior: np.ndarray,
        weight: np.ndarray,
        threshold: float,
        quantum: float,
        listed: TilePosteriors,
        sums: EStepSums,
    ) -> None:
        from fishermix.mixture import kernels

        kernels.list_posteriors(
            posterior=posterior,
            weight=weight,
            threshold=threshold,
            quantum=quantum,
            rounded=np.empty(posterior.shape[1]),
            start=listed.start,
            row=listed.row,
            row_weight=listed.weight,
            sums=sums.weight,
            squares=sums.squared,
        )
        sums.rows += np.diff(listed.start)

    def add_moments(
        self, tile: np.ndarray, posteriors: TilePosteriors, center: np.ndarray, sums: MomentSums
    ) -> None:
        from fishermix.mixture import kernels

        kernels.add_moments(
            x=tile,
            start=posteriors.start,
            row=posteriors.row,
            weight=posteriors.weight.astype(tile.dtype, copy=False),
            center=center,
            ones=np.empty(tile.shape[1], tile.dtype),
            twos=np.empty(tile.shape[1], tile.dtype),
            first=sums.first,
            second=sums.second,
        )

    def find_medians(
        self, columns: np.ndarray, order: np.ndarray, weight: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        from fishermix.mixture import kernels

        shape = len(weight), len(columns)
        median = np.empty(shape)
        deviation = np.empty(shape)
        kernels.find_medians(columns, order, weight, median, deviation)
        return median, deviation


PLAIN = PlainLoops()
COMPILED = CompiledLoops() if HAS_NUMBA else PLAIN


def choose_loops(size: float) -> Loops:
    """The loops for data of this size N K D. N counts all rows, so that bits do not depend on blocks."""
    if size <= SMALL:
        return PLAIN
    if not HAS_NUMBA:
        warn_user(f"Without numba this takes longer. Run: {install_command('fishermix[compiled]')}")
        return PLAIN
    # Imported here, because its warning, in a thread, would not point at the caller.
    import fishermix.mixture.kernels  # noqa: F401

    return COMPILED
