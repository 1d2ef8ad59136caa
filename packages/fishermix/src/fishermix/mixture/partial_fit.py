"""`partial_fit`: incremental EM on a stream of batches.

A batch is one iteration of EM on its rows alone, averaged with the state before it by the weights of the rows
that each component has seen: the step size is new / seen. It costs a pass over the batch; rows keep the
posteriors of the time they were seen, so the first batch should resemble the stream.

References: Neal and Hinton (1998), A view of the EM algorithm that justifies incremental, sparse, and other
variants; Cappé and Moulines (2009), On-line expectation-maximization algorithm for latent data models.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fishermix.mixture.em import RESEEDS, SMALLEST_WEIGHT, FitProgress, FitState, run_em
from fishermix.mixture.m_step import FamilyFit, MomentFit
from fishermix.rows.blocks import RowSource


def fit_batch(
    old: FitState, source: RowSource, seen: np.ndarray, working_memory: float
) -> tuple[FitState, np.ndarray]:
    """Take a step on a batch; return the state and the weight (K,) of the rows each component has seen."""
    # A component without rows in one batch is not lost, so none may be re-seeded.
    progress = FitProgress(replace(old, reseeds=np.full_like(old.reseeds, RESEEDS)))
    batch = next(run_em(progress, source, old.iteration + 1, 0, working_memory))
    return average(old, replace(batch, reseeds=old.reseeds), seen, source.total_weight)


def average(
    old: FitState, batch: FitState, seen: np.ndarray, batch_weight: float
) -> tuple[FitState, np.ndarray]:
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
        after = _select_present(present[:, None], after, before)
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


def _select_present(present: np.ndarray, after: FamilyFit, before: FamilyFit) -> FamilyFit:
    """Return `after` for the components (K, 1) that have rows in the batch, `before` for the others."""
    names = ("location", "scale", "reach", "expected_log_likelihood")
    parts = {name: np.where(present, getattr(after, name), getattr(before, name)) for name in names}
    return replace(after, **parts)
