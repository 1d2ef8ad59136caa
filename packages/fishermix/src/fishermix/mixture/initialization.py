"""The start of EM: k-means++ seeds, random rows or given values."""

from __future__ import annotations

from typing import Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.mixture.parameters import LARGEST, LONGEST, SHORTEST
from fishermix.rows import RowSource

Start = tuple[np.ndarray, np.ndarray, np.ndarray]  # weights (K,), locations and scales (K, D)


def too_large() -> FishermixError:
    """The error for values whose squares overflow."""
    return FishermixError(
        f"Input X contains values too large to square and sum in dtype('float64'): they must stay below "
        f"{LARGEST:g}. Rescale X, for example by dividing it by its largest absolute value.",
        code="too_large",
    )


def explain_infinite(rows: np.ndarray) -> FishermixError:
    """The error for rows (n, D) whose scores are not finite."""
    if float(np.abs(rows).max()) > LARGEST:
        return too_large()
    return FishermixError(
        "The score of a row is infinite: the row is outside of the support of a family, or at a cusp of its "
        "density. Fit the mixture to such rows too, or offer families that are smooth and positive.",
        code="infinite_score",
    )


def initialize(estimator: Any, source: RowSource, rng: np.random.RandomState) -> Start:
    """Choose weights (K,), locations and scales (K, D), except for those that the estimator was given.

    Locations are rows of the data, scales the standard deviations of all rows, and weights equal; of k-means,
    they are those of its clusters.
    """
    shape = n_components, _ = estimator.n_components, source.shape[1]
    chooses = estimator.locations_init is None
    rows, weight = _sample_rows(source, n_components, rng, needed=chooses)
    if float(np.abs(rows).max(initial=0)) > LARGEST:
        raise too_large()
    weights = np.full(n_components, 1 / n_components)
    if chooses and estimator.init_params == "kmeans" and len(rows) > n_components:
        weights, locations, scales = _describe_clusters(rows, weight, n_components, rng)
    else:
        if chooses:
            seeds = _choose_seeds(rows, weight, n_components, estimator.init_params, rng)
            locations = rows[seeds].astype(np.float64)
        if estimator.scales_init is None:
            scales = np.tile(_deviation(rows, weight), (n_components, 1))
    if not chooses:
        locations = _parse_array("locations_init", estimator.locations_init, shape)
    if estimator.scales_init is not None:
        scales = _parse_array("scales_init", estimator.scales_init, shape, positive=True)
    if estimator.weights_init is not None:
        weights = _parse_array("weights_init", estimator.weights_init, shape[:1], positive=True)
        if not np.isclose(weights.sum(), 1):
            raise ValueError("The parameter 'weights_init' should sum to 1.")
        weights = weights / weights.sum()
    return weights, locations, scales


def _deviation(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The weighted standard deviation (D,) of rows (n, D)."""
    mean = np.average(rows, axis=0, weights=weight)
    return np.sqrt(np.average((rows - mean) ** 2, axis=0, weights=weight))


def _describe_clusters(
    rows: np.ndarray, weight: np.ndarray, n_components: int, rng: np.random.RandomState
) -> Start:
    """Weights, means and deviations of the clusters of k-means."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    kmeans = KMeans(n_components, n_init=1, random_state=rng)
    with threadpool_limits(1):  # or bits would depend on the number of threads
        labels = kmeans.fit(_scale(rows), sample_weight=weight).labels_
    share = np.bincount(labels, weight, n_components)
    members = [labels == k for k in range(n_components)]
    rows = rows.astype(np.float64)
    locations = np.stack([np.average(rows[of_k], axis=0, weights=weight[of_k]) for of_k in members])
    scales = np.stack([_deviation(rows[of_k], weight[of_k]) for of_k in members])
    return share / share.sum(), locations, np.where(scales > 0, scales, _deviation(rows, weight))


def _sample_rows(
    source: RowSource, n_components: int, rng: np.random.RandomState, needed: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Take a sample of the rows with a positive weight. If seeds are needed, merge ties of a complete one."""
    n_rows = source.shape[0]
    # More rows would not improve the seeds, and cost a pass.
    size = min(n_rows, max(16_384, 20 * n_components))
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
        from sklearn.cluster import kmeans_plusplus  # which a search, that reads a mixture, does without

        return kmeans_plusplus(_scale(rows), n_components, sample_weight=weight, random_state=rng)[1]
    return np.sort(rng.choice(len(rows), n_components, replace=False))


def _scale(rows: np.ndarray) -> np.ndarray:
    """Rows whose squares are in the range of their type: a power of two times these, which changes no bit."""
    largest = float(np.abs(rows).max())
    if largest == 0 or SHORTEST <= largest <= LONGEST:
        return rows
    return np.ldexp(rows.astype(np.float64), -int(np.frexp(largest)[1]))


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
