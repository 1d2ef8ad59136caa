"""Posteriors, scores and normalisation of Fisher vectors in plain numpy, for mixtures of any families."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

SMALLEST_NORM = 1e-12
THRESHOLD = 1e-6  # posteriors below it count as 0
FEW_ROWS = 64  # up to here numpy is as fast, and a single query does not wait for a compiler
FEW_NUMBERS = 2_000_000  # rows * K * D that a single query may expand to
CHUNK_ROWS = 8192


@dataclass(frozen=True)
class Posteriors:
    """Posteriors (n, K) without the small ones: row i has `values[indptr[i]:indptr[i + 1]]`, of as many
    `components`. A CSR matrix, whose own class takes longer to import than a query to answer.
    """

    indptr: np.ndarray
    components: np.ndarray
    values: np.ndarray
    n_components: int

    @classmethod
    def of_dense(cls, dense: np.ndarray, threshold: float) -> Posteriors:
        """The entries of `dense` (n, K) that are positive and at least the threshold."""
        kept = (dense > 0) & (dense >= threshold)
        indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        return cls(indptr, np.nonzero(kept)[1], dense[kept], dense.shape[1])

    def by_component(self) -> np.ndarray:
        """The positions of the entries, component after component, their rows rising."""
        small = self.components.astype(np.uint16) if self.n_components <= 2**16 else self.components
        return np.argsort(small, kind="stable")  # of 16 bits a radix sort

    def toarray(self) -> np.ndarray:
        dense = np.zeros((len(self.indptr) - 1, self.n_components), self.values.dtype)
        dense[np.repeat(np.arange(len(dense)), np.diff(self.indptr)), self.components] = self.values
        return dense


def posteriors_of(mixture, rows: np.ndarray, threshold: float) -> Posteriors:
    """Posteriors (n, K) of the rows, those below the threshold left out; of a few rows uncompiled."""
    if len(rows) == 0:
        return Posteriors.of_dense(np.zeros((0, len(mixture.weights_))), threshold)
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
            return Posteriors.of_dense(share, threshold)
    sparse = mixture.sparse_posteriors(rows, threshold)
    return Posteriors(sparse.indptr, sparse.indices, sparse.data, sparse.shape[1])


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


def information_factor(information: np.ndarray) -> np.ndarray:
    """1 / sqrt(information of one row), (2, K, D): the factor of the bare gradients, 1/sqrt(N) apart."""
    with np.errstate(divide="ignore"):
        return np.ascontiguousarray(np.where(information > 0, 1 / np.sqrt(information), 0.0))


def closed_form_information(mixture) -> np.ndarray:
    """The paper's approximation (2, K, D): tau_k times the information of the family at (k, d)."""
    families = [(family.location_information, family.scale_information) for family in mixture.families_]
    return mixture.weights_[:, None] * np.array(families).T[:, mixture.choice_]


def typed_entries(posteriors: Posteriors, kind: np.dtype) -> list[np.ndarray]:
    """indptr, components and values, each in one type: others would be compiled anew."""
    indptr, components = (
        part.astype(np.int64, copy=False) for part in (posteriors.indptr, posteriors.components)
    )
    return [indptr, components, posteriors.values.astype(kind, copy=False)]


def typed_constants(mixture, form: tuple[np.ndarray, np.ndarray], kind: np.dtype) -> list[np.ndarray]:
    """Locations, inverse scales and the two coefficients of the scores, each (K, D), for the kernels."""
    return [array.astype(kind) for array in (mixture.locations_, 1 / mixture.scales_, *form)]


def weighted_scores(
    mixture, rows: np.ndarray, posteriors: Posteriors
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
        families = [(f, np.flatnonzero(mixture.choice_[k] == f)) for f in np.unique(mixture.choice_[k])]
        location = mixture.locations_[k].astype(rows.dtype)
        scale = mixture.scales_[k].astype(rows.dtype)
        for start in range(begin, end, CHUNK_ROWS):
            members = row_of[start : min(start + CHUNK_ROWS, end)]
            posterior = values[start : start + len(members)].astype(rows.dtype)
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
