"""The sums of CCA on a Dask cluster: each worker sums a part, and the client adds the parts up."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fishermix.cca import CovarianceSums
from fishermix.cca.covariances import choose_block_rows
from fishermix.distributed.cluster import (
    broadcast,
    current_client,
    explain_errors,
    gather,
    map_in_order,
    submit,
)
from fishermix.distributed.mixtures import FileRows
from fishermix.errors import FishermixError
from fishermix.rows.files import open_table
from fishermix.text.encoder import SentenceEncoder
from fishermix.text.sentence_vectors import warn_if_empty

if TYPE_CHECKING:
    from distributed import Client

SENTENCES_AT_ONCE = 2048


def covariance_sums(
    X: Any,
    Y: Any,
    pairs: Any = None,
    client: Client | None = None,
    encoder: SentenceEncoder | None = None,
) -> CovarianceSums:
    """Sums of the pairs (X[pairs[j]], Y[j]), without `pairs` (X[j], Y[j]), for `RegularizedCCA.path`.

    A worker holds its sums, about (q²/2 + p q) numbers, and one block. The sums are sent to the client once.

    Parameters
    ----------
    X : array of shape (m, p)
        The rows of one side, held by the client.
    Y : dask.array of shape (n, q), paths, or sentences
        The rows of the other side; with an `encoder`, sentences that the workers encode.
    pairs : array of shape (n,), optional
        The row of X that belongs to each row of Y. Default: row j belongs to row j.
    client : distributed.Client, optional
        The Dask client. Default: the one made last.
    encoder : SentenceEncoder, optional
        Encodes Y on the workers.
    """
    client = client or current_client()
    X = np.asarray(X.compute() if hasattr(X, "__dask_graph__") else X)
    with explain_errors(client):
        pieces = list(_pieces(Y, encoder, client))
        n = sum(piece.n_rows for piece in pieces)
        pairs = np.arange(len(X)) if pairs is None else np.asarray(pairs)
        if len(pairs) != n:
            raise FishermixError(f"Y has {n} rows, but there are {len(pairs)} pairs.")
        if n and not 0 <= pairs.min() <= pairs.max() < len(X):
            raise FishermixError(f"pairs must be between 0 and {len(X) - 1}, the rows of X.")
        workers = sum(client.nthreads().values())
        there = None
        if encoder is not None:
            there = broadcast(client, encoder.with_words_of(Y))
            warn_if_empty(len(encoder.lookup.find(Y).empty), n)
    sums: CovarianceSums | None = None
    for group in map_in_order(client, _sums, _groups(X, pairs, pieces, workers), there):
        if sums is None:
            sums = group
        else:
            sums.merge(group)
    if sums is None:
        raise FishermixError("Y has no rows. A fit needs at least two pairs.")
    return sums


@dataclass
class _Piece:
    """Rows of Y: an array or the future of one, rows in a file, or sentences."""

    rows: Any
    n_rows: int


def _pieces(Y: Any, encoder: SentenceEncoder | None, client: Client) -> Iterator[_Piece]:
    if encoder is not None:
        for start in range(0, len(Y), SENTENCES_AT_ONCE):
            block = list(Y[start : start + SENTENCES_AT_ONCE])
            yield _Piece(block, len(block))
    elif hasattr(Y, "__dask_graph__"):
        Y = Y.rechunk({1: -1})
        for future, length in zip(client.compute(list(Y.to_delayed().ravel())), Y.chunks[0]):
            yield _Piece(future, int(length))
    else:
        paths = [Y] if isinstance(Y, str | os.PathLike) else list(Y)
        for table in gather(client, [submit(client, open_table, path) for path in paths]):
            step = choose_block_rows(table.shape[1])
            for start in range(0, table.shape[0], step):
                stop = min(start + step, table.shape[0])
                yield _Piece(FileRows(table, start, stop), stop - start)


Group = tuple[np.ndarray, np.ndarray, list[Any]]  # rows of X, the pairs, pieces of Y


def _groups(X: np.ndarray, pairs: np.ndarray, pieces: Sequence[_Piece], workers: int) -> Iterator[Group]:
    """The pieces in one group per worker, of about equally many rows."""
    ends = np.cumsum([piece.n_rows for piece in pieces])
    group_of = np.minimum((ends - 1) * workers // max(int(ends[-1]), 1), workers - 1)
    for number in np.unique(group_of):
        chosen = np.flatnonzero(group_of == number)
        first, last = int(ends[chosen[0] - 1]) if chosen[0] else 0, int(ends[chosen[-1]])
        wanted, local = np.unique(pairs[first:last], return_inverse=True)
        yield X[wanted], local, [pieces[int(i)].rows for i in chosen]


def _sums(group: Group, encoder: SentenceEncoder | None) -> CovarianceSums:
    X, pairs, pieces = group
    return CovarianceSums.from_blocks(X, (_block(piece, encoder) for piece in pieces), pairs)


def _block(piece: Any, encoder: SentenceEncoder | None) -> np.ndarray:
    if encoder is not None:
        with warnings.catch_warnings():  # about sentences without a known word: the client counts them
            warnings.simplefilter("ignore")
            return encoder.transform(piece)
    return piece.read() if isinstance(piece, FileRows) else np.asarray(piece)
