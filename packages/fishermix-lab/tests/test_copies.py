"""Copies of the photos of a data set, and how near a model sees them."""

from __future__ import annotations

import numpy as np
from fishermix_lab.copies import compare_copies, write_copies
from fishermix_lab.datasets.dataset import Dataset
from fishermix_photos import ImageTextModel
from fishermix_photos.cli.demo import copy_packaged_photos
from PIL import Image


def test_copies_are_small_files_of_the_same_photos(tmp_path):
    paths = sorted(copy_packaged_photos(tmp_path / "photos").iterdir())[:5]
    names = [path.name for path in paths]
    dataset = Dataset("photos", names, paths, names, np.arange(5), np.full(5, "test"))
    (tmp_path / "copies").mkdir()
    copies = write_copies(dataset, 120, tmp_path / "copies")
    assert copies.sentences == dataset.sentences
    for path, copy in zip(paths, copies.image_paths, strict=True):
        photo, written = Image.open(path), Image.open(copy)
        assert written.format == "JPEG"
        assert min(written.size) == min(120, *photo.size)
        assert abs(written.width / written.height - photo.width / photo.height) < 0.02
    model = ImageTextModel.load()
    cosines = compare_copies(model, dataset, copies)
    of_photos, of_copies = model.encode_images(paths), model.encode_images(copies.image_paths)
    np.testing.assert_allclose(cosines, (of_photos * of_copies).sum(axis=1), atol=1e-5)
    np.testing.assert_allclose(compare_copies(model, dataset, dataset), 1, atol=1e-5)
