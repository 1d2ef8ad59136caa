"""Phrases that captions share, and how well a model finds photos by them: people do not type captions.

A phrase is one to three words in a row of a caption, without a stop word at its ends; "two dogs" is one. A
photo has a phrase if one of its captions contains it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from fishermix.joint.vectors import unit_rows
from fishermix.text.tokens import tokenize
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.model.phrases import AT_NO_END, MOST_WORDS, Phrases
from scipy.sparse import csr_array

from fishermix_lab.datasets.dataset import Dataset
from fishermix_lab.training import image_features

FIRST = 5  # photos that a searcher looks at


def find_phrases(sentence: str) -> Iterator[str]:
    """The phrases of a sentence, in order.

    >>> list(find_phrases("Two dogs on the beach"))
    ['two', 'two dogs', 'dogs', 'beach']
    """
    words = tokenize(sentence)
    for start, first in enumerate(words):
        if first in AT_NO_END:
            continue
        for end in range(start, min(start + MOST_WORDS, len(words))):
            if words[end] not in AT_NO_END:
                yield " ".join(words[start : end + 1])


def list_phrases(
    sentences: Sequence[str], photo_of: np.ndarray, n_photos: int, fewest: int, most: int
) -> tuple[list[str], csr_array]:
    """The phrases that `fewest` to `most` photos have, and which photo has which, (photos, phrases) bool.

    photo_of : (sentences,) the row of the photo that each sentence describes
    """
    number_of: dict[str, int] = {}
    rows, columns = [], []
    for sentence, photo in zip(sentences, photo_of.tolist(), strict=True):
        for phrase in find_phrases(sentence):
            rows.append(photo)
            columns.append(number_of.setdefault(phrase, len(number_of)))
    ones = np.ones(len(rows), np.int32)
    has = csr_array((ones, (rows, columns)), shape=(n_photos, len(number_of))) > 0
    counts = np.asarray(has.sum(axis=0)).ravel()
    kept = np.flatnonzero((counts >= fewest) & (counts <= most))
    names = list(number_of)
    return [names[number] for number in kept], csr_array(has[:, kept])


def average_captions(sentences: Sequence[str], embeddings: np.ndarray, fewest: int, weight: float) -> Phrases:
    """What completes short queries: for each phrase that at least `fewest` of the sentences contain, the
    direction from the mean of all embeddings (sentences, d) to the mean of theirs.
    """
    n = len(sentences)
    phrases, has = list_phrases(sentences, np.arange(n), n, fewest, n)
    sums = has.T.astype(np.float32) @ (embeddings - embeddings.mean(axis=0))
    return Phrases(phrases, unit_rows(sums), weight)


class PhrasePrecision(NamedTuple):
    """The share of the first five photos that are right, over all phrases.

    It is a lower bound: captions do not say all that a photo shows.
    """

    precision: float
    n_phrases: int


def measure_phrases(
    model: ImageTextModel, dataset: Dataset, work: str | os.PathLike | None = None
) -> PhrasePrecision:
    """How many of the first five photos of a phrase have it in a caption.

    The phrases are those that 6 photos to a twelfth of all photos have.

    work : a folder that keeps image features
    """
    dataset, features = image_features(dataset, model.image_encoder, work)
    n_photos = len(dataset)
    phrases, has = list_phrases(dataset.sentences, dataset.image_of, n_photos, 6, n_photos // 12)
    if not phrases:
        return PhrasePrecision(float("nan"), 0)
    space = model.joint_space
    photos = space.csls_left(space.embed_left(features))
    queries = space.csls_right(model.encode_queries(phrases))
    first = np.argsort(-(queries @ photos.T), axis=1, kind="stable")[:, :FIRST]
    right = has.toarray()[first, np.arange(len(phrases))[:, None]]
    return PhrasePrecision(float(right.mean()), len(phrases))
