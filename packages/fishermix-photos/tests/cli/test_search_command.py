"""`fishermix search` as a user types it."""

import json
import os
import subprocess
import sys

import pytest
from fishermix_photos.cli import main
from tiny_model import paint


def test_scores_and_paths_best_first(tiny, photos):
    lines = tiny("search", "red", photos, "-n", 2).splitlines()
    assert lines[0].split() == ["1.000", f"{photos}/red.png"]
    assert lines[1].endswith("sub/flag.png")


def test_a_lone_argument_is_the_query_whatever_exists(tiny, photos, monkeypatch):
    monkeypatch.chdir(photos)
    assert tiny("search", "red white blue", ".", "-f", "-n", 1) == "sub/flag.png\n"
    (photos / "grey").mkdir()
    assert tiny("search", "grey", "-f", "-n", 1) == "grey.png\n"


def test_null_ends_each_path_with_a_zero_byte(tiny, photos):
    paint(photos / "two\nlines.png", "red")
    found = tiny("search", "red", photos, "-0", "-n", 2).split("\0")
    assert set(found) == {f"{photos}/red.png", f"{photos}/two\nlines.png", ""}


def test_unknown_words_are_named(tiny, photos, remarks):
    tiny("search", "red zorblax", photos, "-n", 1)
    assert remarks[1:] == ["'zorblax' is not an English word that the model knows."]


def test_names_that_look_like_options(tiny, photos, monkeypatch):
    monkeypatch.chdir(photos)
    paint(photos / "-n.png", "red")
    assert set(tiny("search", "red", ".", "-f", "-n", 2).splitlines()) == {"./-n.png", "red.png"}


def test_json(tiny, photos):
    found = json.loads(tiny("search", "blue", photos, "--json", "-n", 3))
    known = {"path", "score", "taken", "taken_from", "width", "height"}
    assert [set(entry) for entry in found] == [known] * 3
    assert (found[0]["path"], found[0]["score"]) == (f"{photos}/blue.png", 1.0)


def test_json_has_probabilities_and_bands_if_the_model_is_calibrated(calibrated, photos):
    found = json.loads(calibrated("search", "blue", photos, "--json"))
    assert [entry["band"] for entry in found] == ["likely", "maybe", *["unlikely"] * 6]
    assert found[0]["probability"] > 0.5 > found[1]["probability"] > 0.2


def test_queries_combine(tiny, photos):
    assert (
        tiny("search", "red", "+", "white", "+", "blue", photos, "-f", "-n", 1) == f"{photos}/sub/flag.png\n"
    )
    minus = tiny("search", "red", "-", "blue", photos, "-f").splitlines()
    assert minus[0] == f"{photos}/red.png"
    assert minus[-1] == f"{photos}/blue.png"
    by_photo = tiny("search", photos / "red.png", "+", "white", "+", "blue", photos, "-f", "-n", 1)
    assert by_photo == f"{photos}/sub/flag.png\n"


def test_min_score(tiny, photos):
    assert tiny("search", "red", photos, "-f", "--min-score", "0.9") == f"{photos}/red.png\n"
    assert tiny("search", "red", "-", "blue", photos, "-f", "--min-score", "1") == f"{photos}/red.png\n"
    assert tiny("search", "red", "+", "blue", photos, "-f", "--min-score", "1") == ""
    assert tiny("search", "red", photos, "-f", "--min-score", "auto").splitlines()[0] == f"{photos}/red.png"


def test_a_second_search_finds_what_was_added(tiny, photos):
    tiny("search", "red", photos)
    paint(photos / "more.png", "red")
    assert f"{photos}/more.png" not in tiny("search", "red", photos, "-f", "--no-update")
    assert tiny("search", "red", photos, "-f", "-n", 2).splitlines()[0] == f"{photos}/more.png"


def test_the_contact_sheet_is_one_safe_file(tiny, photos, tmp_path):
    hostile = "<script>alert(1)</script>"
    paint(photos / f"{hostile.replace('/', '∕')}.png", "red", size=(40, 30))
    out = tmp_path / "sheet.html"
    tiny("search", "red", photos, "--html", out)
    page = out.read_text()
    assert page.count("data:image/jpeg;base64,") == 9
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["zorblax", "."], "no word that fishermix knows"),
        (["red", "/no/such/folder"], "does not exist"),
        (["red", "Picturs"], "no folder 'Picturs'"),
        (["red", "-"], "Nothing follows"),
        (["red", "--min-score", "high"], "auto"),
        (["red", "--min-score", "nan"], "between -1 and 1"),
        (["red", "--min-score", "5"], "between -1 and 1"),
        (["./sub"], "Say what to search for"),
    ],
)
def test_mistakes_are_explained(tiny, photos, monkeypatch, arguments, message):
    monkeypatch.chdir(photos)
    assert message in tiny("search", *arguments, fails=True)


def test_a_mistake_is_one_line_without_a_traceback(tmp_path):
    command = [
        sys.executable,
        "-c",
        "from fishermix_photos.cli import main; main()",
        "library",
        "list",
        str(tmp_path),
    ]
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=os.environ | {"FISHERMIX_HOME": str(tmp_path / "home")},
        check=False,
    )
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("fishermix: ")


def make_two_folders(tmp_path):
    """Two folders whose scores are distributed differently: mostly red, and mostly not."""
    folders = tmp_path / "a", tmp_path / "b"
    others = ("green", "blue", "yellow", "white", "black", "grey")
    for number in range(1, 13):
        paint(folders[0] / f"a{number}.png", *["red"] * number, *["blue"] * (13 - number), size=(130, 10))
    for number, name in enumerate(others * 2, 1):
        paint(folders[1] / f"b{number}.png", *["red"] * (number // 2), *[name] * 8, size=(140, 10))
    return folders


def test_a_photo_is_as_probable_in_one_folder_as_in_the_other(calibrated, tmp_path):
    """One estimate for all photos: 0.2 estimated for each folder, and the bands interleaved."""
    found = json.loads(calibrated("search", "red", *make_two_folders(tmp_path), "--json", "-n", 24))
    assert len({entry["path"][len(str(tmp_path)) + 1] for entry in found}) == 2
    for name in ("score", "probability"):
        values = [entry[name] for entry in found]
        assert values == sorted(values, reverse=True)
    bands = [entry["band"] for entry in found]
    assert bands == sorted(bands, key=["likely", "maybe", "unlikely"].index)
    assert len(set(bands)) == 3


def test_each_heading_is_printed_once(calibrated, tmp_path, monkeypatch, capsys):
    folders = make_two_folders(tmp_path)
    monkeypatch.setattr("sys.argv", ["fishermix", "search", "red", *map(str, folders), "-n", "24"])
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with pytest.raises(SystemExit):
        main()
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith(":")] == ["Likely:", "Maybe:", "Unlikely:"]
    assert len(lines) == 3 + 24 - sum(int(line.split()[-2]) for line in lines if line.endswith(" similar)"))


def test_a_search_without_a_likely_photo_says_so(calibrated, photos):
    assert "  maybe  " in calibrated("search", "red", photos / "sub")
    assert calibrated.remarks[1:] == ["No clear match. Perhaps one of these:"]


def test_a_date_alone_lists_the_photos_newest_first(calibrated, tmp_path):
    folders = tmp_path / "a", tmp_path / "b"
    for folder, name, *colors in (
        (folders[0], "IMG_20180101", "red"),
        (folders[0], "IMG_20190101", "blue"),
        (folders[0], "IMG_20200101", "red", "white"),
        (folders[1], "IMG_20190601", "red"),
        (folders[1], "IMG_20210101", "green"),
    ):
        paint(folder / f"{name}.png", *colors)
    listed = calibrated("search", "since 2019", *folders, "-f").splitlines()
    assert [line[-12:-4] for line in listed] == ["20210101", "20200101", "20190601", "20190101"]
    assert calibrated("search", "since 2021", *folders) == f"{folders[1]}/IMG_20210101.png\n"
