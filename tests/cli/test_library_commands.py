"""`index list`, `index remove` of folders that are gone, orphans in `doctor`, and what is left out."""

import json
import shutil
import socket
import time

import pytest
from starlette.testclient import TestClient
from tiny_model import TinyModel, paint

from fishermix.cli.index import list_all
from fishermix.retrieval.index import PhotoIndex
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


@pytest.fixture
def remarks(monkeypatch):
    found = []
    for module in ("common", "index", "search", "serve", "duplicates"):
        monkeypatch.setattr(f"fishermix.cli.{module}.tell", found.append)
    return found


def test_a_folder_without_photos_gets_no_index(tiny, tmp_path, remarks):
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "notes.txt").write_text("no photo")
    for command in (["index", "add", empty], ["search", "red", empty], ["duplicates", empty]):
        assert tiny(*command) == ""
        assert remarks[-1] == f"There are no photos in {empty}."
        assert tiny("index", "list", "--json") == "[]\n"
    assert "has no index yet" in tiny("search", "red", empty, "--no-update", fails=True)
    assert tiny("index", "list", "--json") == "[]\n"
    paint(empty / "red.png", "red")
    assert "1 encoded" in tiny("index", "add", empty)
    assert tiny("search", "red", empty, "-f", "--no-update") == f"{empty}/red.png\n"


def test_an_index_of_unreadable_photos_is_kept(tiny, tmp_path):
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "red.png").write_bytes(b"no picture")
    assert tiny("index", "add", folder).endswith("1 unreadable.\n")
    assert tiny("index", "list") == f"0  {folder}\n"


@pytest.mark.parametrize("command", [["search", "red"], ["duplicates"]])
def test_an_index_that_was_not_finished_is_not_a_folder_without_photos(tiny, photos, remarks, command):
    with PhotoIndex(photos, TinyModel()) as index, index.store.writing():
        index.store.adopt(index.model.key, index.model.match_dimension)  # then the process was killed
    assert tiny(*command, photos, "--no-update") == ""
    assert remarks == [
        f"The index of {photos} is empty, because indexing has not finished. Finish it with "
        f"`fishermix index add {photos}`, or omit --no-update."
    ]


def test_a_photo_of_two_indexes_is_found_once(tiny, photos):
    tiny("index", "add", photos / "sub")
    tiny("index", "add", photos)
    found = tiny("search", "red", photos, photos / "sub", "-f", "--no-update").splitlines()
    assert len(found) == len(set(found)) == 8


def test_a_photo_of_an_inner_folder_is_found_once(tiny, photos, monkeypatch):
    found = tiny("search", "red", photos, photos / "sub", photos, "-f").splitlines()
    assert len(found) == len(set(found)) == 8
    paint(photos / ".hidden" / "red.png", "red")
    assert f"{photos}/.hidden/red.png" in tiny("search", "red", photos, photos / ".hidden", "-f").splitlines()
    monkeypatch.chdir(photos.parent)
    assert tiny("search", "red", "photos/sub", "photos", "-f", "-n", "1") == "photos/red.png\n"


def test_a_damaged_index_does_not_stop_the_search_of_other_folders(tiny, photos, tmp_path, remarks):
    other = paint(tmp_path / "other" / "green.png", "green").parent
    for folder in (photos, other):
        tiny("index", "add", folder)
    (default_index(photos) / "index.sqlite").write_bytes(b"no database" * 100)
    assert tiny("search", "green", photos, other, "-f") == f"{other}/green.png\n"
    assert len(remarks) == 1
    assert remarks[0].startswith(f"{photos} is skipped. The index in ")
    assert f"`fishermix index remove {photos}`" in remarks[0]
    (default_index(other) / "index.sqlite").write_bytes(b"no database" * 100)
    message = tiny("search", "green", photos, other, fails=True)
    assert f"`fishermix index remove {photos}`" in message
    assert f"`fishermix index remove {other}`" in message
    tiny("index", "remove", photos)
    assert "8 encoded" in tiny("index", "add", photos)


def serve(tiny, monkeypatch, ask, *arguments):
    """Run `fishermix serve` until it has loaded, then `ask` it; returns what it printed."""

    def run(server, sockets):
        client = TestClient(server.config.app, base_url="http://127.0.0.1")
        for _ in range(3000):
            status = client.get("/api/status").json()
            if status["state"] == "ready" or server.should_exit:
                break
            time.sleep(0.02)
        ask(client, status)
        for listener in sockets:
            listener.close()

    monkeypatch.setattr("fishermix.server.connections.LimitedServer.run", run)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return tiny("serve", *arguments, "--port", port).replace(str(port), "PORT")


@pytest.mark.parametrize("damage", ["database", "points"])
def test_a_damaged_index_does_not_stop_the_server_of_other_folders(
    tiny, photos, tmp_path, remarks, monkeypatch, damage
):
    other = paint(tmp_path / "other" / "green.png", "green").parent
    for folder in (photos, other):
        tiny("index", "add", folder)
    if damage == "database":
        (default_index(photos) / "index.sqlite").write_bytes(b"no database" * 100)
    else:
        next(default_index(photos).glob("vectors-*")).unlink()

    def ask(client, status):
        assert [photo["path"] for photo in client.get("/api/search?q=green").json()["photos"]] == [
            "green.png"
        ]
        assert client.get("/api/health").json()["folder"] == "other"
        assert f"`fishermix index remove {photos}`" in status["problem"]

    for places in ([photos, other], ["--all"]):
        remarks.clear()
        serve(tiny, monkeypatch, ask, *places)
        assert any(one.startswith(f"{photos} is skipped. ") for one in remarks)


def test_serve_does_not_keep_the_index_of_a_folder_without_photos(tiny, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    printed = serve(tiny, monkeypatch, lambda client, status: None, tmp_path / "empty")
    assert printed.splitlines() == [
        "Open http://127.0.0.1:PORT in your browser. Press Ctrl-C to stop.",
        "Ready: http://127.0.0.1:PORT answers queries.",
    ]
    assert tiny("index", "list", "--json") == "[]\n"


def test_serve_shows_a_hidden_folder_that_is_named(tiny, photos, monkeypatch):
    paint(photos / ".hidden" / "white.png", "white")

    def ask(client, status):
        for _ in range(3000):
            if client.get("/api/status").json()["photos"] == 9:
                break
            time.sleep(0.02)
        found = [photo["path"] for photo in client.get("/api/browse").json()["photos"]]
        assert ".hidden/white.png" in found
        assert "sub/flag.png" in found

    serve(tiny, monkeypatch, ask, photos, photos / ".hidden", photos / "sub")


def test_the_list_has_a_header_on_a_terminal(tiny, photos, tmp_path, monkeypatch, capsys):
    other = paint(tmp_path / "other" / "green.png", "green").parent
    for folder in (photos, other):
        tiny("index", "add", folder)
    (default_index(other) / "index.sqlite").write_bytes(b"no database" * 100)
    capsys.readouterr()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    list_all()
    assert capsys.readouterr().out.splitlines() == [
        " photos  folder",
        f"damaged  {other}",
        f"      8  {photos}",
    ]
