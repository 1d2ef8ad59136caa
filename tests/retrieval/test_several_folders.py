"""Several folders behave as one: search, filters, files, updates."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient
from tiny_model import TinyModel, paint

from fishermix.errors import FishermixError
from fishermix.retrieval.details import Details, Filter
from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.several_folders import SeveralFolders, drop_inner_folders
from fishermix.retrieval.store import Entry, Stamp
from fishermix.server.app import create_app


@pytest.fixture
def album(tmp_path):
    paint(tmp_path / "all" / "Pictures" / "2019" / "red.png", "red")
    paint(tmp_path / "all" / "Pictures" / "blue.png", "blue")
    paint(tmp_path / "all" / "Camera" / "red.png", "red", "white")
    paint(tmp_path / "all" / "Camera" / "green.png", "green")
    paint(tmp_path / "all" / "private.png", "red")
    folders = [tmp_path / "all" / name for name in ("Pictures", "Camera")]
    model = TinyModel()
    with SeveralFolders([PhotoIndex(one, model, tmp_path / one.name) for one in folders]) as album:
        assert album.update().encoded == 4
        yield album


@pytest.fixture
def client(album):
    with TestClient(create_app(album, ["a red picture"]), base_url="http://127.0.0.1") as client:
        yield client


def test_the_best_photo_of_any_folder_comes_first(album):
    found = [hit.path for hit in album.search("red", 4)]
    assert found[:2] == ["Pictures/2019/red.png", "Camera/red.png"]
    assert sorted(found[2:]) == ["Camera/green.png", "Pictures/blue.png"]
    assert [hit.path for hit in album.search("green", 1)] == ["Camera/green.png"]
    scores = [hit.score for hit in album.search("red", 4)]
    assert scores == sorted(scores, reverse=True)
    assert [hit.path for hit in album.search("red", 4, only=Filter(folder="camera"))] == found[1:2] + [
        path for path in found[2:] if path.startswith("Camera/")
    ]


def test_ids_paths_and_points_are_those_of_the_folders(album):
    for hit in album.search("red", 4):
        index, relative = album.part_of(hit.path)
        assert album.path(hit) == index.folder / relative
        assert album.store.path_of(hit.id) == hit.path
        assert album.store.id_of(hit.path) == hit.id == index.store.id_of(relative)
        assert np.array_equal(album.point_of(hit.id), index.point_of(hit.id))
    assert album.store.path_of("0" * 16) is None
    assert album.point_of("0" * 16) is None
    assert album.store.summary().photos == 4
    assert (
        set(album.store.details()) == set(album.store.stamps()) == {hit.path for hit in album.search("red")}
    )
    assert set(album.store.details(["Camera/red.png"])) == {"Camera/red.png"}
    contents, vectors = album.store.contents()
    assert len(contents) == len(vectors) == len(album.store.sample_scores(vectors[0], 100)) == 4
    assert album.store.verify() == []


def test_what_is_written_goes_to_the_store_of_its_folder(album):
    store, (pictures, camera) = album.store, album.parts
    vector = np.full_like(album.point_of(store.id_of("Camera/red.png")), 0.5)
    new = Entry("Camera/new.png", Stamp(1, 2), b"n" * 32, np.resize(vector, store.contents()[1].shape[1]))
    with store.writing():
        store.write([new], removed=["Pictures/blue.png"])
        store.write_details({"Camera/new.png": Details("2019-01-02T03:04:05", "exif", "Box")})
        store.tune()
    assert set(camera.store.stamps()) == {"red.png", "green.png", "new.png"}
    assert set(pictures.store.stamps()) == {"2019/red.png"}
    assert camera.store.details(["new.png"])["new.png"].camera == "Box"
    assert store.known_contents([new.sha256]) == set()  # the other store has no vector of it
    assert camera.store.known_contents([new.sha256]) == {new.sha256}
    store.delete()
    assert not any(Path(part.store.name).exists() for part in album.parts)


def test_the_page_shows_all_folders_and_filters_them(client, album):
    assert client.get("/api/health").json()["folder"] == "Pictures and Camera"
    folders = {one["name"]: one["photos"] for one in client.get("/api/facets").json()["folders"]}
    assert folders == {"Camera": 2, "Pictures": 2, "Pictures/2019": 1}
    found = client.get("/api/browse", params={"in": "/Camera"}).json()["photos"]
    assert sorted(one["path"] for one in found) == ["Camera/green.png", "Camera/red.png"]
    for one in found:
        file = album.folder / one["path"]
        assert client.get(f"/api/photos/{one['id']}/original").content == file.read_bytes()
        assert client.get(f"/api/photos/{one['id']}").headers["content-type"] == "image/jpeg"
        assert client.get(f"/api/photos/{one['id']}/details").json()["file"] == str(file)


@pytest.mark.skipif(os.name != "posix", reason="making links needs a privilege")
def test_a_file_between_the_folders_is_in_none_of_them(client, album):
    photo = album.store.id_of("Camera/red.png")
    file = album.folder / "Camera" / "red.png"
    file.unlink()
    file.symlink_to(album.folder / "private.png")
    assert client.get(f"/api/photos/{photo}/original").status_code == 404
    assert client.get("/api/export", params={"id": photo}).status_code == 404


def test_a_folder_that_is_gone_does_not_stop_the_others(album):
    shutil.rmtree(album.folder / "Pictures")
    paint(album.folder / "Camera" / "new.png", "yellow")
    with pytest.raises(FishermixError, match="Pictures"):
        album.update()
    assert album.search("yellow", 1)[0].path == "Camera/new.png"


def test_folders_inside_others_are_dropped(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    assert drop_inner_folders([a / "x", a, b, a, b / "y" / "z"]) == [a, b]
    assert drop_inner_folders([tmp_path / "ab", a]) == [tmp_path / "ab", a]


def test_inner_folders_that_the_outer_index_leaves_out_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("FISHERMIX_HOME", str(tmp_path / "home"))
    a, kept = tmp_path / "a", tmp_path / "a" / "b" / "kept"
    kept.mkdir(parents=True)
    (a / ".fishermixignore").write_text("/b/kept\n")
    assert drop_inner_folders([a / ".hidden", a, a / "thumbs", kept]) == [
        a / ".hidden",
        a,
        a / "thumbs",
        kept,
    ]
    assert drop_inner_folders([a, a / "b", kept]) == [a, kept]  # a does not cover it, and b is not served
    assert drop_inner_folders([a / "x" / "y", a / "z", a], exclude=["x/"]) == [a / "x" / "y", a]
    paint(a / "z" / "red.png", "red")
    with PhotoIndex(a / "z", TinyModel()) as index:
        index.update()
    assert drop_inner_folders([a, a / "z"]) == [a]
    assert drop_inner_folders([a, a / "z"], update=False) == [a, a / "z"]


@pytest.fixture
def nested(tmp_path, monkeypatch):
    """The photos of a folder, of a hidden one in it, and of one whose photos the outer index has, too."""
    monkeypatch.setenv("FISHERMIX_HOME", str(tmp_path / "home"))
    outer = tmp_path / "a"
    for name, colors in {
        "red": ["red"],
        ".hidden/blue": ["blue"],
        "x/green": ["green"],
        "x/sea": ["blue"],
    }.items():
        paint(outer / f"{name}.png", *colors)
    model = TinyModel()
    with PhotoIndex(outer, model) as index:
        index.update()
    places = [outer, outer / ".hidden", outer / "x"]
    with SeveralFolders([PhotoIndex(place, model, exclude=["x/"]) for place in places]) as nested:
        nested.update()
        yield nested


def test_a_photo_of_nested_folders_belongs_to_the_innermost_one(nested):
    everything = [".hidden/blue.png", "red.png", "x/green.png", "x/sea.png"]
    assert sorted(hit.path for hit in nested.search("blue", 9)) == everything
    assert sorted(hit.path for hit in nested.search("blue", 2)) == [".hidden/blue.png", "x/sea.png"]
    assert nested.search("red", 1)[0].path == "red.png"
    assert sorted(nested.store.stamps()) == sorted(nested.store.details()) == everything
    assert nested.store.summary().photos == nested.store.summary().pictures == 4
    contents, vectors = nested.store.contents()
    assert sorted(path for paths in contents for path in paths) == everything
    assert len(vectors) == len(contents)
    for path in everything:
        index, relative = nested.part_of(path)
        assert index.folder / relative == nested.folder / path
        assert nested.store.path_of(nested.store.id_of(path)) == path
    assert nested.part_of("x/sea.png")[0].folder.name == "x"


def test_the_page_shows_a_hidden_folder_that_is_named(nested):
    with TestClient(create_app(nested, ["a red picture"]), base_url="http://127.0.0.1") as client:
        assert client.get("/api/status").json()["photos"] == 4
        found = client.get("/api/search?q=blue&n=1").json()["photos"][0]
        assert found["path"] == ".hidden/blue.png"
        assert client.get(f"/api/photos/{found['id']}/original").status_code == 200
