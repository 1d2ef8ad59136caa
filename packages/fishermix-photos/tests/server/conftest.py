import socket
import threading
import time
from types import SimpleNamespace

import pytest
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.model.calibration import Calibration
from fishermix_photos.server.app import create_app
from fishermix_photos.server.connections import Server
from fishermix_photos.server.guards import Limits
from fishermix_photos.server.live import LiveLibrary
from serving import make_library, paint_mosaic, show
from tiny_model import HOSTILE, NAMES, TinyModel, TrainingScores, paint


class HostileCaptioner:
    """Its captions try to run."""

    def caption(self, points, beam=1):
        return [f"a {NAMES[point.argmax()]} picture {HOSTILE}" for point in points]


SENTENCES = [f"a {name} picture" for name in NAMES] + [f"red white blue {HOSTILE}"]


def give_sentences(model, sentences):
    """The model with these sentences for annotations."""
    model.pool = SimpleNamespace(sentences=sentences, points=model.encode_text(sentences))
    return model


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
def library(photos, tmp_path_factory):
    colors = [f"a picture in {name}" for name in NAMES]  # so that colors are topics
    model = give_sentences(TinyModel(), SENTENCES + colors + [f"grey number {i}" for i in range(40)])
    model.captioner = HostileCaptioner()
    with make_library(photos, tmp_path_factory.mktemp("library"), model) as library:
        yield library


@pytest.fixture(scope="session")
def shown(library):
    """The library as it is served."""
    return show(library)


@pytest.fixture(scope="session")
def served(shown):
    """Serve on a free port of 127.0.0.1; returns a function from limits, or an app, to (host, port)."""
    running = []

    def start(limits=None, app=None, **options):
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        app = app or create_app(shown, limits or Limits())
        server = Server(app, **options)
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


# Scores of 0.7, 0.58 and 0.4 have the probabilities 0.67, 0.43 and 0.15.
STEEP = Calibration(model_key="tiny", intercept=-4.9, score=8, deviations=0, log_photos=0, log_words=0)


class CalibratedModel(TinyModel):
    """A model whose scores have probabilities."""

    calibration = STEEP
    hubness = TrainingScores(0, 0.3, 20)


@pytest.fixture(scope="session")
def judged(served, tmp_path_factory):
    """The address of a server whose photos are likely right, may be right, or are not."""
    folder = tmp_path_factory.mktemp("judged") / "photos"
    paint(folder / "red.png", "red")
    paint(folder / "half.png", "red", "blue")
    paint(folder / "third.png", "red", "blue", "green")
    paint(folder / "white.png", "white")
    model = give_sentences(CalibratedModel(), SENTENCES)
    with make_library(folder, tmp_path_factory.mktemp("library"), model) as library:
        host, port = served(app=create_app(show(library)))
        yield f"http://{host}:{port}/"


@pytest.fixture
def judged_live(served, tmp_path):
    """A server of two photos with probabilities that follows its folder: `url` and `folder`."""
    folder = tmp_path / "photos"
    paint(folder / "red.png", "red")
    paint(folder / "white.png", "white")
    library = PhotoLibrary(tmp_path / "library", CalibratedModel())
    following = LiveLibrary(lambda: library, [folder])
    following.start()
    while not (following.progress().state == "ready" and following.progress().photos == 2):
        time.sleep(0.02)
    host, port = served(app=create_app(following))
    yield SimpleNamespace(url=f"http://{host}:{port}/", folder=folder)
    following.stop()
    library.close()


@pytest.fixture(scope="module")
def many_likely(served, tmp_path_factory):
    """The address of a server of 70 photos that are likely right for "red"."""
    folder = tmp_path_factory.mktemp("many") / "photos"
    for number in range(70):
        paint_mosaic(folder / f"{number}.png", ("red", "blue"), seed=number)
    with make_library(folder, tmp_path_factory.mktemp("library"), CalibratedModel()) as library:
        host, port = served(app=create_app(show(library)))
        yield f"http://{host}:{port}/"


@pytest.fixture(scope="module")
def copies(served, tmp_path_factory):
    """A server of six photos of three pictures: `url` and `folder`."""
    folder = tmp_path_factory.mktemp("copies") / "photos"
    for name, size in {"a": (600, 400), "b": (300, 200), "c": (150, 100)}.items():
        paint(folder / f"{name}.png", "red", "blue", "red", "white", size=size)
    flag = paint(folder / "flag.png", "green", "yellow", "black", size=(90, 60))
    (folder / "copy of flag.png").write_bytes(flag.read_bytes())
    paint(folder / "white.png", "white", "grey", size=(90, 60))
    with make_library(folder, tmp_path_factory.mktemp("library"), TinyModel()) as library:
        host, port = served(app=create_app(show(library)))
        yield SimpleNamespace(url=f"http://{host}:{port}/", folder=folder)


@pytest.fixture(scope="module")
def live(served, tmp_path_factory):
    """A server of 150 dated photos in nested folders that follows its folder: `url` and `folder`."""
    folder = tmp_path_factory.mktemp("live") / "album"
    for number in range(150):
        year, month, day = 2019 + number // 50, 1 + number % 50 // 5, 1 + number % 5
        place = folder / str(year) / ("Holidays" if number % 2 == 0 else "Family")
        colours = NAMES[number % 3], NAMES[3 + number % 4]
        paint_mosaic(place / f"IMG_{year}{month:02}{day:02}_120000.png", colours, seed=number)
    library = PhotoLibrary(tmp_path_factory.mktemp("library"), TinyModel())
    following = LiveLibrary(lambda: library, [folder])
    following.start()
    while not (following.progress().state == "ready" and following.progress().photos == 150):
        time.sleep(0.02)
    host, port = served(app=create_app(following))
    yield SimpleNamespace(url=f"http://{host}:{port}/", folder=folder, library=library, live=following)
    following.stop()
