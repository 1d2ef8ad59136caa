"""The sums of CCA on a Dask cluster: each worker sums a part of the pairs, and the client adds these up."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fishermix.cca.covariances import CovarianceSums, choose_block_rows, parse_pairs
from fishermix.distributed.cluster import broadcast, current_client, explain_errors, map_in_order
from fishermix.distributed.mixtures import FileRows, list_pieces
from fishermix.errors import FishermixError
from fishermix.rows.blocks import cut
from fishermix.text.encoder import SentenceEncoder
from fishermix.text.sentences import warn_if_empty

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

    Returns
    -------
    sums : CovarianceSums

    Examples
    --------
    >>> from fishermix.distributed.cluster import connect
    >>> X, Y = np.random.default_rng(0).normal(size=(2, 100, 3))
    >>> with connect("local:1"):
    ...     print(covariance_sums(X, Y).n)
    100
    """
    client = client or current_client()
    X = np.asarray(X.compute() if hasattr(X, "__dask_graph__") else X)
    with explain_errors(client):
        pieces = list(_list_pieces(client, Y, encoder))
        n = sum(n_rows for _, n_rows in pieces)
        pairs = np.arange(n) if parse_pairs(pairs, len(X), n) is None else np.asarray(pairs)
        workers = sum(client.nthreads().values())
        there = None
        if encoder is not None:
            there = broadcast(client, encoder.with_words_of(Y))
            warn_if_empty(encoder.sentence_vectors.count_empty(encoder.lookup.find(Y)), n)
    sums: CovarianceSums | None = None
    for group in map_in_order(client, _sums, _groups(X, pairs, pieces, workers), there):
        if sums is None:
            sums = group
        else:
            sums.merge(group)
    if sums is None:
        raise FishermixError("Y has no rows. A fit needs at least two pairs.")
    return sums


def _list_pieces(client: Client, Y: Any, encoder: SentenceEncoder | None) -> Iterator[tuple[Any, int]]:
    """Cut Y; a piece is an array or the future of one, rows in a file, or sentences. Also how many it has."""
    if encoder is None:
        for piece in list_pieces(client, Y, lambda n_rows, width: choose_block_rows(width)):
            yield piece.rows, piece.n_rows
        return
    for part in cut(len(Y), SENTENCES_AT_ONCE):
        yield list(Y[part]), part.stop - part.start


Group = tuple[np.ndarray, np.ndarray, list[Any]]  # rows of X, the pairs, pieces of Y


def _groups(
    X: np.ndarray, pairs: np.ndarray, pieces: Sequence[tuple[Any, int]], workers: int
) -> Iterator[Group]:
    """The pieces in one group per worker, of about equally many rows."""
    ends = np.cumsum([n_rows for _, n_rows in pieces])
    group_of = np.minimum((ends - 1) * workers // max(int(ends[-1]), 1), workers - 1)
    for number in np.unique(group_of):
        chosen = np.flatnonzero(group_of == number)
        first, last = int(ends[chosen[0] - 1]) if chosen[0] else 0, int(ends[chosen[-1]])
        wanted, local = np.unique(pairs[first:last], return_inverse=True)
        yield X[wanted], local, [pieces[int(i)][0] for i in chosen]


def _sums(group: Group, encoder: SentenceEncoder | None) -> CovarianceSums:
    X, pairs, pieces = group
    return CovarianceSums.from_blocks(X, (_block(piece, encoder) for piece in pieces), pairs)


def _block(piece: Any, encoder: SentenceEncoder | None) -> np.ndarray:
    if encoder is not None:
        with warnings.catch_warnings():  # about sentences without a known word: the client counts them
            warnings.simplefilter("ignore")
            return encoder.transform(piece)
    return piece.read() if isinstance(piece, FileRows) else np.asarray(piece)
