"""Libraries in read-only places, damaged ones, and photos that stay unreadable."""

import io
import os
import shutil
import subprocess

import numpy as np
import pytest
from fishermix_photos.index.writer import LocalIndex
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.photos import open as opening
from fishermix_photos.photos.open import UnreadableImage, open_photo
from PIL import Image
from refuses import refuses
from tiny_model import NAMES, TinyModel, paint


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


def test_a_library_in_a_read_only_place_can_be_searched(read_only, tmp_path, photos):
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([photos])
        expected = library.search("red")
    place = read_only(tmp_path / "library")
    with PhotoLibrary(place, TinyModel()) as library:
        assert library.search("red") == expected
        assert library.verify() == []
        assert library.count() == len(NAMES)
        assert not library.update([photos])  # nothing to write
        paint(photos / "new.png", "red")
        with refuses("cannot_lock"):
            library.update([photos])
        assert library.search("red") == expected


def test_a_library_with_a_log_in_a_read_only_place_shows_its_newest_state(read_only, tmp_path, photos):
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([photos])
        # It is open: the log is not merged.
        assert (tmp_path / "library" / "library.sqlite-wal").stat().st_size
        place = read_only(tmp_path / "library")
    with PhotoLibrary(place, TinyModel()) as library:
        assert len(library.search("red").photos) == len(NAMES)


@pytest.mark.parametrize("damage", [b"no database" * 1000, b""])
def test_a_damaged_library_can_be_deleted_and_made_again(tmp_path, photos, damage):
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([photos])
    (tmp_path / "library" / "library.sqlite").write_bytes(damage)
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        if damage:
            with refuses("library_damaged"):
                library.update([photos])
            LocalIndex(tmp_path / "library").delete()
            assert not (tmp_path / "library").exists()
        assert library.update([photos]).encoded == len(NAMES)
        assert library.verify() == []


class Counting(TinyModel):
    """Decodes as the product does, and counts."""

    class Encoder:
        n_features, key, decoded = len(NAMES), "counting", 0

        def stream(self, paths, on_open=None):
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
    monkeypatch.setattr(opening, "_chosen_max_pixels", 10_000)
    with PhotoLibrary(tmp_path / "library", model) as library:
        assert list(library.update([tmp_path / "photos"]).unreadable) == [
            str(tmp_path / "photos" / "large.png")
        ]
        assert not library.update([tmp_path / "photos"])
        assert model.image_encoder.decoded == 1
        assert list(library.status(tmp_path / "photos").unreadable) == [
            str(tmp_path / "photos" / "large.png")
        ]
        monkeypatch.setattr(opening, "_chosen_max_pixels", 15_000)
        assert list(library.update([tmp_path / "photos"]).unreadable) == [
            str(tmp_path / "photos" / "large.png")
        ]
        monkeypatch.setattr(opening, "_chosen_max_pixels", 30_000)
        assert library.update([tmp_path / "photos"]).encoded == 1
        assert model.image_encoder.decoded == 3


def test_a_photo_above_the_limit_that_changes_is_tried_again(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    file = tmp_path / "photos" / "large.png"
    Image.new("RGB", (200, 100)).save(file)
    monkeypatch.setattr(opening, "_chosen_max_pixels", 10_000)
    with PhotoLibrary(tmp_path / "library", Counting()) as library:
        assert library.update([tmp_path / "photos"]).unreadable
        buffer = io.BytesIO()
        Image.new("RGB", (50, 50)).save(buffer, "PNG")
        file.write_bytes(buffer.getvalue())
        assert library.update([tmp_path / "photos"]).encoded == 1
