"""Indexes in read-only places, damaged and deleted ones, and photos that stay unreadable."""

import io
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing

import numpy as np
import pytest
from PIL import Image
from tiny_model import NAMES, TinyModel, paint

from fishermix.errors import FishermixError
from fishermix.retrieval import index_files, sqlite_schema
from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.index_files import hold_writer_lock
from fishermix.retrieval.open import delete_store
from fishermix.retrieval.sqlite_store import LocalStore
from fishermix.retrieval.store import StoreLocked
from fishermix.vision import pixel_limit
from fishermix.vision.images import UnreadableImage, open_photo


@pytest.fixture
def photos(tmp_path):
    for name in NAMES:
        paint(tmp_path / "photos" / f"{name}.png", name)
    return tmp_path / "photos"


@pytest.fixture
def read_only(tmp_path):
    """A function that puts a copy of a folder on a disk that nobody can write to."""
    if not shutil.which("mount") or os.geteuid() != 0:
        pytest.skip("only root can mount a read-only disk")
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "fishermix-test", place], check=False).returncode:
        pytest.skip("this system does not let us mount a disk")

    def copy(folder):
        shutil.copytree(folder, place / folder.name)
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        return place / folder.name

    yield copy
    subprocess.run(["umount", "-l", place], check=True)


def test_an_index_in_a_read_only_place_can_be_searched(read_only, tmp_path, photos):
    with PhotoIndex(photos, TinyModel(), tmp_path / "index") as index:
        index.update()
        expected = index.search("red", 3)
    place = read_only(tmp_path / "index")
    with PhotoIndex(photos, TinyModel(), place) as index:
        assert index.search("red", 3) == expected
        assert index.store.verify() == []
        assert index.store.summary().photos == len(NAMES)
        assert not index.update()  # nothing to write
        paint(photos / "new.png", "red")
        with pytest.raises(FishermixError, match=r"read-only.*--no-update"):
            index.update()
        assert index.search("red", 3) == expected


def test_an_index_with_a_log_in_a_read_only_place_shows_its_newest_state(read_only, tmp_path, photos):
    with PhotoIndex(photos, TinyModel(), tmp_path / "index") as index:
        index.update()
        assert (tmp_path / "index" / "index.sqlite-wal").stat().st_size  # it is open: the log is not merged
        place = read_only(tmp_path / "index")
    with PhotoIndex(photos, TinyModel(), place) as index:
        assert len(index.search("red", 10)) == len(NAMES)


@pytest.mark.parametrize("damage", [b"no database" * 1000, b""])
def test_a_damaged_index_can_be_deleted_as_its_message_says(tiny_home, tmp_path, photos, damage):
    for place in (None, tmp_path / "an index"):
        with PhotoIndex(photos, TinyModel(), place) as index:
            index.update()
            folder = index.store.folder
        (folder / "index.sqlite").write_bytes(damage)
        if damage:
            with pytest.raises(FishermixError, match=f"fishermix index remove {photos}") as caught:
                LocalStore(folder)
            assert (f"--index '{folder}'" in str(caught.value)) == (place is not None)
        assert delete_store(photos, place) == str(folder)
        assert not folder.exists()
        with PhotoIndex(photos, TinyModel(), place) as index:
            changes = index.update()
            assert changes.encoded + changes.recognised == len(NAMES)  # the other index knows them


@pytest.fixture
def tiny_home(tmp_path, monkeypatch):
    monkeypatch.setenv("FISHERMIX_HOME", str(tmp_path / "home"))


def test_an_index_that_is_being_written_is_not_deleted(tmp_path, photos):
    with PhotoIndex(photos, TinyModel(), tmp_path / "index") as index:
        index.update()
        with index.store.writing(), pytest.raises(StoreLocked):
            delete_store(photos, tmp_path / "index")
        assert index.store.verify() == []


def test_the_lock_is_held_while_the_files_are_deleted(tmp_path, photos, monkeypatch):
    with PhotoIndex(photos, TinyModel(), tmp_path / "index") as index:
        index.update()
    told = []

    class Watched:
        """Before the first file is deleted, another writer finds the index locked."""

        def fullmatch(self, name):
            if not told:
                with pytest.raises(StoreLocked), hold_writer_lock(tmp_path / "index"):
                    pass
            told.append(name)
            return original.fullmatch(name)

    original = index_files.OWN_FILE
    monkeypatch.setattr(index_files, "OWN_FILE", Watched())
    delete_store(photos, tmp_path / "index")
    assert "index.sqlite" in told
    assert not (tmp_path / "index").exists()


def test_a_writer_that_waited_at_the_door_of_a_deleted_index_is_told(tmp_path, monkeypatch):
    LocalStore(tmp_path / "index").close()
    connect = sqlite3.connect

    def delete_and_connect(file, *arguments, **options):
        """The file is opened, and then another process deletes it and makes a new one."""
        connection = connect(file, *arguments, **options)
        connection.execute("PRAGMA schema_version")
        if str(file).endswith("writer.lock"):
            file.unlink()
            file.touch()
        return connection

    monkeypatch.setattr(sqlite3, "connect", delete_and_connect)
    with pytest.raises(StoreLocked, match="deleted"), hold_writer_lock(tmp_path / "index"):
        pass


class Counting(TinyModel):
    """Decodes as the product does, and counts."""

    class Encoder:
        n_features, key, decoded = len(NAMES), "counting", 0

        def stream(self, paths):
            for position, path in enumerate(paths):
                self.decoded += 1
                try:
                    open_photo(path)
                    yield position, np.ones(len(NAMES), np.float32)
                except UnreadableImage as error:
                    yield position, error

    def __init__(self):
        self.image_encoder = self.Encoder()


def test_a_photo_above_the_limit_is_tried_again_only_with_another_limit(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (200, 100)).save(tmp_path / "photos" / "large.png")
    model = Counting()
    monkeypatch.setattr(pixel_limit, "_chosen_max_pixels", 10_000)
    with PhotoIndex(tmp_path / "photos", model, tmp_path / "index") as index:
        assert list(index.update().unreadable) == ["large.png"]
        assert not index.update()
        assert model.image_encoder.decoded == 1
        assert list(index.store.summary().unreadable) == ["large.png"]
        monkeypatch.setattr(pixel_limit, "_chosen_max_pixels", 15_000)
        assert list(index.update().unreadable) == ["large.png"]
        monkeypatch.setattr(pixel_limit, "_chosen_max_pixels", 30_000)
        assert index.update().encoded == 1
        assert model.image_encoder.decoded == 3


def test_a_photo_above_the_limit_that_changes_is_tried_again(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    file = tmp_path / "photos" / "large.png"
    Image.new("RGB", (200, 100)).save(file)
    monkeypatch.setattr(pixel_limit, "_chosen_max_pixels", 10_000)
    with PhotoIndex(tmp_path / "photos", Counting(), tmp_path / "index") as index:
        assert index.update().unreadable
        buffer = io.BytesIO()
        Image.new("RGB", (50, 50)).save(buffer, "PNG")
        file.write_bytes(buffer.getvalue())
        assert index.update().encoded == 1


def test_a_store_of_an_older_version_in_a_read_only_place_is_told(read_only, tmp_path):
    (tmp_path / "index").mkdir()
    with closing(sqlite3.connect(tmp_path / "index" / "index.sqlite")) as database:
        database.executescript(
            sqlite_schema.MIGRATIONS[0] + "PRAGMA user_version = 1; PRAGMA journal_mode = WAL"
        )
    with pytest.raises(FishermixError, match="read-only"):
        LocalStore(read_only(tmp_path / "index"))
