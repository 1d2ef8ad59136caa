"""Original files: whole or in parts, and lists of their paths; never outside the folder."""

import os

import pytest
from fishermix_photos.server import originals
from fishermix_photos.server.app import create_app
from fishermix_photos.server.guards import Limits
from serving import id_of, make_library, show
from starlette.testclient import TestClient
from tiny_model import TinyModel, paint


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "photos"


@pytest.fixture
def album(tmp_path, folder):
    paint(folder / "red.png", "red")
    paint(folder / "2019" / 'ünïcode – 漢字 "quoted".png', "green")
    paint(folder / "blue.png", "blue", size=(900, 700))
    if os.name == "posix":
        paint(
            folder
            / "broken \udcff name.png".encode("utf8", "surrogateescape").decode("utf8", "surrogateescape"),
            "white",
        )
    with make_library(folder, tmp_path / "library", TinyModel()) as library:
        yield library


@pytest.fixture
def client(album):
    with TestClient(create_app(show(album)), base_url="http://127.0.0.1") as client:
        yield client


def original(client, index, path, **options):
    return client.get(f"/api/photos/{id_of(index, path)}/original", **options)


def test_the_original_is_the_file(client, album, folder):
    content = (folder / "red.png").read_bytes()
    answer = original(client, album, "red.png")
    assert answer.content == content
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["content-disposition"].startswith("inline")
    assert answer.headers["x-content-type-options"] == "nosniff"
    answer = original(client, album, "red.png", params={"download": "true"})
    assert answer.content == content
    assert answer.headers["content-disposition"] == 'attachment; filename="red.png"'


@pytest.mark.parametrize(
    ("header", "status"),
    [("bytes=", 400), ("items=0-1", 400), ("bytes=5-2", 400), ("bytes=0-1,3-4", 206), ("bytes=-5", 206)],
)
def test_odd_ranges(client, album, header, status):
    assert original(client, album, "red.png", headers={"Range": header}).status_code == status


@pytest.mark.skipif(os.name == "nt", reason="Windows allows no such names")
def test_a_name_that_would_be_a_header_of_its_own(client, album, folder):
    name = 'a"; filename="x.exe\r\nSet-Cookie: a=b\udcff.png'
    paint(folder / name, "red")
    album.update([folder])
    answer = original(client, album, name)
    assert answer.status_code == 200
    assert "set-cookie" not in answer.headers
    disposition = answer.headers["content-disposition"]
    assert disposition.isprintable()
    assert '"' not in disposition


def test_parts_put_together_are_the_file(client, album, folder):
    content, got = (folder / "blue.png").read_bytes(), b""
    while len(got) < len(content):
        answer = original(client, album, "blue.png", headers={"Range": f"bytes={len(got)}-{len(got) + 999}"})
        assert answer.status_code == 206
        assert answer.headers["content-range"].endswith(f"/{len(content)}")
        got += answer.content
    assert got == content
    answer = original(client, album, "blue.png", headers={"Range": f"bytes={len(content)}-"})
    assert answer.status_code == 416
    assert answer.headers["content-range"] == f"bytes */{len(content)}"


def test_a_file_that_became_a_link_a_pipe_or_nothing(client, album, tmp_path, folder):
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"secret")
    file = folder / "red.png"
    for replace in (
        lambda: file.symlink_to(secret),
        lambda: os.mkfifo(file),
        lambda: file.mkdir(),
        lambda: None,
    ):
        file.unlink(missing_ok=True) if not file.is_dir() else file.rmdir()
        replace()
        assert original(client, album, "red.png").status_code == 404
        file.rmdir() if file.is_dir() else file.unlink(missing_ok=True)
    folder.rename(tmp_path / "old")
    folder.symlink_to(tmp_path / "elsewhere")  # a folder on the way became a link
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "red.png").write_bytes(b"secret")
    assert original(client, album, "red.png").status_code == 404


@pytest.mark.skipif(os.name != "posix", reason="making links needs a privilege")
def test_a_folder_that_was_replaced_by_a_link_is_not_followed(client, album, tmp_path, folder):
    photo = id_of(album, "red.png")
    known = client.get(f"/api/photos/{photo}/details").json()
    assert known["bytes"]
    assert known["version"]
    elsewhere = paint(tmp_path / "elsewhere" / "red.png", "blue").parent
    paint(elsewhere / "secret.png", "green")
    folder.rename(tmp_path / "moved")
    folder.symlink_to(elsewhere)
    known = client.get(f"/api/photos/{photo}/details").json()
    assert (known["bytes"], known["version"]) == (None, "")
    assert client.get(f"/api/photos/{photo}").status_code == 404


def test_a_thumbnail_is_made_once_and_again_when_the_file_changed(client, album, folder, monkeypatch):
    made = []
    monkeypatch.setattr(originals, "make_thumbnail", lambda picture, side: made.append(picture) or b"jpeg")
    address = f"/api/photos/{id_of(album, 'red.png')}"
    assert [client.get(address).content for _ in range(2)] == [b"jpeg"] * 2
    assert made == [str(folder / "red.png")]
    paint(folder / "red.png", "green", "blue")
    client.get(address)
    assert len(made) == 2
    (folder / "red.png").unlink()
    assert client.get(address).status_code == 404


def test_the_list_has_the_paths(client, album, folder):
    ids = [id_of(album, path) for path in ("blue.png", "red.png")]
    answer = client.get("/api/export", params={"id": [*ids, ids[0], "0" * 16]})
    assert answer.text == f"{folder / 'blue.png'}\n{folder / 'red.png'}\n"


def test_downloads_at_the_same_time_are_limited_and_given_back(album):
    app = create_app(show(album), Limits(downloads=1))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        photo = id_of(album, "red.png")
        for _ in range(3):  # each gives its place back, also after a mistake
            assert client.get(f"/api/photos/{photo}/original").status_code == 200
            assert client.get("/api/photos/0000000000000000/original").status_code == 404
            bad = {"Range": "bytes=99999999-"}
            assert client.get(f"/api/photos/{photo}/original", headers=bad).status_code == 416


def test_a_client_that_goes_away_gives_its_place_back(album, served, folder):
    import socket
    import time

    (folder / "red.png").write_bytes(bytes(30_000_000))
    address = served(app=create_app(show(album), Limits(downloads=1)))
    path = f"/api/photos/{id_of(album, 'red.png')}/original"
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    with socket.create_connection(address, timeout=20) as one:
        one.sendall(head)
        assert one.recv(100).startswith(b"HTTP/1.1 200")
        with socket.create_connection(address, timeout=20) as other:
            other.sendall(head)
            assert other.recv(100).startswith(b"HTTP/1.1 503")
    for _ in range(200):
        with socket.create_connection(address, timeout=20) as again:
            again.sendall(head)
            if again.recv(100).startswith(b"HTTP/1.1 200"):
                break
        time.sleep(0.05)
    else:
        pytest.fail("the place was never given back")
