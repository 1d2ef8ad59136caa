"""Exact nearest embeddings: scores with a known margin find rows that may be best, exact scores rank them.

A search among a million photos would wait for the memory, so a large file of embeddings has a cache next to
it: the embeddings once more, in 8 bits. A search reads a quarter of the bytes and misses nothing. (16 bits
were measured: 262,144 embeddings of 386 numbers take one thread 51 ms in float32, 5 ms in 8 bits, and 156 ms
as float16 in onnxruntime, 360 ms in numpy, which both convert them first.) A block of the cache holds the
embeddings x of 65,536 rows as integers c, one scale s per coordinate: x = s c / 64 + rounding.
A query q is rounded to integers up to 127 in the same way. With x' = x / s, q' = s q and the rounded values
c' = c / 64 and k',

    |q x - k' c'| <= |k'| |x' - c'| + |q' - k'| |x'|.

The largest lengths of x' - c' and x' of each block are stored, so the margin of a block is known. Rows that
are within it of the best rows are scored with the embeddings themselves: the answer is that of a full search.
onnxruntime computes the products of integers; `product.onnx` is a graph of this one operation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from fishermix.rows import available_threads

from fishermix_photos.disk import create_private_file
from fishermix_photos.model.network import open_session

BLOCK_ROWS = 65_536  # also of the codes: rows after the last whole block have none
EXACT_ROWS = 512
LENGTH = 2.0  # at least that of a photo's embedding with its hubness
LOWEST = np.finfo(np.float32).min  # the score of NaN, in a damaged file, which is never near

PRODUCT = Path(__file__).parents[1] / "pretrained" / "product.onnx"
MOST_DIMENSIONS = 65_536  # the sum of as many products fits into 32 bits
# Processors without VNNI add two products in 16 bits: 2 * 64 * (127 + 127) is the most that fits.
LARGEST_CODE, LARGEST_QUERY = 64, 127
OFFSET = 127  # makes the integers of a query positive
LARGEST_LENGTH = 1e18  # the lengths and scales of embeddings are far from it; products of two stay in float32
ROUNDING = 2.0**-20  # of the float32 numbers here, as a share of |q'| |x'|


def find_nearest_rows(
    vectors: np.ndarray,
    queries: np.ndarray,
    n: int,
    excluded: Sequence[int] | np.ndarray = (),
    codes: EmbeddingCodes | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Find the n rows of `vectors` (N, d) with the largest dot product with each row of `queries` (m, d).

    Returns rows and scores, both (m, min(n, N - excluded)), best first; ties go to the lower row. `vectors`
    may be memory-mapped: it is read once, in blocks, for all queries together. For one query, the rows that
    have `codes` are read only if they may be among the best. The scores are sums in float64, rounded to
    float32: they do not depend on codes, blocks or threads.
    """
    excluded = np.sort(np.asarray(excluded, np.int64))
    kept = max(0, min(n, len(vectors) - len(excluded)))
    candidates = [_Candidates(kept, excluded) for _ in queries]
    start = 0
    if kept and codes and len(queries) == 1 and np.isfinite(queries).all():
        for first, scores, margin in codes.score(queries[0]):
            candidates[0].add(first, scores, margin)
        start = codes.n_rows
    margins = vectors.shape[1] * 2.0**-23 * LENGTH * np.fmax(np.linalg.norm(queries, axis=1), 0)
    for first in range(start, len(vectors) if kept else 0, BLOCK_ROWS):
        products = (queries @ vectors[first : first + BLOCK_ROWS].T).astype(np.float32, copy=False)
        for found, scores, margin in zip(candidates, products, margins):
            found.add(first, scores, margin)
    rows, scores = np.empty((len(queries), kept), np.int64), np.empty((len(queries), kept), np.float32)
    for number, query in enumerate(queries if kept else ()):
        rows[number], scores[number] = candidates[number].best(vectors, query)
    return rows, scores


class _Candidates:
    """The rows that may be among the `kept` best ones."""

    def __init__(self, kept: int, excluded: np.ndarray):
        self.kept, self.excluded = kept, excluded
        self.edge = float(LOWEST)  # `kept` rows have at least this score
        self.parts: list[tuple[np.ndarray, np.ndarray, float]] = []

    def add(self, first: int, scores: np.ndarray, margin: float) -> None:
        """Add the rows from `first` on, whose scores are right up to `margin`; `scores` is written over."""
        np.fmax(scores, LOWEST, out=scores)
        inside = slice(*np.searchsorted(self.excluded, (first, first + len(scores))))
        scores[self.excluded[inside] - first] = -np.inf
        if not self.parts:
            self._raise_edge(scores, margin)
        rows = np.flatnonzero(scores >= self._least(margin))
        scores = scores[rows]
        self._raise_edge(scores, margin)
        self.parts.append((rows + first, scores, margin))

    def _raise_edge(self, scores: np.ndarray, margin: float) -> None:
        if len(scores) > self.kept:
            self.edge = max(self.edge, np.partition(scores, -self.kept)[-self.kept] - margin)

    def _least(self, margin: float) -> np.float32:
        return max(np.float32(self.edge - margin), LOWEST)

    def best(self, vectors: np.ndarray, query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The best rows and their exact scores."""
        rows = np.concatenate([rows for rows, _, _ in self.parts])
        upper = np.concatenate([scores + np.float32(margin) for _, scores, margin in self.parts])
        if len(rows) > 2 * self.kept:  # the exact scores of a few rule out most of the others
            likely = np.argpartition(upper, -self.kept)[-self.kept :]
            may_be_best = upper >= _exact_scores(vectors, query, rows[likely]).min()
            may_be_best[likely] = True  # codes may be damaged
            rows = rows[may_be_best]
        scores = _exact_scores(vectors, query, rows)
        order = np.argsort(-scores, kind="stable")[: self.kept]  # the rows ascend
        return rows[order], scores[order]


def _exact_scores(vectors: np.ndarray, query: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The scores (n,) of these rows; a sum over one row does not depend on the other rows."""
    scores, query = np.empty(len(rows), np.float32), query.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(rows), EXACT_ROWS):
            part = slice(start, start + EXACT_ROWS)
            scores[part] = np.einsum("nd,d->n", vectors.take(rows[part], axis=0).astype(np.float64), query)
    scores[np.isnan(scores)] = -np.inf
    return scores


# Codes


class EmbeddingCodes:
    """The blocks of one file, memory-mapped."""

    def __init__(self, blocks: np.ndarray):
        self.blocks = blocks
        self.n_rows = len(blocks) * BLOCK_ROWS

    def score(self, query: np.ndarray) -> Iterator[tuple[int, np.ndarray, float]]:
        """For each block: its first row, the scores (65536,) of its rows with a query (d,), their margin."""
        for number, block in enumerate(self.blocks):
            scaled = query.astype(np.float64) * block["scale"]
            unit = (np.abs(scaled).max() / LARGEST_QUERY) or 1.0
            rounded = np.rint(scaled / unit)
            given = {"q": (rounded + OFFSET).astype(np.uint8)[None], "x": block["codes"]}
            (products,) = _product().run(None, given)[0]
            scores = (products - block["offsets"]).astype(np.float32) * np.float32(unit / LARGEST_CODE)
            radius, error = float(block["radius"]), float(block["error"])
            margin = np.linalg.norm(rounded * unit) * error + np.linalg.norm(scaled - rounded * unit) * radius
            margin += ROUNDING * np.linalg.norm(scaled) * (radius + error)
            yield number * BLOCK_ROWS, scores, float(margin)

    def match(self, vectors: np.ndarray) -> bool:
        """Whether these are the codes of the first of `vectors` (N, d)."""
        return all(
            _make_block(vectors[start : start + BLOCK_ROWS]).tobytes() == block.tobytes()
            for start, block in zip(range(0, self.n_rows, BLOCK_ROWS), self.blocks)
        )


def build_codes(folder: Path, generation: int, vectors: np.ndarray) -> None:
    """Write the codes of all whole blocks of `vectors` (N, d) unless a sound file has them; all or none."""
    n_blocks = len(vectors) // BLOCK_ROWS
    dimension = vectors.shape[1]
    file = folder / f"codes-{generation}-{n_blocks}.i8"
    if not n_blocks or dimension > MOST_DIMENSIONS:
        return
    known = open_codes(folder, generation, dimension, len(vectors))
    if known and known.n_rows == n_blocks * BLOCK_ROWS:
        return
    temporary = file.with_suffix(f".{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)  # of a process that was killed, or a link to a file of yours
        create_private_file(temporary)
        with open(temporary, "wb") as out:
            for start in range(0, n_blocks * BLOCK_ROWS, BLOCK_ROWS):
                out.write(_make_block(vectors[start : start + BLOCK_ROWS]).tobytes())
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, file)
    except OSError:  # such as a full disk: the library is complete without this file
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        return
    for other in folder.glob(f"codes-{generation}-*.i8"):
        if other != file:
            with suppress(PermissionError):  # Windows: a search has it open
                other.unlink(missing_ok=True)


def open_codes(folder: Path, generation: int, dimension: int, n_rows: int) -> EmbeddingCodes | None:
    """The codes of the first of `n_rows` embeddings; None if there are none or they are damaged."""
    for file in folder.glob(f"codes-{generation}-*.i8"):
        n_blocks = file.stem.split("-")[2]
        size = _block_type(dimension).itemsize
        if not n_blocks.isdigit() or not 0 < int(n_blocks) <= n_rows // BLOCK_ROWS:
            continue
        with suppress(OSError):  # another process has just replaced it
            if file.stat().st_size == int(n_blocks) * size:
                blocks = np.asarray(np.memmap(file, _block_type(dimension), "r"))
                numbers = [blocks[name] for name in ("scale", "radius", "error")]
                is_sane = all(some.min() >= 0 and some.max() < LARGEST_LENGTH for some in numbers)  # not NaN
                return EmbeddingCodes(blocks) if is_sane else None
    return None


def _block_type(dimension: int) -> np.dtype:
    return np.dtype(
        [
            ("scale", "<f4", dimension),
            ("radius", "<f4"),  # the largest length of x'
            ("error", "<f4"),  # the largest length of x' - c'
            ("offsets", "<i4", BLOCK_ROWS),  # what OFFSET adds to the products
            ("codes", "i1", (dimension, BLOCK_ROWS)),
        ]
    )


def _make_block(embeddings: np.ndarray) -> np.ndarray:
    """The block () of embeddings (65536, d). Those that are not finite have no codes: their radius is NaN."""
    block = np.zeros((), _block_type(embeddings.shape[1]))
    block["scale"] = np.maximum(embeddings.max(axis=0), -embeddings.min(axis=0))
    scale = np.where(block["scale"] > 0, block["scale"], 1)
    squares = np.zeros(2)
    with np.errstate(invalid="ignore"):
        for start in range(0, len(embeddings), EXACT_ROWS):
            part = slice(start, start + EXACT_ROWS)
            inner = embeddings[part] / scale
            codes = np.rint(LARGEST_CODE * inner)
            block["codes"][:, part] = codes.T
            block["offsets"][part] = OFFSET * codes.sum(axis=1)
            errors = inner - codes / LARGEST_CODE
            longest = [np.einsum("nd,nd->n", rows, rows).max() for rows in (inner, errors)]
            squares = np.maximum(squares, longest)
    block["radius"], block["error"] = (1 + 1e-5) * np.sqrt(squares)  # above what float32 rounds
    return block


@cache
def _product() -> Any:
    """onnxruntime's product of integers: q (1, d) of uint8, x (d, n) of int8."""
    return open_session(PRODUCT.read_bytes(), available_threads())
