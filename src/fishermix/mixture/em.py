"""One iteration of EM, from any source of blocks, and the state that one iteration leaves to the next."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fishermix.errors import FishermixError
from fishermix.mixture.families import Family
from fishermix.mixture.m_step import FamilyFit, start_fit
from fishermix.mixture.parameters import MixtureParameters, suits_float32
from fishermix.mixture.statistics import ActiveRows, Mass
from fishermix.rows.blocks import Block, RowSource, Totals

DEAD = 1e-3  # rows' worth of weight below which a component is lost
RESEEDS = 3  # of one component in one fit; with fewer distinct rows than components more would not help
SMALLEST_WEIGHT = 1e-12
LARGEST = 1e150  # numbers whose squares float64 can sum up
NEGLIGIBLE = {"f": 1e-6, "d": 1e-15}  # posteriors below these are lost in the rounding of the densities


@dataclass(frozen=True)
class State:
    """Everything that the next iteration depends on."""

    weights: np.ndarray  # (K,)
    fits: tuple[FamilyFit, ...]  # one for each family, each (K, D)
    choice: np.ndarray  # (K, D) index of the family
    rows: np.ndarray  # (K,) active rows in the last E step
    seed: int  # for the places where a lost component starts again
    iteration: int = 0
    lower_bounds: list[float] = field(default_factory=list)
    reseeds: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # (K,)

    @property
    def families(self) -> list[Family]:
        return [fit.family for fit in self.fits]

    @property
    def components(self) -> MixtureParameters:
        locations = np.stack([fit.location for fit in self.fits])
        scales = np.stack([fit.scale for fit in self.fits])
        chosen = self.choice[None]
        return MixtureParameters(
            self.families,
            self.weights,
            np.take_along_axis(locations, chosen, 0)[0],
            np.take_along_axis(scales, chosen, 0)[0],
            self.choice,
        )


def start_state(
    families: list[Family],
    weights: np.ndarray,
    locations: np.ndarray,
    scales: np.ndarray,
    floor: float,
    rows: float,
    seed: int,
) -> State:
    """Every family starts from the same locations and scales (K, D); the first is chosen everywhere."""
    return State(
        weights=weights,
        fits=tuple(start_fit(family, locations, scales, floor) for family in families),
        choice=np.zeros(locations.shape, np.int64),
        rows=weights * rows,
        seed=seed,
        reseeds=np.zeros(len(weights), np.int64),
    )


@dataclass(frozen=True)
class Sweep:
    """The step that EM runs on every block: E step, then statistics for the fits that are not done.

    `dtype` is the same for all blocks and sweeps of an iteration, or posteriors would differ between them.
    """

    components: MixtureParameters
    fits: tuple[FamilyFit, ...]
    dtype: np.dtype
    quantum: float
    again: bool  # within the same iteration

    def __call__(self, block: Block) -> Totals:
        with np.errstate(over="ignore", invalid="ignore"):  # `iterate` looks at the sums
            return self._totals(block)

    def _totals(self, block: Block) -> Totals:
        rows = block.rows.astype(self.dtype, copy=False)
        accumulators = [fit.accumulator(rows.dtype) for fit in self.fits]
        known: list[ActiveRows] | None = block.memo.get("active") if self.again else None
        threshold = NEGLIGIBLE[rows.dtype.char]
        totals = Totals(log_likelihood=0.0, rows=0, weight=0.0, squared=0.0)
        listed = []
        for number, panel in enumerate(block.panels()):
            if known is None:
                weight = None if block.weight is None else block.weight[panel]
                active, log_likelihood = self.components.active_rows(
                    rows[panel], weight, threshold, self.quantum
                )
                totals["log_likelihood"] += log_likelihood
            else:
                active = known[number]
            for accumulator in accumulators:
                accumulator.add(rows[panel], active)
            listed.append(active)
            if not self.again:
                totals += active.totals()
        small = sum(active.nbytes for active in listed) <= rows.nbytes // 2
        block.memo["active"] = listed if small else None
        totals.update({f"fit{n}": accumulator.finish() for n, accumulator in enumerate(accumulators)})
        return totals


def iterate(state: State, source: RowSource) -> State:
    """One E step and one M step; the likelihood it records is that of the state it started from.

    float32 rows are taken in float64 where the components, or rows far away from them, need its range.
    """
    narrow = source.dtype == np.float32 and all(suits_float32(fit.location, fit.scale) for fit in state.fits)
    new = iterate_in(np.dtype(np.float32), state, source) if narrow else None
    new = new or iterate_in(np.dtype(np.float64), state, source)
    if new is None:
        raise too_large()
    return new


def too_large() -> FishermixError:
    return FishermixError(
        "Input X contains values too large for dtype('float64') to square and to sum up: they must stay "
        f"below {LARGEST:g}. Rescale X, for example by dividing it by its largest absolute value."
    )


def iterate_in(dtype: np.dtype, state: State, source: RowSource) -> State | None:
    """One iteration in this type, or None if it overflows."""
    components = state.components
    fits = [fit.begin(state.rows, dtype) for fit in state.fits]
    quantum = exact_quantum(source.total_weight)
    totals = None
    while asking := [number for number, fit in enumerate(fits) if not fit.done]:
        asked = tuple(fits[number] for number in asking)
        sweep = Sweep(components, asked, dtype, quantum, again=totals is not None)
        totals = source.total(sweep)
        if not totals.finite():
            return None
        if not sweep.again:
            mass = Mass(totals["weight"], totals["rows"], totals["squared"])
            log_likelihood = totals["log_likelihood"]
        for place, number in enumerate(asking):
            fits[number] = fits[number].advance(totals[f"fit{place}"], mass)
    choice = np.argmax(np.stack([fit.quality for fit in fits]), axis=0)
    choice = np.where(mass.weight[:, None] > 0, choice, state.choice)
    share = np.maximum(mass.weight / source.total_weight, SMALLEST_WEIGHT)
    new = replace(
        state,
        weights=share / share.sum(),
        fits=tuple(fits),
        choice=choice,
        rows=mass.rows,
        iteration=state.iteration + 1,
        lower_bounds=[*state.lower_bounds, log_likelihood / source.total_weight],
    )
    mean_weight = source.total_weight / source.shape[0]
    return reseed(new, mass.weight < DEAD * mean_weight)


def exact_quantum(total_weight: float) -> float:
    """A power of two so small that it does not matter, so large that sums of its multiples stay exact."""
    return float(2.0 ** (np.ceil(np.log2(total_weight)) - 52))


def reseed(state: State, dead: np.ndarray) -> State:
    """Let each lost component (K,) start again as one half of the heaviest one.

    The two halves differ by half a scale in a random direction; EM pulls them apart.
    """
    dead = dead & (state.reseeds < RESEEDS)
    if not dead.any():
        return state
    weights, choice = state.weights.copy(), state.choice.copy()
    fits = [
        replace(fit, **{n: getattr(fit, n).copy() for n in ("location", "scale", "reach")})
        for fit in state.fits
    ]
    for k in np.flatnonzero(dead):
        heaviest = int(np.argmax(weights))
        weights[k] = weights[heaviest] = 0.5 * weights[heaviest]
        choice[k] = choice[heaviest]
        rng = np.random.default_rng([state.seed, state.iteration, int(k)])
        direction = rng.standard_normal(choice.shape[1])
        for fit in fits:
            fit.location[k] = fit.location[heaviest] + 0.5 * fit.scale[heaviest] * direction
            fit.scale[k] = fit.scale[heaviest]
            fit.reach[k] = fit.reach[heaviest] = np.maximum(fit.reach[heaviest], fit.scale[heaviest])
    rows = np.where(dead, state.rows.max(), state.rows)
    return replace(
        state,
        weights=weights / weights.sum(),
        choice=choice,
        fits=tuple(fits),
        rows=rows,
        reseeds=state.reseeds + dead,
    )
