"""`partial_fit`: EM on a stream of batches that recovers from a bad beginning and from any order of the rows.

Two things happen with a batch:

1. *A step*: one iteration of EM on the batch alone, averaged with the state before it by the weights of the
   rows that each component has seen (`average`). This is incremental EM with the step size new / seen. It
   costs a pass over the batch, but rows keep the posteriors of the time they were seen.
2. *A replay*: EM on the memory (`Memory`), a uniform sample of all rows so far, which the batch has
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

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fishermix.mixture.em import RESEEDS, SMALLEST_WEIGHT, Progress, State, run_em
from fishermix.mixture.m_step import FamilyFit, MomentFit
from fishermix.mixture.start import ROWS_PER_COMPONENT
from fishermix.rows.blocks import ArraySource, RowSource
from fishermix.storage import require_tensor

VISITS = 64.0  # of rows in the memory, per row of the stream
PASSES = 4  # over the memory, at least, in a replay
GROWTH = 1.125  # of the stream between two new starts
CAPACITY = 16_384  # rows, or ROWS_PER_COMPONENT per component if that is more
PREFIX = "memory."

Restart = Callable[[RowSource], Progress]  # EM from new seeds on these rows


@dataclass(frozen=True)
class Memory:
    """A uniform sample without replacement of all rows so far; all of them while there is room.

    Each row draws a random key when it arrives, and the rows with the smallest keys stay: every subset of
    the stream is equally likely, in whatever order the rows come.
    """

    rows: np.ndarray  # (n, D)
    weight: np.ndarray  # (n,) their sample weights
    keys: np.ndarray  # (n,)
    n_seen: int = 0  # rows so far, without those of weight 0
    seen_weight: float = 0.0  # the sum of their weights
    credit: float = 0.0  # rows that may still be visited; see above
    restarted_at: int = 0  # rows seen at the last new start

    @classmethod
    def empty(cls, n_features: int, dtype: np.dtype) -> Memory:
        """Return a memory without rows."""
        return cls(np.empty((0, n_features), dtype), np.empty(0), np.empty(0))

    @property
    def is_complete(self) -> bool:
        """Whether all rows so far are in the memory."""
        return len(self.rows) == self.n_seen

    def source(self, threads: int | None) -> ArraySource:
        """Return the rows, with weights that sum to the weight of all rows so far."""
        scale = 1.0 if self.is_complete else self.seen_weight / self.weight.sum()
        weight = None if scale == 1 and (self.weight == 1).all() else scale * self.weight
        return ArraySource(self.rows, weight, threads)

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the tensors from which `from_tensors` makes the same memory."""
        numbers = np.array([self.n_seen, self.seen_weight, self.credit, self.restarted_at], np.float64)
        parts = {"rows": self.rows, "weight": self.weight, "keys": self.keys, "numbers": numbers}
        return {PREFIX + name: value for name, value in parts.items()}

    @classmethod
    def from_tensors(
        cls, tensors: dict[str, np.ndarray], n_features: int, where: str | os.PathLike
    ) -> Memory | None:
        """Read what `tensors` returned; None if there is no memory."""
        if PREFIX + "rows" not in tensors:
            return None
        n_rows = len(tensors[PREFIX + "rows"])
        rows = require_tensor(tensors, PREFIX + "rows", (n_rows, n_features), where)
        rows = rows.astype(np.float32) if rows.dtype == np.float16 else rows
        weight = require_tensor(tensors, PREFIX + "weight", (n_rows,), where).astype(np.float64, copy=False)
        keys = require_tensor(tensors, PREFIX + "keys", (n_rows,), where).astype(np.float64, copy=False)
        numbers = require_tensor(tensors, PREFIX + "numbers", (4,), where).astype(np.float64, copy=False)
        return cls(rows, weight, keys, int(numbers[0]), float(numbers[1]), float(numbers[2]), int(numbers[3]))


def remember(memory: Memory, source: RowSource, n_components: int, seed: int, visits: float) -> Memory:
    """Add a batch to the memory, and `visits` per row to its credit."""
    capacity = max(CAPACITY, ROWS_PER_COMPONENT * n_components)
    n_rows = source.shape[0]
    keys = np.random.default_rng([seed, memory.n_seen]).random(n_rows)
    kept = np.arange(n_rows) if n_rows <= capacity else np.sort(np.argpartition(keys, capacity)[:capacity])
    rows, weight = source.take(kept)
    positive = weight > 0
    dtype = np.result_type(memory.rows, rows)
    rows = np.concatenate([memory.rows, rows[positive]]).astype(dtype, copy=False)
    weight = np.concatenate([memory.weight, weight[positive]])
    keys = np.concatenate([memory.keys, keys[kept][positive]])
    if len(keys) > capacity:
        smallest = np.sort(np.argpartition(keys, capacity)[:capacity])
        rows, weight, keys = rows[smallest], weight[smallest], keys[smallest]
    return Memory(
        rows,
        weight,
        keys,
        # Of a batch larger than the memory only the kept rows are looked at for weights of 0.
        memory.n_seen + (int(positive.sum()) if len(kept) == n_rows else n_rows),
        memory.seen_weight + source.total_weight,
        memory.credit + visits * n_rows,
        memory.restarted_at,
    )


def fit_batch(
    old: State, source: RowSource, seen: np.ndarray, working_memory: float
) -> tuple[State, np.ndarray]:
    """Take a step on a batch; return the state and the weight (K,) of the rows each component has seen."""
    # A component without rows in one batch is not lost, so none may be re-seeded.
    progress = Progress(replace(old, reseeds=np.full_like(old.reseeds, RESEEDS)))
    run_em(progress, source, max_iter=old.iteration + 1, tol=0, working_memory=working_memory)
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
