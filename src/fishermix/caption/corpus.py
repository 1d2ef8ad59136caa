"""Data sets as the captioner sees them: points of a model's joint space and sentences."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from fishermix.caption.batches import CaptionSet
from fishermix.model.training import image_features

if TYPE_CHECKING:
    from fishermix.datasets import Dataset
    from fishermix.model.model import ImageTextModel


def caption_set(
    model: ImageTextModel, dataset: Dataset, features: str | os.PathLike | None
) -> tuple[Dataset, CaptionSet]:
    """The photos of `dataset` that can be read and have sentences, and the same as a `CaptionSet`.

    features : folder that keeps image features between runs, or None
    """
    dataset = dataset.select(np.unique(dataset.image_of))
    dataset, vectors = image_features(dataset, model.image_encoder, features)
    return dataset, CaptionSet(model.image_points(vectors), dataset.sentences, dataset.image_of)
