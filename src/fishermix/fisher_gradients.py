"""Posteriors, scores and normalisation of Fisher vectors in plain numpy, for mixtures of any families."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, vstack

SMALLEST_NORM = 1e-12
FEW_ROWS = 64  # up to here numpy is as fast, and a single query does not wait for a compiler
FEW_NUMBERS = 2_000_000  # rows * K * D that a single query may expand to
POSTERIOR_ROWS = 32768  # whose dense posteriors are held at once
CHUNK_ROWS = 8192


def posteriors_of(mixture, rows: np.ndarray, threshold: float) -> csr_matrix:
    """Posteriors (n, K) of the rows, those below the threshold left out; of a few rows uncompiled."""
    if len(rows) == 0:
        return csr_matrix((0, len(mixture.weights_)))
    if len(rows) <= FEW_ROWS and rows.size * len(mixture.weights_) <= FEW_NUMBERS:
        z = (rows[:, None, :].astype(np.float64) - mixture.locations_) / mixture.scales_
        density = np.zeros_like(z)
        with np.errstate(divide="ignore", over="ignore"):
            for index in np.unique(mixture.choice_):
                chosen = mixture.choice_ == index
                density[:, chosen] = mixture.families_[index].log_density(z[:, chosen])
            joint = np.log(mixture.weights_) + (density - np.log(mixture.scales_)).sum(axis=2)
        highest = joint.max(axis=1, keepdims=True)
        if np.isfinite(highest).all():
            share = np.exp(joint - highest)
            share /= share.sum(axis=1, keepdims=True)
            return csr_matrix(np.where(share < threshold, 0, share))
    from fishermix.fisher_kernels import compressed

    chunks = range(0, len(rows), POSTERIOR_ROWS)
    parts = [
        compressed(mixture.predict_proba(rows[start : start + POSTERIOR_ROWS]), threshold) for start in chunks
    ]
    return parts[0] if len(parts) == 1 else vstack(parts, format="csr")


def linear_sign_form(mixture) -> tuple[np.ndarray, np.ndarray] | None:
    """(a, b), each (K, D), if every chosen family's location score is a z + b sgn(z), else None.

    The compiled loops serve just this form, Gaussian and Laplacian among it; a family is asked for its values
    rather than its name. The scale score is z * location_score(z) - 1 in every location-scale family.
    """
    z = np.array([-1e4, -37.5, -2.0, -1e-3, 0.0, 1e-3, 1.0, 2.0, 37.5, 1e4])
    coefficients = np.zeros((len(mixture.families_), 2))
    for index, family in enumerate(mixture.families_):
        if not (mixture.choice_ == index).any():
            continue
        scores = family.location_score(z)
        linear = scores[7] - scores[6]
        signed = scores[6] - linear
        if not np.allclose(scores, linear * z + signed * np.where(z > 0, 1, -1), rtol=1e-12, atol=1e-12):
            return None
        if not np.allclose(family.scale_score(z), z * scores - 1, rtol=1e-12, atol=1e-12):
            return None
        coefficients[index] = linear, signed
    return coefficients[mixture.choice_, 0], coefficients[mixture.choice_, 1]


def typed_entries(posteriors, kind: np.dtype) -> list[np.ndarray]:
    """indptr, components and posteriors of a CSR matrix, each in one type: others would be compiled anew."""
    arrays = (posteriors.indptr, posteriors.indices, posteriors.data)
    return [array.astype(type_, copy=False) for array, type_ in zip(arrays, (np.int64, np.int64, kind))]


def typed_constants(mixture, form: tuple[np.ndarray, np.ndarray], kind: np.dtype) -> list[np.ndarray]:
    """Locations, inverse scales and the two coefficients of the scores, each (K, D), for the kernels."""
    return [array.astype(kind) for array in (mixture.locations_, 1 / mixture.scales_, *form)]


def weighted_scores(mixture, rows: np.ndarray, posteriors) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Component k, the rows (n,) that belong to it, T * (location score, scale score) (2, n, D)."""
    by_component = posteriors.tocsc()
    by_component.sort_indices()
    for k in range(by_component.shape[1]):
        begin, end = by_component.indptr[k : k + 2]
        families = [(f, np.flatnonzero(mixture.choice_[k] == f)) for f in np.unique(mixture.choice_[k])]
        location = mixture.locations_[k].astype(rows.dtype)
        scale = mixture.scales_[k].astype(rows.dtype)
        for start in range(begin, end, CHUNK_ROWS):
            members = by_component.indices[start : min(start + CHUNK_ROWS, end)]
            posterior = by_component.data[start : start + len(members)].astype(rows.dtype)
            z = (rows[members] - location) / scale
            scores = np.empty((2, *z.shape), rows.dtype)
            for f, dimensions in families:
                part = z if len(families) == 1 else z[:, dimensions]
                scores[0][:, dimensions] = mixture.families_[f].location_score(part)
                scores[1][:, dimensions] = mixture.families_[f].scale_score(part)
            yield k, members, scores * posterior[:, None]


def add_sets(out: np.ndarray, mixture, rows: np.ndarray, offsets: np.ndarray, posteriors) -> None:
    """Add the bare gradients of the sets to `out` (n_sets, 2 K D), by numpy, whatever the families."""
    n_components, dimension = mixture.locations_.shape
    by_block = out.reshape(len(out), 2, n_components, dimension)
    for k, members, weighted in weighted_scores(mixture, rows, posteriors):
        sets, first = np.unique(np.searchsorted(offsets, members, side="right") - 1, return_index=True)
        by_block[sets, :, k] += np.add.reduceat(weighted, first, axis=1).swapaxes(0, 1)


def normalise(
    out: np.ndarray, sizes: Any, factor: np.ndarray, power: float, norm: Any, intra_norm: bool
) -> None:
    """Turn bare gradients `out` (n_sets, 2 K D) of sets of these sizes into Fisher vectors, in place."""
    n_components, dimension = factor.shape[1:]
    out *= factor.reshape(-1).astype(out.dtype)
    out /= np.sqrt(np.maximum(sizes, 1)).astype(out.dtype)[..., None]
    if power != 1:
        out[...] = np.copysign(np.abs(out) ** out.dtype.type(power), out)
    if intra_norm:
        by_block = out.reshape(len(out), 2, n_components, dimension)
        squares = np.einsum("nhkd,nhkd->nk", by_block, by_block)
        by_block /= np.maximum(np.sqrt(squares), SMALLEST_NORM)[:, None, :, None]
    if norm == "l2":
        out /= np.maximum(np.sqrt(np.einsum("nq,nq->n", out, out)), SMALLEST_NORM)[:, None]
