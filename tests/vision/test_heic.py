"""HEIC photos that FFmpeg decodes look as libheif shows them; unusual ones are left to libheif."""

import io

import make_formats
import numpy as np
import pytest
from PIL import Image, ImageDraw

from fishermix.vision.decoding import decode_bytes
from fishermix.vision.heic import decode_reduced

pytest.importorskip("av")
SIDE = 64


def draw_numbers():
    """A picture whose parts all differ: a tile in the wrong place, or a wrong turn, is far from it."""
    x, y = np.meshgrid(np.linspace(0, 255, 640), np.linspace(0, 255, 480))
    image = Image.fromarray(np.stack([x, y, 255 - (x + y) / 2], axis=2).astype(np.uint8))
    ImageDraw.Draw(image).rectangle((400, 50, 500, 150), "white")
    return image


def make(orientation=1, **options):
    image = draw_numbers()
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.info["exif"] = exif.tobytes()
    data = make_formats.make_heic(image, **options)
    return data, Image.open(io.BytesIO(data))


@pytest.mark.parametrize("options", [{}, {"tile_size": 256}, {"chroma": 444}, {"full_range_flag": 0}])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_both_decoders_show_the_same_picture(options, orientation):
    data, opened = make(orientation, **options)
    reduced = decode_reduced(opened, data, SIDE)
    assert reduced is not None
    assert min(reduced.size) == 120
    opened.load()
    expected = opened.resize(reduced.size, Image.Resampling.BOX)
    difference = np.abs(np.asarray(reduced, float) - np.asarray(expected, float))
    assert difference.mean() < 4


def test_a_photo_without_a_thumbnail_is_decoded_by_ffmpeg_and_one_with_a_thumbnail_is_not():
    data, opened = make()
    assert np.array_equal(decode_bytes(data, 10**7, SIDE)[0], decode_reduced(opened, data, 2 * SIDE))
    data, _ = make(thumbnails=[100])
    assert decode_bytes(data, 10**7, SIDE)[0].width == 100


@pytest.mark.parametrize("orientation", [2, 5])
def test_mirrored_photos_are_left_to_libheif(orientation):
    data, opened = make(orientation)
    assert decode_reduced(opened, data, SIDE) is None


def test_photos_that_need_no_reduction_and_other_modes_are_left_to_libheif():
    data, opened = make()
    assert decode_reduced(opened, data, 241) is None
    data = make_formats.make_heic(draw_numbers().convert("RGBA"))
    assert decode_reduced(Image.open(io.BytesIO(data)), data, SIDE) is None


def test_damaged_tiles_are_left_to_libheif():
    data, opened = make(tile_size=256)
    assert decode_reduced(opened, data[: len(data) // 2], SIDE) is None


def test_tiles_in_another_order_are_left_to_libheif():
    data, _ = make(tile_size=256)
    position = data.index(b"dimg") + len("dimg") + 4  # after the box, the item and the number of tiles
    swapped = data[:position] + data[position + 2 : position + 4] + data[position : position + 2]
    swapped += data[position + 4 :]
    assert decode_reduced(Image.open(io.BytesIO(swapped)), swapped, SIDE) is None


def test_colors_that_only_the_file_declares_are_left_to_libheif():
    data, opened = make(full_range_flag=1)
    assert decode_reduced(opened, data, SIDE) is not None
    at = data.index(b"colrnclx") + len(b"colrnclx") + 6  # after primaries, transfer and matrix of two bytes
    other = data[:at] + bytes([0 if data[at] else 0x80]) + data[at + 1 :]
    assert decode_reduced(Image.open(io.BytesIO(other)), other, SIDE) is None
