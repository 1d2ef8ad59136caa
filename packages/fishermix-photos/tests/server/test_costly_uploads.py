"""An upload that would cost minutes is given up, and other requests are served meanwhile."""

import io
import threading
import zlib

import pytest
from fishermix_photos.server.app import create_app
from fishermix_photos.vision import worker
from fishermix_photos.vision.open import open_photo
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


def test_a_slow_upload_takes_too_long_and_the_next_is_served(client, tmp_path, monkeypatch):
    photo = (tmp_path / "photos" / "red.png").read_bytes()
    assert client.post("/api/caption", content=photo).json()["sentence"] == "a red picture"
    start, empty = photo.index(b"IDAT") - 4, b"\0\0\0\0abCd" + zlib.crc32(b"abCd").to_bytes(4)
    slow = photo[:start] + empty * 1_500_000 + photo[start:]
    monkeypatch.setattr(worker, "SECONDS_FROM_NETWORK", 1.5)
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


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_uploads_never_reach_a_decoder_of_the_server(client, monkeypatch, kind):
    def decode(*_):
        raise AssertionError("It was decoded here.")

    monkeypatch.setattr("fishermix_photos.vision.open.decode_bytes", decode)
    picture, out = Image.new("RGB", (9, 9), (220, 20, 20)), io.BytesIO()
    picture.save(out, kind)
    assert client.post("/api/caption", content=out.getvalue()).json()["sentence"] == "a red picture"
