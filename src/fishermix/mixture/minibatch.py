"""What `partial_fit` makes of a state and of the state that one iteration on a new batch leads to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fishermix.mixture.em import SMALLEST_WEIGHT, State
from fishermix.mixture.fits import MomentFit


def blend(old: State, batch: State, seen: np.ndarray, batch_weight: float) -> tuple[State, np.ndarray]:
    """The average of both by the weights that the components have seen (K,); and these after the batch.

    Gaussian means and variances are pooled exactly; locations and scales of other families are averaged.
    """
    new = batch.weights * batch_weight
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
