"""Where EM starts: k-means++ seeds, random rows, or what the user gives."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import kmeans_plusplus

from fishermix.mixture.em import LARGEST, too_large
from fishermix.mixture.parameters import LONGEST, SHORTEST
from fishermix.rows.blocks import RowSource

SAMPLE = 16_384  # rows that the seeds are chosen from


def starting_point(
    source: RowSource,
    n_components: int,
    init_params: str,
    rng: np.random.RandomState,
    weights_init: np.ndarray | None,
    locations_init: np.ndarray | None,
    scales_init: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights (K,), locations and scales (K, D); what is given is taken, the rest chosen.

    Locations are rows of the data, scales the standard deviations of the whole, weights equal.
    """
    n_rows, n_features = source.shape
    size = min(n_rows, max(SAMPLE, 20 * n_components))
    positions = np.arange(n_rows) if size == n_rows else np.sort(rng.choice(n_rows, size, replace=False))
    rows, weight = source.take(positions)
    rows, weight = rows[weight > 0], weight[weight > 0]
    if locations_init is None:
        if len(rows) < n_components:
            raise ValueError(
                f"Expected at least n_components = {n_components} rows with a positive sample_weight, "
                f"got {len(rows)}."
            )
        if size == n_rows:
            rows, weight = merged(rows, weight)
    largest = float(np.abs(rows).max(initial=0))
    if largest > LARGEST:
        raise too_large()
    if locations_init is None:
        if len(rows) <= n_components:
            chosen = np.arange(n_components) % len(rows)
        elif init_params == "k-means++":
            # A power of two changes no bit, and keeps squares within the range of the type.
            usual = largest == 0 or SHORTEST <= largest <= LONGEST
            scaled = rows if usual else np.ldexp(rows.astype(np.float64), -int(np.frexp(largest)[1]))
            _, chosen = kmeans_plusplus(scaled, n_components, sample_weight=weight, random_state=rng)
        else:
            chosen = np.sort(rng.choice(len(rows), n_components, replace=False))
        locations = rows[chosen]
    else:
        locations = _checked("locations_init", locations_init, (n_components, n_features))
    if scales_init is None:
        mean = np.average(rows, axis=0, weights=weight)
        variance = np.average((rows - mean) ** 2, axis=0, weights=weight)
        scales = np.tile(np.sqrt(variance), (n_components, 1))
    else:
        scales = _checked("scales_init", scales_init, (n_components, n_features))
        if (scales <= 0).any():
            raise ValueError("The parameter 'scales_init' should be positive everywhere.")
    if weights_init is None:
        weights = np.full(n_components, 1 / n_components)
    else:
        weights = _checked("weights_init", weights_init, (n_components,))
        if (weights <= 0).any() or not np.isclose(weights.sum(), 1):
            raise ValueError("The parameter 'weights_init' should be positive and sum to 1.")
        weights = weights / weights.sum()
    return weights, locations.astype(np.float64), scales


def merged(rows: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each distinct row once, in ascending order, with the sum of its weights.

    So the seeds chosen are the same whether a row comes twice or with weight 2, and wherever it stands.
    """
    bits = (rows + 0.0).astype(np.float64).view(np.int64)
    # Big-endian and with these bits turned over, rows of bytes are in the order of the numbers in them.
    ordered = (bits ^ ((bits >> 63) | np.iinfo(np.int64).min)).astype(">i8")
    as_bytes = ordered.view(np.dtype((np.void, 8 * rows.shape[1]))).ravel()
    _, first, number = np.unique(as_bytes, return_index=True, return_inverse=True)
    return rows[first], np.bincount(number, weight)


def _checked(name: str, value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    value = np.array(value, dtype=np.float64)
    if value.shape != shape:
        raise ValueError(f"The parameter '{name}' should have the shape of {shape}, but got {value.shape}.")
    if not np.isfinite(value).all():
        raise ValueError(f"The parameter '{name}' should be finite.")
    return value
