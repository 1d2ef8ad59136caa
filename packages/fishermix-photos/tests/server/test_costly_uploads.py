"""An upload that would cost minutes is given up, and other requests are served meanwhile."""

import io
import threading

import pytest
from fishermix_photos.photos import worker
from fishermix_photos.photos.open import open_photo
from fishermix_photos.server.app import create_app
from PIL import Image
from serving import make_library, show
from starlette.testclient import TestClient
from tiny_model import TinyImageEncoder, TinyModel, paint


class DecodingEncoder(TinyImageEncoder):
    """Opens photos as the real encoders do."""

    def _shares(self, source, on_open=None):
        image = open_photo(source)
        if on_open is not None:
            on_open(source, image)
        return super()._shares(image)


@pytest.fixture
def client(tmp_path):
    model = TinyModel()
    model.image_encoder = DecodingEncoder()
    paint(tmp_path / "photos" / "red.png", "red")
    library = make_library(tmp_path / "photos", tmp_path / "library", model)
    with library, TestClient(create_app(show(library)), base_url="http://127.0.0.1") as client:
        yield client
    worker.stop_workers()


def make_slow_picture() -> bytes:
    """A progressive JPEG whose last scan comes 54 times more: it takes libjpeg seconds, but less than 10."""
    file = io.BytesIO()
    Image.new("L", (8000, 6500), 90).save(file, "JPEG", progressive=True)
    jpeg = file.getvalue()
    start, end = jpeg.rindex(b"\xff\xda"), jpeg.rindex(b"\xff\xd9")
    return jpeg[:end] + jpeg[start:end] * 54 + jpeg[end:]


def test_a_slow_upload_takes_too_long_and_the_next_is_served(client, tmp_path, monkeypatch):
    photo = (tmp_path / "photos" / "red.png").read_bytes()
    assert client.post("/api/caption", content=photo).json()["sentence"] == "a red picture"
    slow = make_slow_picture()
    monkeypatch.setattr(worker, "SECONDS_FROM_NETWORK", 0.5)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(client.post("/api/caption", content=slow)))
    thread.start()
    served = [client.get("/api/search", params={"q": "red"}).status_code for _ in range(5)]
    thread.join()
    assert served == [200] * 5
    assert answers[0].status_code == 400
    assert "took too long" in answers[0].json()["detail"]
    monkeypatch.undo()
    assert client.post("/api/similar", content=photo + b"\0").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_uploads_never_reach_a_decoder_of_the_server(client, monkeypatch, kind):
    def decode(*_):
        raise AssertionError("It was decoded here.")

    monkeypatch.setattr("fishermix_photos.photos.open.decode_bytes", decode)
    picture, out = Image.new("RGB", (9, 9), (220, 20, 20)), io.BytesIO()
    picture.save(out, kind)
    assert client.post("/api/caption", content=out.getvalue()).json()["sentence"] == "a red picture"
