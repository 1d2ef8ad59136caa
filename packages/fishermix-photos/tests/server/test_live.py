"""The server starts at once, says what it does, and follows its folder."""

import errno
import os
import shutil
import threading
import time

import pytest
from fishermix.errors import FishermixError
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.search.results import Query
from fishermix_photos.server import live as live_module
from fishermix_photos.server.app import create_app
from fishermix_photos.server.live import Events, LiveLibrary
from starlette.routing import Route
from starlette.testclient import TestClient
from tiny_model import NAMES, TinyModel, paint

SENTENCES = [f"a {name} picture" for name in NAMES]


def wait_for(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return found


@pytest.fixture
def soon(monkeypatch):
    """Retries and looks follow each other quickly."""
    monkeypatch.setattr("fishermix_photos.server.live.SECONDS_UNTIL_RETRY", 0.2)
    monkeypatch.setattr(live_module, "SHORTEST_PAUSE", 0.2)


@pytest.fixture
def follow(tmp_path, soon):
    """Follow `tmp_path/photos`; returns a function that starts it."""
    started = []

    def start(open_library=None, folders=None, **options):
        folder = tmp_path / "photos"
        folder.mkdir(exist_ok=True)

        def open_here():
            return PhotoLibrary(tmp_path / "library", TinyModel())

        folders = [folder] if folders is None else folders
        live = LiveLibrary(open_library or open_here, folders, **options)
        live.start()
        started.append(live)
        return live

    yield start
    for live in started:
        live.stop()


def count(live):
    return live.progress().photos


def paths(client, **parameters):
    answer = client.get("/api/browse", params={"sort": "name", **parameters})
    return [photo["path"] for photo in answer.json()["photos"]] if answer.status_code == 200 else None


def test_it_starts_at_once_and_says_what_it_is_loading(tmp_path, follow):
    loading, go_on = threading.Event(), threading.Event()

    def open_slowly():
        loading.set()
        assert go_on.wait(30)
        return PhotoLibrary(tmp_path / "library", TinyModel())

    paint(tmp_path / "photos" / "red.png", "red")
    said = []
    live = follow(open_slowly, events=Events(say=said.append))
    with TestClient(create_app(live), base_url="http://127.0.0.1") as client:
        assert loading.wait(30)
        assert client.get("/").status_code == 200
        assert client.get("/api/status").json()["folder"] == "photos"
        status = client.get("/api/status").json()
        assert (status["state"], status["message"]) == ("starting", "Loading the model.")
        for path in ("/api/search?q=red", "/api/browse", "/api/topics", "/api/photos/0000000000000000"):
            answer = client.get(path)
            assert answer.status_code == 503
            assert answer.json()["detail"] == "The server is starting. Loading the model."
            assert answer.headers["retry-after"] == "1"
        go_on.set()
        wait_for(lambda: paths(client) == ["photos/red.png"])
    assert said[0] == "Loading the model."


def test_a_search_does_not_wait_for_what_only_captions_need(tmp_path, follow):
    loading, go_on, model = threading.Event(), threading.Event(), TinyModel()
    encode = model.encode_text

    def encode_slowly(sentences):
        if len(sentences) > 100:  # the sentences of the model
            loading.set()
            assert go_on.wait(30)
        return encode(sentences)

    model.encode_text = encode_slowly
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([paint(tmp_path / "photos" / "red.png", "red").parent])
    live = follow(lambda: PhotoLibrary(tmp_path / "library", model))
    with TestClient(create_app(live), base_url="http://127.0.0.1") as client:
        wait_for(lambda: client.get("/api/search?q=red").status_code == 200)
        topics = threading.Thread(target=client.get, args=["/api/topics"])
        topics.start()
        assert loading.wait(30)
        found = []
        asking = threading.Thread(target=lambda: found.append(client.get("/api/search?q=red").json()))
        asking.start()
        asking.join(5)
        go_on.set()
        topics.join()
        assert [photo["path"] for photo in found[0]["photos"]] == ["photos/red.png"]


@pytest.mark.slow
def test_what_only_captions_need_is_loaded_for_them_and_released(tmp_path, follow, monkeypatch):
    """The real model: its networks, its captioner and its sentences take half of the memory."""
    monkeypatch.setattr(live_module, "SECONDS_UNTIL_RELEASE", 0.5)
    paint(tmp_path / "photos" / "red.png", "red")
    live = follow(lambda: PhotoLibrary(tmp_path / "library"))
    wait_for(lambda: count(live) == 1)
    parts = {"image_encoder", "captioner", "pool"}
    wait_for(lambda: not parts & {*vars(live.library.model)})  # the update needed the first
    with TestClient(create_app(live), base_url="http://127.0.0.1") as client:
        assert client.get("/api/search?q=red").status_code == 200
        assert not {"image_encoder", "captioner"} & {*vars(live.library.model)}
        assert client.get("/api/topics").status_code == 200
        id = client.get("/api/browse").json()["photos"][0]["id"]
        assert client.get(f"/api/caption?id={id}").json()["sentence"]
        wait_for(lambda: not parts & {*vars(live.library.model)})
        assert client.get(f"/api/caption?id={id}").json()["sentence"]  # and it is loaded again


def test_new_changed_moved_and_deleted_photos(tmp_path, follow):
    folder = tmp_path / "photos"
    paint(folder / "a.png", "red")
    live = follow()
    with TestClient(create_app(live), base_url="http://127.0.0.1") as client:
        wait_for(lambda: paths(client) == ["photos/a.png"])
        version = client.get("/api/status").json()["version"]
        paint(folder / "sub" / "b.png", "blue")
        wait_for(lambda: paths(client) == ["photos/a.png", "photos/sub/b.png"])
        assert client.get("/api/status").json()["version"] != version
        item = client.get("/api/browse").json()["photos"][0]
        os.replace(paint(tmp_path / "new.png", "green"), folder / "a.png")
        wait_for(lambda: client.get("/api/search?q=green").json()["photos"][0]["score"] > 0.99)
        changed = {photo["id"]: photo["version"] for photo in client.get("/api/browse").json()["photos"]}
        assert len(changed) == 2
        assert item["version"] in changed.values() or item["path"] == "photos/a.png"
        (folder / "a.png").rename(folder / "c.png")
        wait_for(lambda: paths(client) == ["photos/c.png", "photos/sub/b.png"])
        (folder / "sub" / "b.png").unlink()
        wait_for(lambda: paths(client) == ["photos/c.png"])
        wait_for(lambda: client.get("/api/status").json()["photos"] == 1)


def test_one_new_photo_is_one_encoded_photo(tmp_path, follow):
    folder, encoded = tmp_path / "photos", []
    for name in NAMES:
        paint(folder / f"{name}.png", name)
    model = TinyModel()
    stream = model.image_encoder.stream

    def remember(images, on_open=None):
        images = list(images)
        encoded.extend(images)
        return stream(images, on_open)

    model.image_encoder.stream = remember
    live = follow(lambda: PhotoLibrary(tmp_path / "library", model))
    wait_for(lambda: count(live) == len(NAMES))
    assert len(encoded) == len(NAMES)
    paint(folder / "new.png", "red", "blue")
    wait_for(lambda: count(live) == len(NAMES) + 1)
    assert encoded[len(NAMES) :] == [str(folder / "new.png")]


def test_progress_while_photos_are_indexed(tmp_path, follow):
    for number in range(130):
        path = tmp_path / "photos" / f"{number}.png"
        paint(path, NAMES[number % 7], NAMES[number % 5])
        path.write_bytes(path.read_bytes() + b"%d" % number)  # equal files are encoded once
    seen, model = [], TinyModel()
    shares, reached, go_on = model.image_encoder._shares, threading.Event(), threading.Event()

    def wait_at_the_100th(image, on_open=None):
        seen.append(image)
        if len(seen) == 100:
            reached.set()
            assert go_on.wait(30)
        return shares(image, on_open)

    model.image_encoder._shares = wait_at_the_100th
    live = follow(lambda: PhotoLibrary(tmp_path / "library", model))
    with TestClient(create_app(live), base_url="http://127.0.0.1") as client:
        assert reached.wait(30)
        status = client.get("/api/status").json()
        assert (status["state"], status["message"]) == ("updating", "Reading files")
        assert (status["done"], status["total"]) == (64, 130)
        assert client.get("/api/search?q=red").json()["photos"]  # what is indexed is found already
        assert len(client.get("/api/browse?n=200").json()["photos"]) == 64
        go_on.set()
        wait_for(lambda: client.get("/api/status").json()["state"] == "ready")
        wait_for(lambda: len(client.get("/api/browse?n=200").json()["photos"]) == 130)


@pytest.mark.slow
def test_a_disk_that_is_not_mounted_is_reported_and_comes_back(tmp_path, follow):
    folder = tmp_path / "photos"
    paint(folder / "a.png", "red")
    live = follow()
    wait_for(lambda: count(live) == 1)
    folder.rename(tmp_path / "away")
    assert "does not exist" in wait_for(lambda: live.progress().problem)
    folder.mkdir()
    assert wait_for(lambda: "Is the disk mounted?" in (live.progress().problem or ""))
    assert count(live) == 1  # nothing is forgotten
    folder.rmdir()
    (tmp_path / "away").rename(folder)
    wait_for(lambda: live.progress().problem is None)
    paint(folder / "b.png", "blue")
    wait_for(lambda: count(live) == 2)
    shutil.copytree(folder, tmp_path / "other disk")
    folder.rename(tmp_path / "away")
    wait_for(lambda: live.progress().problem)
    (tmp_path / "other disk").rename(folder)
    wait_for(lambda: live.progress().problem is None)
    paint(folder / "c.png", "green")
    wait_for(lambda: count(live) == 3)


def test_a_folder_that_another_process_updates_is_waited_for(tmp_path, follow):
    folder, other_model = tmp_path / "photos", TinyModel()
    paint(folder / "a.png", "red")
    encoding, go_on, stream = threading.Event(), threading.Event(), other_model.image_encoder.stream

    def wait(images, on_open=None):
        encoding.set()
        assert go_on.wait(30)
        return stream(images, on_open)

    other_model.image_encoder.stream = wait
    with PhotoLibrary(tmp_path / "library", other_model) as other:
        updating = threading.Thread(target=other.update, args=([folder],))
        updating.start()
        assert encoding.wait(30)
        live = follow()
        assert "another process" in wait_for(lambda: live.progress().problem).lower()
        go_on.set()
        updating.join()
    wait_for(lambda: count(live) == 1)
    wait_for(lambda: live.progress().problem is None)


def test_what_another_process_wrote_appears(tmp_path, follow):
    folder = tmp_path / "photos"
    paint(folder / "a.png", "red")
    live = follow()
    wait_for(lambda: count(live) == 1 and live.progress().state == "ready")
    version = live.progress().version
    with PhotoLibrary(tmp_path / "library", TinyModel()) as other:
        paint(folder / "b.png", "blue")
        other.update([folder])
    wait_for(lambda: count(live) == 2)
    wait_for(lambda: live.progress().version != version)


def test_two_servers_of_one_folder_both_follow_it(tmp_path, follow):
    folder = tmp_path / "photos"
    paint(folder / "a.png", "red")
    servers = [follow(), follow()]
    wait_for(lambda: all(count(live) == 1 for live in servers))
    paint(folder / "b.png", "blue")
    wait_for(lambda: all(count(live) == 2 for live in servers))
    (folder / "a.png").unlink()
    wait_for(lambda: all(count(live) == 1 for live in servers))
    wait_for(lambda: all(live.progress().problem is None for live in servers))


def test_several_folders_are_followed_although_one_is_gone(tmp_path, follow):
    folders = [paint(tmp_path / name / "a.png", "red").parent for name in ("one", "two")]
    live = follow(folders=folders)
    wait_for(lambda: count(live) == 2)
    folders[0].rename(tmp_path / "away")
    paint(folders[1] / "b.png", "blue")
    wait_for(lambda: count(live) == 3)
    assert "one" in wait_for(lambda: live.progress().problem)
    (tmp_path / "away").rename(folders[0])
    paint(folders[0] / "c.png", "green")
    wait_for(lambda: count(live) == 4 and live.progress().problem is None)


def test_a_whole_library_is_followed(tmp_path, follow):
    """Folders that are away are no problem, and come back; folders of other processes appear."""
    folders = [paint(tmp_path / name / "a.png", "red").parent for name in ("one", "two")]
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update(folders)
        folders[0].rename(tmp_path / "away")
        live = follow(folders=[])
        paint(folders[1] / "b.png", "blue")
        wait_for(lambda: count(live) == 3)
        assert live.progress().problem is None
        paint(tmp_path / "away" / "c.png", "green")
        (tmp_path / "away").rename(folders[0])
        wait_for(lambda: count(live) == 4)
        library.update([paint(tmp_path / "three" / "a.png", "white").parent])
        wait_for(lambda: count(live) == 5)
        paint(tmp_path / "three" / "b.png", "black")
        wait_for(lambda: count(live) == 6)


def test_only_the_folders_named_are_served(tmp_path, follow):
    folders = [paint(tmp_path / name / "a.png", "red").parent for name in ("one", "two")]
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update(folders)
        ids = {photo.name: photo.id for photo in library.browse(Query()).photos}
    live = follow(folders=folders[:1])
    with TestClient(create_app(live), base_url="http://127.0.0.1") as client:
        wait_for(lambda: paths(client) == ["one/a.png"])
        found = client.get("/api/search?q=red").json()["photos"]
        assert [photo["path"] for photo in found] == ["one/a.png"]
        assert client.get("/api/status").json()["photos"] == 1
        for route in ("photos/{}", "photos/{}/details", "photos/{}/original", "export?id={}"):
            assert client.get(f"/api/{route.format(ids['one/a.png'])}").status_code == 200
            assert client.get(f"/api/{route.format(ids['two/a.png'])}").status_code == 404
        for route in ("similar?id={}", "caption?id={}", "explain?q=red&id={}"):
            assert client.get(f"/api/{route.format(ids['one/a.png'])}").status_code == 200
            assert client.get(f"/api/{route.format(ids['two/a.png'])}").status_code == 404


@pytest.mark.skipif(os.name != "posix", reason="making links needs a privilege")
def test_a_folder_that_is_replaced_by_a_link_is_not_followed(tmp_path, follow):
    folder = paint(tmp_path / "photos" / "a.png", "red").parent
    elsewhere = paint(tmp_path / "elsewhere" / "secret.png", "green").parent
    live = follow()
    wait_for(lambda: count(live) == 1)
    folder.rename(tmp_path / "moved")
    folder.symlink_to(elsewhere)
    assert "link" in wait_for(lambda: live.progress().problem)
    assert [status.folder for status in live.library.folders()] == [folder.absolute()]


def test_a_failure_ends_the_server(follow):
    ended = threading.Event()

    def fail():
        raise FishermixError("There is no model.")

    live = follow(fail, events=Events(failed=ended.set))
    assert ended.wait(30)
    assert str(live.failure) == "There is no model."


def test_an_error_of_the_system_ends_the_server_with_a_sentence(follow, tmp_path, recwarn):
    ended = threading.Event()
    live = follow(lambda: os.open(tmp_path / "gone", os.O_RDONLY), events=Events(failed=ended.set))
    assert ended.wait(30)
    live.stop()
    assert "gone" in str(live.failure)
    assert "FileNotFoundError" not in str(live.failure)
    assert not recwarn.list  # of an exception in a thread


def test_a_request_that_the_system_cannot_serve_gets_its_reason(follow):
    live = follow()
    app = create_app(live)
    app.router.routes.insert(0, Route("/fails", lambda request: os.open("gone", os.O_RDONLY)))
    answer = TestClient(app, base_url="http://localhost").get("/fails")
    assert answer.status_code == 503
    assert answer.json()["detail"]


def test_an_unexpected_error_is_shown_and_the_server_goes_on(tmp_path, follow):
    folder, model = tmp_path / "photos", TinyModel()
    paint(folder / "a.png", "red")
    stream, broken = model.image_encoder.stream, [True]
    model.image_encoder.stream = lambda images, on_open: 1 // 0 if broken else stream(images, on_open)
    ended = threading.Event()
    live = follow(lambda: PhotoLibrary(tmp_path / "library", model), events=Events(failed=ended.set))
    assert "ZeroDivisionError" in wait_for(lambda: live.progress().problem)
    broken.clear()
    wait_for(lambda: count(live) == 1)
    wait_for(lambda: live.progress().problem is None)
    assert not ended.is_set()


def test_an_error_of_the_system_is_explained_without_a_traceback(tmp_path, follow, caplog):
    """Too many open files, for example."""
    folder, model = tmp_path / "photos", TinyModel()
    paint(folder / "a.png", "red")
    stream, broken = model.image_encoder.stream, [True]

    def fail(images, on_open=None):
        if broken:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return stream(images, on_open)

    model.image_encoder.stream = fail
    live = follow(lambda: PhotoLibrary(tmp_path / "library", model))
    wait_for(lambda: live.progress().problem)
    broken.clear()
    wait_for(lambda: count(live) == 1)
    assert caplog.records == []


def test_an_error_of_a_scan_is_a_problem_that_passes(tmp_path, follow, monkeypatch, caplog):
    paint(tmp_path / "photos" / "a.png", "red")
    live = follow()
    wait_for(lambda: count(live) == 1)
    scan = live_module.scan_folder
    broken = [True]

    def fail(folder, *rest):
        if broken:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return scan(folder, *rest)

    monkeypatch.setattr(live_module, "scan_folder", fail)
    time.sleep(0.5)
    broken.clear()
    paint(tmp_path / "photos" / "b.png", "blue")
    wait_for(lambda: count(live) == 2)
    assert live.failure is None
    assert caplog.records == []


def test_stopping_ends_an_update_between_batches(tmp_path, follow):
    for number in range(200):
        paint(tmp_path / "photos" / f"{number}.png", NAMES[number % 7], NAMES[number % 5])
    model, reached = TinyModel(), threading.Event()
    shares = model.image_encoder._shares

    def slow(image, on_open=None):
        reached.set()
        time.sleep(0.005)
        return shares(image, on_open)

    model.image_encoder._shares = slow
    live = follow(lambda: PhotoLibrary(tmp_path / "library", model))
    assert reached.wait(30)
    live.stop()
    assert not live._thread.is_alive()
    with PhotoLibrary(tmp_path / "library", TinyModel()) as again:
        kept = again.count()
        assert 0 < kept < 200
        changes = again.update([tmp_path / "photos"])
        assert changes.encoded + changes.recognized == 200 - kept
