"""A server that reads the text in photos answers meanwhile, follows its folder, and shows how far it is."""

import threading
import time

import pytest
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.photos.formats import UnreadableImage
from fishermix_photos.server import live as live_module
from fishermix_photos.server.app import create_app
from fishermix_photos.server.live import LiveLibrary
from starlette.testclient import TestClient
from tiny_model import NAMES, TinyModel, paint


class Reader:
    """Stands for the process that reads; each photo waits until it may be read."""

    def __init__(self):
        self.may_read = threading.Semaphore(0)
        self.seen = self.closed = 0
        self.error = None

    def __call__(self, image):
        assert self.may_read.acquire(timeout=30)
        self.seen += 1
        if self.error:
            raise self.error
        return "Theatre BROADWAY" if image.getpixel((1, 1))[0] > 200 else ""

    def close(self):
        self.closed += 1


def wait_for(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return found


@pytest.fixture
def reader():
    return Reader()


@pytest.fixture
def served(tmp_path, reader, monkeypatch):
    """A client of a server that reads text, and the folder that it serves."""
    monkeypatch.setattr(live_module, "SHORTEST_PAUSE", 0.1)
    monkeypatch.setattr(live_module, "SECONDS_OF_READING", 0.1)
    for name in NAMES:
        paint(tmp_path / "photos" / f"{name}.png", name)
    live = LiveLibrary(
        lambda: PhotoLibrary(tmp_path / "library", TinyModel()),
        [tmp_path / "photos"],
        open_reader=lambda: reader,
    )
    live.start()
    with TestClient(create_app(live), base_url="http://127.0.0.1") as client:
        yield client, live, tmp_path / "photos"
    reader.may_read.release(1000)
    live.stop()
    assert not live._thread.is_alive()


def status(client):
    return client.get("/api/status").json()


def test_text_is_read_in_the_background(served, reader):
    client, _live, folder = served
    shown = wait_for(lambda: (found := status(client))["message"] == "Reading text in photos" and found)
    assert (shown["state"], shown["done"], shown["total"]) == ("ready", 0, 7)
    assert client.get("/api/search?q=blue").json()["photos"]
    assert client.get("/api/search?q=broadway").status_code == 404
    reader.may_read.release(3)
    wait_for(lambda: status(client)["done"] == 3)
    assert status(client)["total"] == 7
    paint(folder / "new.png", "yellow", "blue")  # is seen between two photos
    time.sleep(0.5)  # longer than text is read without a look
    reader.may_read.release(1)
    wait_for(lambda: status(client)["photos"] == 8)
    assert reader.seen < 8
    reader.may_read.release(1000)
    wait_for(lambda: reader.seen == 8 and status(client)["message"] == "")
    assert reader.closed == 1
    found = client.get("/api/search?q=broadway").json()
    assert {photo["text"] for photo in found["photos"]} == {"Theatre BROADWAY"}
    assert found["notes"][0]["meaning"] == "text"
    time.sleep(0.3)
    assert reader.seen == 8


def test_a_server_stops_while_it_reads(served, reader):
    client, live, _folder = served
    wait_for(lambda: status(client)["message"] == "Reading text in photos")
    stopping = threading.Thread(target=live.stop)
    stopping.start()
    reader.may_read.release(1)
    stopping.join(10)
    assert not live._thread.is_alive()
    assert reader.closed == 1
    assert live.failure is None


def test_a_reader_that_fails_is_reported_and_the_server_goes_on(served, reader):
    client, _live, folder = served
    reader.error = UnreadableImage("its decoder crashed", code="crashed")
    reader.may_read.release(1000)
    assert "its decoder crashed" in wait_for(lambda: status(client)["problem"])
    assert client.get("/api/search?q=red").json()["photos"]
    paint(folder / "new.png", "yellow")
    wait_for(lambda: status(client)["photos"] == 8)
