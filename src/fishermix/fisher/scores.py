"""Fisher vectors of sets of vectors, for a mixture of any families (Klein et al. 2015, section 4).

With z = (x - location_kd) / scale_kd, T_k the posterior of component k, tau_k its weight and the scores and
informations of the family chosen at (k, d), the coordinates of a set of N vectors are

    sum over x of T_k * location_score(z) / sqrt(N tau_k location_information)
    sum over x of T_k * scale_score(z)    / sqrt(N tau_k scale_information)

so for a Gaussian (x - mu)/sigma and ((x - mu)²/sigma² - 1)/sqrt(2), for a Laplacian sgn(x - m) and
|x - m|/s - 1, each times T_k/sqrt(N tau_k). Then sign(v) |v|^power, then unit length.

A few rows are encoded in numpy, so that a search does not wait for a compiler.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from fishermix.mixture.families import Family
from fishermix.mixture.parameters import COMPILED, FEW_ROWS, NEGLIGIBLE, MixtureParameters
from fishermix.mixture.statistics import Posteriors

SMALLEST_NORM = 1e-12  # divides vectors shorter than this: zeros stay zeros
CHUNK_ROWS = 8192  # rows of a component that numpy scores at once: bounds the memory
RUN_ROWS = 4096  # rows of the sets that a thread encodes at once: they stay in the cache
HUGE_ROWS = 32_768  # larger sets are split among the threads; up to here, starting these takes longer
FEW_SETS = 4  # up to here numpy finishes the vectors: what would do it in the kernel takes 0.8 s to compile
# The z at which scores are compared with a z + b sgn(z), and the positions of z = 1 and z = 2 among them.
PROBES = np.array([-1e4, -37.5, -2.0, -1e-3, 0.0, 1e-3, 1.0, 2.0, 37.5, 1e4])
AT_ONE, AT_TWO = 6, 7


@dataclass(frozen=True)
class FisherScores:
    """Scores of a mixture with K components in D dimensions, and the Fisher vectors made of them.

    power: exponent of the power normalization, 1 for none. norm: "l2" or None. intra_norm: scale the 2D
    numbers of each component to unit length, after the power and before `norm`. threshold: posteriors below
    it count as 0; None is 1e-6 for float32 rows and 1e-15 for float64 rows, as in EM. information (2, K, D):
    of one row; None for the closed form of the paper.
    """

    parameters: MixtureParameters
    power: float = 0.5
    norm: str | None = "l2"
    intra_norm: bool = False
    threshold: float | None = None
    information: np.ndarray | None = None

    def copy(self) -> FisherScores:
        """A copy that no change of a list or an array of the mixture reaches."""
        information, *arrays = map(copy.copy, self._arrays())
        mixture = MixtureParameters(list(self.parameters.families), *arrays)
        return replace(self, parameters=mixture, information=information)

    def equals(self, other: FisherScores) -> bool:
        """Whether both compute the same. False if a family has parameters, which might have changed."""
        kinds = [type(family) for family in self.parameters.families]
        return (
            all(kind in COMPILED for kind in kinds)
            and kinds == [type(family) for family in other.parameters.families]
            and self.kernel_options == other.kernel_options
            and self.threshold == other.threshold
            and all(map(np.array_equal, self._arrays(), other._arrays()))
        )

    def _arrays(self) -> list[Any]:
        mixture = self.parameters
        return [self.information, mixture.weights, mixture.locations, mixture.scales, mixture.choice]

    @property
    def n_features(self) -> int:
        """2 K D: the location blocks of all components, then the scale blocks."""
        return 2 * self.parameters.locations.size

    @cached_property
    def factor(self) -> np.ndarray:
        """1 / sqrt(information of one row), (2, K, D): multiplies the gradients, besides 1/sqrt(N)."""
        information = self.information
        if information is None:
            information = self.parameters.weights[:, None] * self._spread(self._family_constants[:, 2:])
        with np.errstate(divide="ignore"):
            factor = np.where(information > 0, 1 / np.sqrt(information), 0.0)
        return np.ascontiguousarray(np.broadcast_to(factor, (2, *self.parameters.locations.shape)))

    @cached_property
    def linear_sign_form(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(a, b), each (K, D), if every chosen family's location score is a z + b sgn(z), else None.

        The compiled loops serve this form, of which Gaussian and Laplacian are examples.
        """
        linear, signed = self._spread(self._family_constants[:, :2])
        if np.isnan(linear).any():
            return None
        shape = self.parameters.locations.shape
        return np.broadcast_to(linear, shape), np.broadcast_to(signed, shape)

    def _spread(self, of_families: np.ndarray) -> np.ndarray:
        """Numbers (F, m) of the families as (m, K, D), or (m, 1, 1) if all (k, d) have the same family."""
        choice = self.parameters.choice
        if (choice == choice[0, 0]).all():
            choice = choice[:1, :1]
        return of_families.T[:, choice]

    @cached_property
    def _family_constants(self) -> np.ndarray:
        """(F, 4): a and b of location_score(z) = a z + b sgn(z), and the location and scale information.

        A family is asked for its values, not for its name; a and b are NaN if its scores have another form.
        The scale score is z * location_score(z) - 1 in every location-scale family.
        """
        constants = np.full((len(self.parameters.families), 4), np.nan)
        for index, family in enumerate(self.parameters.families):
            if (self.parameters.choice == index).any():
                kind: Any = type(family)
                constants[index, :2] = _form_of_type(kind) if kind in COMPILED else _find_form(family)
            constants[index, 2:] = family.location_information, family.scale_information
        return constants

    def encode(self, rows: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Fisher vectors (n_sets, 2 K D), of the type of `rows` (n, D); set s is the rows
        offsets[s]:offsets[s + 1]."""
        sizes = np.diff(offsets)
        out = np.zeros((len(sizes), self.n_features), rows.dtype)
        if self.linear_sign_form is not None and len(rows) > FEW_ROWS:
            self._encode_compiled(rows, offsets, out)
            return out
        posteriors = self.find_posteriors(rows)
        if self.linear_sign_form is not None:
            self._add_few(rows, offsets, posteriors, out)
        else:
            by_component = out.reshape(len(out), *self.factor.shape)
            for k, members, _, weighted in self.score_components(rows, posteriors):
                sets, first = np.unique(
                    np.searchsorted(offsets, members, side="right") - 1, return_index=True
                )
                by_component[sets, :, k] += np.add.reduceat(weighted, first, axis=1).swapaxes(0, 1)
        self.normalize(out, sizes)
        return out

    def _add_few(
        self, rows: np.ndarray, offsets: np.ndarray, posteriors: Posteriors, out: np.ndarray
    ) -> None:
        """Add the scores of a few rows to the zeros `out` (n_sets, 2 K D), in numpy."""
        if not len(posteriors.values):
            return
        set_of = np.repeat(np.arange(len(out)), np.diff(offsets))
        set_of_entry = np.repeat(set_of, np.diff(posteriors.indptr))
        target = set_of_entry * posteriors.n_components + posteriors.components
        order = np.argsort(target, kind="stable")
        target = target[order]
        first = np.flatnonzero(np.concatenate([[True], target[1:] != target[:-1]]))
        sums = np.add.reduceat(self._score_few(rows, posteriors)[:, order], first, axis=1)
        sets, components = np.divmod(target[first], posteriors.n_components)
        out.reshape(len(out), *self.factor.shape)[sets, :, components] = sums.swapaxes(0, 1)

    def _score_few(self, rows: np.ndarray, posteriors: Posteriors) -> np.ndarray:
        """T * (location score, scale score) (2, E, D) of each entry of the posteriors of a few rows."""
        k, row_of = posteriors.components, np.repeat(np.arange(len(rows)), np.diff(posteriors.indptr))
        location, inverse_scale, linear, signed, _ = self._kernel_constants(rows.dtype)
        z = rows[row_of]
        z -= location[k]
        z *= inverse_scale[k]
        scores = np.empty((2, *z.shape), rows.dtype)
        np.multiply(linear[k], z, out=scores[0])
        if signed.any():
            scores[0] += np.where(z > 0, signed[k], -signed[k])
        np.multiply(z, scores[0], out=scores[1])
        scores[1] -= 1
        scores *= posteriors.values.astype(rows.dtype)[:, None]
        return scores

    def find_posteriors(self, rows: np.ndarray, threads: int | None = None) -> Posteriors:
        """The posteriors of rows (n, D) that are at least the threshold."""
        threshold = NEGLIGIBLE[rows.dtype.char] if self.threshold is None else self.threshold
        return self.parameters.sparse_posteriors(rows, threshold, threads)

    def estimate_information(self, rows: np.ndarray) -> np.ndarray:
        """The mean squared gradient over rows (n, D): (2, K, D)."""
        squares = np.zeros((2, *self.parameters.locations.shape))
        posteriors = self.find_posteriors(rows)
        for k, _, _, weighted in self.score_components(rows, posteriors):
            squares[:, k] += np.einsum("hnd,hnd->hd", weighted, weighted, dtype=np.float64)
        return squares / len(rows)

    def score_components(
        self, rows: np.ndarray, posteriors: Posteriors
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
        """Component k, the rows (n,) that belong to it, the positions (n,) of these entries in the
        posteriors, and T * (location score, scale score) (2, n, D)."""
        order = posteriors.by_component()
        row_of = np.repeat(np.arange(len(rows)), np.diff(posteriors.indptr))[order]
        values = posteriors.values[order]
        starts = np.searchsorted(posteriors.components[order], np.arange(posteriors.n_components + 1))
        for k in np.flatnonzero(np.diff(starts)).tolist():
            begin, end = starts[k : k + 2]
            for start in range(begin, end, CHUNK_ROWS):
                chunk = slice(start, min(start + CHUNK_ROWS, end))
                weighted = self._score(k, rows[row_of[chunk]]) * values[chunk].astype(rows.dtype)[:, None]
                yield k, row_of[chunk], order[chunk], weighted

    def _score(self, k: int, rows: np.ndarray) -> np.ndarray:
        """Location and scale scores (2, n, D) of rows (n, D) in component k."""
        mixture, dtype = self.parameters, rows.dtype
        z = (rows - mixture.locations[k].astype(dtype)) / mixture.scales[k].astype(dtype)
        scores = np.empty((2, *z.shape), dtype)
        if self.linear_sign_form is not None:
            linear, signed = (part[k].astype(dtype) for part in self.linear_sign_form)
            scores[0] = linear * z + np.where(z > 0, signed, -signed)
            scores[1] = z * scores[0] - 1
            return scores
        chosen = np.unique(mixture.choice[k])
        for f in chosen:
            dimensions = np.flatnonzero(mixture.choice[k] == f)
            part = z if len(chosen) == 1 else z[:, dimensions]
            scores[0][:, dimensions] = mixture.families[f].location_score(part)
            scores[1][:, dimensions] = mixture.families[f].scale_score(part)
        return scores

    def score_entries(self, rows: np.ndarray, posteriors: Posteriors, out: np.ndarray) -> None:
        """Scores of each entry of the posteriors, in their order, into the zeros `out` (E, 2, D)."""
        if self.linear_sign_form is not None and len(rows) > FEW_ROWS:
            from fishermix.fisher import kernels

            score_rows: Any = kernels.word_blocks
            entries = convert_entries(posteriors, rows.dtype)
            score_rows(rows, *entries, *self._kernel_constants(rows.dtype)[:4], out)
            return
        if self.linear_sign_form is not None:
            out[:] = self._score_few(rows, posteriors).swapaxes(0, 1)
            return
        for _, _, positions, weighted in self.score_components(rows, posteriors):
            out[positions] = weighted.swapaxes(0, 1)

    def normalize(self, out: np.ndarray, sizes: Any) -> None:
        """Turn gradients `out` (n_sets, 2 K D) of sets of these sizes into Fisher vectors, in place."""
        out *= self.factor.reshape(-1).astype(out.dtype)
        out /= np.sqrt(np.maximum(sizes, 1)).astype(out.dtype)[..., None]
        if self.power != 1:
            np.copysign(np.abs(out) ** float(self.power), out, out=out)  # a Python number: 0.5 is a root
        if self.intra_norm:
            by_component = out.reshape(len(out), *self.factor.shape)
            squares = np.einsum("nhkd,nhkd->nk", by_component, by_component)
            by_component /= np.maximum(np.sqrt(squares), SMALLEST_NORM)[:, None, :, None]
        if self.norm == "l2":
            out /= np.maximum(np.sqrt(np.einsum("nq,nq->n", out, out)), SMALLEST_NORM)[:, None]

    @property
    def kernel_options(self) -> tuple[float, bool, bool]:
        """Power, intra_norm and whether the result has unit length, as the kernels take them."""
        return float(self.power), bool(self.intra_norm), self.norm == "l2"

    @cached_property
    def _constants(self) -> dict[str, list[np.ndarray]]:
        return {}

    def _kernel_constants(self, dtype: np.dtype) -> list[np.ndarray]:
        """Locations, inverse scales and the two coefficients of the scores, each (K, D); and the factor."""
        if dtype.char not in self._constants:
            assert self.linear_sign_form is not None
            mixture = self.parameters
            parts = mixture.locations, 1 / mixture.scales, *self.linear_sign_form, self.factor
            self._constants[dtype.char] = [part.astype(dtype) for part in parts]
        return self._constants[dtype.char]

    def _encode_compiled(self, rows: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
        """Fisher vectors of sets with many rows in all, into the zeros `out`."""
        from fishermix.fisher import kernels

        def encode_run(first: int, last: int) -> None:
            """Posteriors and scores of some sets, while their rows are in the cache."""
            begin, end = offsets[first], offsets[last]
            posteriors = self.find_posteriors(rows[begin:end], threads=1)
            run = offsets[first : last + 1] - begin
            self._add_scores(rows[begin:end], run, posteriors, out[first:last], finished=True)

        alone = np.flatnonzero((np.diff(offsets) > HUGE_ROWS) | (len(out) <= FEW_SETS)).tolist()
        for s in alone:
            members = rows[offsets[s] : offsets[s + 1]]
            if len(members) <= FEW_ROWS:
                out[s] = self.encode(members, np.array([0, len(members)]))[0]
            else:
                self._encode_alone(members, out[s : s + 1])
        for first, last in zip([0, *(s + 1 for s in alone)], [*alone, len(out)]):
            if first < last:
                starts = np.arange(offsets[first] + RUN_ROWS, offsets[last], RUN_ROWS)
                inner = np.searchsorted(offsets[first:last], starts) + first
                kernels.use_runs(encode_run, sorted({first, *inner.tolist(), last}))

    def _encode_alone(self, rows: np.ndarray, out: np.ndarray) -> None:
        """The Fisher vector of one set into the zeros `out` (1, 2 K D).

        Threads add the scores of some components each, so that the order of each sum is that of one thread.
        """
        from fishermix.fisher import kernels

        posteriors, offsets = self.find_posteriors(rows), np.array([0, len(rows)])

        def add_scores(first: int, last: int) -> None:
            self._add_scores(rows, offsets, posteriors, out, first, last)

        if len(rows) > HUGE_ROWS:
            kernels.in_threads(add_scores, posteriors.n_components, 2)
        else:
            add_scores(0, posteriors.n_components)
        self.normalize(out, len(rows))

    def _add_scores(
        self,
        rows: np.ndarray,
        offsets: np.ndarray,
        posteriors: Posteriors,
        out: np.ndarray,
        first: int = 0,
        last: int | None = None,
        finished: bool = False,
    ) -> None:
        """Call `kernels.encode_sets` for the components first, ..., last - 1."""
        from fishermix.fisher import kernels

        encode_sets: Any = kernels.encode_sets
        n_components, entries = posteriors.n_components, convert_entries(posteriors, rows.dtype)
        *constants, factor = self._kernel_constants(rows.dtype)
        options = factor if finished else None, *self.kernel_options, first, last or n_components
        most = min(kernels.BLOCK * n_components, len(entries[1]))
        work = np.empty(most, np.int64), np.empty(most, rows.dtype), np.empty(n_components, np.int64)
        active = np.empty(n_components, np.bool_)
        encode_sets(rows, offsets, *entries, *constants, *options, *work, active, out)


@cache
def _form_of_type(kind: Any) -> tuple[float, float]:
    """`_find_form` of a family without parameters, once."""
    return _find_form(kind())


def _find_form(family: Family) -> tuple[float, float]:
    """a and b of location_score(z) = a z + b sgn(z), or two NaN if its scores have another form."""
    scores = family.location_score(PROBES)
    linear = scores[AT_TWO] - scores[AT_ONE]
    signed = scores[AT_ONE] - linear
    expected = linear * PROBES + signed * np.where(PROBES > 0, 1, -1)
    fits = np.allclose(scores, expected, rtol=1e-12, atol=1e-12)
    if not (fits and np.allclose(family.scale_score(PROBES), PROBES * scores - 1, 1e-12, 1e-12)):
        return np.nan, np.nan
    return float(linear), float(signed)


def convert_entries(posteriors: Posteriors, dtype: np.dtype) -> list[np.ndarray]:
    """indptr, components and values of always the same types: numba compiles a kernel for every new one."""
    indptr, components = (
        part.astype(np.int64, copy=False) for part in (posteriors.indptr, posteriors.components)
    )
    return [indptr, components, posteriors.values.astype(dtype, copy=False)]
