"""Image features on a Dask cluster: the client sends photos and stores the vectors that come back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from fishermix.distributed.cluster import broadcast, current_client, map_in_order
from fishermix.vision.encoders import ImageEncoder
from fishermix.vision.images import ImageSource
from fishermix.vision.unreadable import UnreadableImage

if TYPE_CHECKING:
    from distributed import Client

PHOTOS_IN_A_TASK = 16


class ClusterImageEncoder:
    """An `ImageEncoder` whose network runs on the workers.

        extract(paths, ClusterImageEncoder(ImageEncoder(), client), folder)

    `extract` reads the files here and sends their bytes, so the workers need no access to the photos. It
    writes the vectors here and can be stopped and resumed as usual. A network file must be at the same path
    on every worker.

    Parameters
    ----------
    encoder : ImageEncoder
        The encoder that the workers run.
    client : distributed.Client, optional
        The Dask client. Default: the one made last.
    """

    def __init__(self, encoder: ImageEncoder, client: Client | None = None):
        self.encoder, self.client = encoder, client or current_client()
        self.view, self.key = encoder.view, encoder.key
        self.n_features, self.max_pixels_ = encoder.n_features, encoder.max_pixels_

    def stream(self, images: Iterable[ImageSource]) -> Iterator[tuple[int, np.ndarray | UnreadableImage]]:
        """(position, vector or error) of each image, in order; see `ImageEncoder.stream`.

        Parameters
        ----------
        images : sequence of paths, bytes or PIL images
            The photos.
        """
        there = broadcast(self.client, self.encoder)
        position = 0
        for results in map_in_order(self.client, _encode, _split_into_batches(images), there):
            for name, found in results:
                yield position, UnreadableImage(found, name) if isinstance(found, str) else found
                position += 1


def _split_into_batches(images: Iterable[ImageSource]) -> Iterator[list[ImageSource]]:
    remaining = iter(images)
    while taken := list(islice(remaining, PHOTOS_IN_A_TASK)):
        yield taken


def _encode(images: Sequence[ImageSource], encoder: ImageEncoder) -> list[tuple[str, np.ndarray | str]]:
    """The vector, or the reason why there is none, of each image."""
    return [
        (
            os.fspath(image) if isinstance(image, str | os.PathLike) else "the image",
            found.reason if isinstance(found, UnreadableImage) else found,
        )
        for image, (_, found) in zip(images, encoder.stream(images))
    ]
