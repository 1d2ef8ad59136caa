"""The JSON API says what the library says, and nothing else."""

import functools
import io
import json
import math
import threading
import time
import urllib.request

import pytest
from fishermix_photos.search.results import Query, Results
from fishermix_photos.search.terms import parse_query
from fishermix_photos.server.app import STATIC, create_app
from fishermix_photos.server.guards import Limits
from PIL import Image
from serving import id_of
from starlette.testclient import TestClient
from tiny_model import COLOURS


@pytest.fixture(scope="module")
def client(shown):
    with TestClient(create_app(shown), base_url="http://127.0.0.1") as client:
        yield client


def photo(*colour, size=(20, 20), kind="PNG"):
    out = io.BytesIO()
    Image.new("RGB", size, COLOURS[colour[0]]).save(out, kind)
    return out.getvalue()


def test_search(client, library):
    answer = client.get("/api/search", params={"q": "red white blue", "n": 5}).json()
    assert answer["photos"][0]["path"] == "photos/sub/flag.png"
    expected = library.search(Query(parse_query("red white blue"), n=5))
    assert [(found["id"], found["score"]) for found in answer["photos"]] == [
        (photo.id, photo.score) for photo in expected.photos
    ]
    assert answer["more"]
    assert answer["notes"] == []
    notes = client.get("/api/search", params={"q": "red boat"}).json()["notes"]
    assert [(note["kind"], note["name"]) for note in notes] == [("ignored", "boat")]


def test_photos_have_probabilities_in_numbers_and_words(judged):
    def search(q):
        with urllib.request.urlopen(f"{judged}api/search?q={q}") as answer:
            return json.load(answer)

    answer = search("red")
    bands = {photo["path"].split("/")[1]: photo["band"] for photo in answer["photos"]}
    assert bands == {
        "red.png": "likely",
        "half.png": "likely",
        "third.png": "maybe",
        "white.png": "unlikely",
    }
    for photo in answer["photos"]:
        assert photo["probability"] == pytest.approx(1 / (1 + math.exp(4.9 - 8 * photo["score"])), abs=1e-4)
    assert not answer["nothing_matches"]
    answer = search("yellow")
    assert answer["nothing_matches"]
    assert {photo["band"] for photo in answer["photos"]} == {"unlikely"}


def test_combined_queries_with_a_photo(client, library):
    red = id_of(library, "red.png")
    answer = client.get("/api/search", params={"q": f"photo:{red} + white + blue", "n": 1}).json()
    assert answer["photos"][0]["path"] == "photos/sub/flag.png"


def test_similar_and_caption_by_id_and_by_upload(client, library):
    blue = id_of(library, "blue.png")
    by_id = client.get("/api/similar", params={"id": blue, "n": 3}).json()["photos"]
    assert blue not in [found["id"] for found in by_id]
    assert client.post("/api/similar?n=1", content=photo("blue")).json()["photos"][0][
        "score"
    ] == pytest.approx(1)
    for answer in (
        client.get("/api/caption", params={"id": blue}),
        client.post("/api/caption", content=photo("blue")),
    ):
        assert answer.json()["sentence"].startswith("a blue picture")
        assert (round(answer.json()["confidence"], 6), answer.json()["unsure"]) == (0.8, False)
    nothing = client.post("/api/caption", content=photo("black")).json()
    assert (nothing["confidence"], nothing["unsure"]) == (0.1, True)


def test_explain(client, library):
    flag = id_of(library, "sub/flag.png")
    answer = client.get("/api/explain", params={"q": '"red flag" - green', "id": flag}).json()
    assert answer["score"] == pytest.approx(1 / math.sqrt(3), abs=0.05)
    assert [part["word"] for part in answer["words"]] == ["red", "flag"]
    assert answer["words"][0]["drop"] == pytest.approx(answer["score"])
    assert answer["words"][1]["drop"] == pytest.approx(0)
    assert answer["out_of_vocabulary"] == ["flag"]
    named = client.get("/api/explain", params={"q": "white red.png", "id": id_of(library, "red.png")}).json()
    assert ([part["word"] for part in named["words"]], named["out_of_vocabulary"]) == (["white"], [])
    assert client.get("/api/explain", params={"q": f"photo:{flag}", "id": flag}).status_code == 400
    assert client.get("/api/explain", params={"q": "\x90", "id": flag}).status_code == 404  # no words
    assert client.get("/api/explain", params={"q": "*)", "id": "0" * 16}).status_code == 404


@pytest.mark.parametrize(("size", "longest"), [("small", 480), ("large", 640)])
def test_photos_are_drawn_anew(client, library, size, longest):
    answer = client.get(f"/api/photos/{id_of(library, 'red/red and blue.png')}", params={"size": size})
    assert answer.headers["content-type"] == "image/jpeg"
    picture = Image.open(io.BytesIO(answer.content))
    assert (picture.format, max(picture.size)) == ("JPEG", longest)


def test_a_place_in_the_picture_data_does_not_go_out(client, library, photos):
    data = Image.Exif()
    data[0x010E] = "secret description"
    Image.new("RGB", (30, 30), COLOURS["grey"]).save(photos / "grey.png", exif=data, pnginfo=None)
    answer = client.get(f"/api/photos/{id_of(library, 'grey.png')}", params={"size": "large"})
    assert b"secret" not in answer.content


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/search", 422),
        ("/api/search?q=" + "x" * 501, 422),
        ("/api/search?q=red&n=0", 422),
        ("/api/search?q=red&n=201", 422),
        ("/api/search?q=red&n=1e9", 422),
        ("/api/search?q=zorblax", 404),
        ("/api/search?q=+", 422),
        ("/api/search?q=red+-", 400),
        ("/api/search?q=photo:0000000000000000", 404),
        ("/api/similar?id=0000000000000000", 404),
        ("/api/similar?id=../../etc/passwd", 422),
        ("/api/photos/0000000000000000", 404),
        ("/api/photos/..%2f..%2fetc%2fpasswd", 404),
        ("/api/photos/red.png", 404),
        ("/../../../etc/passwd", 404),
        ("/static/../app.py", 404),
        ("/app.js/..%2f..%2fapp.py", 404),
        ("/docs", 404),
        ("/api/search?q=red&offset=-1", 422),
        ("/api/search?q=red&offset=10001", 422),
        ("/api/search?q=red&sort=name", 422),
        ("/api/search?q=red&after=yesterday", 422),
        ("/api/search?q=red&after=2019-02-31", 422),
        ("/api/search?q=red&after=2019-02-29", 422),
        ("/api/search?q=red&before=1900-02-29", 422),
        ("/api/browse?before=2019-04-31", 422),
        ("/api/browse?in=+", 422),
        ("/api/browse?kind=exe", 422),
        ("/api/browse?in=", 422),
        ("/api/browse?before=2019-13", 422),
        ("/api/photos/0000000000000000/details", 404),
        ("/api/photos/0000000000000000/original", 404),
        ("/api/photos/..%2f..%2fetc%2fpasswd/original", 404),
        ("/api/export", 422),
        ("/api/export?id=../../etc/passwd", 422),
        ("/api/export?id=0000000000000000", 404),
        ("/api/export?" + "&".join(["id=0000000000000000"] * 1001), 422),
    ],
)
def test_what_is_refused(client, path, status):
    answer = client.get(path)
    assert answer.status_code == status
    assert answer.json()["detail"]


def test_a_photo_that_became_a_link_out_of_the_folder_is_not_shown(client, library, photos, tmp_path):
    secret = tmp_path / "secret.png"
    secret.write_bytes(photo("red"))
    file = photos / "white.png"
    kept = file.read_bytes()
    file.unlink()
    file.symlink_to(secret)
    try:
        assert client.get(f"/api/photos/{id_of(library, 'white.png')}").status_code == 404
    finally:
        file.unlink()
        file.write_bytes(kept)


@pytest.mark.parametrize("path", ["/api/caption", "/api/similar"])
@pytest.mark.parametrize("body", [b"", b"no photo", b"<svg onload=alert(1)>", photo("red")[:60]])
def test_bad_photos_are_a_mistake_of_the_client(client, path, body):
    answer = client.post(path, content=body)
    assert answer.status_code == 400
    assert answer.json()["detail"]


def test_other_hosts_and_other_sites_are_refused(client):
    assert client.get("/api/status", headers={"Host": "evil.example"}).status_code == 421
    assert client.get("/api/status", headers={"Host": "127.0.0.1.evil.example:80"}).status_code == 421
    assert client.get("/api/status", headers={"Host": "localhost:8321"}).status_code == 200
    assert client.get("/api/status", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.get("/api/status", headers={"Origin": "null"}).status_code == 403
    assert client.get("/api/status", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    navigation = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/", headers=navigation).status_code == 200


@pytest.mark.parametrize("path", ["/", "/app.js", "/app.css", "/icon.svg", "/api/status", "/nowhere"])
def test_every_answer_carries_the_strict_policy(client, path):
    answer = client.get(path)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_page_names_no_outside_resource(client):
    for path in ("/", *(f"/{file.name}" for file in STATIC.iterdir() if file.suffix in (".js", ".css"))):
        text = client.get(path).text
        assert len(text) > 100
        # The place of a photo links to a map, which only a click opens.
        known = ("// ", "http://www.w3.org/2000/svg", "https://www.openstreetmap.org/?mlat")
        assert "//" not in functools.reduce(lambda left, part: left.replace(part, ""), known, text)
        assert "innerHTML" not in text


def test_a_body_that_says_it_is_too_large_is_not_read(shown):
    with TestClient(create_app(shown, Limits(body_bytes=1000)), base_url="http://127.0.0.1") as client:
        assert client.post("/api/caption", content=bytes(1001)).status_code == 413
        assert client.post("/api/caption", content=bytes(1000)).status_code == 400


def test_work_that_takes_too_long_and_too_much_of_it(shown, library, monkeypatch):
    limits = Limits(work_seconds=0.5, workers=1, waiting=1)
    with TestClient(create_app(shown, limits), base_url="http://127.0.0.1") as client:
        done, statuses = threading.Event(), []
        monkeypatch.setattr(library, "search", lambda *_: done.wait() and Results())

        def ask():
            statuses.append(client.get("/api/search", params={"q": "red"}).status_code)

        threads = [threading.Thread(target=ask) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(statuses) == [503, 503, 503, 504, 504]
        monkeypatch.undo()
        done.set()
        for _ in range(100):
            if client.get("/api/search", params={"q": "red"}).status_code == 200:
                break
            time.sleep(0.1)
        else:
            pytest.fail("the slots were never given back")
