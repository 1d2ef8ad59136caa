"""Sentences to vectors: the mean of the words, or Fisher vectors of one or more mixtures side by side; and,
next to these, the vector of a sentence transformer.

Before normalization a Fisher vector is a sum over the words, and a word belongs to a few components only. So
the scores of a word are computed once, when it is first seen, and a sentence is the sum over its words.
Importing this module and encoding a few sentences needs neither scikit-learn nor numba.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np

from fishermix.errors import FishermixError, warn_user
from fishermix.fisher.vectors import FisherVectors, Options
from fishermix.joint.vectors import unit_rows
from fishermix.mixture.compiling import HAS_NUMBA
from fishermix.mixture.initialization import explain_infinite
from fishermix.mixture.parameters import FEW_ROWS, MixtureParameters
from fishermix.rows import cut, map_in_threads
from fishermix.text.lookup import WordBags, WordLookup
from fishermix.text.tokens import Sentence
from fishermix.text.word_vectors import WordVectors

MOST_REMEMBERED_BYTES = 512 * 2**20  # of word scores per mixture; then they are computed again
BLOCK_SENTENCES = 2048  # 150 MB of 18,000-D vectors
SENTENCES_PER_RUN = 128  # of a thread
WHITENINGS = ("ica", "pca", "none")
WHITENING_TENSORS = {"whitening_mean": "d", "whitening_matrix": "k d", "whitening_flags": "int 3"}


class Transformer(Protocol):
    """What encodes whole sentences next to their words, such as a network: unit vectors (n, n_features)."""

    @property
    def n_features(self) -> int: ...
    def encode(self, sentences: Sequence[str]) -> np.ndarray: ...


@dataclass(frozen=True)
class WhiteningTransform:
    """x -> (x - mean) @ matrix.T, unless `kind` is "none".

    l2_before, l2_after: scale each vector to length 1 before or after. mean (D,), matrix (d, D): float64.
    """

    kind: str
    l2_before: bool
    l2_after: bool
    mean: np.ndarray
    matrix: np.ndarray

    def transform(self, data: np.ndarray) -> np.ndarray:
        """(n, D) -> (n, d) of the same type."""
        if self.l2_before:
            data = unit_rows(data, data.dtype)
        if self.kind != "none":
            # In float64, since the mean and the small eigenvalues leave few digits to float32.
            data = ((data - self.mean) @ self.matrix.T).astype(data.dtype, copy=False)
        return unit_rows(data, data.dtype) if self.l2_after else data

    def _to_tensors(self) -> dict[str, np.ndarray]:
        flags = np.array([WHITENINGS.index(self.kind), self.l2_before, self.l2_after], np.int64)
        return {"whitening_mean": self.mean, "whitening_matrix": self.matrix, "whitening_flags": flags}

    @classmethod
    def _from_tensors(cls, tensors: Mapping[str, np.ndarray]) -> WhiteningTransform:
        """What `_to_tensors` wrote; the load of a folder has compared the shapes with `WHITENING_TENSORS`."""
        if missing := WHITENING_TENSORS.keys() - tensors.keys():
            raise FishermixError(
                f"The whitening is damaged: it has no {', '.join(sorted(missing))}.", code="damaged"
            )
        mean, matrix, flags = (tensors[name] for name in WHITENING_TENSORS)
        kind, before, after = flags.tolist()
        if not 0 <= kind < len(WHITENINGS):
            raise FishermixError(f"The whitening is damaged: it has the unknown kind {kind}.", code="damaged")
        return cls(
            WHITENINGS[kind], bool(before), bool(after), mean.astype(np.float64), matrix.astype(np.float64)
        )


class SentenceVectors:
    """Maps sentences to vectors (n, n_features) float32; grows with the words it has seen.

    vectors: the `WordVectors`. whitening: a `WhiteningTransform` or None. mixtures: parameters of mixtures
    over the whitened vectors, whose Fisher vectors are put side by side, each normalized by `power` and
    `norm`; without any, the vector is the mean of the (whitened) word vectors. stop_words: tokens to skip.
    transformer: a `Transformer` whose unit vectors, times `transformer_weight`, come last; or None.

    The first `n_word_features` of the `n_features` numbers come from the words.
    Several threads may share it.
    """

    def __init__(
        self,
        vectors: WordVectors,
        whitening: Any = None,
        mixtures: Sequence[MixtureParameters] = (),
        power: float = 0.5,
        norm: str | None = "l2",
        stop_words: Iterable[str] = (),
        transformer: Transformer | None = None,
        transformer_weight: float = 1.0,
    ):
        if not isinstance(vectors, WordVectors):
            raise FishermixError(
                f"vectors is a {type(vectors).__name__}, not WordVectors.", code="wrong_parameter"
            )
        check_norm(norm)
        dimension = vectors.dimension
        if whitening is not None:
            dimension = whitening.transform(np.zeros((1, dimension), np.float32)).shape[1]
        _check_mixtures(mixtures, dimension)
        self.vectors, self.whitening = vectors, whitening
        self.n_features = 0
        self._tables = []
        for mixture in mixtures:
            fisher, options = FisherVectors(mixture), Options(power, norm)
            self._tables.append(_WordScores(fisher, options, len(vectors.vectors), self.n_features))
            self.n_features += 2 * mixture.locations.size
        self.n_features = self.n_features or dimension
        self.n_word_features = self.n_features
        self.transformer, self.transformer_weight = transformer, transformer_weight
        if transformer is not None:
            self.n_features += transformer.n_features
        self._lock = threading.Lock()  # a server encodes in several threads; they share the tables
        self.lookup = WordLookup(vectors.words, stop_words)
        words = self.lookup.stop_words
        self._given = vectors, whitening, mixtures, power, norm, words, transformer, transformer_weight

    @property
    def feature_names(self) -> list[str]:
        """mean_d; or, of mixture i, mixture_i_location_k_d for all k and d, then mixture_i_scale_k_d.

        The numbers of a transformer follow as transformer_d.
        """
        of_tables = [table.fisher.feature_names for table in self._tables]
        names = [f"mixture_{i}_{name}" for i, of_table in enumerate(of_tables) for name in of_table]
        names = names or [f"mean_{d}" for d in range(self.n_word_features)]
        return names + [f"transformer_{d}" for d in range(self.n_features - self.n_word_features)]

    @property
    def feature_groups(self) -> list[list[slice]] | None:
        """The columns of each component of the mixtures, or None without mixtures.

        A sentence is zero in the columns of components that none of its words belongs to. The last group are
        the columns of the transformer, if there is one.
        """
        groups = []
        for table in self._tables:
            n_components, width = table.fisher.parameters.locations.shape
            starts = table.start + width * np.arange(2 * n_components).reshape(2, n_components)
            groups += [[slice(first, first + width) for first in column] for column in starts.T.tolist()]
        if groups and self.transformer is not None:
            groups.append([slice(self.n_word_features, self.n_features)])
        return groups or None

    def encode(self, sentences: Sequence[Sentence]) -> tuple[np.ndarray, WordBags]:
        """The vectors (n, n_features) of sentences, and what was found of their words.

        Each sentence is tokenized once. A sentence without a word of the vocabulary has the zero vector,
        unless there is a transformer.
        """
        out = np.empty((len(sentences), self.n_features), np.float32)
        # Meanwhile in another thread, since the system takes long to hand out so much memory.
        clearing = threading.Thread(target=out.fill, args=(0,))
        clearing.start()
        with self._lock:
            bags = self.lookup.find(sentences)
            clearing.join()
            self._add_words(bags.rows, bags.offsets, out)
        if self.transformer is not None:
            self._add_transformed(self.transformer, sentences, bags, out[:, self.n_word_features :])
        return out, bags

    def encode_blocks(
        self, sentences: Iterable[Sentence], rows: int = BLOCK_SENTENCES
    ) -> Iterator[np.ndarray]:
        """The vectors of sentences in blocks of `rows`; at the end it warns once of zero vectors."""
        n_empty, n, remaining = 0, 0, iter(sentences)
        while block := list(islice(remaining, rows)):
            out, bags = self.encode(block)
            n_empty, n = n_empty + self.count_empty(bags), n + len(block)
            yield out
        warn_if_empty(n_empty, n)

    def count_empty(self, bags: WordBags) -> int:
        """How many sentences have the zero vector. A transformer leaves none but those without a token."""
        if self.transformer is None:
            return len(bags.empty)
        return sum(not tokens for tokens in bags.tokens)

    def whiten_words(self, rows: np.ndarray) -> np.ndarray:
        """The whitened vectors (m, d) float32 of rows of the vocabulary."""
        found = np.asarray(self.vectors.vectors[rows], dtype=np.float32)
        return found if self.whitening is None or not len(found) else self.whitening.transform(found)

    def _add_words(self, rows: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
        for table in self._tables:
            new = table.list_new(rows)
            if len(new):
                table.add(new, self.whiten_words(new))
            table.encode(rows, offsets, out)
        if not self._tables and len(rows):
            from scipy.sparse import csr_array

            sizes = np.diff(offsets)
            words, positions = np.unique(rows, return_inverse=True)
            shares = np.repeat(1 / np.maximum(sizes, 1), sizes).astype(np.float32)
            means = csr_array((shares, positions, offsets)) @ self.whiten_words(words)
            out[:, : self.n_word_features] = means

    def _add_transformed(
        self,
        transformer: Transformer,
        sentences: Sequence[Sentence],
        bags: WordBags,
        out: np.ndarray,
    ) -> None:
        """The transformer's vectors; those of sentences without any token stay zero."""
        rows = [row for row, tokens in enumerate(bags.tokens) if tokens]
        texts = [sentence if isinstance(sentence, str) else " ".join(sentence) for sentence in sentences]
        out[rows] = self.transformer_weight * transformer.encode([texts[row] for row in rows])

    def __reduce__(self) -> tuple[type[SentenceVectors], tuple[Any, ...]]:
        return type(self), self._given  # without the lock and the scores of the words seen


class _WordScores:
    """Scores of one mixture by word: for each word a few entries (component, (2, D) scores).

    n_words: the size of the vocabulary. start: where the Fisher vectors begin in the sentence vectors.
    """

    def __init__(self, fisher: FisherVectors, options: Options, n_words: int, start: int):
        self.fisher, self.options, self.start = fisher, options, start
        self._slot = np.full(n_words, -1, np.int32)
        self._forget()

    def _forget(self) -> None:
        self._slot[:] = -1
        self._indptr = np.zeros(1, np.int64)
        self._components = np.zeros(0, np.int64)
        self._entries = np.zeros((0, 2, self.fisher.parameters.locations.shape[1]), np.float32)

    def list_new(self, rows: np.ndarray) -> np.ndarray:
        """The words among these that have to be added first."""
        new = rows[self._slot[rows] < 0]
        if len(new) and self._entries.nbytes > MOST_REMEMBERED_BYTES:
            self._forget()
            new = rows
        return np.array(sorted(set(new.tolist())), np.int64)  # np.unique would import numpy.ma

    def add(self, rows: np.ndarray, vectors: np.ndarray) -> None:
        """Compute the scores of new words from their whitened vectors (m, D)."""
        posteriors = self.fisher.find_posteriors(vectors, self.options)
        components = posteriors.components.astype(np.int64, copy=False)
        used, needed = len(self._components), len(self._components) + len(components)
        if needed > len(self._entries):  # they grow by half, so that few new words are a copy
            grown = np.zeros((max(needed, used * 3 // 2), *self._entries.shape[1:]), np.float32)
            grown[:used] = self._entries[:used]
            self._entries = grown
        self.fisher.score_entries(vectors, posteriors, self._entries[used:needed])
        if not np.isfinite(self._entries[used:needed]).all():
            self._entries[used:needed] = 0  # the next words are added there
            raise explain_infinite(vectors)
        self._slot[rows] = np.arange(len(rows)) + len(self._indptr) - 1
        self._indptr = np.concatenate([self._indptr, self._indptr[-1] + posteriors.indptr[1:]])
        self._components = np.concatenate([self._components, components])

    def encode(self, rows: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
        """Fisher vectors of the bags rows[offsets[s]:offsets[s + 1]] into the zeros out[:, start:]."""
        slots = self._slot[rows]
        if len(rows) > FEW_ROWS and HAS_NUMBA:
            from fishermix.fisher import kernels

            sum_entries: Any = kernels.sum_entries
            factor = self.fisher.factor.ravel().astype(np.float32)

            def encode_run(run: slice) -> None:
                sum_entries(
                    words=slots,
                    offsets=offsets[run.start : run.stop + 1],
                    indptr=self._indptr,
                    components=self._components,
                    blocks=self._entries,
                    factor=factor,
                    options=self.options.of_kernels,
                    start=self.start,
                    active=np.empty(self.fisher.factor.shape[1], np.bool_),
                    out=out[run],
                )

            for _ in map_in_threads(encode_run, cut(len(out), SENTENCES_PER_RUN)):
                pass
            return
        summed = np.zeros((len(out), 2, *self.fisher.parameters.locations.shape), np.float32)
        for s in range(len(out)):
            for slot in slots[offsets[s] : offsets[s + 1]]:
                for entry in range(self._indptr[slot], self._indptr[slot + 1]):
                    summed[s, :, self._components[entry]] += self._entries[entry]
        flat = summed.reshape(len(out), self.fisher.n_features)
        self.fisher.normalize(flat, np.diff(offsets), self.options)
        out[:, self.start : self.start + flat.shape[1]] = flat


def _check_mixtures(mixtures: Sequence[Any], dimension: int) -> None:
    if not isinstance(mixtures, Iterable):
        raise FishermixError(
            f"mixtures is a {type(mixtures).__name__}. Give a list, such as [mixture].",
            code="wrong_parameter",
        )
    for number, mixture in enumerate(mixtures):
        if not isinstance(mixture, MixtureParameters):
            kind = type(mixture)
            raise FishermixError(
                f"mixtures[{number}], a {kind.__module__}.{kind.__qualname__}, is not a fitted mixture of "
                "fishermix. Call its fit, or load one.",
                code="not_fitted",
            )
        if (found := mixture.locations.shape[1]) != dimension:
            raise FishermixError(
                f"The word vectors have {dimension} dimensions, but mixtures[{number}] has {found}.",
                code="wrong_shape",
            )


def check_norm(norm: object) -> None:
    if norm not in ("l2", None):
        raise FishermixError(f"norm={norm!r} is not 'l2' or None.", code="wrong_parameter")


def warn_if_empty(n_empty: int, n: int) -> None:
    if n_empty:
        warn_user(f"{n_empty} of {n} sentences have no word in the vocabulary. Their vectors are 0.")
