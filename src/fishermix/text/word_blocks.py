"""Each word's share of a Fisher vector, built once per word and remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fishermix.fisher.scores import (
    THRESHOLD,
    closed_form_information,
    information_factor,
    linear_sign_form,
    normalise,
    typed_constants,
    typed_entries,
    weighted_scores,
)
from fishermix.mixture.parameters import FEW_ROWS, MixtureParameters
from fishermix.mixture.statistics import Posteriors

MOST_REMEMBERED_BYTES = 512 * 2**20


class WordBlocks:
    """Gradients of one mixture, by word: a few (component, location block, scale block) each.

    mixture, power, norm: of the FisherEncoder whose results `encode` gives. n_words: how many words there
    are. vectors_of: gives the vectors (m, D) float32 of the rows of m words.
    """

    def __init__(
        self,
        mixture: MixtureParameters,
        power: float,
        norm: str | None,
        n_words: int,
        vectors_of: Callable[[np.ndarray], np.ndarray],
    ):
        self.mixture, self.power, self.norm, self.vectors_of = mixture, power, norm, vectors_of
        self.factor = information_factor(closed_form_information(mixture)).astype(np.float32)
        self.form = linear_sign_form(self.mixture)
        self.n_features = self.factor.size
        self._slot = np.full(n_words, -1, np.int32)
        self._forget()

    def _forget(self) -> None:
        self._slot[:] = -1
        self._indptr = np.zeros(1, np.int64)
        self._components = np.zeros(0, np.int64)
        self._blocks = np.zeros((0, 2, self.factor.shape[2]), np.float32)

    def encode(self, rows: np.ndarray, offsets: np.ndarray, out: np.ndarray, start: int) -> None:
        """Fisher vectors of the bags rows[offsets[s]:offsets[s + 1]] into the zeros out[:, start:]."""
        slots = self._slots(rows)
        if len(rows) > FEW_ROWS:
            from fishermix.fisher import kernels as fisher_kernels

            sum_blocks: Any = fisher_kernels.sum_blocks
            options = float(self.power), False, self.norm == "l2"
            table = self._indptr, self._components, self._blocks, self.factor

            def encode_run(first: int, last: int) -> None:
                run, rows_out = offsets[first : last + 1], out[first:last]
                sum_blocks(slots, run, *table, *options, start, rows_out)

            fisher_kernels.in_threads(encode_run, len(out))
            return
        summed = np.zeros((len(out), *self.factor.shape), np.float32)
        for s in range(len(out)):
            for slot in slots[offsets[s] : offsets[s + 1]]:
                for entry in range(self._indptr[slot], self._indptr[slot + 1]):
                    summed[s, :, self._components[entry]] += self._blocks[entry]
        summed = summed.reshape(len(out), self.n_features)
        normalise(summed, np.diff(offsets), self.factor, self.power, self.norm, intra_norm=False)
        out[:, start : start + self.n_features] = summed

    def _slots(self, rows: np.ndarray) -> np.ndarray:
        """Where each word's entries are in the table, after adding those not seen before."""
        missing = np.unique(rows[self._slot[rows] < 0])
        if len(missing):
            if self._blocks.nbytes > MOST_REMEMBERED_BYTES:
                self._forget()
                missing = np.unique(rows)
            self._remember(missing)
        return self._slot[rows]

    def _remember(self, rows: np.ndarray) -> None:
        vectors = self.vectors_of(rows)
        posteriors = self.mixture.sparse_posteriors(vectors, THRESHOLD)
        indptr, components, _ = typed_entries(posteriors, vectors.dtype)
        self._write_scores(vectors, posteriors, self._room_for(len(components)))
        self._slot[rows] = np.arange(len(rows)) + len(self._indptr) - 1
        self._indptr = np.concatenate([self._indptr, self._indptr[-1] + indptr[1:]])
        self._components = np.concatenate([self._components, components])

    def _room_for(self, n: int) -> np.ndarray:
        """Zeros (n, 2, D) behind the blocks in use; room grows by half, so that a new word costs no copy."""
        used = len(self._components)
        if used + n > len(self._blocks):
            grown = np.zeros((max(used + n, used * 3 // 2), *self._blocks.shape[1:]), np.float32)
            grown[:used] = self._blocks[:used]
            self._blocks = grown
        return self._blocks[used : used + n]

    def _write_scores(self, vectors: np.ndarray, posteriors: Posteriors, blocks: np.ndarray) -> None:
        """Scores of the entries of the posteriors, in their order, into the zeros `blocks` (E, 2, D)."""
        if self.form is not None and len(vectors) > FEW_ROWS:
            from fishermix.fisher import kernels as fisher_kernels

            fill: Any = fisher_kernels.word_blocks
            constants = typed_constants(self.mixture, self.form, vectors.dtype)
            entries = typed_entries(posteriors, vectors.dtype)
            fill(vectors, *entries, *constants, blocks.reshape(len(blocks), -1))
            return
        # The scores come component by component, and belong where the posteriors are, word by word.
        position = posteriors.by_component()
        done = 0
        for _, members, weighted in weighted_scores(self.mixture, vectors, posteriors):
            blocks[position[done : done + len(members)]] = weighted.swapaxes(0, 1)
            done += len(members)
