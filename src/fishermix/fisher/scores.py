"""Posteriors, scores and normalisation of Fisher vectors in plain numpy, for mixtures of any families."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fishermix.mixture.parameters import MixtureParameters
from fishermix.mixture.statistics import Posteriors

SMALLEST_NORM = 1e-12
THRESHOLD = 1e-6  # posteriors below it count as 0
CHUNK_ROWS = 8192


def linear_sign_form(mixture: MixtureParameters) -> tuple[np.ndarray, np.ndarray] | None:
    """(a, b), each (K, D), if every chosen family's location score is a z + b sgn(z), else None.

    The compiled loops serve just this form, Gaussian and Laplacian among it; a family is asked for its values
    rather than its name. The scale score is z * location_score(z) - 1 in every location-scale family.
    """
    z = np.array([-1e4, -37.5, -2.0, -1e-3, 0.0, 1e-3, 1.0, 2.0, 37.5, 1e4])
    coefficients = np.zeros((len(mixture.families), 2))
    for index, family in enumerate(mixture.families):
        if not (mixture.choice == index).any():
            continue
        scores = family.location_score(z)
        linear = scores[7] - scores[6]
        signed = scores[6] - linear
        if not np.allclose(scores, linear * z + signed * np.where(z > 0, 1, -1), rtol=1e-12, atol=1e-12):
            return None
        if not np.allclose(family.scale_score(z), z * scores - 1, rtol=1e-12, atol=1e-12):
            return None
        coefficients[index] = linear, signed
    return coefficients[mixture.choice, 0], coefficients[mixture.choice, 1]


def information_factor(information: np.ndarray) -> np.ndarray:
    """1 / sqrt(information of one row), (2, K, D): the factor of the bare gradients, 1/sqrt(N) apart."""
    with np.errstate(divide="ignore"):
        return np.ascontiguousarray(np.where(information > 0, 1 / np.sqrt(information), 0.0))


def closed_form_information(mixture: MixtureParameters) -> np.ndarray:
    """The paper's approximation (2, K, D): tau_k times the information of the family at (k, d)."""
    families = [(family.location_information, family.scale_information) for family in mixture.families]
    return mixture.weights[:, None] * np.array(families).T[:, mixture.choice]


def typed_entries(posteriors: Posteriors, kind: np.dtype) -> list[np.ndarray]:
    """indptr, components and values, each in one type: others would be compiled anew."""
    indptr, components = (
        part.astype(np.int64, copy=False) for part in (posteriors.indptr, posteriors.components)
    )
    return [indptr, components, posteriors.values.astype(kind, copy=False)]


def typed_constants(
    mixture: MixtureParameters, form: tuple[np.ndarray, np.ndarray], kind: np.dtype
) -> list[np.ndarray]:
    """Locations, inverse scales and the two coefficients of the scores, each (K, D), for the kernels."""
    return [array.astype(kind) for array in (mixture.locations, 1 / mixture.scales, *form)]


def weighted_scores(
    mixture: MixtureParameters, rows: np.ndarray, posteriors: Posteriors
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Component k, the rows (n,) that belong to it, T * (location score, scale score) (2, n, D).

    The entries come in the order of `posteriors.by_component()`.
    """
    order = posteriors.by_component()
    row_of = np.repeat(np.arange(len(rows)), np.diff(posteriors.indptr))[order]
    values = posteriors.values[order]
    starts = np.searchsorted(posteriors.components[order], np.arange(posteriors.n_components + 1))
    for k in np.flatnonzero(np.diff(starts)).tolist():
        begin, end = starts[k : k + 2]
        families = [(f, np.flatnonzero(mixture.choice[k] == f)) for f in np.unique(mixture.choice[k])]
        location = mixture.locations[k].astype(rows.dtype)
        scale = mixture.scales[k].astype(rows.dtype)
        for start in range(begin, end, CHUNK_ROWS):
            members = row_of[start : min(start + CHUNK_ROWS, end)]
            posterior = values[start : start + len(members)].astype(rows.dtype)
            z = (rows[members] - location) / scale
            scores = np.empty((2, *z.shape), rows.dtype)
            for f, dimensions in families:
                part = z if len(families) == 1 else z[:, dimensions]
                scores[0][:, dimensions] = mixture.families[f].location_score(part)
                scores[1][:, dimensions] = mixture.families[f].scale_score(part)
            yield k, members, scores * posterior[:, None]


def add_sets(
    out: np.ndarray, mixture: MixtureParameters, rows: np.ndarray, offsets: np.ndarray, posteriors: Posteriors
) -> None:
    """Add the bare gradients of the sets to `out` (n_sets, 2 K D), by numpy, whatever the families."""
    n_components, dimension = mixture.locations.shape
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
