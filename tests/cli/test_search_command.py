"""`fishermix search` and `fishermix index` as a user types them."""

import json
import os
import subprocess
import sys

import pytest
from starlette.testclient import TestClient
from tiny_model import TinyModel, paint

from fishermix.cli.common import say
from fishermix.model.calibration import Calibration, Judge, ScoreScale
from fishermix.retrieval.index import PhotoIndex
from fishermix.server.app import create_app


def test_scores_and_paths_best_first(tiny, photos):
    lines = tiny("search", "red", photos, "-n", 2).splitlines()
    assert lines[0].split() == ["1.000", f"{photos}/red.png"]
    assert lines[1].endswith("sub/flag.png")


def test_without_a_folder_this_one_is_searched(tiny, photos, monkeypatch):
    monkeypatch.chdir(photos)
    assert tiny("search", "red white blue", "-f", "-n", 1) == "sub/flag.png\n"
    (photos / "grey").mkdir()
    assert (
        tiny("search", "grey", "-f", "-n", 1) == "grey.png\n"
    )  # a lone argument is the query, whatever exists


def test_null_ends_each_path_with_a_zero_byte(tiny, photos):
    paint(photos / "two\nlines.png", "red")
    found = tiny("search", "red", photos, "-0", "-n", 2).split("\0")
    assert set(found) == {f"{photos}/red.png", f"{photos}/two\nlines.png", ""}


def test_remarks_name_unknown_words_and_a_folder_that_was_taken_for_a_sentence(tiny, photos, monkeypatch):
    monkeypatch.chdir(photos)
    remarks = []
    monkeypatch.setattr("fishermix.cli.search.tell", remarks.append)
    monkeypatch.setattr("fishermix.cli.common.tell", remarks.append)
    (photos / "grey").mkdir()
    tiny("search", "grey", "-n", 1)
    assert remarks.pop().startswith("Searching for 'grey' in the current folder.")
    tiny("search", "red zorblax", "-n", 1)
    assert remarks.pop() == "Ignored, not in the model's vocabulary: zorblax."


def test_a_terminal_gets_no_control_characters(monkeypatch, capsys):
    say("red\x1b[31m.png")
    assert capsys.readouterr().out == "red\x1b[31m.png\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    say("red\x1b[31m\u202e.png")
    assert capsys.readouterr().out == "red?[31m?.png\n"


def test_names_that_look_like_options_and_folders_without_an_index(tiny, photos, monkeypatch):
    monkeypatch.chdir(photos)
    assert "has no index yet" in tiny("search", "red", "--no-update", fails=True)
    paint(photos / "-n.png", "red")
    assert set(tiny("search", "red", "-f", "-n", 2).splitlines()) == {"./-n.png", "red.png"}


def test_json(tiny, photos):
    found = json.loads(tiny("search", "blue", photos, "--json", "-n", 3))
    known = {"path", "score", "taken", "taken_from", "width", "height"}
    assert [set(entry) for entry in found] == [known] * 3
    assert (found[0]["path"], found[0]["score"]) == (f"{photos}/blue.png", 1.0)


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
    assert tiny("search", "red", "-", "blue", photos, "-f", "--min-score", "1") == ""
    assert tiny("search", "red", photos, "-f", "--min-score", "auto").splitlines()[0] == f"{photos}/red.png"


def test_a_second_search_finds_what_was_added(tiny, photos):
    tiny("search", "red", photos)
    paint(photos / "more.png", "red")
    assert f"{photos}/more.png" not in tiny("search", "red", photos, "-f", "--no-update")
    assert tiny("search", "red", photos, "-f", "-n", 2).splitlines()[0] == f"{photos}/more.png"


def test_the_contact_sheet_is_one_safe_file(tiny, photos, tmp_path):
    hostile = "<script>alert(1)</script>"
    paint(photos / f"{hostile.replace('/', '∕')}.png", "red")
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
        (["zorblax"], "out of the model's vocabulary"),
        (["red", "/no/such/folder"], "not a folder"),
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


def test_the_verbs_of_an_index(tiny, photos):
    (photos / "broken.jpg").write_bytes(b"no photo")
    assert "no index yet" in tiny("index", "update", photos, fails=True)
    assert "8 encoded" in tiny("index", "add", photos)
    (photos / "red.png").unlink()
    assert "7 photos in the index: 0 encoded, 0 recognized by content, 1 removed" in tiny(
        "index", "update", photos
    )
    assert "7 photos" in tiny("index", "verify", photos)
    assert "broken.jpg: cannot be read" in tiny("index", "info", photos)
    info = json.loads(tiny("index", "info", photos, "--json"))
    assert info["photos"] == 7
    tiny("index", "remove", photos)
    assert "no index yet" in tiny("index", "info", photos, fails=True)
    assert not os.path.exists(info["index"])


def test_verify_finds_damage(tiny, photos, tmp_path):
    tiny("index", "add", photos, "--index", tmp_path / "index")
    file = next((tmp_path / "index").glob("vectors-*.f32"))
    data = bytearray(file.read_bytes())
    data[5] ^= 64
    file.write_bytes(data)
    message = tiny("index", "verify", photos, "--index", tmp_path / "index", fails=True)
    assert "1 points" in message
    assert "index remove" in message


def test_a_mistake_is_one_line_without_a_traceback(tmp_path):
    command = [sys.executable, "-c", "from fishermix.cli import main; main()", "index", "info", str(tmp_path)]
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


@pytest.mark.parametrize(
    "command", ["search", "index", "annotate", "similar", "explain", "serve", "doctor", "demo"]
)
def test_help_shows_an_example(tiny, command):
    page = tiny(command, "--help")
    assert f"fishermix {command}" in page or command == "index"


def test_by_date_means_the_photos_that_may_be_right_newest_first(tiny, tmp_path, monkeypatch):
    """On the command line, in the API, and for a query that is only a date."""
    remarks = []
    monkeypatch.setattr("fishermix.cli.search.tell", remarks.append)
    # Scores of 0.7 and 0.4 have the probabilities 0.67 and 0.15.
    steep = Calibration(model_key="tiny", intercept=-4.9, score=8, deviations=0, log_photos=0, log_words=0)
    judge = Judge(steep, ScoreScale(center=0, spread=1, photos=4, words=1))
    monkeypatch.setattr(PhotoIndex, "judge", lambda self, query: judge)
    folders = tmp_path / "a", tmp_path / "b"
    for folder, name, *colors in (
        (folders[0], "IMG_20180101", "red"),
        (folders[0], "IMG_20190101", "blue"),
        (folders[0], "IMG_20200101", "red", "white"),
        (folders[1], "IMG_20190601", "red"),
        (folders[1], "IMG_20210101", "green"),
    ):
        paint(folder / f"{name}.png", *colors)

    def search(*arguments):
        return [line[-12:-4] for line in tiny("search", *arguments, "--sort", "date", "-f").splitlines()]

    assert search("red", *folders) == ["20200101", "20190601", "20180101"]
    assert search("red", *folders, "-n", "2") == ["20200101", "20190601"]
    assert len(search("red", *folders, "--min-score", "0")) == 5
    assert remarks == []
    assert search("black", *folders, "-n", "2") == ["20190101", "20180101"]
    assert remarks == ["Nothing here looks like this. The nearest:"]
    listed = tiny("search", "since 2019", *folders, "-f").splitlines()
    assert [line[-12:-4] for line in listed] == ["20210101", "20200101", "20190601", "20190101"]
    with PhotoIndex(folders[0], TinyModel()) as index:
        client = TestClient(create_app(index, ["a red picture"]), base_url="http://127.0.0.1")
        found = client.get("/api/search?q=red&sort=date").json()["photos"]
        assert [photo["path"] for photo in found] == ["IMG_20200101.png", "IMG_20180101.png"]
