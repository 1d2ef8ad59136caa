"""Dates, cameras and places are read once, kept, and searched by."""

import json
import os
import sqlite3
import sys
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pillow_heif
import pytest
from PIL import Image
from tiny_model import TinyModel, paint

from fishermix.errors import FishermixError
from fishermix.retrieval.details import Details, Filter, date_in_name, distance_km, parse_day, parse_near
from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.read_details import read_details

sys.path.insert(0, str(Path(__file__).parent.parent / "vision"))
import make_formats


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
    found = read_details(tmp_path, f"a.{suffix}")
    assert found == Details(
        "2019-07-14T12:30:00",
        "exif",
        "Canon EOS R5",
        pytest.approx(-33.8568, abs=1e-4),
        pytest.approx(151.2153, abs=1e-4),
        32,
        48,
    )


def test_the_name_and_then_the_file_stand_for_a_missing_date(tmp_path):
    paint(tmp_path / "IMG_20180203_040506.png", "red")
    assert read_details(tmp_path, "IMG_20180203_040506.png") == Details(
        "2018-02-03T04:05:06", "name", width=48, height=32
    )
    path = paint(tmp_path / "red.png", "red")
    moment = datetime(2017, 5, 6, 7, 8, 9)
    os.utime(path, (moment.timestamp(),) * 2)
    assert read_details(tmp_path, "red.png").taken == moment.isoformat()
    assert read_details(tmp_path, "red.png").taken_from == "file"
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xffx")
    assert read_details(tmp_path, "broken.jpg").taken_from == "file"


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
    assert distance_km((52.52, 13.405), (48.1372, 11.5756)) == pytest.approx(504, abs=2)  # Berlin, Munich
    assert parse_near("52.5, 13.4, 500m") == (52.5, 13.4, 0.5)
    assert parse_day("2020-06", "--before") == date(2020, 6, 1)
    for wrong in ("", "52,13", "99,0,1km", "a,b,c", "1,2,3mi", "1..2,3,4"):
        with pytest.raises(FishermixError, match="--near"):
            parse_near(wrong)
    for wrong in ("19", "2019-13", "yesterday", "2019-02-30", "2019/07"):
        with pytest.raises(FishermixError, match="--after"):
            parse_day(wrong, "--after")


@pytest.fixture
def index(tmp_path):
    folder = tmp_path / "photos"
    with_exif(folder / "2019" / "Holidays" / "berlin.jpg")
    with_exif(
        folder / "2020" / "sydney.jpg", "2020:06:01 00:00:00", ("Apple", "iPhone 12"), (-33.86, 151.2), 6
    )
    with_exif(folder / "holidays.jpg", "2018:12:31 23:59:59", ("NIKON", "D850"), (52.4, 13.06))
    with PhotoIndex(folder, TinyModel(), index=tmp_path / "index") as index:
        index.update()
        yield index


@pytest.mark.parametrize(
    ("only", "names"),
    [
        ({}, {"berlin", "sydney", "holidays"}),
        ({"after": "2019"}, {"berlin", "sydney"}),
        ({"after": "2019", "before": "2020-06"}, {"berlin"}),
        ({"before": "2019"}, {"holidays"}),
        ({"after": "2020-06-01"}, {"sydney"}),
        ({"folder": "holidays"}, {"berlin"}),
        ({"folder": "2019/Holidays"}, {"berlin"}),
        ({"folder": "Holi"}, set()),
        ({"camera": "iphone"}, {"sydney"}),
        ({"camera": "apple iphone"}, {"sydney"}),
        ({"near": "52.5,13.4,10km"}, {"berlin"}),
        ({"near": "52.5,13.4,50km"}, {"berlin", "holidays"}),
        ({"shape": "portrait"}, {"sydney"}),
        ({"shape": "landscape", "after": "2019"}, {"berlin"}),
    ],
)
def test_filters(index, only, names):
    hits = index.search(index.model.encode_text(["red"])[0], 10, only=Filter(**only))
    assert {os.path.basename(hit.path)[:-4] for hit in hits} == names
    if names:
        assert len(index.search(index.model.encode_text(["red"])[0], 1, only=Filter(**only))) == 1


def test_details_follow_the_file_and_are_read_once(index, monkeypatch):
    assert index.store.paths_without_details() == []
    monkeypatch.setattr(
        "fishermix.retrieval.read_details.read_metadata", lambda path: pytest.fail("read again")
    )
    index.update()
    monkeypatch.undo()
    with_exif(index.folder / "holidays.jpg", "2001:01:01 00:00:00")
    index.update()
    assert index.store.details(["holidays.jpg"])["holidays.jpg"].taken == "2001-01-01T00:00:00"
    (index.folder / "holidays.jpg").rename(index.folder / "moved.jpg")
    index.update()
    assert index.store.details()["moved.jpg"].camera == "Canon EOS R5"
    assert "holidays.jpg" not in index.store.details()


def test_an_index_of_the_old_schema_is_taken_over_without_encoding(index, tmp_path, monkeypatch):
    index.close()
    with sqlite3.connect(tmp_path / "index" / "index.sqlite") as database:
        for column in Details.__dataclass_fields__:
            database.execute(f"ALTER TABLE photos DROP COLUMN {column}")
        database.execute("PRAGMA user_version = 2")
    database.close()
    model = TinyModel()
    model.image_encoder.stream = lambda images: pytest.fail("encoded again")
    with PhotoIndex(index.folder, model, index=tmp_path / "index") as again:
        assert not again.update()
        assert len(again.store.details()) == 3
        found = again.search(model.encode_text(["red"])[0], 10, only=Filter(camera="canon"))
        assert [hit.path for hit in found] == ["2019/Holidays/berlin.jpg"]
        assert again.store.verify() == []


def test_filters_agree_with_a_naive_search(tmp_path):
    folder, rng = tmp_path / "photos", np.random.default_rng(0)
    years = {}
    for number in range(60):
        year = int(rng.integers(2010, 2020))
        with_exif(folder / f"{number}.jpg", f"{year}:05:05 00:00:00")
        years[f"{number}.jpg"] = year
    with PhotoIndex(folder, TinyModel(), index=tmp_path / "index") as index:
        index.update()
        query = index.model.encode_text(["red"])[0]
        everything = index.search(query, 100)
        for year in range(2010, 2020):
            only = Filter(after=str(year), before=str(year + 1))
            wanted = [hit.path for hit in everything if years[hit.path] == year]
            assert sorted(hit.path for hit in index.search(query, 100, only=only)) == sorted(wanted)
            assert len(index.search(query, 2, only=only)) == min(2, len(wanted))


def test_the_options_of_search(index, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from fishermix.cli import load_commands
    from fishermix.model.model import ImageTextModel

    monkeypatch.setattr(ImageTextModel, "load", TinyModel.load)
    app = load_commands()

    def run(*options):
        arguments = ["search", "red", str(index.folder), "--index", str(tmp_path / "index"), *options]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert run("--in", "Holidays", "-f").endswith("berlin.jpg\n")
    assert run("--portrait", "-f").endswith("sydney.jpg\n")
    assert len(run("--landscape", "-f").splitlines()) == 2
    assert run("--near", "52.5,13.4,10km", "--camera", "canon", "-f").endswith("berlin.jpg\n")
    dates = [entry["taken"] for entry in json.loads(run("--sort", "date", "--json"))]
    assert dates == ["2020-06-01T00:00:00", "2019-07-14T12:30:00", "2018-12-31T23:59:59"]
    found = json.loads(run("--after", "2019", "--before", "2020", "--json"))
    assert found[0]["camera"] == "Canon EOS R5"
    assert found[0]["latitude"] == pytest.approx(52.52, abs=1e-4)


def test_a_turned_tiff_and_a_raw_photo_have_their_size(tmp_path):
    exif = Image.Exif()
    exif[0x0112], exif[0x0132] = 6, "2015:01:02 03:04:05"
    Image.new("RGB", (48, 32)).save(tmp_path / "a.tif", exif=exif)
    assert read_details(tmp_path, "a.tif") == Details("2015-01-02T03:04:05", "exif", width=32, height=48)
    pytest.importorskip("rawpy")
    pytest.importorskip("tifffile")
    (tmp_path / "a.dng").write_bytes(make_formats.make_dng(Image.new("RGB", (48, 32)), orientation=6))
    found = read_details(tmp_path, "a.dng")
    assert (found.width, found.height) == (32, 48)
