"""What only the owner may do: list folders, add one, copy photos; photos that were sent; ZIP files."""

import io
import shutil
import time
import zipfile
from types import SimpleNamespace

import pytest
from fishermix_photos.library import REMEMBERED_UPLOADS, PhotoLibrary
from fishermix_photos.server import live as live_module
from fishermix_photos.server.access import Access
from fishermix_photos.server.app import create_app
from fishermix_photos.server.live import LiveLibrary, Pace
from fishermix_photos.server.originals import zip_photos
from serving import id_of, make_library, photos_of, show
from starlette.testclient import TestClient
from test_live import wait_for
from tiny_model import NAMES, TinyModel, paint

ADDRESS = "http://127.0.0.1"


def sign_in(access):
    return {"Authorization": f"Bearer {access.token}"}


@pytest.fixture
def site(tmp_path):
    """A server of three photos: `client`, `owner` (the headers), `library` and `folder`."""
    folder, access = tmp_path / "photos", Access()
    for name in ("red", "green", "blue"):
        paint(folder / name[:1] / f"{name}.png", name)
    library = make_library(folder, tmp_path / "library", TinyModel())
    app = create_app(show(library), access=access)
    with library, TestClient(app, base_url=ADDRESS) as client:
        yield SimpleNamespace(client=client, owner=sign_in(access), library=library, folder=folder)


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A server of an empty library: `client`, `owner` and `live`."""
    monkeypatch.setattr(live_module, "SHORTEST_PAUSE", 0.1)
    access = Access()
    live = LiveLibrary(lambda: PhotoLibrary(tmp_path / "library", TinyModel()))
    live.start()
    wait_for(lambda: live.progress().state == "ready")
    with TestClient(create_app(live, access=access), base_url=ADDRESS) as client:
        yield SimpleNamespace(client=client, owner=sign_in(access), live=live)
    live.stop()


def paths(client):
    return sorted(photo["path"] for photo in client.get("/api/browse").json()["photos"])


# Who may do it


@pytest.mark.parametrize("access", [Access(), Access(local=False), Access(with_token=True)])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/api/places", None),
        ("POST", "/api/folders", {"path": "/"}),
        ("POST", "/api/copies", {"ids": ["0" * 16], "folder": "/tmp"}),
    ],
)
def test_only_the_owner_may_do_it(shown, access, method, path, body):
    """Without the token nobody, and with it nobody on a network."""
    with TestClient(create_app(shown, access=access), base_url=ADDRESS) as client:
        assert client.request(method, path, json=body).status_code == (401 if access.is_closed else 403)
        if not access.local:
            assert client.request(method, path, json=body, headers=sign_in(access)).status_code == 403
            assert client.get("/api/status", headers=sign_in(access)).json()["changes"] == "never"
        elif method == "GET":
            assert client.get(path, headers=sign_in(access)).status_code == 200


def test_the_link_makes_the_browser_the_owners(shown):
    access = Access()
    with TestClient(create_app(shown, access=access), base_url=ADDRESS) as client:
        assert client.get("/api/status").json()["changes"] == "after signing in"
        assert client.get("/api/browse").status_code == 200  # what can be seen, can be seen without it
        client.get(f"/?token={access.token}")
        assert client.get("/api/status").json()["changes"] == "allowed"
        assert client.get("/api/places", headers={"Origin": "http://evil.example"}).status_code == 403
        wrong = {"Content-Type": "text/plain"}  # what a form of another site could send
        answer = client.post("/api/folders", content=b'{"path": "/"}', headers=wrong)
        assert answer.status_code == 422


# Folders


def test_the_folders_of_the_machine_are_listed(site, tmp_path):
    (tmp_path / "photos" / ".hidden").mkdir()
    (tmp_path / "photos" / "link").symlink_to(tmp_path)
    paint(tmp_path / "photos" / "top.png", "red")
    (tmp_path / "photos" / "notes.txt").write_text("no photo")
    place = site.client.get("/api/places", params={"path": str(site.folder)}, headers=site.owner).json()
    assert place["path"] == str(site.folder)
    assert place["parent"] == str(tmp_path)
    assert [folder["name"] for folder in place["folders"]] == ["b", "g", "r"]
    assert place["folders"][0]["path"] == str(site.folder / "b")
    assert place["photos"] == 1
    assert site.client.get("/api/places", params={"path": "/"}, headers=site.owner).json()["parent"] is None
    for wrong in ("nowhere", str(tmp_path / "nowhere"), "~nobody-of-this-name", "/\0"):
        answer = site.client.get("/api/places", params={"path": wrong}, headers=site.owner)
        assert answer.status_code == 400


def test_a_folder_is_added_to_an_empty_library(empty, tmp_path):
    assert not empty.client.get("/api/status").json()["has_folders"]
    paint(tmp_path / "Pictures" / "red.png", "red")
    added = empty.client.post("/api/folders", json={"path": str(tmp_path / "Pictures")}, headers=empty.owner)
    assert added.json() == {"name": "Pictures", "photos": 1}
    wait_for(lambda: paths(empty.client) == ["Pictures/red.png"])
    assert empty.client.get("/api/status").json()["has_folders"]
    paint(tmp_path / "Pictures" / "blue.png", "blue")  # it is followed
    wait_for(lambda: paths(empty.client) == ["Pictures/blue.png", "Pictures/red.png"])


def test_folders_that_cannot_be_added(empty, tmp_path):
    (tmp_path / "nothing").mkdir()
    (tmp_path / "file").write_text("")
    paint(tmp_path / "Pictures" / "inside" / "red.png", "red")

    def add(path):
        answer = empty.client.post("/api/folders", json={"path": str(path)}, headers=empty.owner)
        return answer.status_code

    assert add(tmp_path / "Pictures") == 200
    wait_for(lambda: paths(empty.client))
    for wrong in ("nothing", "file", "missing", "Pictures", "Pictures/inside"):
        assert add(tmp_path / wrong) == 400
    assert add("Pictures") == 400  # not a full path
    assert paths(empty.client) == ["Pictures/inside/red.png"]


def test_a_folder_that_is_added_to_some_is_served_with_them(tmp_path, monkeypatch):
    monkeypatch.setattr(live_module, "SHORTEST_PAUSE", 0.1)
    for name in ("one", "two", "three"):
        paint(tmp_path / name / f"{name}.png", "red")
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([tmp_path / "one", tmp_path / "two"])
    access = Access()
    live = LiveLibrary(lambda: PhotoLibrary(tmp_path / "library", TinyModel()), [tmp_path / "one"])
    live.start()
    wait_for(lambda: live.progress().state == "ready" and live.progress().photos)
    with TestClient(create_app(live, access=access), base_url=ADDRESS) as client:
        for name in ("two", "three"):  # one is in the library already
            client.post("/api/folders", json={"path": str(tmp_path / name)}, headers=sign_in(access))
        wait_for(lambda: paths(client) == ["one/one.png", "three/three.png", "two/two.png"])
        assert client.get("/api/status").json()["folder"] == "one and two and three"
    live.stop()


@pytest.mark.slow
def test_a_folder_that_is_added_does_not_wait_for_an_update(tmp_path, monkeypatch):
    monkeypatch.setattr(live_module, "SHORTEST_PAUSE", 0.1)
    for number in range(200):
        paint(tmp_path / "many" / f"{number}.png", NAMES[number % 7], NAMES[number % 5], NAMES[number // 35])
    paint(tmp_path / "few" / "red.png", "red")
    model = TinyModel()
    shares = model.image_encoder._shares

    def slow(image, on_open=None):
        time.sleep(0.02)
        return shares(image, on_open)

    model.image_encoder._shares = slow
    live = LiveLibrary(lambda: PhotoLibrary(tmp_path / "library", model))
    live.start()
    wait_for(lambda: live.progress().state == "ready")
    live.add(tmp_path / "many")
    wait_for(lambda: live.progress().photos)
    live.add(tmp_path / "few")
    wait_for(lambda: live.library.covering(tmp_path / "few") and live.library.count([tmp_path / "few"]) == 1)
    assert live.library.count([tmp_path / "many"]) < 200
    wait_for(lambda: live.library.count([tmp_path / "many"]) == 200)
    live.stop()


def test_a_folder_that_is_added_while_the_folders_are_listed_is_not_forgotten(tmp_path, monkeypatch):
    """The look that precedes an update sees it already: nothing differs when the update is interrupted."""
    paint(tmp_path / "Pictures" / "red.png", "red")
    library = PhotoLibrary(tmp_path / "library", TinyModel())
    live = LiveLibrary(lambda: library)
    look = live._look

    def add_and_look():
        if not live._added and not live.progress().photos:
            live.add(tmp_path / "Pictures")
        return look()

    monkeypatch.setattr(live, "_look", add_and_look)
    live.start()
    wait_for(lambda: live.progress().photos == 1)
    live.stop()


def test_the_time_that_is_left():
    pace = Pace()
    assert pace.estimate("reading", 0, 100, now=0.0) is None
    assert pace.estimate("reading", 10, 100, now=1.0) is None  # too early
    assert pace.estimate("reading", 50, 100, now=5.0) == pytest.approx(5.0)
    assert pace.estimate("reading", 60, 100, now=64.0) == pytest.approx(40 * 59 / 10)  # it has become slower
    assert pace.estimate("reading", 5, 100, now=65.0) is None  # another folder
    assert pace.estimate("writing", 50, None, now=70.0) is None


# Copies


def test_photos_are_copied_and_nothing_is_overwritten(site, tmp_path):
    ids = [photo.id for photo in photos_of(site.library).values()]
    target = tmp_path / "USB stick" / "for Ann"
    (tmp_path / "USB stick").mkdir()
    asked = {"ids": [*ids, ids[0], "0" * 16], "folder": str(target)}
    answer = site.client.post("/api/copies", json=asked, headers=site.owner)
    assert answer.json() == {"copied": 3, "left_out": 1}
    for name in ("red", "green", "blue"):
        original, copy = site.folder / name[:1] / f"{name}.png", target / f"{name}.png"
        assert copy.read_bytes() == original.read_bytes()
        assert copy.stat().st_mtime_ns == original.stat().st_mtime_ns
    (target / "red.png").write_text("mine")
    (target / "blue.png").unlink()
    (target / "blue.png").symlink_to(tmp_path / "elsewhere")
    site.client.post("/api/copies", json=asked, headers=site.owner)
    assert (target / "red.png").read_text() == "mine"
    assert (target / "red (2).png").read_bytes() == (site.folder / "r" / "red.png").read_bytes()
    assert not (tmp_path / "elsewhere").exists()
    assert (target / "blue (2).png").is_file()
    for wrong in ("here", str(tmp_path / "not" / "there"), str(target / "red.png")):
        answer = site.client.post("/api/copies", json={**asked, "folder": wrong}, headers=site.owner)
        assert answer.status_code == 400


def test_a_copy_that_fails_leaves_no_part_of_a_file(site, tmp_path, monkeypatch):
    def fail(source, target, length):
        target.write(b"some bytes")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", fail)
    asked = {"ids": [id_of(site.library, "r/red.png")], "folder": str(tmp_path / "out")}
    answer = site.client.post("/api/copies", json=asked, headers=site.owner)
    assert answer.status_code == 400
    assert "The disk is full" in answer.json()["detail"]
    assert [*(tmp_path / "out").iterdir()] == []


# A ZIP file


def test_a_selection_is_one_zip_file(site):
    photos = photos_of(site.library)
    ids = [photo.id for photo in photos.values()]
    (site.folder / "b" / "blue.png").unlink()
    answer = site.client.get("/api/zip", params={"id": [*ids, ids[0], "0" * 16]})
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == [
            "could not be read.txt",
            "photos/g/green.png",
            "photos/r/red.png",
        ]
        assert archive.read("could not be read.txt") == b"photos/b/blue.png\n"
        assert archive.read("photos/r/red.png") == (site.folder / "r" / "red.png").read_bytes()
    assert site.client.get("/api/zip", params={"id": ["0" * 16]}).status_code == 404
    assert site.client.get("/api/zip").status_code == 422


def test_a_zip_file_is_made_while_it_is_sent(site):
    with open(site.folder / "r" / "red.png", "ab") as file:
        file.truncate(40_000_000)
    pieces = zip_photos([photos_of(site.library)["r/red.png"]] * 2)
    sizes = [len(piece) for piece in pieces]
    assert sum(sizes) > 80_000_000
    assert max(sizes) < 1_000_000
    names = zipfile.ZipFile(
        io.BytesIO(b"".join(zip_photos([photos_of(site.library)["g/green.png"]] * 2)))
    ).namelist()
    assert names == ["photos/g/green.png", "photos/g/green (2).png"]


# Photos that are sent


def test_a_photo_that_is_sent_can_be_combined_with_words_and_filters(site, tmp_path):
    sent = site.client.post("/api/uploads", content=paint(tmp_path / "mine.png", "red").read_bytes())
    photo = sent.json()["id"]

    def search(query, **conditions):
        answer = site.client.get("/api/search", params={"q": query, **conditions})
        return [found["path"] for found in answer.json()["photos"]]

    assert search(f"photo:{photo}")[0] == "photos/r/red.png"
    assert {*search(f"green + photo:{photo}")[:2]} == {"photos/r/red.png", "photos/g/green.png"}
    assert search(f"photo:{photo}", **{"in": "/photos/g"}) == ["photos/g/green.png"]
    assert site.client.get(f"/api/caption?id={photo}").json()["sentence"] == "a red picture"
    assert site.client.get(f"/api/similar?id={photo}").json()["photos"][0]["path"] == "photos/r/red.png"
    assert site.client.get(f"/api/photos/{photo}").headers["content-type"] == "image/jpeg"
    assert photo not in {found.id for found in photos_of(site.library).values()}
    assert site.client.post("/api/uploads", content=b"no photo").status_code == 400


def test_the_last_photos_that_were_sent_are_kept(site, tmp_path):
    def send(number):
        picture = paint(tmp_path / "mine.png", "red", "blue", size=(30 + number, 30)).read_bytes()
        return site.client.post("/api/uploads", content=picture).json()["id"]

    first, *others = [send(number) for number in range(REMEMBERED_UPLOADS + 1)]
    assert site.client.get(f"/api/photos/{first}").status_code == 404
    assert site.client.get("/api/search", params={"q": f"photo:{first}"}).status_code == 404
    assert all(site.client.get(f"/api/photos/{photo}").status_code == 200 for photo in others)
