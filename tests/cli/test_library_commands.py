"""`index list`, `index remove` of folders that are gone, orphans in `doctor`, and what is left out."""

import json
import shutil

import pytest
from tiny_model import paint

from fishermix.retrieval.photo_files import default_index


def test_indexes_are_listed_and_those_of_gone_folders_removed(tiny, photos, tmp_path):
    assert tiny("index", "list") == ""
    tiny("index", "add", photos)
    moved = photos.rename(tmp_path / "moved")
    assert "0 encoded, 8 recognized by content" in tiny("index", "add", moved)
    listed = json.loads(tiny("index", "list", "--json"))
    assert {entry["folder"]: entry["folder_exists"] for entry in listed} == {
        str(photos): False,
        str(moved): True,
    }
    assert [entry["photos"] for entry in listed] == [8, 8]
    assert f"8  {photos}  (gone)" in tiny("index", "list").splitlines()
    tiny("index", "remove", photos)
    assert tiny("index", "list") == f"8  {moved}\n"


def test_an_index_without_a_known_folder_is_removed_by_its_name(tiny, photos):
    tiny("index", "add", photos)
    place = default_index(photos)
    (place / "folder.txt").unlink()  # as 0.1 left it
    assert f"unknown folder; the index is called {place.name}" in tiny("index", "list")
    tiny("index", "remove", place.name)
    assert not place.exists()


def test_a_damaged_index_is_listed_as_damaged(tiny, photos):
    tiny("index", "add", photos)
    (default_index(photos) / "index.sqlite").write_bytes(b"no database" * 100)
    assert tiny("index", "list") == f"damaged  {photos}\n"


def test_the_index_above_is_used_and_not_removed_by_a_subfolder(tiny, photos):
    tiny("index", "add", photos)
    assert tiny("search", "red", photos / "sub", "-f") == f"{photos}/sub/flag.png\n"
    assert tiny("search", "red", photos / "sub", "-f", "--no-update") == f"{photos}/sub/flag.png\n"
    assert json.loads(tiny("index", "info", photos / "sub", "--json"))["photos"] == 1
    assert "no index of its own" in tiny("index", "remove", photos / "sub", fails=True)
    assert "8 photos in the index: 0 encoded" in tiny("index", "update", photos)


@pytest.mark.parametrize("gone", [True, False])
def test_doctor_names_indexes_whose_folder_is_gone(tiny, photos, gone):
    tiny("index", "add", photos)
    if gone:
        shutil.rmtree(photos)
    printed = tiny("doctor")
    assert (f"Its folder {photos} is gone." in printed) == gone
    assert printed.endswith("No problems found.\n")


def test_what_is_left_out_is_said(tiny, photos, monkeypatch):
    remarks = []
    monkeypatch.setattr("fishermix.cli.index.tell", remarks.append)
    paint(photos / "@eaDir" / "red.png", "red", "black")
    paint(photos / ".hidden.png", "red")
    (photos / ".fishermixignore").write_text("b*.png\n")
    assert "5 encoded" in tiny("index", "add", photos, "--exclude", "sub/")
    assert remarks == ["Left out: 1 @eaDir, 1 by --exclude, 2 by .fishermixignore, 1 hidden."]
    assert "Left out: 1 @eaDir, 2 by .fishermixignore, 1 hidden." in tiny("index", "info", photos)
