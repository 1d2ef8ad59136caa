"""Every format is found by a query; files that are not read are counted; parts of files are indexed."""

import os

import make_formats
import numpy as np
import pytest
from fishermix_photos.index.scan import scan_folder
from fishermix_photos.index.writer import LocalIndex
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.photos import formats
from fishermix_photos.photos.open import UnreadableImage, open_photo
from fishermix_photos.search.results import Query
from fishermix_photos.search.terms import parse_query
from PIL import Image
from tiny_model import COLOURS, NAMES, TinyModel, paint

pytest.importorskip("tifffile")


class OpeningModel(TinyModel):
    """The tiny model behind the one opener, as the real encoder is."""

    def __init__(self):
        super().__init__()
        shares = self.image_encoder._shares
        self.seen = []

        def stream(images, on_open=None):
            for position, image in enumerate(images):
                self.seen.append(os.fspath(image))
                try:
                    yield position, shares(open_photo(image, side=16))
                except UnreadableImage as error:
                    yield position, error

        self.image_encoder.stream = stream


def picture(*colours):
    image = Image.new("RGB", (160, 120))
    for i, colour in enumerate(colours):
        image.paste(COLOURS[colour], (i * 160 // len(colours), 0, (i + 1) * 160 // len(colours), 120))
    return image


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    return folder


@pytest.fixture
def library(tmp_path):
    with PhotoLibrary(tmp_path / "library", OpeningModel()) as library:
        yield library


def find(library, line, n=100):
    return library.search(Query(parse_query(line), n=n)).photos


def list_stored(library):
    return {photo.picture.rpartition("/")[2] for photo in library._store.photos()}


def test_each_format_is_found_by_a_query(folder, library):
    written = {}
    for position, (name, (kind, make)) in enumerate(make_formats.MAKERS.items()):
        if formats._BY_NAME[kind].is_installed:
            # Two colors each, in proportion 3 to 1: no other picture matches its words as well.
            first, second = NAMES[position % 5], NAMES[(position + 1 + position // 5) % 5]
            (folder / f"{position} {name}").write_bytes(make(picture(first, first, first, second)))
            written[f"{position} {name}"] = f"{first} {first} {first} {second}"
    changes = library.update([folder])
    assert changes.encoded == len(written)
    assert changes.unreadable == {}
    assert changes.skipped == {}
    for name, words in written.items():
        assert [photo.relative for photo in find(library, words, 1)] == [name]
    assert not library.update([folder])


def test_a_video_is_found_by_each_scene_with_its_time(folder, library):
    pytest.importorskip("av")
    paint(folder / "red.png", "red")
    scenes = [picture("red"), picture("blue"), picture("white")]
    (folder / "clip.mp4").write_bytes(make_formats.make_video(scenes, seconds_each=10))
    changes = library.update([folder])
    assert changes.encoded == 2  # files
    clip, red = find(library, "blue", 10)
    assert [clip.relative, red.relative] == ["clip.mp4", "red.png"]  # a file once
    assert 10 <= clip.time < 14
    assert red.time is None
    assert clip.picture == f"{folder}/clip.mp4#t={clip.time:g}"
    assert 10 <= clip.time < 20
    assert find(library, "red", 1)[0].score > 0.99
    assert library.count() == library.browse(Query()).total == 2
    assert library.summary().pictures > 2
    assert not library.update([folder])
    library.model.seen.clear()
    (folder / "clip.mp4").rename(folder / "moved.mp4")
    changes = library.update([folder])
    assert (changes.encoded, changes.recognized, changes.removed) == (0, 1, 1)
    assert library.model.seen == []
    assert find(library, "white", 1)[0].picture.startswith(f"{folder}/moved.mp4#t=")
    (folder / "moved.mp4").write_bytes(make_formats.make_video([picture("green")]))
    assert library.update([folder]).encoded == 1
    assert list_stored(library) == {"moved.mp4", "red.png"}
    (folder / "moved.mp4").unlink()
    assert library.update([folder]).removed == 1
    assert list_stored(library) == {"red.png"}
    assert library.verify() == []


def test_every_page_is_found(folder, library):
    (folder / "scan.tif").write_bytes(make_formats.make_pages([picture("red"), picture("blue")]))
    library.update([folder])
    (photo,) = find(library, "blue")
    assert (photo.relative, photo.page) == ("scan.tif", 2)
    assert photo.picture == f"{folder}/scan.tif#page=2"


def test_a_raw_photo_next_to_a_processed_one_is_one_photo(folder):
    for name in ("IMG_1.CR3", "img_1.jpg", "IMG_2.DNG", "IMG_3.HEIC", "IMG_3.MOV", "IMG_4.MOV", "sub"):
        if name == "sub":
            (folder / name).mkdir()
            (folder / name / "IMG_1.NEF").write_bytes(b"x")
        else:
            (folder / name).write_bytes(b"x")
    listing = scan_folder(folder)
    assert set(listing.photos) == {"img_1.jpg", "IMG_2.DNG", "IMG_3.HEIC", "IMG_4.MOV", "sub/IMG_1.NEF"}
    assert listing.skipped == {}


def test_what_is_not_read_is_counted_by_suffix(folder, library, monkeypatch):
    monkeypatch.setattr(formats, "_has_module", lambda module: module == "pillow_heif")
    for name in ("a.cr3", "b.CR3", "c.mp4", "d.psd", "e.txt", ".f.cr3", "g.heic", "h.cr3", "h.jpg"):
        (folder / name).write_bytes(b"x")
    changes = library.update([folder])
    assert changes.skipped == {".cr3": 2, ".mp4": 1, ".psd": 1}
    assert set(changes.unreadable) == {f"{folder}/g.heic", f"{folder}/h.jpg"}


def test_what_was_too_large_is_tried_again(folder, library, monkeypatch):
    paint(folder / "red.png", "red", size=(100, 80))
    monkeypatch.setattr("fishermix_photos.photos.open._chosen_max_pixels", 1000)
    assert "100 x 80 pixels" in library.update([folder]).unreadable[f"{folder}/red.png"]
    monkeypatch.setattr("fishermix_photos.photos.open._chosen_max_pixels", 10_000)
    changes = library.update([folder])
    assert (changes.encoded, changes.unreadable) == (1, {})
    (folder / "broken.png").write_bytes(b"x")
    library.update([folder])
    library.model.seen.clear()
    assert not library.update([folder])
    assert library.model.seen == []  # what is damaged is not read again


def test_a_crash_between_the_frames_or_pages_of_a_file_is_repaired(folder, library, monkeypatch):
    pages = [picture(name) for name in NAMES]
    (folder / "scan.tif").write_bytes(make_formats.make_pages(pages))
    monkeypatch.setattr("fishermix_photos.index.update.PHOTOS_PER_COMMIT", 2)
    write, calls = LocalIndex.write, []

    def fail(store, *change):
        calls.append(change)
        if len(calls) == 4:
            raise RuntimeError("killed")
        return write(store, *change)

    monkeypatch.setattr(LocalIndex, "write", fail)
    with pytest.raises(RuntimeError):
        library.update([folder])
    monkeypatch.setattr(LocalIndex, "write", write)
    assert 0 < len(list_stored(library)) < len(NAMES)
    assert library.update([folder]).encoded == 1
    assert len(list_stored(library)) == len(NAMES)
    for page, name in enumerate(NAMES, 1):
        (photo,) = find(library, name, 1)
        assert (photo.page or 1) == page
        np.testing.assert_allclose(photo.score, 1, atol=1e-6)
