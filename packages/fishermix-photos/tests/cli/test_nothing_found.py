"""A search that finds nothing says which of its conditions no photo meets."""

import pytest
from fishermix_photos.index.filters import Filter
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.search.results import Query
from fishermix_photos.search.terms import parse_query
from PIL import Image
from tiny_model import TinyModel, paint


@pytest.fixture
def album(tmp_path):
    """A photo of 2019 in Berlin, one of 2004 and one without a date, in folders of other names."""
    exif = Image.Exif()
    exif[0x0110] = "Pixel 4"
    exif.get_ifd(0x8769)[0x9003] = "2019:07:14 12:30:00"
    gps = exif.get_ifd(0x8825)
    gps[1], gps[2], gps[3], gps[4] = "N", (52.0, 31.0, 0.0), "E", (13.0, 24.0, 0.0)
    (tmp_path / "Photos" / "city").mkdir(parents=True)
    Image.new("RGB", (48, 32), (220, 20, 20)).save(tmp_path / "Photos" / "city" / "a.jpg", exif=exif)
    paint(tmp_path / "Photos" / "sea" / "IMG_20040501_120000.png", "red", "blue")
    paint(tmp_path / "Photos" / "b.png", "blue")
    return tmp_path / "Photos"


@pytest.fixture
def library(album, tmp_path):
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([album])
        yield library


@pytest.mark.parametrize(
    ("conditions", "kind", "name", "meaning", "count"),
    [
        ({"near": "Lima"}, "none_near", "Lima, Peru", "Berlin, Germany", 1),
        ({"near": "Peru"}, "none_near", "Peru", "Berlin, Germany", 1),
        ({"near": "0,0,1km"}, "none_near", "0,0,1km", "Berlin, Germany", 1),
        ({"folder": "peru"}, "no_folder", "peru", "Photos, Photos/city, Photos/sea", None),
        ({"folder": "/Photos/none"}, "no_folder", "Photos/none", "Photos, Photos/city, Photos/sea", None),
        ({"camera": "nikon"}, "no_camera", "nikon", "", None),
        ({"kind": "GIF"}, "no_kind", "GIF", "PNG, JPEG", None),
        ({"after": "2010", "before": "2011"}, "none_then", "", "2004/2019", None),
        ({"camera": "nikon", "folder": "peru"}, "no_folder", "peru", "Photos, Photos/city, Photos/sea", None),
    ],
)
def test_the_condition_that_no_photo_meets_is_named(library, conditions, kind, name, meaning, count):
    asked = Filter(**conditions)
    for found in (
        library.search(Query(parse_query("red"), filter=asked)),
        library.browse(Query(filter=asked)),
    ):
        assert found.photos == ()
        [note] = [note for note in found.notes if note.kind not in ("left_out", "near", "country")]
        assert (note.kind, note.name, note.meaning, note.count) == (kind, name, meaning, count)
        assert "near" not in [note.kind for note in found.notes]


def test_conditions_that_are_met_alone_are_not_blamed(library):
    for asked in ({"near": "Berlin", "kind": "PNG"}, {"folder": "sea", "after": "2019"}):
        found = library.search(Query(parse_query("red"), filter=Filter(**asked)))
        assert found.photos == ()
        assert {note.kind for note in found.notes} <= {"near", "left_out"}


def test_photos_that_are_found_need_no_reason(library):
    assert not library.search(Query(parse_query("red"), filter=Filter(folder="city"))).notes


def test_a_score_that_no_photo_has_is_no_condition_of_photos(library):
    found = library.search(Query(parse_query("green"), filter=Filter(folder="city"), min_score=0.9))
    assert (found.photos, found.notes) == ((), ())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--near", "Lima"), "None of the 8 photos here has coordinates, so --near finds nothing."),
        (("--near", "Peru"), "None of the 8 photos here has coordinates, so --near finds nothing."),
        (("--in", "peru"), "There is no folder called 'peru'. Folders: photos, photos/sub."),
        (("--camera", "nikon"), "No photo here was taken with a camera called 'nikon'."),
        (("--kind", "GIF"), "There are no GIF files here. Kinds: PNG."),
    ],
)
def test_the_command_says_why_it_found_nothing(tiny, photos, options, said):
    assert tiny("search", "red", photos, *options) == ""
    assert tiny.remarks[1:] == [said]


def test_a_time_without_photos(tiny, photos):
    tiny("search", "red in 1987", photos)
    assert tiny.remarks[-1] == "No photo here has a date of its own."
    paint(photos / "IMG_20190704_120000.png", "red")
    tiny("search", "red in 1987", photos)
    assert tiny.remarks[-1] == "No photo here is from that time: their dates are from 2019."


def test_all_conditions_together_are_named_if_each_is_met_alone(tiny, photos):
    paint(photos / "sub" / "IMG_20190704_120000.png", "red")
    tiny(
        "search", "red", photos, "--in", "sub", "--undated", "--after", "2019-07-04", "--before", "2019-07-05"
    )
    assert tiny.remarks[-1] == "None of 9 photos meets all conditions together."


def test_a_folder_that_is_empty_has_its_own_message(tiny, tmp_path):
    (tmp_path / "empty").mkdir()
    tiny("search", "red", tmp_path / "empty", "--in", "peru")
    assert tiny.remarks == [f"There are no photos in {tmp_path / 'empty'}."]
