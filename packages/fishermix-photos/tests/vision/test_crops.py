import numpy as np
import pytest
from fishermix_photos.model.image_vectors import VIEWS, count_crops, cut_crops
from PIL import Image
from refuses import refuses

SIDE = 56


@pytest.fixture
def photo() -> Image.Image:
    rough = np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8)
    return Image.fromarray(rough).resize((96, 64), Image.Resampling.BICUBIC)


def by_resizing_first(image: Image.Image) -> list[np.ndarray]:
    """The textbook way: scale the short side to 64 for crops of 56, then cut four corners and the middle."""
    pixels = np.asarray(image)
    height, width = pixels.shape[:2]
    middle = ((height - SIDE) // 2, (width - SIDE) // 2)
    corners = [(0, 0), (0, width - SIDE), (height - SIDE, 0), (height - SIDE, width - SIDE), middle]
    return [pixels[top : top + SIDE, left : left + SIDE] for top, left in corners]


def test_ten_crops_are_corners_centre_and_their_mirrors(photo):
    found = cut_crops(photo, "ten-crop", SIDE)
    wanted = by_resizing_first(photo)
    assert found.shape == (10, SIDE, SIDE, 3)
    for crop, mirrored, want in zip(found[:5], found[5:], wanted, strict=True):
        assert np.abs(crop.astype(int) - want).max() <= 1
        assert np.array_equal(mirrored, crop[:, ::-1])


def test_center_is_the_fifth_of_the_ten(photo):
    assert np.array_equal(cut_crops(photo, "center", SIDE)[0], cut_crops(photo, "ten-crop", SIDE)[4])


def test_squeeze_is_the_whole_and_flip_adds_its_mirror(photo):
    whole = np.asarray(photo.resize((SIDE, SIDE), Image.Resampling.BICUBIC))
    assert np.array_equal(cut_crops(photo, "squeeze", SIDE), whole[None])
    assert np.array_equal(cut_crops(photo, "flip", SIDE), [whole, whole[:, ::-1]])


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("size", [(1, 1), (1, 30_000), (50_000, 2), (3, 5)])
def test_any_shape_gives_the_right_number_of_crops(view, size):
    found = cut_crops(Image.new("RGB", size, (9, 99, 199)), view, SIDE)
    assert found.shape == (count_crops(view), SIDE, SIDE, 3)
    assert (found == (9, 99, 199)).all()


def test_an_unknown_view_names_the_known_ones(photo):
    with refuses("wrong_parameter"):
        cut_crops(photo, "sideways", SIDE)
