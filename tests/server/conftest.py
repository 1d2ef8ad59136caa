import socket
import threading
import time

import pytest
import uvicorn
from tiny_model import HOSTILE, NAMES, TinyModel, paint

from fishermix.retrieval.index import PhotoIndex
from fishermix.server.app import SERVER, create_app
from fishermix.server.guards import Limits


class HostileCaptioner:
    """Its captions try to run."""

    def caption(self, points, beam=1):
        return [f"a {NAMES[point.argmax()]} picture {HOSTILE}" for point in points]


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server") / "photos"
    for name in NAMES:
        paint(folder / f"{name}.png", name)
        for other in NAMES[:3]:
            paint(folder / name / f"{name} and {other}.png", name, other, size=(640, 480))
    paint(folder / "sub" / "flag.png", "red", "white", "blue")
    paint(folder / f"{HOSTILE.replace('/', '∕')}.png", "yellow", "yellow", "black")
    return folder


@pytest.fixture(scope="session")
def index(photos, tmp_path_factory):
    model = TinyModel()
    model.captioner = HostileCaptioner()
    with PhotoIndex(photos, model, index=tmp_path_factory.mktemp("index") / "i") as index:
        index.update()
        yield index


@pytest.fixture(scope="session")
def sentences():
    return [f"a {name} picture" for name in NAMES] + [f"red white blue {HOSTILE}"]


@pytest.fixture(scope="session")
def served(index, sentences):
    """Serve an app on a free port of 127.0.0.1; returns a function from limits to (host, port)."""
    running = []

    def start(limits=None):
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(index, sentences, limits or Limits()), **SERVER))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        running.append((server, thread))
        return listener.getsockname()

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def address(served):
    return served()
