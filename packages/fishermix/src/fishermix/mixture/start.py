"""What EM starts from: rows, checked; and k-means++ seeds, random rows or given values."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.cluster import kmeans_plusplus
from sklearn.utils.validation import _check_sample_weight, validate_data

from fishermix.mixture.e_step import LONGEST, SHORTEST
from fishermix.mixture.em import LARGEST, Start, too_large
from fishermix.rows import ArraySource, RowSource, open_rows

LIGHTEST, HEAVIEST = 1e-100, 1e100  # sums of sample weights that float64 can square
SAMPLE = 16_384  # rows that the seeds are chosen from: more would not improve them and cost a pass
ROWS_PER_COMPONENT = 20  # at least, in that sample


def initialize(estimator: Any, source: RowSource, rng: np.random.RandomState) -> Start:
    """Choose weights (K,), locations and scales (K, D), except for those that the estimator was given.

    Locations are rows of the data, scales the standard deviations of all rows, and weights equal.
    """
    shape = n_components, _ = estimator.n_components, source.shape[1]
    rows, weight = _sample_rows(source, n_components, rng, needed=estimator.locations_init is None)
    largest = float(np.abs(rows).max(initial=0))
    if largest > LARGEST:
        raise too_large()
    if estimator.locations_init is None:
        locations = rows[_choose_seeds(rows, weight, n_components, estimator.init_params, rng)]
    else:
        locations = _parse_array("locations_init", estimator.locations_init, shape)
    if estimator.scales_init is None:
        mean = np.average(rows, axis=0, weights=weight)
        variance = np.average((rows - mean) ** 2, axis=0, weights=weight)
        scales = np.tile(np.sqrt(variance), (n_components, 1))
    else:
        scales = _parse_array("scales_init", estimator.scales_init, shape, positive=True)
    weights = np.full(n_components, 1 / n_components)
    if estimator.weights_init is not None:
        weights = _parse_array("weights_init", estimator.weights_init, shape[:1], positive=True)
        if not np.isclose(weights.sum(), 1):
            raise ValueError("The parameter 'weights_init' should sum to 1.")
        weights = weights / weights.sum()
    return weights, locations.astype(np.float64), scales


def _sample_rows(
    source: RowSource, n_components: int, rng: np.random.RandomState, needed: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Take a sample of the rows with a positive weight. If seeds are needed, merge ties of a complete one."""
    n_rows = source.shape[0]
    size = min(n_rows, max(SAMPLE, ROWS_PER_COMPONENT * n_components))
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
        # Scaling by a power of two changes no bit, and keeps squares within the range of the type.
        largest = float(np.abs(rows).max())
        usual = largest == 0 or SHORTEST <= largest <= LONGEST
        scaled = rows if usual else np.ldexp(rows.astype(np.float64), -int(np.frexp(largest)[1]))
        return kmeans_plusplus(scaled, n_components, sample_weight=weight, random_state=rng)[1]
    return np.sort(rng.choice(len(rows), n_components, replace=False))


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


# What a fit is given


def open_source(
    estimator: Any, X: Any, sample_weight: Any, *, reset: bool, fewest: int | None = None
) -> RowSource:
    """Open and check the rows to fit."""
    source = open_rows(X, sample_weight, estimator.n_jobs)
    if source is None:
        X = validate_data(
            estimator,
            X,
            reset=reset,
            dtype=[np.float64, np.float32],
            order="C",
            ensure_min_samples=fewest or 2,
        )
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            if not sample_weight.any():
                raise ValueError("Sample weights must contain at least one non-zero number.")
        source = ArraySource(X, sample_weight, estimator.n_jobs)
    elif reset:
        estimator.__dict__.pop("feature_names_in_", None)  # of an earlier fit to a data frame
        estimator.n_features_in_ = source.shape[1]
    elif source.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X has {source.shape[1]} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input."
        )
    if not LIGHTEST <= source.total_weight <= HEAVIEST:
        raise ValueError(
            f"Sample weights must sum to a number between {LIGHTEST:g} and {HEAVIEST:g}, but they sum to "
            f"{source.total_weight:g}. Multiply all of them by the same factor."
        )
    if source.shape[0] < (fewest or estimator.n_components):
        raise ValueError(
            f"Expected n_samples >= n_components but got n_components = {estimator.n_components}, "
            f"n_samples = {source.shape[0]}. Every component needs a row: set n_components to at most "
            f"{source.shape[0]}."
        )
    return source
