"""Fisher vectors of sets of vectors, for a mixture of any families (Klein et al. 2015, section 4).

With z = (x - location_kd) / scale_kd, T_k the posterior of component k, tau_k its weight and the scores and
informations of the family chosen at (k, d), the coordinates of a set of N vectors are

    sum over x of T_k * location_score(z) / sqrt(N tau_k location_information)
    sum over x of T_k * scale_score(z)    / sqrt(N tau_k scale_information)

so for a Gaussian (x - mu)/sigma and ((x - mu)²/sigma² - 1)/sqrt(2), for a Laplacian sgn(x - m) and
|x - m|/s - 1, each times T_k/sqrt(N tau_k). Then sign(v) |v|^power, then unit length.

Families whose location score is a z + b sgn(z) are compiled (`kernels`). Others are scored in numpy, as are a
few rows of all of them, so that a search does not wait for a compiler.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from fishermix.mixture.e_step import COMPILED, FEW_ROWS, NEGLIGIBLE, MixtureParameters, Posteriors
from fishermix.mixture.families import Family
from fishermix.rows import PANEL, cut, map_in_threads

SMALLEST_NORM = 1e-12  # divides vectors shorter than this: zeros stay zeros
DENSE_NUMBERS = 2**17  # posteriors of a run of sets: they stay in the cache
CHUNK_ENTRIES = 8192  # entries that numpy scores at once: bounds the memory
# The z at which scores are compared with a z + b sgn(z), and the positions of z = 1 and z = 2 among them.
PROBES = np.array([-1e4, -37.5, -2.0, -1e-3, 0.0, 1e-3, 1.0, 2.0, 37.5, 1e4])
AT_ONE, AT_TWO = 6, 7


@dataclass(frozen=True)
class FisherScores:
    """Scores of a mixture with K components in D dimensions, and the Fisher vectors made of them.

    power: exponent of the power normalization, 1 for none. norm: "l2" or None. threshold:
    posteriors below it count as 0; None is 1e-6 for float32 rows and 1e-15 for float64 rows, as in EM.
    """

    parameters: MixtureParameters
    power: float = 0.5
    norm: str | None = "l2"
    threshold: float | None = None

    @property
    def n_features(self) -> int:
        """2 K D: the location blocks of all components, then the scale blocks."""
        return 2 * self.parameters.locations.size

    @cached_property
    def factor(self) -> np.ndarray:
        """1 / sqrt(information of one row), (2, K, D): multiplies the gradients, besides 1/sqrt(N)."""
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
        if not self.parameters.suits(rows.dtype):
            return self.encode(rows.astype(np.float64), offsets).astype(rows.dtype)
        out = np.zeros((len(offsets) - 1, self.n_features), rows.dtype)
        if self.linear_sign_form is not None:
            self._encode_compiled(rows, offsets, out)
            return out
        # A set has the same bits alone and among others: kernels whatever the number of rows, own chunks.
        posteriors = self.parameters.sparse_posteriors(rows, self._find_threshold(rows.dtype), few=0)
        bounds = posteriors.indptr[offsets]
        set_of_entry = np.repeat(np.arange(len(out)), np.diff(bounds))
        runs, large = _find_runs(bounds, CHUNK_ENTRIES)
        chunks = [slice(bounds[run.start], bounds[run.stop]) for run in runs]
        chunks += [chunk for s in large for chunk in _cut_entries(bounds[s], bounds[s + 1])]
        for chunk in chunks:
            scores, components = self._score(rows, posteriors, chunk), posteriors.components[chunk]
            _add_groups(scores, set_of_entry[chunk], components, self._by_component(out))
        self.normalize(out, np.diff(offsets))
        return out

    def _encode_compiled(self, rows: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
        """Fisher vectors into the zeros `out`: small sets together, larger ones in parts.

        How a set is computed depends on its own rows only, so it has the same bits alone and among others.
        """
        from fishermix.fisher import kernels

        add_scores: Any = kernels.add_scores
        encode_sets: Any = kernels.encode_sets
        *constants, factor = self._kernel_constants(rows.dtype)

        def prepare(panel: np.ndarray) -> tuple[Any, ...]:
            """The arguments that both kernels begin with."""
            start, row, posterior = self.parameters.list_panel(panel, self._find_threshold(rows.dtype))
            active = np.empty(len(start) - 1, np.bool_)
            return panel, start[:-1].copy(), start, row, posterior.astype(rows.dtype), *constants, active

        def encode_run(run: slice) -> None:
            bounds = offsets[run.start : run.stop + 1]
            panel = rows[bounds[0] : bounds[-1]]
            if len(panel):
                views = self._by_component(out)[run], out[run]
                encode_sets(*prepare(panel), bounds - bounds[0], factor.ravel(), self.kernel_options, *views)

        def sum_part(part: slice) -> np.ndarray:
            sums = np.zeros(factor.shape, rows.dtype)
            add_scores(*prepare(rows[part]), sums)
            return sums

        run_rows = max(DENSE_NUMBERS // len(self.parameters.weights), PANEL)
        runs, large = _find_runs(offsets, run_rows)
        for _ in map_in_threads(encode_run, runs):
            pass
        for s in large:
            begin, end = offsets[s : s + 2].tolist()
            sums = self._by_component(out)[s]
            parts = [slice(begin + part.start, begin + part.stop) for part in cut(end - begin, run_rows)]
            for part in map_in_threads(sum_part, parts):
                sums += part
            self.normalize(out[s : s + 1], end - begin)

    def _by_component(self, out: np.ndarray) -> np.ndarray:
        """Vectors (n, 2 K D) as a view (n, 2, K, D)."""
        return out.reshape(len(out), 2, *self.parameters.locations.shape)

    def _find_threshold(self, dtype: np.dtype) -> float:
        return NEGLIGIBLE[dtype.char] if self.threshold is None else float(self.threshold)

    def find_posteriors(self, rows: np.ndarray) -> Posteriors:
        """The posteriors of rows (n, D) that are at least the threshold."""
        return self.parameters.sparse_posteriors(rows, self._find_threshold(rows.dtype))

    def score_entries(self, rows: np.ndarray, posteriors: Posteriors, out: np.ndarray) -> None:
        """Scores of each entry of the posteriors, in their order, into the zeros `out` (E, 2, D)."""
        if self.linear_sign_form is None or len(rows) <= FEW_ROWS:
            for chunk in _cut_entries(0, len(posteriors.values)):
                out[chunk] = self._score(rows, posteriors, chunk).swapaxes(0, 1)
            return
        from fishermix.fisher import kernels

        score_rows: Any = kernels.word_blocks
        values = posteriors.values.astype(rows.dtype, copy=False)
        constants = self._kernel_constants(rows.dtype)[:4]
        score_rows(rows, posteriors.indptr, posteriors.components, values, *constants, out)

    def _score(self, rows: np.ndarray, posteriors: Posteriors, chunk: slice) -> np.ndarray:
        """T * (location score, scale score) (2, n, D) of some entries of the posteriors."""
        mixture, dtype, k = self.parameters, rows.dtype, posteriors.components[chunk]
        row = np.searchsorted(posteriors.indptr, np.arange(chunk.start, chunk.stop), side="right") - 1
        z = rows[row] - mixture.locations[k].astype(dtype)
        z /= mixture.scales[k].astype(dtype)
        scores = np.empty((2, *z.shape), dtype)
        for index, family in enumerate(mixture.families):
            chosen = mixture.choice[k] == index
            scores[0, chosen] = family.location_score(z[chosen])
            scores[1, chosen] = family.scale_score(z[chosen])
        scores *= posteriors.values[chunk, None].astype(dtype)
        return scores

    def normalize(self, out: np.ndarray, sizes: Any) -> None:
        """Turn gradients `out` (n_sets, 2 K D) of sets of these sizes into Fisher vectors, in place."""
        out *= self.factor.reshape(-1).astype(out.dtype)
        out /= np.sqrt(np.maximum(sizes, 1)).astype(out.dtype)[..., None]
        if self.power != 1:
            np.copysign(np.abs(out) ** float(self.power), out, out=out)  # a Python number: 0.5 is a root
        if self.norm == "l2":
            out /= np.maximum(np.sqrt(np.einsum("nq,nq->n", out, out)), SMALLEST_NORM)[:, None]

    @property
    def kernel_options(self) -> tuple[float, bool]:
        """The power and whether the result has unit length, as the kernels take them."""
        return float(self.power), self.norm == "l2"

    def _kernel_constants(self, dtype: np.dtype) -> list[np.ndarray]:
        """Locations, inverse scales and the two coefficients of the scores, each (K, D); and the factor."""
        assert self.linear_sign_form is not None
        mixture = self.parameters
        parts = mixture.locations, 1 / mixture.scales, *self.linear_sign_form, self.factor
        return [np.ascontiguousarray(part, dtype) for part in parts]


def _find_runs(offsets: np.ndarray, run_rows: int) -> tuple[list[slice], list[int]]:
    """Runs of sets that have up to `run_rows` rows together, and the sets that have more alone."""
    large = np.flatnonzero(np.diff(offsets) > run_rows).tolist()
    runs = []
    for first, last in zip([0, *(s + 1 for s in large)], [*large, len(offsets) - 1]):
        while first < last:
            stop = int(np.searchsorted(offsets[: last + 1], offsets[first] + run_rows, side="right")) - 1
            runs.append(slice(first, stop))
            first = stop
    return runs, large


def _cut_entries(first: int, last: int) -> list[slice]:
    return [slice(begin, min(begin + CHUNK_ENTRIES, last)) for begin in range(first, last, CHUNK_ENTRIES)]


def _add_groups(weighted: np.ndarray, sets: np.ndarray, components: np.ndarray, out: np.ndarray) -> None:
    """out[sets[e], :, components[e]] += weighted[:, e] for each entry e, of weighted (2, E, D)."""
    target = sets * out.shape[2] + components
    order = np.argsort(target, kind="stable")
    groups, first = np.unique(target[order], return_index=True)
    sums = np.add.reduceat(weighted[:, order], first, axis=1)
    out[groups // out.shape[2], :, groups % out.shape[2]] += sums.swapaxes(0, 1)


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
