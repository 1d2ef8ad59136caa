"""EM from any source of rows: `run_em` is the algorithm, `FitState` what one iteration leaves to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fishermix.mixture.families import Family
from fishermix.mixture.initialization import Start, too_large
from fishermix.mixture.loops import choose_loops
from fishermix.mixture.m_step import ComponentSums, FamilyFit, FitPlan, RowSorter, ShapeSearch
from fishermix.mixture.parameters import LONGEST, SHORTEST, MixtureParameters
from fishermix.mixture.passes import Pass
from fishermix.mixture.posteriors import EStepSums
from fishermix.rows import RowSource

RESEEDS = 3  # per component and fit: with fewer distinct rows than components, more would not help


@dataclass(frozen=True)
class FitState:
    """Everything that the next iteration depends on."""

    weights: np.ndarray  # (K,)
    fits: tuple[FamilyFit, ...]  # one per family, each (K, D)
    choice: np.ndarray  # (K, D) index of the family
    rows: np.ndarray  # (K,) rows with a posterior in the last E step
    seed: int  # of the places where lost components start again
    iteration: int = 0
    lower_bounds: list[float] = field(default_factory=list)
    reseeds: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # (K,)

    @classmethod
    def start(
        cls,
        families: list[Family],
        start: Start,
        floor: float,
        rows: float,
        seed: int,
        shapes: np.ndarray | None = None,
    ) -> FitState:
        """All families start from the same locations and scales (K, D); the first is chosen everywhere.

        Free shapes start from `shapes` (K, D), or from the middle of their values where these are NaN.
        """
        weights, locations, scales = start
        scales = np.maximum(scales, floor)
        fits = tuple(
            family.m_step(
                family=family,
                location=locations.copy(),
                scale=scales,
                reach=3 * scales,
                expected_log_likelihood=np.zeros(scales.shape),
                floor=floor,
            )
            for family in families
        )
        fits = tuple(set_shapes(fit, shapes) for fit in fits)
        choice = np.zeros(locations.shape, np.int64)
        return cls(weights, fits, choice, weights * rows, seed, reseeds=np.zeros(len(weights), np.int64))

    @property
    def parameters(self) -> MixtureParameters:
        """Weights, and the locations and scales of the chosen families."""
        families = [fit.family for fit in self.fits]
        locations = self.pick_chosen([fit.location for fit in self.fits])
        scales = self.pick_chosen([fit.scale for fit in self.fits])
        shapes = None
        if any(family.has_free_shape for family in families):
            grid = self.choice.shape
            shapes = self.pick_chosen([np.broadcast_to(fit.shape, grid) for fit in self.fits])
        return MixtureParameters(families, self.weights, locations, scales, self.choice, shapes)

    def pick_chosen(self, of_families: Sequence[np.ndarray]) -> np.ndarray:
        """In each cell the value of the chosen family, given arrays (K, D) of all families."""
        if len(of_families) == 1:
            return np.array(of_families[0])
        return np.take_along_axis(np.stack(of_families), self.choice[None], 0)[0]

    @property
    def promised_gain(self) -> float:
        """The mean log likelihood per row that another iteration is known to gain."""
        shape = self.choice.shape
        gains = [np.where(fit.stuck, 0.0, np.broadcast_to(fit.promised_gain, shape)) for fit in self.fits]
        return float(self.weights @ self.pick_chosen(gains).sum(axis=1))

    def count_rising(self, least: float) -> int:
        """The number of cells whose search for a maximum failed where it promised at least this gain."""
        shape = self.choice.shape
        rising = [np.broadcast_to(fit.stuck & (fit.promised_gain > least), shape) for fit in self.fits]
        return int(self.pick_chosen(rising).sum())


@dataclass
class FitProgress:
    """The progress of a fit: the best of the finished starts, and the current start."""

    state: FitState
    start: int = 0
    best: FitState | None = None
    best_converged: bool = False
    finished: bool = False
    converged: bool = False
    stopped: bool = False  # the current start, by a callback

    def keep_better(self) -> None:
        """Make the current start the best one if it is."""
        bounds = self.state.lower_bounds
        if self.best is None or (bounds and bounds[-1] > self.best.lower_bounds[-1]):
            self.best, self.best_converged = self.state, self.converged

    def reopen(self, max_iter: int) -> None:
        """Continue a single start that ended at the iteration limit if more iterations are allowed now."""
        if self.finished and self.start == 1 and not self.converged and self.state.iteration < max_iter:
            self.finished, self.start, self.best = False, 0, None


def run_em(
    progress: FitProgress,
    source: RowSource,
    max_iter: int,
    tol: float,
    working_memory: float,
    before_iteration: Callable[[], None] = lambda: None,
) -> Iterator[FitState]:
    """Iterate until the log likelihood gains less than `tol`; yields the state after every iteration.

    The lower bound of an iteration is that of its E step. Half of the `working_memory` (MiB) is for the
    posteriors that a pass keeps for the next one, half for the sufficient statistics of a pass.
    """
    n_rows, total_weight = source.shape[0], source.total_weight
    loops = choose_loops(n_rows * progress.state.choice.size)
    plan = FitPlan(n_rows, source.dtype, loops, RowSorter(), memory=working_memory * 2**19)
    while not (progress.converged or progress.stopped) and (state := progress.state).iteration < max_iter:
        before_iteration()
        fits, e_step = run_iteration(state, source, plan)
        weights = np.maximum(e_step.weight / total_weight, 1e-12)  # their logarithms must stay finite
        best = np.argmax([fit.expected_log_likelihood for fit in fits], axis=0)
        bounds = [*state.lower_bounds, e_step.log_likelihood / total_weight]
        state = replace(
            state,
            weights=weights / weights.sum(),
            fits=tuple(fits),
            choice=np.where(e_step.weight[:, None] > 0, best, state.choice),
            rows=e_step.rows,
            iteration=state.iteration + 1,
            lower_bounds=bounds,
        )
        # A component with less than a thousandth of the mean sample weight has lost its rows.
        lost = (e_step.weight < 1e-3 * (total_weight / n_rows)) & (state.reseeds < RESEEDS)
        progress.state = reseed(state, lost) if lost.any() else state
        gain = abs(bounds[-1] - bounds[-2]) if len(bounds) > 1 else np.inf
        progress.converged = bool(gain < tol and not lost.any() and state.promised_gain <= tol)
        yield progress.state


def run_iteration(state: FitState, source: RowSource, plan: FitPlan) -> tuple[list[FamilyFit], EStepSums]:
    """The E step and the M step: the new fits of all families, and the sums of the E step.

    Medians, IRLS, Newton's method and free shapes may ask for more passes over the rows, with the same
    posteriors.
    """
    if not fits_in(state, plan.dtype):
        plan = replace(plan, dtype=np.dtype(np.float64))
    fits: list[FamilyFit | ShapeSearch] = [
        ShapeSearch.begin(fit, state.rows, plan) if fit.family.has_free_shape else fit.begin(state.rows, plan)
        for fit in state.fits
    ]
    parameters, quantum = state.parameters, find_quantum(source.total_weight)
    e_step: EStepSums | None = None
    while not all(fit.done for fit in fits):
        step = Pass(
            parameters=parameters,
            fits=tuple(fits),
            dtype=plan.dtype,
            quantum=quantum,
            again=e_step is not None,
            cache_bytes=plan.memory / plan.n_rows,
            loops=plan.loops,
        )
        sums = source.total(step)
        if not sums.are_finite():
            if plan.dtype == np.float64:
                raise too_large()
            return run_iteration(state, source, replace(plan, dtype=np.dtype(np.float64)))
        e_step = e_step or sums.e_step
        assert e_step is not None  # the first pass has it
        components = ComponentSums.of_e_step(e_step)
        of_fits: list[Any] = sums.fits
        fits = [fit if fit.done else fit.advance(of_fit, components) for fit, of_fit in zip(fits, of_fits)]
    assert e_step is not None
    return [fit.find_best() if isinstance(fit, ShapeSearch) else fit for fit in fits], e_step


def fits_in(state: FitState, dtype: np.dtype) -> bool:
    """Whether this type can hold and square the parameters of all families."""
    return dtype == np.float64 or all(
        max(np.abs(fit.location).max(), fit.scale.max()) <= LONGEST and fit.scale.min() >= SHORTEST
        for fit in state.fits
    )


def set_shapes(fit: FamilyFit, given: np.ndarray | None) -> FamilyFit:
    """The fit with the shapes (K, D) with which it begins, if its family has a free one."""
    if not fit.family.has_free_shape:
        return fit
    values, grid = fit.family.shape_values, fit.location.shape
    middle = np.full(grid, values[len(values) // 2])
    shape = middle if given is None else np.where(np.isnan(given), middle, given)
    return replace(fit, shape=shape, stride=np.full(grid, max(len(values) // 8, 1)))


def run_starts(
    progress: FitProgress,
    source: RowSource,
    starts: Sequence[Callable[[], FitState]],
    max_iter: int,
    tol: float,
    working_memory: float,
    before_iteration: Callable[[], None] = lambda: None,
    after_start: Callable[[], bool] = lambda: False,
) -> Iterator[FitState]:
    """Run EM from every start that is not finished, and leave the best in `progress`.

    If `after_start` returns True, no other start follows.
    """
    while not progress.finished:
        yield from run_em(progress, source, max_iter, tol, working_memory, before_iteration)
        progress.keep_better()
        progress.start += 1
        progress.finished = after_start() or progress.start >= len(starts)
        if not progress.finished:
            progress.state, progress.converged = starts[progress.start](), False
            progress.stopped = False


def find_quantum(total_weight: float) -> float:
    """Return a power of two so small that it is harmless, so large that sums of it are exact."""
    bits_of_fraction = 52  # of float64
    return float(2.0 ** (np.ceil(np.log2(total_weight)) - bits_of_fraction))


def reseed(state: FitState, lost: np.ndarray) -> FitState:
    """Let each lost component (K,) start again as one half of the heaviest one.

    The two halves differ by half a scale in a random direction; EM separates them.
    """
    weights, choice = state.weights.copy(), state.choice.copy()
    fits = [
        replace(
            fit,
            location=fit.location.copy(),
            scale=fit.scale.copy(),
            reach=fit.reach.copy(),
            shape=np.array(fit.shape),
        )
        for fit in state.fits
    ]
    for k in np.flatnonzero(lost):
        heaviest = int(np.argmax(weights))
        weights[k] = weights[heaviest] = 0.5 * weights[heaviest]
        choice[k] = choice[heaviest]
        rng = np.random.default_rng([state.seed, state.iteration, int(k)])
        direction = rng.standard_normal(choice.shape[1])
        for fit in fits:
            fit.location[k] = fit.location[heaviest] + 0.5 * fit.scale[heaviest] * direction
            fit.scale[k] = fit.scale[heaviest]
            if fit.family.has_free_shape:
                np.asarray(fit.shape)[k] = np.asarray(fit.shape)[heaviest]
            fit.reach[k] = fit.reach[heaviest] = np.maximum(fit.reach[heaviest], fit.scale[heaviest])
    return replace(
        state,
        weights=weights / weights.sum(),
        choice=choice,
        fits=tuple(fits),
        rows=np.where(lost, state.rows.max(), state.rows),
        reseeds=state.reseeds + lost,
    )
