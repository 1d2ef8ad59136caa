"""How well a model knows small copies of photos: an embedding belongs to the photo, not to its file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.photos.open import open_photo
from PIL import Image

from fishermix_lab.datasets.dataset import Dataset
from fishermix_lab.training import image_features
from fishermix_lab.tuning.versions import Version


def write_copies(dataset: Dataset, short_side: int, folder: Path) -> Dataset:
    """The data set with JPEG copies of its photos, written to a folder; no photo is enlarged."""
    version = Version(short_side, Image.Resampling.BICUBIC, quality=75)
    files = []
    for number, path in enumerate(dataset.image_paths):
        files.append(folder / f"{number}.jpg")
        copy = version.write(open_photo(path))
        assert isinstance(copy, bytes)  # with a quality, it is a file
        files[-1].write_bytes(copy)
    return replace(dataset, image_paths=files)


def compare_copies(
    model: ImageTextModel, dataset: Dataset, copies: Dataset, work: str | os.PathLike | None = None
) -> np.ndarray:
    """The cosine (photos,) of the embeddings of each photo and of its copy."""
    one, other = (
        model.joint_space.embed_left(image_features(part, model.image_encoder, work)[1])
        for part in (dataset, copies)
    )
    return np.einsum("nd,nd->n", one, other)
