"""One library: a photo that any index of this machine has is not encoded again."""

import os
import shutil
import stat

import numpy as np
import pytest
from tiny_model import NAMES, TinyModel, paint

from fishermix.errors import FishermixError
from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.library import find_parent, list_library, read_folder
from fishermix.retrieval.open import open_store
from fishermix.retrieval.photo_files import default_index
from fishermix.retrieval.sqlite_store import LocalStore
from fishermix.retrieval.subfolder_store import SubfolderStore


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FISHERMIX_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for name in NAMES:
        paint(folder / f"{name}.png", name)
    paint(folder / "sub" / "flag.png", "red", "white", "blue")
    paint(folder / "sub" / "deep" / "pair.png", "red", "black")
    paint(folder / "subtle.png", "green", "red")  # next to sub in the alphabet, but not in it
    return folder


def update(folder, model=None):
    with PhotoIndex(folder, model or TinyModel()) as index:
        changes = index.update()
        assert index.store.verify() == []
        return changes.encoded, changes.recognised, changes.removed


def search(folder, query, n=100):
    with PhotoIndex(folder, TinyModel()) as index:
        return [hit.path for hit in index.search(query, n)]


def test_a_moved_folder_a_copy_and_a_subfolder_are_not_encoded_again(photos, tmp_path):
    assert update(photos) == (10, 0, 0)
    moved = photos.rename(tmp_path / "moved")
    assert update(moved) == (0, 10, 0)
    shutil.copytree(moved / "sub", tmp_path / "copy")
    assert update(tmp_path / "copy") == (0, 2, 0)
    assert update(moved / "sub") == (0, 0, 0)  # the index of `moved` covers it
    paint(moved / "sub" / "new.png", "yellow", "green")
    assert update(moved / "sub") == (1, 0, 0)
    assert update(moved) == (0, 0, 0)
    assert search(moved, "red")[0] == "red.png"


def test_recognized_photos_have_the_bits_of_encoded_ones(photos, tmp_path):
    update(photos)
    shutil.copytree(photos, tmp_path / "copy")
    update(tmp_path / "copy")
    one, other = LocalStore(default_index(photos)), LocalStore(default_index(tmp_path / "copy"))
    for path in one.stamps():
        np.testing.assert_array_equal(one.vector_of(one.id_of(path)), other.vector_of(other.id_of(path)))
    one.close()
    other.close()


def test_a_subfolder_is_searched_in_the_index_above(photos):
    update(photos)
    assert set(search(photos / "sub", "red")) == {"flag.png", "deep/pair.png"}
    assert search(photos / "sub", "red", 1) == ["deep/pair.png"]
    assert search(photos / "sub" / "deep", "red white blue") == ["pair.png"]
    with PhotoIndex(photos / "sub", TinyModel()) as index:
        assert isinstance(index.store, SubfolderStore)
        assert index.store.summary().photos == 2
        assert len(index.store.sample_scores(index.encode_query("red").vector, 100)) == 2
        assert set(index.store.details()) == {"flag.png", "deep/pair.png"}
        hit = index.search("red", 1)[0]
        assert index.path(hit) == photos / "sub" / "deep" / "pair.png"
        assert index.store.path_of(hit.id) == "deep/pair.png"
        outside = index.store.whole.id_of("red.png")
        assert index.store.path_of(outside) is None
        assert index.store.vector_of(outside) is None
        with pytest.raises(FishermixError, match="no index of its own"):
            index.store.delete()
    assert [one.folder for one in list_library()] == [photos]


def test_an_update_of_a_subfolder_leaves_the_rest_alone(photos):
    update(photos)
    (photos / "sub" / "flag.png").unlink()
    (photos / "red.png").unlink()
    assert update(photos / "sub") == (0, 0, 1)
    assert len(LocalStore(default_index(photos)).stamps()) == 9  # red.png is not in the subfolder
    assert update(photos) == (0, 0, 1)


def test_an_own_index_another_model_and_a_hidden_folder_do_not_use_the_index_above(photos):
    update(photos / "sub")
    update(photos)
    assert find_parent(photos / "sub") is None
    paint(photos / ".private" / "secret.png", "red")
    assert find_parent(photos / ".private") is None
    assert update(photos / ".private") == (0, 1, 0)  # the same picture as red.png

    class Other(TinyModel):
        key = "other"

    paint(photos / "more" / "a.png", "blue", "black")
    assert find_parent(photos / "more", "tiny") == photos
    assert update(photos / "more", Other()) == (1, 0, 0)
    assert LocalStore(default_index(photos)).model_key() == "tiny"  # the index above is as it was


def test_vectors_of_another_model_and_damaged_ones_are_not_taken(photos, tmp_path):
    class Other(TinyModel):
        key = "other"

    update(photos)
    shutil.copytree(photos, tmp_path / "copy")
    assert update(tmp_path / "copy", Other()) == (10, 0, 0)
    file = next(default_index(photos).glob("vectors-*.f32"))
    data = bytearray(file.read_bytes())
    data[5] ^= 64  # the point of one photo
    file.write_bytes(data)
    shutil.rmtree(default_index(tmp_path / "copy"))
    assert update(tmp_path / "copy") == (1, 9, 0)


def test_a_damaged_index_elsewhere_stops_nothing(photos, tmp_path):
    update(photos)
    (default_index(photos) / "index.sqlite").write_bytes(b"no database" * 100)
    shutil.copytree(photos, tmp_path / "copy")
    assert update(tmp_path / "copy") == (10, 0, 0)


def test_an_index_of_an_older_version_is_taken_over(photos, tmp_path):
    """Indexes of 0.1 do not know their folder."""
    update(photos)
    (default_index(photos) / "folder.txt").unlink()
    assert [one.folder for one in list_library()] == [None]
    assert search(photos / "sub", "red", 1) == ["deep/pair.png"]
    moved = photos.rename(tmp_path / "moved")
    assert update(moved) == (0, 10, 0)


@pytest.mark.skipif(os.name != "posix", reason="Windows has other permissions")
def test_the_name_of_the_folder_is_private_and_goes_with_the_index(photos):
    update(photos)
    place = default_index(photos)
    assert read_folder(place) == photos
    assert stat.S_IMODE((place / "folder.txt").stat().st_mode) == 0o600
    store = open_store(photos)
    store.delete()
    assert not place.exists()


def test_excluded_photos_are_neither_encoded_nor_found_nor_forgotten(photos):
    with PhotoIndex(photos, TinyModel(), exclude=["sub/", "b*.png"]) as index:
        assert index.update().encoded == 6
        assert "blue.png" not in {hit.path for hit in index.search("blue", 100)}
    assert update(photos) == (4, 0, 0)
    with PhotoIndex(photos, TinyModel(), exclude=["sub/"]) as index:
        assert not index.update()
        assert len(index.search("red", 100)) == 8
    assert update(photos) == (0, 0, 0)


def test_ignore_files_above_a_subfolder_count(photos):
    (photos / ".fishermixignore").write_text("/sub/deep\n")
    update(photos)
    assert update(photos / "sub") == (0, 0, 0)
    assert search(photos / "sub", "red") == ["flag.png"]
    assert find_parent(photos / "sub" / "deep") is None
