"""The index of a folder follows the folder."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from tiny_model import NAMES, CrowdedModel, TinyModel, paint

from fishermix.errors import FishermixError
from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.open import open_store
from fishermix.retrieval.photo_files import default_index
from fishermix.retrieval.sqlite_store import LocalStore
from fishermix.retrieval.store import StoreLocked


class CountingModel(TinyModel):
    """Counts the photos it is made to look at."""

    def __init__(self):
        super().__init__()
        self.seen = []
        stream = self.image_encoder.stream
        self.image_encoder.stream = lambda images: stream(self.seen.extend(images) or images)


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for name in NAMES:
        paint(folder / f"{name}.png", name)
    paint(folder / "sub" / "flag.png", "red", "white", "blue")
    return folder


@pytest.fixture
def index(photos, tmp_path):
    with PhotoIndex(photos, CountingModel(), index=tmp_path / "index") as index:
        yield index


def found(index, text, n=100):
    return [hit.path for hit in index.search(index.model.encode_text([text])[0], n)]


def test_a_search_finds_the_photo_of_its_words(index):
    changes = index.update()
    assert (changes.encoded, changes.recognised, changes.removed) == (8, 0, 0)
    for name in NAMES:
        hits = index.search(index.model.encode_text([name])[0], n=2)
        assert hits[0].path == f"{name}.png"
        assert hits[0].score == pytest.approx(1, abs=1e-6)
    assert found(index, "red white blue")[0] == "sub/flag.png"


def test_sentences_go_by_the_match_and_photos_by_the_cosine(photos, tmp_path):
    model = CrowdedModel()
    with PhotoIndex(photos, model, index=tmp_path / "index") as index:
        index.update()
        points = {path: index.point_of(index.store.id_of(path)) for path in index.store.stamps()}
        images = np.stack(list(points.values()))
        match = model.match_sentences(model.encode_text(["red blue"])) @ model.match_images(images).T
        expected = {path: pytest.approx(score, abs=1e-6) for path, score in zip(points, match[0].tolist())}
        assert {hit.path: hit.score for hit in index.search("red blue", 100)} == expected
        # By the cosine red.png and blue.png are as near; red is where the crowd is.
        hits = [hit.path for hit in index.search("red blue", 100)]
        assert hits.index("blue.png") < hits.index("red.png")
        alike = {hit.path: hit.score for hit in index.search(f"photo:{index.store.id_of('red.png')}", 100)}
        assert alike == {path: pytest.approx(points[path][0], abs=1e-6) for path in points}
        assert index.store.verify() == []


@pytest.mark.parametrize("query", [np.zeros(5), np.zeros((1, 7)), np.zeros(40), np.full(7, np.nan)])
def test_a_query_that_is_no_point_is_refused(index, query):
    with pytest.raises(FishermixError, match="finite numbers"):
        index.search(query)


def test_hits_equal_a_full_sort(index):
    index.update()
    points = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    vectors = {path: index.store.vector_of(index.store.id_of(path)) for path in index.store.stamps()}
    for point in points:
        expected = sorted(vectors, key=lambda path: -float(vectors[path] @ point))
        assert [hit.path for hit in index.search(point, 100)] == expected
    assert [[h.path for h in hits] for hits in index.store.nearest(points, 3)] == [
        [hit.path for hit in index.search(point, 3)] for point in points
    ]


def test_nothing_is_read_twice(index):
    index.update()
    index.model.seen.clear()
    assert not index.update()
    assert index.model.seen == []


def test_a_changed_photo_is_read_again_and_keeps_its_id(index, photos):
    index.update()
    index.model.seen.clear()
    before = index.store.id_of("red.png")
    paint(photos / "red.png", "green", size=(50, 50))
    assert index.update().encoded == 1
    assert index.store.id_of("red.png") == before
    assert index.model.seen == [photos / "red.png"]
    assert set(found(index, "green", 2)) == {"green.png", "red.png"}
    assert index.store.verify() == []


def test_moved_copied_and_touched_photos_are_recognised_by_content(index, photos):
    index.update()
    index.model.seen.clear()
    (photos / "red.png").rename(photos / "sub" / "rot.png")
    shutil.copyfile(photos / "blue.png", photos / "blau.png")
    os.utime(photos / "green.png", ns=(1, 1))
    changes = index.update()
    assert (changes.encoded, changes.recognised, changes.removed) == (0, 3, 1)
    assert index.model.seen == []
    assert found(index, "red", 1) == ["sub/rot.png"]
    assert found(index, "blue", 2) == ["blau.png", "blue.png"]
    assert index.store.summary().contents == 8
    assert index.store.verify() == []


def test_deleted_photos_are_forgotten(index, photos):
    index.update()
    shutil.rmtree(photos / "sub")
    (photos / "red.png").unlink()
    assert index.update().removed == 2
    assert set(found(index, "red")) == {f"{name}.png" for name in NAMES} - {"red.png"}
    assert index.store.verify() == []


def test_unreadable_files_are_remembered_and_retried_only_when_they_change(index, photos):
    (photos / "broken.jpg").write_bytes(b"no photo")
    changes = index.update()
    assert changes.encoded == 8
    assert list(changes.unreadable) == ["broken.jpg"]
    assert "photo" in index.store.summary().unreadable["broken.jpg"]
    index.model.seen.clear()
    assert not index.update()
    assert index.model.seen == []
    Image.new("RGB", (9, 9), (220, 20, 20)).save(photos / "broken.jpg")
    assert index.update().encoded == 1
    assert index.store.summary().unreadable == {}
    assert index.store.verify() == []


def test_a_file_that_may_not_be_opened_is_tried_again(index, photos, monkeypatch):
    def refusing(path, *rest):
        if path.name == "red.png":
            raise PermissionError(13, "Permission denied")
        return open(path, *rest)

    monkeypatch.setattr("fishermix.retrieval.update.open", refusing, raising=False)
    assert index.update().unreadable == {"red.png": "cannot be opened (Permission denied)"}
    assert list(index.store.summary().unreadable) == ["red.png"]
    monkeypatch.undo()
    assert index.update().encoded == 1
    assert found(index, "red", 1) == ["red.png"]


def test_a_folder_that_may_not_be_read_keeps_its_photos(index, photos, monkeypatch):
    index.update()
    scandir = os.scandir

    def refusing(folder):
        if folder.name == "sub":
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    changes = index.update()
    assert changes.removed == 0
    assert changes.unreadable == {"sub/": "cannot be read (Permission denied)"}
    assert found(index, "red white blue", 1) == ["sub/flag.png"]


def test_a_disk_that_is_not_mounted_costs_no_index(index, photos):
    index.update()
    photos.rename(photos.with_name("elsewhere"))
    photos.mkdir()
    with pytest.raises(FishermixError, match=r"has 8 photos, but .* has none\. Is the disk mounted"):
        index.update()
    assert index.store.summary().photos == 8


def test_links_hidden_files_and_other_files_are_left_alone(index, photos, tmp_path):
    secret = paint(tmp_path / "outside" / "secret.png", "red")
    (photos / "link.png").symlink_to(secret)
    (photos / "linked").symlink_to(secret.parent)
    (photos / "loop").symlink_to(photos)
    paint(photos / ".hidden" / "red.png", "red")
    (photos / "notes.txt").write_text("red")
    assert index.update().encoded == 8


def test_names_that_are_no_text(index, photos):
    name = os.fsdecode(b"caf\xe9.png")
    paint(photos / "plain.png", "yellow", "black")
    os.rename(photos / "plain.png", photos / name)
    index.update()
    assert found(index, "yellow black", 1) == [name]


def test_another_model_takes_the_index_over(index, photos):
    index.update()
    index.model.key, index.model.match_dimension = "other", 3
    index.model.image_points = lambda features: features[:, :3]
    changes = index.update()
    assert changes.another_model
    assert changes.encoded == 8
    assert index.store.summary().dimension == 3
    assert index.store.verify() == []


def test_an_empty_folder_finds_nothing(tmp_path):
    (tmp_path / "empty").mkdir()
    with PhotoIndex(tmp_path / "empty", TinyModel(), index=tmp_path / "index") as index:
        index.update()
        assert found(index, "red") == []


def test_two_writers_at_once_are_told(index, tmp_path):
    other = LocalStore(tmp_path / "index")
    with other.writing(), pytest.raises(StoreLocked, match="Another process"):
        index.update()
    index.update()
    with other.writing():  # readers do not wait
        assert found(index, "red", 1) == ["red.png"]
    other.close()


def test_a_killed_writer_leaves_no_lock(index, tmp_path):
    index.update()
    script = (
        "import sys, os; from fishermix.retrieval.sqlite_store import LocalStore\n"
        "with LocalStore(sys.argv[1]).writing(): os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "index")], check=False)
    index.update()


def test_the_default_place_is_outside_the_photos(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("FISHERMIX_HOME", str(tmp_path / "home"))
    with PhotoIndex(photos, TinyModel()) as index:
        index.update()
    assert default_index(photos).parent.parent == tmp_path / "home"
    assert (default_index(photos) / "index.sqlite").is_file()
    assert default_index(photos) != default_index(photos / "sub")


def test_mistakes_are_explained(tmp_path, photos):
    with pytest.raises(FishermixError, match="not a folder"):
        PhotoIndex(tmp_path / "nowhere", TinyModel())
    with pytest.raises(FishermixError, match="contains no index"):
        open_store(photos, photos)
    with pytest.raises(FishermixError, match="no index yet"):
        open_store(photos, tmp_path / "none", must_exist=True)
