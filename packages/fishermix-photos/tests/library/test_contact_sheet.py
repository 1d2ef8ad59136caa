"""Pictures for people: upright, on white, small; pages that hold nothing but what they should."""

import io
import re

import numpy as np
import pytest
from fishermix_photos.contact_sheet import make_thumbnail, write_contact_sheet
from fishermix_photos.search.results import Photo
from PIL import Image
from refuses import refuses
from tiny_model import HOSTILE, paint


def opened(path, side):
    return Image.open(io.BytesIO(make_thumbnail(path, side)))


def test_a_photo_taken_sideways_stands_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (400, 200), "red").save(tmp_path / "side.jpg", exif=exif)
    assert opened(tmp_path / "side.jpg", 100).size == (50, 100)


def test_transparency_becomes_white(tmp_path):
    Image.new("RGBA", (20, 20), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    assert np.asarray(opened(tmp_path / "clear.png", 20)).min() > 250


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK", "I;16", "LA"])
def test_every_kind_of_pixel_is_shown(tmp_path, mode):
    path = tmp_path / ("photo.tif" if mode == "CMYK" else "photo.png")
    Image.new(mode, (40, 20)).save(path)
    picture = opened(path, 30)
    assert (picture.format, picture.mode, picture.size) == ("JPEG", "RGB", (30, 15))


def test_what_is_no_photo_is_told(tmp_path):
    (tmp_path / "no.jpg").write_text("no photo")
    with refuses("not_an_image"):
        make_thumbnail(tmp_path / "no.jpg", 100)


def test_a_sheet_escapes_everything_and_survives_missing_photos(tmp_path):
    photo = paint(tmp_path / "a.png", "red")
    names = {str(photo): HOSTILE, str(tmp_path / "gone.png"): "caf\udce9.png"}
    photos = [Photo("1", path, str(tmp_path), score=0.5, band=HOSTILE) for path in names]
    write_contact_sheet(tmp_path / "sheet.html", HOSTILE, HOSTILE, photos, lambda photo: names[photo.path])
    page = (tmp_path / "sheet.html").read_text("utf8")
    assert page.count("data:image/jpeg;base64,") == 1
    assert page.count("&lt;script&gt;") == 5
    assert "<script" not in page
    assert re.findall(r"<img[^>]*onerror", page) == []
    assert "cannot be shown" in page
