"""`partial_fit`: EM on a stream of batches that recovers from a bad beginning and from any order of the rows.

Two things happen with a batch:

1. *A step*: one iteration of EM on the batch alone, averaged with the state before it by the weights of the
   rows that each component has seen (`average`). This is incremental EM with the step size new / seen. It
   costs a pass over the batch, but rows keep the posteriors of the time they were seen.
2. *A replay*: EM on the memory (`memory.Memory`), a uniform sample of all rows so far, which the batch has
   joined. It forgets those posteriors. Each row of the stream pays for VISITS visits of rows in the memory;
   a replay waits until PASSES passes are paid for. Whenever the stream has grown by the factor GROWTH, EM
   also starts again from new seeds, and the better of the two is kept.

The warm-up is the time while the memory holds all rows: a replay is then EM on all rows so far. Later the
result of a replay is kept only if the mean log likelihood of the memory gains more than the number of free
parameters per row of the memory, which is what fitting the sample instead of the stream would gain.

References: Neal and Hinton (1998), A view of the EM algorithm that justifies incremental, sparse, and other
variants; Cappé and Moulines (2009), On-line expectation-maximization algorithm for latent data models;
Vitter (1985), Random sampling with a reservoir.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fishermix.mixture.em import RESEEDS, SMALLEST_WEIGHT, Progress, State, run_em
from fishermix.mixture.m_step import FamilyFit, MomentFit
from fishermix.mixture.memory import Memory
from fishermix.rows.blocks import RowSource

VISITS = 64.0  # of rows in the memory, per row of the stream
PASSES = 4  # over the memory, at least, in a replay
GROWTH = 1.125  # of the stream between two new starts

Restart = Callable[[RowSource], Progress]  # EM from new seeds on these rows


def fit_batch(old: State, source: RowSource, seen: np.ndarray) -> tuple[State, np.ndarray]:
    """Take a step on a batch; return the state and the weight (K,) of the rows each component has seen."""
    # A component without rows in one batch is not lost, so none may be re-seeded.
    progress = Progress(replace(old, reseeds=np.full_like(old.reseeds, RESEEDS)))
    run_em(progress, source, max_iter=old.iteration + 1, tol=0)
    return average(old, replace(progress.state, reseeds=old.reseeds), seen, source.total_weight)


def replay(
    state: State, memory: Memory, restart: Restart, max_iter: int, tol: float, threads: int | None
) -> tuple[State, Memory]:
    """Run EM on the memory if its credit suffices; return the better state and the memory that has paid."""
    n_rows = len(memory.rows)
    passes = min(int(memory.credit / n_rows), max_iter)
    starts_again = memory.n_seen >= GROWTH * memory.restarted_at
    if passes < min(PASSES, max_iter) and not starts_again:
        return state, memory
    source = memory.source(threads)
    best = _continue(state, source, max(passes, PASSES), tol)
    spent, first_bound = len(best.lower_bounds) * n_rows, best.lower_bounds[0]
    if starts_again and n_rows >= len(state.weights):
        other = restart(source).best
        if other is not None and other.lower_bounds[-1] > best.lower_bounds[-1]:
            best = other
        memory = replace(memory, restarted_at=memory.n_seen)
    memory = replace(memory, credit=max(memory.credit - spent, 0.0))
    needed = 0.0 if memory.is_complete else state.parameters.n_free / n_rows
    if best.lower_bounds[-1] - first_bound < needed:
        return state, memory
    bounds = [*state.lower_bounds[:-1], best.lower_bounds[-1]]
    return replace(best, iteration=state.iteration, lower_bounds=bounds, seed=state.seed), memory


def _continue(state: State, source: RowSource, passes: int, tol: float) -> State:
    """Return the state after EM on these rows; its lower bounds are those of this run."""
    start = replace(state, iteration=0, lower_bounds=[], reseeds=np.zeros_like(state.reseeds))
    progress = Progress(start)
    run_em(progress, source, max_iter=passes, tol=tol)
    return progress.state


def average(old: State, batch: State, seen: np.ndarray, batch_weight: float) -> tuple[State, np.ndarray]:
    """Average both states by the weights (K,) of the rows that the components have seen.

    Gaussian means and variances are pooled exactly; locations and scales of other families are averaged.
    Returns the state and the weights after the batch.
    """
    present = batch.rows > 0
    new = np.where(present, batch.weights * batch_weight, 0.0)
    total = seen + new
    step = (new / np.maximum(total, np.finfo(float).tiny))[:, None]
    fits = []
    for before, after in zip(old.fits, batch.fits):
        after = _select(present[:, None], after, before)
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
    )
    return state, total


def _select(present: np.ndarray, after: FamilyFit, before: FamilyFit) -> FamilyFit:
    """Return `after` for the components (K, 1) that have rows in the batch, `before` for the others."""
    names = ("location", "scale", "reach", "expected_log_likelihood")
    parts = {name: np.where(present, getattr(after, name), getattr(before, name)) for name in names}
    return replace(after, **parts)
