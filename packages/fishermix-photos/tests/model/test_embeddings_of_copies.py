"""An embedding belongs to the photo, not to its file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from copies import COPIES, write_copy
from fishermix_photos.cli.demo import copy_packaged_photos
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.photos.open import open_photo

FLICKR8K = Path(os.environ.get("FISHERMIX_DATA", "")) / "flickr8k"


def compare_copies(paths):
    """The cosine (copies, photos) of the embeddings of each copy and of its photo."""
    model = ImageTextModel.load()
    photos = [open_photo(path) for path in paths]
    embeddings = model.encode_images(photos)
    of_copies = [model.encode_images([write_copy(photo, name) for photo in photos]) for name in COPIES]
    return np.array([(embeddings * found).sum(axis=1) for found in of_copies])


@pytest.mark.slow
def test_copies_of_the_photos_in_packages_have_the_embedding_of_the_photo(tmp_path):
    cosines = compare_copies(sorted(copy_packaged_photos(tmp_path / "photos").iterdir()))
    assert cosines.mean() >= 0.95
    assert np.median(cosines, axis=1).min() >= 0.93  # of each kind of copy


@pytest.mark.real
@pytest.mark.skipif(not FLICKR8K.is_dir(), reason="FISHERMIX_DATA names no Flickr8K")
def test_copies_of_two_hundred_photos_have_the_embedding_of_the_photo():
    """The photos are themselves copies of 256 pixels and quality 75: a harder case than originals."""
    names = (FLICKR8K / "Flickr_8k.devImages.txt").read_text().split()[:200]
    cosines = compare_copies([FLICKR8K / "Images" / name for name in names])
    assert cosines.mean() >= 0.95
    assert np.quantile(cosines, 0.05) >= 0.9
