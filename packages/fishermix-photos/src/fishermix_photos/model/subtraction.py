"""What a photo loses if it shows something that a query subtracts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

UNRELATED = 0.1  # what a photo may score with a sentence that it does not show
SHOWN = 0.2  # what scores more probably shows it: each further point counts five times
FURTHER = 4.0


def subtract_scores(scores: np.ndarray, unwanted: np.ndarray, weights: Sequence[float]) -> np.ndarray:
    """Scores (n,) of what a query wants, less those of what it subtracts:

        s - sum_j w_j (max(0, u_j - 0.1) + 4 max(0, u_j - 0.2))

    So a photo that shows nothing of it loses nothing, no photo gains, and one that probably shows it falls
    behind those that do not. The numbers were chosen by the first ten photos of 29 queries such as
    "beach - people", see docs/searching.md; they belong to the scores of the model in the package.

    unwanted : (n, m) the scores of the photos with the m subtracted terms
    weights : (m,) of the terms
    """
    losses = np.maximum(unwanted - UNRELATED, 0) + FURTHER * np.maximum(unwanted - SHOWN, 0)
    return scores - losses @ np.asarray(weights, scores.dtype)
