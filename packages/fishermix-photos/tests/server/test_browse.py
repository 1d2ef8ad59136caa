"""Browsing, filters, pages and suggestions, against naive versions of themselves."""

import math
from collections import Counter
from datetime import date

import numpy as np
import pytest
from fishermix.joint.hubness import HubnessCorrection
from fishermix_photos.index.photo import name_folders
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.model.sentences import SentencePool, find_topics
from fishermix_photos.search.facets import count_facets
from fishermix_photos.search.results import Query
from fishermix_photos.search.terms import parse_query
from fishermix_photos.server.app import create_app
from serving import make_library, paint_mosaic, photos_of, show
from starlette.testclient import TestClient
from tiny_model import NAMES, TinyModel, paint


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browse") / "album"
    for number in range(90):
        year, month, day = 2018 + number % 4, 1 + number % 12, 1 + number % 28
        place = folder / ("Holidays" if number % 3 else "work/Holidays") / str(number % 2)
        suffix = "png" if number % 5 else "jpg"
        shape = (48, 32) if number % 4 else (32, 48)
        colours = NAMES[number % 7], NAMES[number * 3 % 7], NAMES[number // 13]
        name = f"IMG_{year}{month:02}{day:02}_{number % 24:02}0000 {number}.{suffix}"
        paint_mosaic(place / name, colours, seed=number, size=shape)
    with make_library(folder, tmp_path_factory.mktemp("library"), TinyModel()) as library:
        yield library


@pytest.fixture(scope="module")
def client(album):
    with TestClient(create_app(show(album)), base_url="http://127.0.0.1") as client:
        yield client


def all_pages(client, path, n, **parameters):
    found, offset = [], 0
    while True:
        answer = client.get(path, params={**parameters, "n": n, "offset": offset}).json()
        found += answer["photos"]
        offset += n
        if not answer["more"]:
            return found, answer


def day_of(path):
    stamp = path.split("IMG_")[1]
    return date(int(stamp[:4]), int(stamp[4:6]), int(stamp[6:8]))


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 7, 60, 200])
@pytest.mark.parametrize("sort", ["date", "oldest", "name"])
def test_pages_put_together_are_everything_in_order(client, album, n, sort):
    found, last = all_pages(client, "/api/browse", n, sort=sort)
    paths = [photo["path"] for photo in found]
    assert last["total"] == 90
    assert sorted(paths) == sorted(f"album/{path}" for path in photos_of(album))
    keys = [path.lower() if sort == "name" else path.split("IMG_")[1][:15] for path in paths]
    assert keys == sorted(keys, reverse=sort == "date")
    assert all(photo["taken"][:10] == str(day_of(photo["path"])) for photo in found)
    assert all(album.photo(photo["id"]).name == photo["path"] for photo in found)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"after": "2019"}, lambda path: day_of(path) >= date(2019, 1, 1)),
        ({"before": "2019-06"}, lambda path: day_of(path) < date(2019, 6, 1)),
        (
            {"after": "2018-03-05", "before": "2020-02-29"},
            lambda path: date(2018, 3, 5) <= day_of(path) < date(2020, 2, 29),
        ),
        ({"in": "work/Holidays"}, lambda path: path.startswith("work/Holidays/")),
        ({"in": "holidays"}, lambda path: True),
        ({"in": "/album/Holidays"}, lambda path: path.startswith("Holidays/")),
        ({"in": "/album/Holiday"}, lambda path: False),
        ({"kind": "JPEG"}, lambda path: path.endswith(".jpg")),
        ({"kind": "video"}, lambda path: False),
        (
            {"kind": "PNG", "in": "1", "after": "2020"},
            lambda p: p.endswith("png") and "/1/" in p and day_of(p).year >= 2020,
        ),
    ],
)
@pytest.mark.parametrize("query", [None, "red"])
def test_filters(client, album, parameters, expected, query):
    path, extra = ("/api/search", {"q": query}) if query else ("/api/browse", {})
    found, _ = all_pages(client, path, 40, **parameters, **extra)
    wanted = [f"album/{path}" for path in photos_of(album) if expected(path)]
    assert sorted(photo["path"] for photo in found) == sorted(wanted)


def test_details(client):
    found, _ = all_pages(client, "/api/browse", 50)
    assert {(photo["width"], photo["height"]) for photo in found} == {(32, 48), (48, 32)}
    details = client.get(f"/api/photos/{found[0]['id']}/details").json()
    assert details["taken_from"] == "name"
    assert details["file"].endswith(found[0]["path"])
    assert details["bytes"] > 50


@pytest.mark.parametrize("n", [1, 13, 60])
def test_pages_of_a_search_are_its_ranking(client, album, n):
    found, _ = all_pages(client, "/api/search", n, q="red white")
    expected = album.search(Query(parse_query("red white"), n=1000)).photos
    assert [(photo["path"], photo["score"]) for photo in found] == [
        (photo.name, photo.score) for photo in expected
    ]


def test_a_search_by_date_has_what_stands_out(client, album):
    found, _ = all_pages(client, "/api/search", 200, q="red", sort="date")
    query = Query(parse_query("red"), n=1000, min_probability=0.2)
    wanted = {photo.name for photo in album.search(query).photos}
    assert {photo["path"] for photo in found} == wanted
    assert 0 < len(wanted) < 90
    taken = [photo["taken"] for photo in found]
    assert taken == sorted(taken, reverse=True)
    in_pages, _ = all_pages(client, "/api/search", 2, q="red", sort="date")
    assert in_pages == found


def test_facets_count_what_the_filters_find(client):
    facets = client.get("/api/facets").json()
    names = {"years": "after", "folders": "in", "kinds": "kind"}
    for facet, parameter in names.items():
        assert facets[facet]
        for choice in facets[facet]:
            chosen = {parameter: choice["name"]}
            if facet == "years":
                chosen["before"] = str(int(choice["name"]) + 1)
            if facet == "folders":
                chosen = {"in": f"/{choice['name']}"}
            assert client.get("/api/browse", params=chosen).json()["total"] == choice["photos"]


def test_folders_of_one_name_are_told_apart(tmp_path):
    """`iapr/images` and `coco/images`: each has a node of its own, names, and a filter."""
    places = {
        tmp_path / "iapr" / "images": 3,
        tmp_path / "coco" / "images": 2,
        tmp_path / "coco" / "Camera": 1,
        tmp_path / "images of dogs": 1,
    }
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        for place, number in places.items():
            for photo in range(number):
                paint(place / "inside" / f"{photo} {place.parent.name}.png", NAMES[photo], "red")
            library.update([place])
        with TestClient(create_app(show(library)), base_url="http://127.0.0.1") as client:
            folders = {one["name"]: one["photos"] for one in client.get("/api/facets").json()["folders"]}
            tops = {name for name in folders if not name.endswith("/inside")}
            assert tops == {"Camera", "coco", "coco/images", "iapr", "iapr/images", "images of dogs"}
            paths = {photo["path"] for photo in client.get("/api/browse").json()["photos"]}
            for name, number in folders.items():
                chosen = client.get("/api/browse", params={"in": f"/{name}"}).json()["photos"]
                if name == "coco":  # its part of a name, not the folder Camera
                    assert number == 2
                assert len(chosen) == number
                assert {photo["path"] for photo in chosen} == {
                    path for path in paths if path.startswith(f"{name}/")
                }
            assert client.get("/api/browse", params={"in": "/images"}).json()["total"] == 5
            # As a user types what the page shows.
            assert client.get("/api/browse", params={"in": "iapr/images"}).json()["total"] == 3
            assert client.get("/api/browse", params={"in": "coco/images/inside"}).json()["total"] == 2
        with TestClient(create_app(show(library, [*places][:1])), base_url="http://127.0.0.1") as client:
            assert client.get("/api/browse", params={"in": "/iapr/images"}).json()["total"] == 3


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["/a/b"], ["b"]),
        (["/"], [""]),
        (["/", "/a"], ["", "a"]),
        (["/x/a/b", "/y/a/b", "/b"], ["x/a/b", "y/a/b", "b"]),
        (["/b", "/a/b"], ["b", "a/b"]),
    ],
)
def test_names_of_folders(folders, names):
    assert [*name_folders(folders).values()] == names


def test_all_folders_are_counted():
    files = [
        (row, b"/home/me/Pictures/%d/%d/a.jpg" % (row % 10, row), b"/home/me/Pictures", None)
        for row in range(500)
    ]
    folders = {folder.name: folder.photos for folder in count_facets(files).folders}
    assert folders["Pictures"] == 500
    assert [folders[f"Pictures/{number}"] for number in range(10)] == [50] * 10
    assert len(folders) == 1 + 10 + 500


def test_years_are_in_the_order_of_the_list(client):
    photos, _ = all_pages(client, "/api/browse", 60)
    years = [(year["name"], year["photos"]) for year in client.get("/api/browse").json()["years"]]
    counts = Counter(photo["taken"][:4] for photo in photos)
    assert years == sorted(counts.items(), reverse=True)
    oldest = client.get("/api/browse", params={"sort": "oldest", "after": "2019"}).json()["years"]
    assert [year["name"] for year in oldest] == ["2019", "2020", "2021"]
    assert client.get("/api/browse", params={"sort": "name"}).json()["years"] == []


def test_topics_are_what_the_photos_show():
    model = TinyModel()
    sentences = [f"a picture in {name}" for name in NAMES] + ["a boat in grey"] * 40
    sentences += [f"a brown dog with a small ball runs in {name} at night" for name in ("red", "green")]
    pool = SentencePool(model, sentences)
    points = model.encode_text(["red"] * 30 + ["green"] * 10)
    words = find_topics(pool, points)
    assert {"picture", "red", "green", "night"} <= {*words}
    assert words.index("night") < words.index("picture")  # all photos have both, more sentences have pictures
    assert not {"blue", "black", "white", "a", "boat"} & {*words}
    assert not {"runs", "small", "brown"} & {*words}  # a verb and adjectives
    assert find_topics(pool, np.empty((0, 7))) == []


def test_topics_are_what_other_photos_do_not_show():
    """Compared with the training photos in the model: what these show too does not distinguish a library."""
    images = np.eye(7, dtype=np.float32)[[0] * 50 + [1] * 50]
    model = TinyModel()
    model.hubness = HubnessCorrection.from_embeddings(images, images, 5)
    pool = SentencePool(model, [f"a picture in {name}" for name in NAMES] * 2)
    assert pool.reference == ({"red": 50, "green": 50, "picture": 100}, 100)
    assert find_topics(pool, model.encode_text(["red"] * 20 + ["blue"] * 15)) == ["blue"]
    points = model.encode_text(["white"] * 20 + ["red"] * 20 + ["blue"] * 6)
    bounds = {
        word: math.log(seen / 46 * 100 / (usual + 0.5)) - 1.64 * math.sqrt(1 / seen + 1 / (usual + 0.5))
        for word, seen, usual in [("white", 20, 0), ("red", 20, 50), ("blue", 6, 0), ("picture", 46, 100)]
    }
    expected = sorted((word for word in bounds if bounds[word] > 0), key=lambda word: -bounds[word])
    assert find_topics(pool, points) == expected
