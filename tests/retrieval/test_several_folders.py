"""Several folders behave as one: search, filters, files, updates."""

import os
import shutil

import numpy as np
import pytest
from starlette.testclient import TestClient
from tiny_model import TinyModel, paint

from fishermix.errors import FishermixError
from fishermix.retrieval.details import Filter
from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.several_folders import SeveralFolders, drop_inner_folders
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
