"""Every format is found by a query; files that are not read are counted; parts of files are indexed."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_model import COLOURS, NAMES, TinyModel, paint

from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.photo_files import scan_folder
from fishermix.vision import formats
from fishermix.vision.images import UnreadableImage, open_photo

sys.path.insert(0, str(Path(__file__).parent.parent / "vision"))
import make_formats

pytest.importorskip("tifffile")


class OpeningModel(TinyModel):
    """The tiny model behind the one opener, as the real encoder is."""

    def __init__(self):
        super().__init__()
        shares = self.image_encoder._shares
        self.seen = []

        def stream(images):
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
def index(folder, tmp_path):
    with PhotoIndex(folder, OpeningModel(), index=tmp_path / "index") as index:
        yield index


def found(index, text, n=100):
    return [hit.path for hit in index.search(index.model.encode_text([text])[0], n)]


def test_each_format_is_found_by_a_query(folder, index):
    written = {}
    for position, (name, (kind, make)) in enumerate(make_formats.MAKERS.items()):
        if formats.get_format(kind).is_installed:
            # Two colors each, in proportion 3 to 1: no other picture matches its words as well.
            first, second = NAMES[position % 5], NAMES[(position + 1 + position // 5) % 5]
            (folder / f"{position} {name}").write_bytes(make(picture(first, first, first, second)))
            written[f"{position} {name}"] = f"{first} {first} {first} {second}"
    changes = index.update()
    assert changes.encoded == len(written)
    assert changes.unreadable == {}
    assert changes.skipped == {}
    for name, words in written.items():
        assert found(index, words, 1) == [name]
    assert not index.update()


def test_a_video_is_found_by_each_scene_with_its_time(folder, index):
    pytest.importorskip("av")
    paint(folder / "red.png", "red")
    scenes = [picture("red"), picture("blue"), picture("white")]
    (folder / "clip.mp4").write_bytes(make_formats.make_video(scenes, seconds_each=10))
    changes = index.update()
    assert changes.encoded == 2  # files
    hits = index.search(index.model.encode_text(["blue"])[0], 10)
    assert [hit.file for hit in hits] == ["clip.mp4", "red.png"]  # a file once
    assert 10 <= hits[0].time < 14
    assert hits[1].time is None
    assert index.search(index.model.encode_text(["red"])[0], 1)[0].score > 0.99
    assert not index.update()
    index.model.seen.clear()
    (folder / "clip.mp4").rename(folder / "moved.mp4")
    changes = index.update()
    assert (changes.encoded, changes.recognised, changes.removed) == (0, 1, 1)
    assert index.model.seen == []
    assert found(index, "white", 1)[0].startswith("moved.mp4#t=")
    (folder / "moved.mp4").write_bytes(make_formats.make_video([picture("green")]))
    assert index.update().encoded == 1
    assert {path.partition("#")[0] for path in index.store.stamps()} == {"moved.mp4", "red.png"}
    assert len(index.store.stamps()) == 2
    (folder / "moved.mp4").unlink()
    assert index.update().removed == 1
    assert set(index.store.stamps()) == {"red.png"}
    assert index.store.verify() == []


def test_every_page_is_found(folder, index):
    (folder / "scan.tif").write_bytes(make_formats.make_pages([picture("red"), picture("blue")]))
    index.update()
    hit = index.search(index.model.encode_text(["blue"])[0], 10)
    assert [(one.file, one.page) for one in hit] == [("scan.tif", 2)]


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


def test_what_is_not_read_is_counted_by_suffix(folder, index, monkeypatch):
    monkeypatch.setattr(formats, "_has_module", lambda module: module == "pillow_heif")
    for name in ("a.cr3", "b.CR3", "c.mp4", "d.psd", "e.txt", ".f.cr3", "g.heic", "h.cr3", "h.jpg"):
        (folder / name).write_bytes(b"x")
    changes = index.update()
    assert changes.skipped == {".cr3": 2, ".mp4": 1, ".psd": 1}
    assert set(changes.unreadable) == {"g.heic", "h.jpg"}


def test_what_was_too_large_is_tried_again(folder, index, monkeypatch):
    paint(folder / "red.png", "red", size=(100, 80))
    monkeypatch.setattr("fishermix.vision.pixel_limit._chosen_max_pixels", 1000)
    assert "100 x 80 pixels" in index.update().unreadable["red.png"]
    monkeypatch.setattr("fishermix.vision.pixel_limit._chosen_max_pixels", 10_000)
    changes = index.update()
    assert (changes.encoded, changes.unreadable) == (1, {})
    (folder / "broken.png").write_bytes(b"x")
    index.update()
    index.model.seen.clear()
    assert not index.update()
    assert index.model.seen == []  # what is damaged is not read again


def test_a_crash_between_the_parts_of_a_file_is_repaired(folder, index, monkeypatch):
    pages = [picture(name) for name in NAMES]
    (folder / "scan.tif").write_bytes(make_formats.make_pages(pages))
    monkeypatch.setattr("fishermix.retrieval.update.BATCH", 2)
    write = index.store.write
    calls = []

    def failing(entries, removed=()):
        calls.append(entries)
        if len(calls) == 4:
            raise RuntimeError("killed")
        write(entries, removed)

    monkeypatch.setattr(index.store, "write", failing)
    with pytest.raises(RuntimeError):
        index.update()
    monkeypatch.setattr(index.store, "write", write)
    assert 0 < len(index.store.stamps()) < len(NAMES)
    assert index.update().encoded == 1
    assert len(index.store.stamps()) == len(NAMES)
    for page, name in enumerate(NAMES, 1):
        hit = index.search(index.model.encode_text([name])[0], 1)[0]
        assert (hit.page or 1) == page
        np.testing.assert_allclose(hit.score, 1, atol=1e-6)
