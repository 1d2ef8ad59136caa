"""Fisher vectors of many sets, fast; `reference` has the same formula in a dozen lines of numpy.

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
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fishermix.mixture.compiling import HAS_NUMBA
from fishermix.mixture.parameters import FEW_ROWS, MixtureParameters
from fishermix.mixture.posteriors import NEGLIGIBLE, Posteriors
from fishermix.rows import PANEL, cut, map_in_threads

SMALLEST_NORM = 1e-12  # divides vectors shorter than this: zeros stay zeros
DENSE_NUMBERS = 2**17  # posteriors of a run of sets: they stay in the cache
CHUNK_ENTRIES = 8192  # entries that numpy scores at once: bounds the memory


@dataclass(frozen=True)
class Options:
    """How gradients become Fisher vectors.

    power: exponent of the power normalization, 1 for none. norm: "l2", "intra" or None. threshold: posteriors
    below it count as 0; None is 1e-6 for float32 rows and 1e-15 for float64 rows, as in EM. weight_gradients:
    whether K gradients by the weights come last.
    """

    power: float = 0.5
    norm: str | None = "l2"
    threshold: float | None = None
    weight_gradients: bool = False

    def find_threshold(self, dtype: np.dtype) -> float:
        return NEGLIGIBLE[dtype.char] if self.threshold is None else float(self.threshold)

    @property
    def unit_length(self) -> bool:
        """Whether location and scale blocks together get unit length, because nothing is appended to them."""
        return self.norm == "l2" and not self.weight_gradients

    @property
    def of_kernels(self) -> tuple[float, bool]:
        """The power and `unit_length`, as the kernels take them."""
        return float(self.power), self.unit_length


class KernelConstants(NamedTuple):
    """What the compiled loops need of a mixture, in the type of the rows: each (K, D), factor (2, K, D)."""

    location: np.ndarray
    inverse_scale: np.ndarray
    linear: np.ndarray
    signed: np.ndarray
    factor: np.ndarray

    @property
    def of_scores(self) -> dict[str, np.ndarray]:
        """The arguments of the kernels that compute scores, by name."""
        return {
            "location": self.location,
            "inverse_scale": self.inverse_scale,
            "linear": self.linear,
            "signed": self.signed,
        }


@dataclass(frozen=True, eq=False)
class FisherVectors:
    """Fisher vectors under a mixture with K components in D dimensions.

    What follows from the parameters is computed when it is first needed, and once.
    """

    parameters: MixtureParameters

    @property
    def n_features(self) -> int:
        """2 K D: the location blocks of all components, then the scale blocks."""
        return 2 * self.parameters.locations.size

    @property
    def feature_names(self) -> list[str]:
        """location_k_d for every component k and dimension d, then scale_k_d."""
        n_components, dimension = self.parameters.locations.shape
        blocks = [f"{half}_{k}" for half in ("location", "scale") for k in range(n_components)]
        return [f"{block}_{d}" for block in blocks for d in range(dimension)]

    @cached_property
    def factor(self) -> np.ndarray:
        """1 / sqrt(information of one row), (2, K, D): multiplies the gradients, besides 1/sqrt(N)."""
        information = self.parameters.weights[:, None] * self._informations
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

    @cached_property
    def _informations(self) -> np.ndarray:
        """Location and scale informations (2, K, D), or (2, 1, 1) if they are the same everywhere."""
        mixture = self.parameters
        informations = self._spread(self._family_constants[:, 2:])
        if any(family.has_free_shape for family in mixture.families):
            informations = np.array(np.broadcast_to(informations, (2, *mixture.choice.shape)))
            for index, family in enumerate(mixture.families):
                if family.has_free_shape and (chosen := mixture.choice == index).any():
                    shaped = mixture.find_family(index, slice(None), chosen)
                    informations[:, chosen] = shaped.location_information, shaped.scale_information
        return informations

    def _spread(self, of_families: np.ndarray) -> np.ndarray:
        """Numbers (F, m) of the families as (m, K, D), or (m, 1, 1) if all (k, d) have the same family."""
        choice = self.parameters.choice
        if (choice == choice[0, 0]).all():
            choice = choice[:1, :1]
        return of_families.T[:, choice]

    @cached_property
    def _family_constants(self) -> np.ndarray:
        """(F, 4): a and b of location_score(z) = a z + b sgn(z), and the location and scale information.

        a and b are NaN if the scores of the family have another form.
        The scale score is z * location_score(z) - 1 in every location-scale family.
        """
        constants = np.full((len(self.parameters.families), 4), np.nan)
        for index, family in enumerate(self.parameters.families):
            if (self.parameters.choice == index).any():
                constants[index, :2] = family.score_form or (np.nan, np.nan)
            if not family.has_free_shape:
                constants[index, 2:] = family.location_information, family.scale_information
        return constants

    def encode(self, rows: np.ndarray, offsets: np.ndarray, options: Options) -> np.ndarray:
        """Fisher vectors (n_sets, 2 K D), or (n_sets, 2 K D + K) with weight gradients, in the rows' type.

        Set s is the rows offsets[s]:offsets[s + 1] of `rows` (n, D).
        """
        if not self.parameters.suits(rows.dtype):
            return self.encode(rows.astype(np.float64), offsets, options).astype(rows.dtype)
        out = np.zeros((len(offsets) - 1, self.n_features), rows.dtype)
        if self.linear_sign_form is not None and HAS_NUMBA:
            self._encode_compiled(rows, offsets, options, out)
        else:
            self._encode_in_numpy(rows, offsets, options, out)
        if options.norm == "intra":
            scale_blocks(out, self.parameters.locations.shape[1])
        if options.weight_gradients:
            of_weights = self._find_weight_gradients(rows, offsets, options)
            out = np.hstack([out, scale_rows(of_weights) if options.norm == "intra" else of_weights])
        if options.norm is not None and not options.unit_length:
            scale_rows(out)
        return out

    def _find_weight_gradients(self, rows: np.ndarray, offsets: np.ndarray, options: Options) -> np.ndarray:
        """sum over x of (T_k - tau_k) / sqrt(N tau_k), to the power: (n_sets, K)."""
        weights, sizes = self.parameters.weights, np.diff(offsets)
        sums = np.zeros((len(sizes), len(weights)))
        set_of_row = np.repeat(np.arange(len(sizes)), sizes)
        threshold = options.find_threshold(rows.dtype)
        for part in cut(len(rows), self._rows_at_once):
            posteriors = self.parameters.sparse_posteriors(rows[part], threshold, few=0)
            set_of_entry = np.repeat(set_of_row[part], np.diff(posteriors.indptr))
            np.add.at(sums, (set_of_entry, posteriors.components), posteriors.values)
        gradients = sums - np.outer(sizes, weights)
        deviations = np.sqrt(np.outer(np.maximum(sizes, 1), weights))
        np.divide(gradients, deviations, out=gradients, where=deviations > 0)
        return apply_power(gradients, options.power).astype(rows.dtype)

    def _encode_in_numpy(
        self, rows: np.ndarray, offsets: np.ndarray, options: Options, out: np.ndarray
    ) -> None:
        """Fisher vectors into the zeros `out`, for mixtures of any families."""
        # A set has the same bits alone and among others: kernels whatever the number of rows, own chunks.
        posteriors = self.parameters.sparse_posteriors(rows, options.find_threshold(rows.dtype), few=0)
        bounds = posteriors.indptr[offsets]
        set_of_entry = np.repeat(np.arange(len(out)), np.diff(bounds))
        runs, large = _find_runs(bounds, CHUNK_ENTRIES)
        chunks = [slice(bounds[run.start], bounds[run.stop]) for run in runs]
        chunks += [chunk for s in large for chunk in _cut_entries(bounds[s], bounds[s + 1])]
        for chunk in chunks:
            scores, components = self._score(rows, posteriors, chunk), posteriors.components[chunk]
            _add_groups(scores, set_of_entry[chunk], components, self._by_component(out))
        self.normalize(out, np.diff(offsets), options)

    def _encode_compiled(
        self, rows: np.ndarray, offsets: np.ndarray, options: Options, out: np.ndarray
    ) -> None:
        """Fisher vectors into the zeros `out`: small sets together, larger ones in parts.

        How a set is computed depends on its own rows only, so it has the same bits alone and among others.
        """
        from fishermix.fisher import kernels

        add_scores: Any = kernels.add_scores
        encode_sets: Any = kernels.encode_sets
        constants = self._kernel_constants(rows.dtype)
        threshold = options.find_threshold(rows.dtype)

        def prepare(panel: np.ndarray) -> dict[str, np.ndarray]:
            """The arguments that both kernels have, by name."""
            posteriors = self.parameters.tile_posteriors(panel, threshold)
            return {
                "x": panel,
                "entry": posteriors.start[:-1].copy(),
                "start": posteriors.start,
                "row": posteriors.row,
                "posterior": posteriors.weight.astype(rows.dtype),
                "active": np.empty(len(posteriors.start) - 1, np.bool_),
                **constants.of_scores,
            }

        def encode_run(run: slice) -> None:
            bounds = offsets[run.start : run.stop + 1]
            panel = rows[bounds[0] : bounds[-1]]
            if len(panel):
                encode_sets(
                    **prepare(panel),
                    offsets=bounds - bounds[0],
                    factor=constants.factor.ravel(),
                    options=options.of_kernels,
                    sums=self._by_component(out)[run],
                    out=out[run],
                )

        def sum_part(part: slice) -> np.ndarray:
            sums = np.zeros(constants.factor.shape, rows.dtype)
            add_scores(**prepare(rows[part]), sums=sums)
            return sums

        run_rows = self._rows_at_once
        runs, large = _find_runs(offsets, run_rows)
        for _ in map_in_threads(encode_run, runs):
            pass
        for s in large:
            begin, end = offsets[s : s + 2].tolist()
            sums = self._by_component(out)[s]
            parts = [slice(begin + part.start, begin + part.stop) for part in cut(end - begin, run_rows)]
            for part in map_in_threads(sum_part, parts):
                sums += part
            self.normalize(out[s : s + 1], end - begin, options)

    @property
    def _rows_at_once(self) -> int:
        """The rows of which `DENSE_NUMBERS` posteriors are computed together."""
        return max(DENSE_NUMBERS // len(self.parameters.weights), PANEL)

    def _by_component(self, out: np.ndarray) -> np.ndarray:
        """Vectors (n, 2 K D) as a view (n, 2, K, D)."""
        return out.reshape(len(out), 2, *self.parameters.locations.shape)

    def find_posteriors(self, rows: np.ndarray, options: Options) -> Posteriors:
        """The posteriors of rows (n, D) that are at least the threshold."""
        return self.parameters.sparse_posteriors(rows, options.find_threshold(rows.dtype))

    def score_entries(self, rows: np.ndarray, posteriors: Posteriors, out: np.ndarray) -> None:
        """Scores of each entry of the posteriors, in their order, into the zeros `out` (E, 2, D)."""
        if self.linear_sign_form is None or len(rows) <= FEW_ROWS or not HAS_NUMBA:
            for chunk in _cut_entries(0, len(posteriors.values)):
                out[chunk] = self._score(rows, posteriors, chunk).swapaxes(0, 1)
            return
        from fishermix.fisher import kernels

        score_entries: Any = kernels.score_entries
        score_entries(
            x=rows,
            indptr=posteriors.indptr,
            components=posteriors.components,
            posteriors=posteriors.values.astype(rows.dtype, copy=False),
            **self._kernel_constants(rows.dtype).of_scores,
            out=out,
        )

    def _score(self, rows: np.ndarray, posteriors: Posteriors, chunk: slice) -> np.ndarray:
        """T * (location score, scale score) (2, n, D) of some entries of the posteriors."""
        mixture, dtype, k = self.parameters, rows.dtype, posteriors.components[chunk]
        row = np.searchsorted(posteriors.indptr, np.arange(chunk.start, chunk.stop), side="right") - 1
        z = rows[row] - mixture.locations[k].astype(dtype)
        z /= mixture.scales[k].astype(dtype)
        scores = np.empty((2, *z.shape), dtype)
        for index in range(len(mixture.families)):
            chosen = mixture.choice[k] == index
            family = mixture.find_family(index, k, chosen)
            with np.errstate(all="ignore"):  # encoders report what is not finite
                scores[0, chosen] = family.location_score(z[chosen])
                scores[1, chosen] = family.scale_score(z[chosen])
        scores *= posteriors.values[chunk, None].astype(dtype)
        return scores

    def normalize(self, out: np.ndarray, sizes: Any, options: Options) -> None:
        """Turn gradients `out` (n_sets, 2 K D) of sets of these sizes into Fisher vectors, in place."""
        out *= self.factor.reshape(-1).astype(out.dtype)
        out /= np.sqrt(np.maximum(sizes, 1)).astype(out.dtype)[..., None]
        apply_power(out, options.power)
        if options.unit_length:
            scale_rows(out)

    def _kernel_constants(self, dtype: np.dtype) -> KernelConstants:
        """The constants for rows of this type, computed once."""
        if dtype.char not in self._constants_by_type:
            assert self.linear_sign_form is not None
            linear, signed = self.linear_sign_form
            self._constants_by_type[dtype.char] = KernelConstants(
                location=np.ascontiguousarray(self.parameters.locations, dtype),
                inverse_scale=np.ascontiguousarray(1 / self.parameters.scales, dtype),
                linear=np.ascontiguousarray(linear, dtype),
                signed=np.ascontiguousarray(signed, dtype),
                factor=np.ascontiguousarray(self.factor, dtype),
            )
        return self._constants_by_type[dtype.char]

    @cached_property
    def _constants_by_type(self) -> dict[str, KernelConstants]:
        return {}


def apply_power(vectors: np.ndarray, power: float) -> np.ndarray:
    """sign(v) |v|^power, in place."""
    if power != 1:
        np.copysign(np.abs(vectors) ** float(power), vectors, out=vectors)  # a Python number: 0.5 is a root
    return vectors


def scale_rows(vectors: np.ndarray) -> np.ndarray:
    """Scale rows (n, q) to unit length, in place; zeros stay zeros, and infinite rows become NaN."""
    lengths = np.sqrt(np.einsum("nq,nq->n", vectors, vectors))
    with np.errstate(invalid="ignore"):  # encoders report what is not finite
        vectors /= np.maximum(lengths, SMALLEST_NORM)[:, None]
    return vectors


def scale_blocks(vectors: np.ndarray, width: int) -> np.ndarray:
    """Scale each block of `width` numbers of each row to unit length, in place."""
    for part in cut(vectors.shape[1], width):
        scale_rows(vectors[:, part])
    return vectors


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
