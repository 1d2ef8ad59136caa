"""Dates, cameras and places are read once, kept, and searched by."""

import os
from datetime import date, datetime

import make_formats
import numpy as np
import pillow_heif
import pytest
from fishermix_photos.index.filters import Filter, parse_day, parse_near
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.photos.details import Details, date_in_name, read_details
from fishermix_photos.photos.geodesy import distance_km
from fishermix_photos.search.results import Query
from fishermix_photos.search.terms import parse_query
from PIL import Image
from refuses import refuses
from tiny_model import TinyModel, paint


def with_exif(
    path, taken="2019:07:14 12:30:00", camera=("Canon", "Canon EOS R5"), place=(52.52, 13.405), turn=1
):
    """A red photo with EXIF; `place` is latitude and longitude."""
    exif = Image.Exif()
    exif[0x010F], exif[0x0110], exif[0x0112] = *camera, turn
    exif.get_ifd(0x8769)[0x9003] = taken
    gps = exif.get_ifd(0x8825)
    for tag, value, letters in ((1, place[0], "NS"), (3, place[1], "EW")):
        degrees, minutes = divmod(abs(value) * 60, 60)
        gps[tag], gps[tag + 1] = letters[value < 0], (degrees, minutes, 0.0)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (48, 32), (220, 20, 20)).save(path, exif=exif.tobytes())
    return path


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "avif", "heic"])
def test_exif_is_read(tmp_path, suffix):
    pillow_heif.register_heif_opener()
    with_exif(tmp_path / f"a.{suffix}", place=(-33.8568, 151.2153), turn=6)
    found = read_details(tmp_path / f"a.{suffix}")
    assert found == Details(
        taken="2019-07-14T12:30:00",
        taken_from="exif",
        camera="Canon EOS R5",
        latitude=pytest.approx(-33.8568, abs=1e-4),
        longitude=pytest.approx(151.2153, abs=1e-4),
        width=32,
        height=48,
    )


def test_the_name_and_then_the_file_stand_for_a_missing_date(tmp_path):
    paint(tmp_path / "IMG_20180203_040506.png", "red")
    assert read_details(tmp_path / "IMG_20180203_040506.png") == Details(
        "2018-02-03T04:05:06", "name", width=48, height=32
    )
    path = paint(tmp_path / "red.png", "red")
    moment = datetime(2017, 5, 6, 7, 8, 9)
    os.utime(path, (moment.timestamp(),) * 2)
    assert read_details(tmp_path / "red.png").taken == moment.isoformat()
    assert read_details(tmp_path / "red.png").taken_from == "file"
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xffx")
    assert read_details(tmp_path / "broken.jpg").taken_from == "file"


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("2019-07-14 12.30.00.jpg", "2019-07-14T12:30:00"),
        ("PXL_20210102_030405678.jpg", "2021-01-02T03:04:05"),  # with milliseconds
        ("WhatsApp Image 2020-01-02 at 10.11.12.jpg", "2020-01-02T00:00:00"),
        ("signal-2021-03-04-050607.jpg", "2021-03-04T05:06:07"),
        ("20230230.jpg", None),
        ("IMG_0001.jpg", None),
        ("12019071401.jpg", None),
        ("29990101.jpg", None),
    ],
)
def test_dates_in_names(name, taken):
    assert date_in_name(name) == taken


def test_distances_and_mistakes():
    assert distance_km(52.52, 13.405, 48.1372, 11.5756) == pytest.approx(504, abs=2)  # Berlin, Munich
    assert parse_near("52.5, 13.4, 500m") == (52.5, 13.4, 0.5)
    assert parse_day("2020-06", "before") == date(2020, 6, 1)
    for wrong in ("", "52,13", "99,0,1km", "a,b,c", "1,2,3mi", "1..2,3,4"):
        with refuses("bad_filter"):
            parse_near(wrong)
    for wrong in ("19", "2019-13", "yesterday", "2019-02-30", "2019/07"):
        with refuses("bad_filter"):
            parse_day(wrong, "after")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "photos"
    with_exif(folder / "2019" / "Holidays" / "berlin.jpg")
    with_exif(
        folder / "2020" / "sydney.jpg", "2020:06:01 00:00:00", ("Apple", "iPhone 12"), (-33.86, 151.2), 6
    )
    with_exif(folder / "holidays.jpg", "2018:12:31 23:59:59", ("NIKON", "D850"), (52.4, 13.06))
    return folder


@pytest.fixture
def library(folder, tmp_path):
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([folder])
        yield library


def find(library, n=10, **conditions):
    return library.search(Query(parse_query("red"), n=n, filter=Filter(**conditions))).photos


@pytest.mark.slow
@pytest.mark.parametrize(
    ("conditions", "names"),
    [
        ({}, {"berlin", "sydney", "holidays"}),
        ({"after": "2019"}, {"berlin", "sydney"}),
        ({"after": "2019", "before": "2020-06"}, {"berlin"}),
        ({"before": "2019"}, {"holidays"}),
        ({"after": "2020-06-01"}, {"sydney"}),
        ({"folder": "holidays"}, {"berlin"}),
        ({"folder": "2019/Holidays"}, {"berlin"}),
        ({"folder": "Holi"}, {"berlin"}),
        ({"folder": "days"}, set()),
        ({"near": "Berlin"}, {"berlin"}),
        ({"near": "Berlin,30km"}, {"berlin", "holidays"}),
        ({"near": "Australia"}, {"sydney"}),
        ({"near": "Potsdam,40km"}, {"berlin", "holidays"}),
        ({"names": ("new south wales",)}, {"sydney"}),
        ({"camera": "iphone"}, {"sydney"}),
        ({"camera": "apple iphone"}, {"sydney"}),
        ({"near": "52.5,13.4,10km"}, {"berlin"}),
        ({"near": "52.5,13.4,50km"}, {"berlin", "holidays"}),
    ],
)
def test_filters(library, conditions, names):
    assert {os.path.basename(photo.path)[:-4] for photo in find(library, **conditions)} == names
    if names:
        assert len(find(library, 1, **conditions)) == 1


def test_details_follow_the_file_and_are_read_once(library, folder, monkeypatch):
    monkeypatch.setattr("fishermix_photos.index.update.read_details", lambda path: pytest.fail("read again"))
    library.update([folder])
    monkeypatch.undo()
    with_exif(folder / "holidays.jpg", "2001:01:01 00:00:00")
    library.update([folder])
    details = {photo.relative: photo.details for photo in library.browse(Query()).photos}
    assert details["holidays.jpg"].taken == "2001-01-01T00:00:00"
    (folder / "holidays.jpg").rename(folder / "moved.jpg")
    library.update([folder])
    details = {photo.relative: photo.details for photo in library.browse(Query()).photos}
    assert details["moved.jpg"].camera == "Canon EOS R5"
    assert "holidays.jpg" not in details


@pytest.mark.slow
def test_filters_agree_with_a_naive_search(tmp_path):
    folder, rng = tmp_path / "photos", np.random.default_rng(0)
    years = {}
    for number in range(60):
        year = int(rng.integers(2010, 2020))
        with_exif(folder / f"{number}.jpg", f"{year}:05:05 00:00:00")
        years[f"{number}.jpg"] = year
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([folder])
        everything = find(library, 100)
        for year in range(2010, 2020):
            conditions = {"after": str(year), "before": str(year + 1)}
            wanted = [photo.relative for photo in everything if years[photo.relative] == year]
            assert [photo.relative for photo in find(library, 100, **conditions)] == wanted
            assert len(find(library, 2, **conditions)) == min(2, len(wanted))


def test_a_turned_tiff_and_a_raw_photo_have_their_size(tmp_path):
    exif = Image.Exif()
    exif[0x0112], exif[0x0132] = 6, "2015:01:02 03:04:05"
    Image.new("RGB", (48, 32)).save(tmp_path / "a.tif", exif=exif)
    assert read_details(tmp_path / "a.tif") == Details("2015-01-02T03:04:05", "exif", width=32, height=48)
    pytest.importorskip("rawpy")
    pytest.importorskip("tifffile")
    (tmp_path / "a.dng").write_bytes(make_formats.make_dng(Image.new("RGB", (48, 32)), orientation=6))
    found = read_details(tmp_path / "a.dng")
    assert (found.width, found.height) == (32, 48)
