"""One step of `partial_fit`: an iteration on the batch, averaged with what was there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fishermix.mixture.em import RESEEDS, SMALLEST_WEIGHT, State, iterate
from fishermix.mixture.m_step import FamilyFit, MomentFit
from fishermix.rows.blocks import RowSource


def step_on(old: State, source: RowSource, seen: np.ndarray) -> tuple[State, np.ndarray]:
    """The state after a batch, and the weight that the components have seen by then (K,)."""
    # A component without rows in one batch is not lost, so none may be re-seeded.
    batch = iterate(replace(old, reseeds=np.full_like(old.reseeds, RESEEDS)), source)
    return blend(old, replace(batch, reseeds=old.reseeds), seen, source.total_weight)


def blend(old: State, batch: State, seen: np.ndarray, batch_weight: float) -> tuple[State, np.ndarray]:
    """The average of both by the weights that the components have seen (K,); and these after the batch.

    Gaussian means and variances are pooled exactly; locations and scales of other families are averaged.
    """
    present = batch.rows > 0
    new = np.where(present, batch.weights * batch_weight, 0.0)
    total = seen + new
    step = (new / np.maximum(total, np.finfo(float).tiny))[:, None]
    fits = []
    for before, after in zip(old.fits, batch.fits):
        after = _where(present[:, None], after, before)
        gap = after.location - before.location
        if isinstance(after, MomentFit):
            variance = (1 - step) * before.scale**2 + step * after.scale**2 + step * (1 - step) * gap**2
            scale = np.sqrt(variance)
        else:
            scale = (1 - step) * before.scale + step * after.scale
        quality = (1 - step) * before.quality + step * after.quality
        location = before.location + step * gap
        fits.append(replace(after, location=location, scale=scale, quality=quality, reach=after.scale))
    choice = np.argmax(np.stack([fit.quality for fit in fits]), axis=0)
    weights = np.maximum(total / total.sum(), SMALLEST_WEIGHT)
    state = replace(
        batch,
        weights=weights / weights.sum(),
        fits=tuple(fits),
        choice=choice,
        rows=np.maximum(batch.rows, 1.0),
    )
    return state, total


def _where(present: np.ndarray, after: FamilyFit, before: FamilyFit) -> FamilyFit:
    """`after` for the components (K, 1) that the batch has rows of, `before` for the others."""
    names = ("location", "scale", "reach", "quality")
    parts = {name: np.where(present, getattr(after, name), getattr(before, name)) for name in names}
    return replace(after, **parts)
