"""A photo with colors is never called black and white."""

from __future__ import annotations

import numpy as np
import pytest
from fishermix_photos.cli.demo import copy_packaged_photos
from fishermix_photos.model.captioner.consensus import choose_by_consensus
from fishermix_photos.model.captioner.decoding import Hypothesis
from fishermix_photos.photos.color import has_colors, look_for_colors
from PIL import Image, ImageOps

WORDS = ["a", "black", "and", "white", "photo", "of", "street", "dog", "in"]
GRAY_STREET = Hypothesis((0, 1, 2, 3, 4, 5, 0, 6), -1.0)
STREET = Hypothesis((0, 6), -9.0)
DOG = Hypothesis((0, 1, 2, 3, 7), -1.0)


def choose(drafts, in_color):
    written = choose_by_consensus(
        [drafts], np.ones((1, 4)), lambda rows: " ".join(WORDS[row] for row in rows), None, [in_color]
    )
    return written[0].sentence


@pytest.mark.parametrize(
    ("in_color", "drafts", "wanted"),
    [
        (True, [GRAY_STREET, STREET], "a street"),
        (False, [GRAY_STREET, STREET], "a black and white photo of a street"),
        (None, [GRAY_STREET, STREET], "a black and white photo of a street"),
        (True, [DOG], "a black and white dog"),
        (True, [GRAY_STREET], "a black and white photo of a street"),  # there is no other
    ],
)
def test_pixels_decide_whether_a_photo_may_be_black_and_white(in_color, drafts, wanted):
    assert choose(drafts, in_color) == wanted


def test_gray_and_tinted_photos_have_no_colors(tmp_path):
    folder = copy_packaged_photos(tmp_path)
    for name, expected in (("coffee.png", True), ("chelsea.png", True), ("camera.png", False)):
        if not (folder / name).exists():
            continue
        photo = Image.open(folder / name).convert("RGB")
        assert has_colors(photo) is expected, name
        gray = ImageOps.grayscale(photo)
        sepia = ImageOps.colorize(gray, "#1d1409", "#f3e3c3")
        for number, made in enumerate((gray, sepia)):
            file = tmp_path / f"{number}.jpg"
            made.convert("RGB").save(file, quality=60)
            assert look_for_colors(file) is False, (name, number)


def test_a_small_thing_in_color_counts():
    pixels = np.random.default_rng(0).integers(20, 230, (15, 20, 1)).repeat(20, 0).repeat(20, 1).repeat(3, 2)
    pixels = pixels.astype(np.uint8)
    pixels[:60, :60] = (200, 30, 30)
    assert has_colors(Image.fromarray(pixels))


def test_a_photo_that_cannot_be_read_may_have_any_colors(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"no photo")
    assert look_for_colors(tmp_path / "photo.jpg") is None
