"""EM from any source of rows: `run_em` is the algorithm, `FitState` what one iteration leaves to the next."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import numpy as np

from fishermix.errors import FishermixError
from fishermix.mixture.e_step import (
    LONGEST,
    MIXTURE_TENSORS,
    SHORTEST,
    MixtureParameters,
    Pass,
    is_worth_compiling,
)
from fishermix.mixture.families import (
    Family,
    Gaussian,
    Laplace,
    describe_family,
    make_family,
)
from fishermix.mixture.m_step import (
    ComponentSums,
    FamilyFit,
    FitPlan,
    IRLSFit,
    MedianFit,
    MomentFit,
    RowSorter,
    are_finite,
    begin_fits,
    sum_components,
)
from fishermix.rows import RowSource
from fishermix.storage import Count, Json, Name, Number, Positive, Seed, Struct, require_tensors

LOST = 1e-3  # mean sample weights: a component with less weight than this has lost its rows
RESEEDS = 3  # per component and fit: with fewer distinct rows than components, more would not help
SMALLEST_WEIGHT = 1e-12  # of a component: its logarithm must stay finite
FIRST_REACH = 3.0  # scales that the first median may be away from the start
FLOAT64_BITS = 52  # of the fraction

LARGEST = 1e150  # numbers whose squares float64 can sum
SAMPLE = 16_384  # rows that the seeds are chosen from: more would not improve them and cost a pass
ROWS_PER_COMPONENT = 20  # at least, in that sample

Start = tuple[np.ndarray, np.ndarray, np.ndarray]  # weights (K,), locations and scales (K, D)
is_done, likelihood_of = attrgetter("done"), attrgetter("expected_log_likelihood")
CLOSED_FORM: dict[type[Family], type[FamilyFit]] = {Gaussian: MomentFit, Laplace: MedianFit}


# Tensor in a saved folder: attribute of a fit.
TENSORS = {"location": "location", "scale": "scale", "reach": "reach", "quality": "expected_log_likelihood"}


class FamilyConfig(Struct):
    """A family in a saved mixture."""

    name: Name
    parameters: dict[Name, Json] = msgspec.field(default_factory=dict)


class StateConfig(Struct, kw_only=True):
    """The numbers of a fit in a saved folder, next to its tensors."""

    families: Annotated[list[FamilyConfig], msgspec.Meta(min_length=1)]
    min_scale: Positive
    seed: Seed
    iteration: Count
    lower_bounds: list[Number]


@dataclass(frozen=True)
class FitState:
    """Everything that the next iteration depends on."""

    weights: np.ndarray  # (K,)
    fits: tuple[FamilyFit, ...]  # one per family, each (K, D)
    choice: np.ndarray  # (K, D) index of the family
    rows: np.ndarray  # (K,) rows with a sparse posterior in the last E step
    seed: int  # of the places where lost components start again
    iteration: int = 0
    lower_bounds: list[float] = field(default_factory=list)
    reseeds: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # (K,)

    @classmethod
    def start(cls, families: list[Family], start: Start, floor: float, rows: float, seed: int) -> FitState:
        """All families start from the same locations and scales (K, D); the first is chosen everywhere."""
        weights, locations, scales = start
        scales = np.maximum(scales, floor)
        fits = tuple(
            CLOSED_FORM.get(type(family), IRLSFit)(
                family, locations.copy(), scales, FIRST_REACH * scales, np.zeros(scales.shape), floor
            )
            for family in families
        )
        choice = np.zeros(locations.shape, np.int64)
        return cls(weights, fits, choice, weights * rows, seed, reseeds=np.zeros(len(weights), np.int64))

    def to_tensors(self) -> tuple[StateConfig, dict[str, np.ndarray]]:
        """Return the numbers and tensors from which a fit continues to the same bits."""
        config = StateConfig(
            families=[FamilyConfig(*describe_family(fit.family)) for fit in self.fits],
            min_scale=float(self.fits[0].floor),
            seed=int(self.seed),
            iteration=self.iteration,
            lower_bounds=[float(bound) for bound in self.lower_bounds],
        )
        tensors = {
            "weights": self.weights,
            "choice": self.choice.astype(np.int64),
            "rows": np.asarray(self.rows, np.float64),
            "reseeds": self.reseeds,
        }
        for name, attribute in TENSORS.items():
            tensors[name] = np.stack([np.asarray(getattr(fit, attribute), np.float64) for fit in self.fits])
        return config, tensors

    @classmethod
    def from_tensors(
        cls, config: StateConfig, tensors: dict[str, np.ndarray], where: str | os.PathLike
    ) -> FitState:
        """Check and read what `to_tensors` returned; errors name `where`."""
        families = [make_family(family.name, family.parameters) for family in config.families]
        shapes = MIXTURE_TENSORS | dict.fromkeys(TENSORS, "F K D") | {"rows": "K", "reseeds": "int K"}
        require_tensors(tensors, shapes, where)
        chosen = MixtureParameters.from_tensors(families, tensors, where)
        parts = {name: tensors[name].astype(np.float64, copy=False) for name in TENSORS}
        start = chosen.weights, parts["location"][0], parts["scale"][0]
        state = cls.start(families, start, config.min_scale, 1.0, config.seed)
        fits = tuple(
            replace(fit, **{attribute: parts[name][number] for name, attribute in TENSORS.items()})
            for number, fit in enumerate(state.fits)
        )
        return replace(
            state,
            fits=fits,
            choice=chosen.choice,
            rows=tensors["rows"].astype(np.float64, copy=False),
            iteration=config.iteration,
            lower_bounds=config.lower_bounds,
            reseeds=tensors["reseeds"],
        )

    @property
    def parameters(self) -> MixtureParameters:
        """Weights, and the locations and scales of the chosen families."""
        families = [fit.family for fit in self.fits]
        parts = [fit.location for fit in self.fits], [fit.scale for fit in self.fits]
        locations, scales = (np.take_along_axis(np.stack(part), self.choice[None], 0)[0] for part in parts)
        return MixtureParameters(families, self.weights, locations, scales, self.choice)


@dataclass
class FitProgress:
    """The progress of a fit: the best of the finished starts, and the current start."""

    state: FitState
    start: int = 0
    best: FitState | None = None
    best_converged: bool = False
    finished: bool = False
    converged: bool = False

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
    progress: FitProgress, source: RowSource, max_iter: int, tol: float, working_memory: float
) -> Iterator[FitState]:
    """Iterate until the log likelihood gains less than `tol`; yields the state after every iteration.

    The lower bound of an iteration is that of its E step. Half of the `working_memory` (MiB) is for the
    posteriors that a pass keeps for the next one, half for the statistics of a pass.
    """
    n_rows, total_weight = source.shape[0], source.total_weight
    compiled = is_worth_compiling(n_rows * progress.state.choice.size)
    plan = FitPlan(n_rows, source.dtype, compiled, RowSorter(), room=working_memory * 2**19)
    while not progress.converged and (state := progress.state).iteration < max_iter:
        fits, sums, log_likelihood = _run_passes(state, source, plan)
        best = np.argmax(list(map(likelihood_of, fits)), axis=0)
        weights = np.maximum(sums.weight[:, 0] / total_weight, SMALLEST_WEIGHT)
        bounds = [*state.lower_bounds, log_likelihood / total_weight]
        progress.state = replace(
            state,
            weights=weights / weights.sum(),
            fits=tuple(fits),
            choice=np.where(sums.weight > 0, best, state.choice),
            rows=sums.rows[:, 0],
            iteration=state.iteration + 1,
            lower_bounds=bounds,
        )
        lost = (sums.weight[:, 0] < LOST * (total_weight / n_rows)) & (state.reseeds < RESEEDS)
        if lost.any():
            progress.state = reseed(progress.state, lost)
        gain = abs(bounds[-1] - bounds[-2]) if len(bounds) > 1 else np.inf
        progress.converged = bool(gain < tol and not lost.any())
        yield progress.state


def _run_passes(
    state: FitState, source: RowSource, plan: FitPlan
) -> tuple[list[FamilyFit], ComponentSums, float]:
    """The E step and the M step: the new fits, the sums of the posteriors, and the log likelihood."""
    parameters, quantum = state.parameters, find_quantum(source.total_weight)
    memo_bytes, again = plan.room / plan.n_rows, False
    fits, dtype = begin_fits(state, plan)
    while not all(map(is_done, fits)):
        # The E step, and sufficient statistics. Medians and IRLS may ask for another pass.
        step = Pass(parameters, tuple(fits), dtype, quantum, again, memo_bytes, plan.compiled)
        statistics = source.total(step)
        if not are_finite(statistics):  # float32 has overflowed: start again in float64
            if dtype == np.float64:
                raise too_large()
            fits, dtype = begin_fits(state, replace(plan, dtype=np.dtype(np.float64)))
            again = False
            continue
        if not again:
            sums, log_likelihood = sum_components(statistics), statistics["log_likelihood"]
        for number, fit in enumerate(fits):  # the M step
            fits[number] = fit if fit.done else fit.advance(statistics[f"fit{number}"], sums)
        again = True
    return fits, sums, log_likelihood


def run_starts(
    progress: FitProgress,
    source: RowSource,
    starts: Sequence[Callable[[], FitState]],
    max_iter: int,
    tol: float,
    working_memory: float,
) -> Iterator[FitState]:
    """Run EM from every start that is not finished, and leave the best in `progress`."""
    while not progress.finished:
        yield from run_em(progress, source, max_iter, tol, working_memory)
        progress.keep_better()
        progress.start += 1
        progress.finished = progress.start >= len(starts)
        if not progress.finished:
            progress.state, progress.converged = starts[progress.start](), False


def find_quantum(total_weight: float) -> float:
    """Return a power of two so small that it is harmless, so large that sums of it are exact."""
    return float(2.0 ** (np.ceil(np.log2(total_weight)) - FLOAT64_BITS))


def too_large() -> FishermixError:
    """The error for values whose squares overflow."""
    return FishermixError(
        f"Input X contains values too large to square and sum in dtype('float64'): they must stay below "
        f"{LARGEST:g}. Rescale X, for example by dividing it by its largest absolute value."
    )


def reseed(state: FitState, lost: np.ndarray) -> FitState:
    """Let each lost component (K,) start again as one half of the heaviest one.

    The two halves differ by half a scale in a random direction; EM separates them.
    """
    weights, choice = state.weights.copy(), state.choice.copy()
    fits = [
        replace(fit, location=fit.location.copy(), scale=fit.scale.copy(), reach=fit.reach.copy())
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
            fit.reach[k] = fit.reach[heaviest] = np.maximum(fit.reach[heaviest], fit.scale[heaviest])
    return replace(
        state,
        weights=weights / weights.sum(),
        choice=choice,
        fits=tuple(fits),
        rows=np.where(lost, state.rows.max(), state.rows),
        reseeds=state.reseeds + lost,
    )


# The start: k-means++ seeds, random rows or given values


def initialize(estimator: Any, source: RowSource, rng: np.random.RandomState) -> Start:
    """Choose weights (K,), locations and scales (K, D), except for those that the estimator was given.

    Locations are rows of the data, scales the standard deviations of all rows, and weights equal.
    """
    shape = n_components, _ = estimator.n_components, source.shape[1]
    rows, weight = _sample_rows(source, n_components, rng, needed=estimator.locations_init is None)
    largest = float(np.abs(rows).max(initial=0))
    if largest > LARGEST:
        raise too_large()
    if estimator.locations_init is None:
        locations = rows[_choose_seeds(rows, weight, n_components, estimator.init_params, rng)]
    else:
        locations = _parse_array("locations_init", estimator.locations_init, shape)
    if estimator.scales_init is None:
        mean = np.average(rows, axis=0, weights=weight)
        variance = np.average((rows - mean) ** 2, axis=0, weights=weight)
        scales = np.tile(np.sqrt(variance), (n_components, 1))
    else:
        scales = _parse_array("scales_init", estimator.scales_init, shape, positive=True)
    weights = np.full(n_components, 1 / n_components)
    if estimator.weights_init is not None:
        weights = _parse_array("weights_init", estimator.weights_init, shape[:1], positive=True)
        if not np.isclose(weights.sum(), 1):
            raise ValueError("The parameter 'weights_init' should sum to 1.")
        weights = weights / weights.sum()
    return weights, locations.astype(np.float64), scales


def _sample_rows(
    source: RowSource, n_components: int, rng: np.random.RandomState, needed: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Take a sample of the rows with a positive weight. If seeds are needed, merge ties of a complete one."""
    n_rows = source.shape[0]
    size = min(n_rows, max(SAMPLE, ROWS_PER_COMPONENT * n_components))
    positions = np.arange(n_rows) if size == n_rows else np.sort(rng.choice(n_rows, size, replace=False))
    rows, weight = source.take(positions)
    rows, weight = rows[weight > 0], weight[weight > 0]
    if needed and len(rows) < n_components:
        raise ValueError(
            f"Expected at least n_components = {n_components} rows with a positive sample_weight, "
            f"got {len(rows)}."
        )
    return merge_duplicates(rows, weight) if needed and size == n_rows else (rows, weight)


def _choose_seeds(
    rows: np.ndarray, weight: np.ndarray, n_components: int, init_params: str, rng: np.random.RandomState
) -> np.ndarray:
    """Choose the positions (K,) of the rows that become the locations."""
    if len(rows) <= n_components:
        return np.arange(n_components) % len(rows)
    if init_params == "k-means++":
        # Scaling by a power of two changes no bit, and keeps squares within the range of the type.
        largest = float(np.abs(rows).max())
        usual = largest == 0 or SHORTEST <= largest <= LONGEST
        scaled = rows if usual else np.ldexp(rows.astype(np.float64), -int(np.frexp(largest)[1]))
        from sklearn.cluster import kmeans_plusplus  # which a search, that reads a mixture, does without

        return kmeans_plusplus(scaled, n_components, sample_weight=weight, random_state=rng)[1]
    return np.sort(rng.choice(len(rows), n_components, replace=False))


def merge_duplicates(rows: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each distinct row once, in ascending order, with the sum of its weights.

    The seeds are then the same whether a row comes twice or has weight 2, and in any order of the rows.
    """
    bits = (rows + 0.0).astype(np.float64).view(np.int64)
    # Big-endian and with these bits inverted, the bytes of rows sort as their numbers do.
    ordered = (bits ^ ((bits >> 63) | np.iinfo(np.int64).min)).astype(">i8")
    as_bytes = ordered.view(np.dtype((np.void, 8 * rows.shape[1]))).ravel()
    _, first, number = np.unique(as_bytes, return_index=True, return_inverse=True)
    return rows[first], np.bincount(number, weight)


def _parse_array(name: str, value: Any, shape: tuple[int, ...], positive: bool = False) -> np.ndarray:
    value = np.array(value, dtype=np.float64)
    if value.shape != shape or not np.isfinite(value).all() or (positive and (value <= 0).any()):
        kind = "positive" if positive else "finite"
        raise ValueError(f"The parameter '{name}' should be {kind} numbers of shape {shape}.")
    return value


# Batches of a stream


def fit_batch(
    old: FitState, source: RowSource, seen: np.ndarray, working_memory: float
) -> tuple[FitState, np.ndarray]:
    """Take a step of incremental EM; return the state and the weight (K,) that each component has seen.

    A batch is one iteration on its rows alone, averaged with the state before it by the weights of the rows
    seen: the step size is new / seen. Rows keep the posteriors of the time they were seen. Gaussian means and
    variances are pooled exactly; locations and scales of other families are averaged.

    References: Neal and Hinton (1998), A view of the EM algorithm that justifies incremental, sparse, and
    other variants; Cappé and Moulines (2009), On-line expectation-maximization algorithm for latent data
    models.
    """
    # A component without rows in one batch is not lost, so none may be re-seeded.
    progress = FitProgress(replace(old, reseeds=np.full_like(old.reseeds, RESEEDS)))
    batch = next(run_em(progress, source, old.iteration + 1, 0, working_memory))
    new = np.where(batch.rows > 0, batch.weights * source.total_weight, 0.0)  # without rows, the step is 0
    total = seen + new
    step = (new / np.maximum(total, np.finfo(float).tiny))[:, None]
    fits = []
    for before, after in zip(old.fits, batch.fits):
        gap = after.location - before.location
        if isinstance(after, MomentFit):
            variance = (1 - step) * before.scale**2 + step * after.scale**2 + step * (1 - step) * gap**2
            scale = np.sqrt(variance)
        else:
            scale = (1 - step) * before.scale + step * after.scale
        expected = (1 - step) * before.expected_log_likelihood + step * after.expected_log_likelihood
        fits.append(
            replace(
                after,
                location=before.location + step * gap,
                scale=scale,
                expected_log_likelihood=expected,
                reach=after.scale,
            )
        )
    choice = np.argmax(np.stack([fit.expected_log_likelihood for fit in fits]), axis=0)
    weights = np.maximum(total / total.sum(), SMALLEST_WEIGHT)
    state = replace(
        batch,
        weights=weights / weights.sum(),
        fits=tuple(fits),
        choice=choice,
        rows=np.maximum(batch.rows, 1.0),
        reseeds=old.reseeds,
    )
    return state, total
