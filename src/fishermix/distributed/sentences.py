"""Sentences to vectors on a Dask cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fishermix.distributed.cluster import broadcast, current_client, submit
from fishermix.errors import FishermixError
from fishermix.text.encoder import SentenceEncoder

if TYPE_CHECKING:
    from distributed import Client


def encode_sentences(
    encoder: SentenceEncoder, sentences: Sequence[str], client: Client | None = None, rows: int = 2048
) -> Any:
    """`encoder.transform(sentences)` on the workers: a `dask.array` (n, n_features) in chunks of `rows`.

    Parameters
    ----------
    encoder : SentenceEncoder
        The encoder.
    sentences : sequence of str
        The sentences.
    client : distributed.Client, optional
        The Dask client. Default: the one made last.
    rows : int
        The number of sentences per chunk.
    """
    import dask.array

    client = client or current_client()
    if not len(sentences):
        raise FishermixError("There are no sentences to encode.")
    # Captions use thousands of the millions of memory-mapped word vectors: send only these to the workers.
    there = broadcast(client, encoder.with_words_of(sentences))
    chunks = []
    for start in range(0, len(sentences), rows):
        block = list(sentences[start : start + rows])
        future = submit(client, _encode, there, block)
        shape = (len(block), encoder.n_features)
        chunks.append(dask.array.from_delayed(dask.delayed(future), shape, np.float32))
    return dask.array.concatenate(chunks)


def _encode(encoder: SentenceEncoder, sentences: Sequence[str]) -> np.ndarray:
    return encoder.transform(sentences)
