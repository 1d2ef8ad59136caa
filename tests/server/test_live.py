"""The server starts at once, says what it does, and follows its folder."""

import os
import shutil
import threading
import time

import pytest
from starlette.testclient import TestClient
from tiny_model import NAMES, TinyModel, paint

from fishermix.errors import FishermixError
from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.several_folders import SeveralFolders
from fishermix.server import watch
from fishermix.server.app import create_app
from fishermix.server.live import LiveFolder
from fishermix.server.thumbnails import FILE
from fishermix.server.watch import FolderWatcher

SENTENCES = [f"a {name} picture" for name in NAMES]


def wait_for(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return found


@pytest.fixture(params=["events", "polling"])
def follow(tmp_path, request, monkeypatch):
    """Follow `tmp_path/photos`; returns a function that starts it."""
    monkeypatch.setattr("fishermix.server.live.SECONDS_UNTIL_RETRY", 0.2)
    monkeypatch.setattr(watch, "SHORTEST_PAUSE", 0.2)
    started = []

    def start(open_index=None, **options):
        folder = tmp_path / "photos"
        folder.mkdir(exist_ok=True)

        def open_here():
            return PhotoIndex(folder, TinyModel(), tmp_path / "index")

        live = LiveFolder(
            [folder], open_index or open_here, SENTENCES, polling=request.param == "polling", **options
        )
        live.start()
        started.append(live)
        return live

    yield start
    for live in started:
        live.stop()
        if live.is_ready:
            live.service.close()
            live.service.index.close()


def paths(client, **parameters):
    answer = client.get("/api/browse", params={"sort": "name", **parameters})
    return [photo["path"] for photo in answer.json()["photos"]] if answer.status_code == 200 else None


def test_it_starts_at_once_and_says_what_it_is_loading(tmp_path, follow):
    loading, go_on = threading.Event(), threading.Event()

    def open_slowly():
        loading.set()
        assert go_on.wait(30)
        return PhotoIndex(tmp_path / "photos", TinyModel(), tmp_path / "index")

    paint(tmp_path / "photos" / "red.png", "red")
    said = []
    live = follow(open_slowly, say=said.append)
    with TestClient(create_app(live), base_url="http://127.0.0.1") as client:
        assert loading.wait(30)
        assert client.get("/").status_code == 200
        assert client.get("/api/health").json()["folder"] == "photos"
        status = client.get("/api/status").json()
        assert (status["state"], status["message"]) == ("starting", "Loading the model.")
        for path in ("/api/search?q=red", "/api/browse", "/api/topics", "/api/photos/0000000000000000"):
            answer = client.get(path)
            assert answer.status_code == 503
            assert answer.json()["detail"] == "The server is starting. Loading the model."
            assert answer.headers["retry-after"] == "1"
        go_on.set()
        wait_for(lambda: paths(client) == ["red.png"])
    assert said[0] == "Loading the model."


def test_new_changed_moved_and_deleted_photos(tmp_path, follow):
    folder = tmp_path / "photos"
    paint(folder / "a.png", "red")
    live = follow()
    with TestClient(create_app(live), base_url="http://127.0.0.1") as client:
        wait_for(lambda: paths(client) == ["a.png"])
        version = client.get("/api/status").json()["version"]
        paint(folder / "sub" / "b.png", "blue")
        wait_for(lambda: paths(client) == ["a.png", "sub/b.png"])
        assert client.get("/api/status").json()["version"] > version
        item = client.get("/api/browse").json()["photos"][0]
        os.replace(paint(tmp_path / "new.png", "green"), folder / "a.png")
        wait_for(lambda: client.get("/api/search?q=green").json()["photos"][0]["score"] > 0.99)
        changed = {photo["id"]: photo["version"] for photo in client.get("/api/browse").json()["photos"]}
        assert len(changed) == 2
        assert item["version"] in changed.values() or item["path"] == "a.png"
        (folder / "a.png").rename(folder / "c.png")
        wait_for(lambda: paths(client) == ["c.png", "sub/b.png"])
        (folder / "sub" / "b.png").unlink()
        wait_for(lambda: paths(client) == ["c.png"])
        wait_for(lambda: client.get("/api/health").json()["photos"] == 1)


def test_one_new_photo_is_one_encoded_photo(tmp_path, follow):
    folder, encoded = tmp_path / "photos", []
    for name in NAMES:
        paint(folder / f"{name}.png", name)
    model = TinyModel()
    stream = model.image_encoder.stream

    def count(images):
        images = list(images)
        encoded.extend(images)
        return stream(images)

    model.image_encoder.stream = count
    live = follow(lambda: PhotoIndex(folder, model, tmp_path / "index"))
    wait_for(lambda: live.is_ready and live.count() == len(NAMES))
    assert len(encoded) == len(NAMES)
    paint(folder / "new.png", "red", "blue")
    wait_for(lambda: live.count() == len(NAMES) + 1)
    assert encoded[len(NAMES) :] == [folder / "new.png"]


def test_progress_while_photos_are_indexed(tmp_path, follow):
    for number in range(130):
        paint(tmp_path / "photos" / f"{number}.png", NAMES[number % 7], NAMES[number % 5])
    seen, model = [], TinyModel()
    shares, reached, go_on = model.image_encoder._shares, threading.Event(), threading.Event()

    def wait_at_the_100th(image):
        seen.append(image)
        if len(seen) == 100:
            reached.set()
            assert go_on.wait(30)
        return shares(image)

    model.image_encoder._shares = wait_at_the_100th
    live = follow(lambda: PhotoIndex(tmp_path / "photos", model, tmp_path / "index"))
    with TestClient(create_app(live), base_url="http://127.0.0.1") as client:
        assert reached.wait(30)
        status = client.get("/api/status").json()
        assert (status["state"], status["message"]) == ("updating", "Indexing photos")
        assert (status["done"], status["total"]) == (64, 130)
        assert client.get("/api/search?q=red").json()["photos"]  # what is indexed is found already
        assert len(client.get("/api/browse?n=200").json()["photos"]) == 64
        go_on.set()
        wait_for(lambda: client.get("/api/status").json()["state"] == "ready")
        wait_for(lambda: len(client.get("/api/browse?n=200").json()["photos"]) == 130)


def test_a_disk_that_is_not_mounted_is_reported_and_comes_back(tmp_path, follow):
    folder = tmp_path / "photos"
    paint(folder / "a.png", "red")
    live = follow()
    wait_for(lambda: live.is_ready and live.count() == 1)
    folder.rename(tmp_path / "away")
    assert "cannot be read" in wait_for(lambda: live.progress().problem)
    folder.mkdir()
    assert wait_for(lambda: "Is the disk mounted?" in (live.progress().problem or ""))
    assert live.count() == 1  # nothing is forgotten
    folder.rmdir()
    (tmp_path / "away").rename(folder)
    wait_for(lambda: live.progress().problem is None)
    paint(folder / "b.png", "blue")
    wait_for(lambda: live.count() == 2)
    shutil.copytree(folder, tmp_path / "other disk")
    folder.rename(tmp_path / "away")
    wait_for(lambda: live.progress().problem)
    (tmp_path / "other disk").rename(folder)
    wait_for(lambda: live.progress().problem is None)
    paint(folder / "c.png", "green")
    wait_for(lambda: live.count() == 3)


def test_an_index_that_is_being_written_is_waited_for(tmp_path, follow):
    folder = tmp_path / "photos"
    paint(folder / "a.png", "red")
    other = PhotoIndex(folder, TinyModel(), tmp_path / "index")
    with other.store.writing():
        other.store.adopt(TinyModel.key, TinyModel().match_dimension)
        live = follow()
        assert "Another process" in wait_for(lambda: live.progress().problem)
    wait_for(lambda: live.count() == 1)
    assert live.progress().problem is None
    other.close()


def test_what_another_process_wrote_appears(tmp_path, follow):
    folder = tmp_path / "photos"
    paint(folder / "a.png", "red")
    live = follow()
    wait_for(lambda: live.is_ready and live.count() == 1 and live.progress().state == "ready")
    version = live.progress().version
    with PhotoIndex(folder, TinyModel(), tmp_path / "index") as other:
        paint(folder / "b.png", "blue")
        other.update()
    wait_for(lambda: live.count() == 2)
    wait_for(lambda: live.progress().version > version)


def test_two_servers_of_one_folder_both_follow_it(tmp_path, follow):
    folder = tmp_path / "photos"
    paint(folder / "a.png", "red")
    servers = [follow(), follow()]
    wait_for(lambda: all(live.is_ready and live.count() == 1 for live in servers))
    paint(folder / "b.png", "blue")
    wait_for(lambda: all(live.count() == 2 for live in servers))
    (folder / "a.png").unlink()
    wait_for(lambda: all(live.count() == 1 for live in servers))
    wait_for(lambda: all(live.progress().problem is None for live in servers))


def test_several_folders_are_followed_although_one_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr("fishermix.server.live.SECONDS_UNTIL_RETRY", 0.2)
    monkeypatch.setattr(watch, "SHORTEST_PAUSE", 0.2)
    folders = [paint(tmp_path / name / "a.png", "red").parent for name in ("one", "two")]
    indexes = [PhotoIndex(folder, TinyModel(), tmp_path / f"of {folder.name}") for folder in folders]
    live = LiveFolder(folders, lambda: SeveralFolders(indexes), SENTENCES)
    live.start()
    try:
        wait_for(lambda: live.is_ready and live.count() == 2)
        folders[0].rename(tmp_path / "away")
        paint(folders[1] / "b.png", "blue")
        wait_for(lambda: live.count() == 3)
        assert "one" in wait_for(lambda: live.progress().problem)
        (tmp_path / "away").rename(folders[0])
        paint(folders[0] / "c.png", "green")
        wait_for(lambda: live.count() == 4 and live.progress().problem is None)
    finally:
        live.stop()
        live.service.close()
        live.service.index.close()


def test_two_parts_of_one_index_and_a_new_folder(tmp_path, monkeypatch):
    """The two parts share an index, which can be locked once only."""
    monkeypatch.setenv("FISHERMIX_HOME", str(tmp_path / "home"))
    names = ("all/one", "all/two", "new")
    folders = [paint(tmp_path / name / "a.png", "red").parent for name in names]
    with PhotoIndex(tmp_path / "all", TinyModel()) as index:
        index.update()
    indexes = [PhotoIndex(folder, TinyModel()) for folder in folders]
    assert [index.store.model_key() == index.model.key for index in indexes] == [True, True, False]
    live = LiveFolder(folders, lambda: SeveralFolders(indexes), SENTENCES)
    live.start()
    try:
        wait_for(lambda: live.is_ready and live.count() == 3)
    finally:
        live.stop()
        live.service.close()
        live.service.index.close()


def test_a_failure_ends_the_server(follow):
    ended = threading.Event()

    def fail():
        raise FishermixError("There is no model.")

    live = follow(fail, on_failure=ended.set)
    assert ended.wait(30)
    assert str(live.failure) == "There is no model."


def test_stopping_ends_an_update_between_batches(tmp_path, follow):
    for number in range(200):
        paint(tmp_path / "photos" / f"{number}.png", NAMES[number % 7], NAMES[number % 5])
    model, reached = TinyModel(), threading.Event()
    shares = model.image_encoder._shares

    def slow(image):
        reached.set()
        time.sleep(0.005)
        return shares(image)

    model.image_encoder._shares = slow
    live = follow(lambda: PhotoIndex(tmp_path / "photos", model, tmp_path / "index"))
    assert reached.wait(30)
    live.stop()
    assert not live._thread.is_alive()
    with PhotoIndex(tmp_path / "photos", TinyModel(), tmp_path / "index") as again:
        kept = again.store.summary().photos
        assert 0 < kept < 200
        changes = again.update()
        assert changes.encoded + changes.recognised == 200 - kept


def test_thumbnails_go_with_their_photos(tmp_path, follow):
    folder = tmp_path / "photos"
    paint(folder / "a.png", "red", size=(500, 400))
    paint(folder / "b.png", "blue", size=(500, 400))
    live = follow()
    with TestClient(create_app(live), base_url="http://127.0.0.1") as client:
        wait_for(lambda: paths(client) == ["a.png", "b.png"])
        pictures = {}
        for photo in client.get("/api/browse").json()["photos"]:
            pictures[photo["path"]] = client.get(f"/api/photos/{photo['id']}").content
        cache = tmp_path / "index" / FILE
        assert all(middle(jpeg) in cache.read_bytes() for jpeg in pictures.values())
        (folder / "a.png").unlink()
        wait_for(lambda: middle(pictures["a.png"]) not in cache.read_bytes())
        assert middle(pictures["b.png"]) in cache.read_bytes()
        os.replace(paint(tmp_path / "new.png", "green", size=(500, 400)), folder / "b.png")
        wait_for(lambda: middle(pictures["b.png"]) not in cache.read_bytes())


def middle(jpeg):
    """Some bytes that only this thumbnail has."""
    at = jpeg.index(b"\xff\xda")
    return jpeg[at : at + 60]


def test_a_system_that_cannot_watch_is_polled(tmp_path, monkeypatch):
    watchfiles = pytest.importorskip("watchfiles")

    def refuse(*_, **__):
        raise OSError(28, "No space left on device")  # what inotify says when its limit is reached

    monkeypatch.setattr(watchfiles, "watch", refuse)
    monkeypatch.setattr(watch, "SHORTEST_PAUSE", 0.05)
    stop = threading.Event()
    watcher = FolderWatcher([tmp_path], stop)
    assert not watcher.polling
    watcher.look()
    timer = threading.Timer(0.3, paint, [tmp_path / "a.png", "red"])
    timer.start()
    assert watcher.wait()
    assert watcher.polling
    stop.set()
    assert not watcher.wait()
    timer.join()
