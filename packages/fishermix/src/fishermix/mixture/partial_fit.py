"""Incremental EM: a mixture is fitted to the batches of a stream."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fishermix.mixture.em import RESEEDS, FitProgress, FitState, run_em
from fishermix.rows import RowSource


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
    fits = [before.pool(after, step) for before, after in zip(old.fits, batch.fits)]
    choice = np.argmax([fit.expected_log_likelihood for fit in fits], axis=0)
    weights = np.maximum(total / total.sum(), 1e-12)  # their logarithms must stay finite
    state = replace(
        batch,
        weights=weights / weights.sum(),
        fits=tuple(fits),
        choice=choice,
        rows=np.maximum(batch.rows, 1.0),
        reseeds=old.reseeds,
    )
    return state, total
