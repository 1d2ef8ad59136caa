"""Hybrid EM as one would write it in numpy: dense posteriors, and columns that are sorted once."""

from __future__ import annotations

import numpy as np


def fit(X: np.ndarray, start: tuple[np.ndarray, np.ndarray, np.ndarray], n_iter: int) -> tuple:
    """Weights (K,), locations, scales and choice (K, D) after `n_iter` iterations."""
    weights, locations, scales = (part.astype(X.dtype) for part in start)
    n, d = X.shape
    order = np.argsort(X, axis=0)
    ascending = np.take_along_axis(X, order, axis=0)
    choice = np.zeros(locations.shape, int)
    columns = np.arange(d)
    for _ in range(n_iter):
        joint = np.empty((n, len(weights)), X.dtype)
        for k, (m, s, c) in enumerate(zip(locations, scales, choice)):
            z = np.abs(X - m) / s
            at_center = np.where(c == 0, 0.5 * np.log(2 * np.pi), np.log(2)) + np.log(s)
            joint[:, k] = np.log(weights[k]) - (np.where(c == 0, 0.5 * z * z, z)).sum(1) - at_center.sum()
        posterior = np.exp(joint - joint.max(axis=1, keepdims=True))
        posterior /= posterior.sum(axis=1, keepdims=True)
        total = posterior.sum(axis=0)
        weights = total / n
        mean = posterior.T @ X / total[:, None]
        deviation = np.sqrt(np.maximum(posterior.T @ X**2 / total[:, None] - mean**2, 1e-6))
        for k in range(len(weights)):
            reached = np.cumsum(posterior[:, k][order], axis=0)
            median = ascending[(reached < 0.5 * total[k]).sum(axis=0).clip(0, n - 1), columns]
            spread = np.maximum(posterior[:, k] @ np.abs(X - median) / total[k], 1e-3)
            gaussian = -0.5 * np.log(2 * np.pi) - np.log(deviation[k]) - 0.5
            choice[k] = -np.log(2 * spread) - 1 > gaussian
            locations[k] = np.where(choice[k], median, mean[k])
            scales[k] = np.where(choice[k], spread, deviation[k])
    return weights, locations, scales, choice
