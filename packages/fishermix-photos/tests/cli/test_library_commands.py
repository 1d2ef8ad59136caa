"""`fishermix library`, and which folders a search covers and updates."""

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys

import pytest
from fishermix_photos.cli import explain_error
from fishermix_photos.search.results import FolderAway, LibraryDamaged, NotInLibrary
from tiny_model import paint


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A current folder that no library has."""
    place = tmp_path / "elsewhere"
    paint(place / "test.png", "red")
    monkeypatch.chdir(place)
    return place


def test_the_verbs_of_a_library(tiny, photos, remarks, tmp_path):
    (photos / "broken.jpg").write_bytes(b"no photo")
    assert "is not in the photo library" in tiny("library", "update", photos, fails=True)
    added = tiny("library", "add", photos)
    assert added == "8 photos: 8 encoded, 0 recognized by content, 0 removed, 1 unreadable.\n"
    assert any(f"for example {photos}/broken.jpg" in remark for remark in remarks)
    (photos / "red.png").unlink()
    assert tiny("library", "update").startswith("7 photos: 0 encoded, 0 recognized by content, 1 removed")
    assert ": 7 photos, 0 problems" in tiny("doctor")
    assert f"  {photos}/broken.jpg: cannot be read" in tiny("library", "list", photos)
    assert json.loads(tiny("library", "list", photos, "--json"))[0]["photos"] == 7
    tiny("library", "list")
    assert remarks[-1].startswith(f"{tmp_path}/home/library: 7 photos, ")
    tiny("library", "remove", photos)
    assert remarks[-1].startswith(f"Removed {photos} with 7 photos")
    assert "is not in the photo library" in tiny("library", "list", photos, fails=True)
    assert "library is empty" in tiny("library", "update", fails=True)


@pytest.mark.parametrize("is_home", [False, True], ids=["--library", "FISHERMIX_HOME"])
@pytest.mark.parametrize(
    "command",
    [
        ("library", "list"),
        ("library", "list", "/mnt/camera"),
        ("library", "update"),
        ("library", "update", "/mnt/camera"),
        ("library", "remove", "/mnt/camera"),
        ("search", "red", "--no-update"),
        ("duplicates", "--no-update"),
        ("doctor",),
        ("serve",),
    ],
)
def test_a_library_on_a_disk_that_is_not_mounted_is_gone_and_not_empty(
    tiny, tmp_path, command, photos, is_home, monkeypatch
):
    gone = tmp_path / "disk" / "library"
    place = () if is_home else ("--library", gone)
    if is_home:
        monkeypatch.setenv("FISHERMIX_HOME", str(gone.parent))
    message = tiny(*command, *place, fails=True)
    assert f"no photo library in {gone}" in message
    assert "empty" not in message
    assert not gone.parent.exists()
    tiny("library", "add", photos, *place)  # a new one needs no command of its own
    assert json.loads(tiny("library", "list", *place, "--json"))[0]["photos"] == 8


@pytest.mark.parametrize(
    "mistake", ["no folder", *(pytest.param(one, marks=pytest.mark.slow) for one in ("a file", "no library"))]
)
def test_serve_reports_mistakes_before_the_address(tmp_path, mistake):
    (tmp_path / "file.txt").touch()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = {
        "no folder": [tmp_path / "nowhere"],
        "a file": [tmp_path / "file.txt"],
        "no library": ["--library", tmp_path / "nowhere"],
    }
    command = [sys.executable, "-m", "fishermix_photos", "serve", "--port", str(port), *arguments[mistake]]
    environment = os.environ | {"FISHERMIX_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_a_moved_folder_costs_no_encoding_and_its_old_place_is_listed_as_away(
    tiny, photos, tmp_path, remarks
):
    assert tiny("library", "list") == ""
    tiny("library", "add", photos)
    moved = photos.rename(tmp_path / "moved")
    assert "0 encoded, 8 recognized by content" in tiny("library", "add", moved)
    listed = json.loads(tiny("library", "list", "--json"))
    assert {entry["folder"]: entry["exists"] for entry in listed} == {str(photos): False, str(moved): True}
    assert [entry["photos"] for entry in listed] == [8, 8]
    assert f"8  {photos}  (away)" in tiny("library", "list").splitlines()
    assert f"`fishermix library remove {photos}`" in remarks[-1]
    tiny("library", "remove", photos)
    assert tiny("library", "list") == f"8  {moved}\n"


@pytest.mark.parametrize(
    "command", [("library", "add"), ("library", "update"), ("search", "red"), ("duplicates",)]
)
def test_a_file_of_a_folder_of_the_library_is_not_a_folder_that_is_away(tiny, photos, command):
    tiny("library", "add", photos)
    (photos / "notes.txt").write_text("not a folder")
    assert f"{photos}/notes.txt is a file, not a folder." in tiny(*command, photos / "notes.txt", fails=True)


def test_a_subfolder_belongs_to_the_folder_above(tiny, photos):
    tiny("library", "add", photos)
    assert tiny("search", "red", photos / "sub", "-f") == f"{photos}/sub/flag.png\n"
    assert tiny("search", "red", photos / "sub", "-f", "--no-update") == f"{photos}/sub/flag.png\n"
    assert json.loads(tiny("library", "list", photos / "sub", "--json"))[0]["photos"] == 1
    assert f"part of {photos}" in tiny("library", "remove", photos / "sub", fails=True)
    assert tiny("library", "list") == f"8  {photos}\n"


def test_the_folder_above_takes_in_its_subfolder(tiny, photos):
    tiny("library", "add", photos / "sub")
    tiny("library", "add", photos)
    found = tiny("search", "red", photos, photos / "sub", "-f").splitlines()
    assert len(found) == len(set(found)) == 8


def test_a_photo_of_an_inner_folder_is_found_once(tiny, photos, monkeypatch):
    found = tiny("search", "red", photos, photos / "sub", photos, "-f").splitlines()
    assert len(found) == len(set(found)) == 8
    monkeypatch.chdir(photos.parent)
    assert tiny("search", "red", "photos/sub", "photos", "-f", "-n", "1") == "photos/red.png\n"


def test_a_folder_is_added_only_when_it_is_named(tiny, elsewhere, tmp_path):
    for command in (["search", "red"], ["duplicates"]):
        message = tiny(*command, fails=True)
        assert message.startswith("Your library is empty. Name the folder that contains your photos")
    assert not (tmp_path / "home" / "library").exists()
    tiny("search", "red", elsewhere)
    assert tiny("library", "list") == f"1  {elsewhere}\n"


def test_without_a_folder_the_whole_library_is_searched_and_nothing_is_added(tiny, photos, elsewhere):
    tiny("library", "add", photos)
    paint(photos / "new.png", "red")
    assert set(tiny("search", "red", "-f", "-n", 2).splitlines()) == {
        f"{photos}/red.png",
        f"{photos}/sub/flag.png",
    }
    assert tiny("library", "list") == f"8  {photos}\n"


def test_without_a_folder_the_current_one_is_searched_and_updated_if_the_library_has_it(
    tiny, photos, tmp_path, monkeypatch
):
    other = paint(tmp_path / "other" / "crimson.png", "red").parent
    tiny("library", "add", photos, other)
    monkeypatch.chdir(photos / "sub")
    paint(photos / "sub" / "new.png", "red")
    assert tiny("search", "red", "-f") == "new.png\nflag.png\n"
    assert tiny("search", "red", "-f", "--no-update", "-n", 1) == "new.png\n"
    monkeypatch.chdir(photos)
    assert "sub/new.png" in tiny("search", "red", "-f").splitlines()
    assert "crimson" not in tiny("search", "red", "-f")


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_that_is_away_keeps_its_photos(tiny, photos, tmp_path, exists, remarks):
    other = paint(tmp_path / "other" / "green.png", "green").parent
    tiny("library", "add", photos, other)
    shutil.rmtree(photos)
    if exists:  # the place of a disk that is not mounted
        photos.mkdir()
    error = tiny("library", "update", photos, fails=FolderAway)
    advice = explain_error(error)
    assert shlex.split(advice.split("`")[1]) == ["fishermix", "library", "remove", str(photos)]
    remarks.clear()
    found = tiny("search", "red", photos, other, "-f").splitlines()
    assert found[0] == f"{photos}/red.png"
    assert remarks[0].startswith(f"{photos} is not updated.")
    assert tiny("search", "red", photos, "-f", "-n", 1) == f"{photos}/red.png\n"
    assert remarks[-1].startswith("Not updated. ")
    assert f"{photos}/red.png" in tiny("search", "red", "-f")
    assert tiny("doctor").endswith("No problems found.\n")


def test_what_is_left_out_is_said(tiny, photos, remarks):
    paint(photos / "@eaDir" / "red.png", "red", "black")
    paint(photos / ".hidden.png", "red")
    (photos / ".fishermixignore").write_text("b*.png\n")
    assert "6 encoded" in tiny("library", "add", photos)
    assert remarks == ["Left out: 1 @eaDir, 2 by .fishermixignore, 1 hidden."]
    assert "Left out: 1 @eaDir, 2 by .fishermixignore, 1 hidden." in tiny("library", "list", photos)


def test_a_folder_without_photos(tiny, tmp_path, remarks):
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "notes.txt").write_text("no photo")
    for command in (["search", "red", empty], ["duplicates", empty]):
        assert tiny(*command) == ""
        assert remarks[-1] == f"There are no photos in {empty}."
    assert tiny("library", "add", empty).startswith("0 photos: 0 encoded")
    paint(empty / "red.png", "red")
    assert "1 encoded" in tiny("library", "add", empty)
    assert tiny("search", "red", empty, "-f", "--no-update") == f"{empty}/red.png\n"


def test_a_folder_that_is_not_in_the_library_is_not_searched_without_an_update(tiny, photos, remarks):
    tiny("search", "red", photos, "--no-update")
    assert remarks == [f"{photos} is not in your library yet. Omit --no-update to add it."]
    error = tiny("library", "list", photos, fails=NotInLibrary)
    assert shlex.split(explain_error(error).split("`")[1]) == ["fishermix", "library", "add", str(photos)]


def test_a_folder_that_is_not_in_the_library_cannot_be_removed(tiny, photos):
    message = tiny("library", "remove", photos, fails=True)
    assert message.startswith(f"{photos} is not a folder of the photo library.")
    assert message.endswith("`fishermix library list` lists the folders.")


@pytest.mark.parametrize("damage", ["database", "embeddings"])
def test_a_damaged_library_is_called_so_and_can_be_deleted(tiny, photos, tmp_path, damage):
    place = tmp_path / "my library"
    tiny("library", "add", photos, "--library", place)
    if damage == "database":
        next(place.glob("*.sqlite")).write_bytes(b"no database" * 1000)
    else:
        next(place.glob("embeddings*")).write_bytes(b"")
    error = tiny("search", "red", photos, "--library", place, fails=LibraryDamaged)
    assert str(place) in str(error)
    assert "`fishermix library remove --all`" in explain_error(error)
    assert "cannot be used" in str(error) or "damaged" in str(error)
    tiny("doctor", "--library", place, fails=True)
    tiny("library", "remove", "--all", "--library", place)
    assert not place.exists()
    assert "8 encoded" in tiny("library", "add", photos, "--library", place)


def test_verify_finds_damage(tiny, photos, tmp_path):
    tiny("library", "add", photos, "--library", tmp_path / "library")
    file = next((tmp_path / "library").glob("embeddings*"))
    data = bytearray(file.read_bytes())
    data[5] ^= 64
    file.write_bytes(data)
    assert "library remove --all" in tiny("doctor", "--library", tmp_path / "library", fails=True)


def test_the_library_has_a_place(tiny, photos, tmp_path):
    assert tiny("search", "red", photos, "--library", "", fails=True).startswith("--library is empty.")
    place = tmp_path / "mine"
    tiny("search", "red", photos, "--library", place)
    assert place.is_dir()
    assert not (tmp_path / "home" / "library").exists()
    tiny("library", "list", "--library", place)
    assert tiny.remarks[-1].startswith(f"{place}: 8 photos, ")
    assert "library or --all" in tiny("library", "remove", fails=True).replace(", or give", " or")


@pytest.mark.skipif(os.name != "posix", reason="names of files cannot have line breaks")
def test_a_line_of_the_list_is_a_folder(tiny, tmp_path):
    folder = tmp_path / "a\n99  /etc"
    paint(folder / "red.png", "red")
    tiny("library", "add", folder)
    assert tiny("library", "list") == f"1  {tmp_path}/a?99  /etc\n"


def test_every_folder_of_the_library_is_updated(tiny, photos, tmp_path):
    other = paint(tmp_path / "other" / "green.png", "green").parent
    tiny("library", "add", photos, other)
    paint(other / "red.png", "red", "green")
    paint(photos / "new.png", "red", "black")
    assert tiny("library", "update").startswith("11 photos: 2 encoded")
