"""The thumbnails on disk: private, bounded, zeroed when removed, and never a reason to fail."""

import os
import stat

import pytest
from tiny_model import TinyModel, paint

from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.store import Stamp
from fishermix.server.photos import PhotoService
from fishermix.server.thumbnails import FILE, Thumbnails


def never():
    pytest.fail("it was made again")


def test_a_thumbnail_is_made_once_and_again_when_the_file_changed(tmp_path):
    thumbnails = Thumbnails(tmp_path / "index")
    assert thumbnails.get("a", Stamp(1, 2), lambda: b"one") == b"one"
    assert thumbnails.get("a", Stamp(1, 2), never) == b"one"
    assert thumbnails.get("a", Stamp(1, 3), lambda: b"two") == b"two"
    thumbnails.close()
    again = Thumbnails(tmp_path / "index")
    assert again.get("a", Stamp(1, 3), never) == b"two"
    assert again.get("a", Stamp(1, 2), lambda: b"three") == b"three"
    again.close()
    assert again.get("a", Stamp(1, 2), lambda: b"without a file") == b"without a file"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_only_the_owner_can_read_them(tmp_path, umask):
    before = os.umask(umask)
    try:
        thumbnails = Thumbnails(tmp_path / "index")
        thumbnails.get("a", Stamp(1, 2), lambda: b"one")
        thumbnails.close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "index").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "index" / FILE).stat().st_mode) == 0o600


def test_they_stay_within_the_bound(tmp_path):
    thumbnails = Thumbnails(tmp_path, most_bytes=100_000)
    for number in range(300):
        thumbnails.get(str(number), Stamp(0, 0), lambda number=number: bytes([number % 256]) * 1000)
        assert (tmp_path / FILE).stat().st_size < 180_000  # with SQLite's own pages
    assert thumbnails.get("299", Stamp(0, 0), never) == bytes([299 % 256]) * 1000
    made = []
    thumbnails.get("0", Stamp(0, 0), lambda: made.append(1) or b"")
    assert made  # the oldest were removed
    thumbnails.close()
    smaller = Thumbnails(tmp_path, most_bytes=10_000)  # the bound also holds for what is there already
    smaller.get("new", Stamp(0, 0), lambda: b"x" * 1000)
    assert (tmp_path / FILE).stat().st_size < 40_000
    smaller.close()


def test_what_is_removed_is_overwritten(tmp_path):
    thumbnails = Thumbnails(tmp_path)
    thumbnails.get("a", Stamp(1, 1), lambda: b"SECRET PICTURE" * 100)
    thumbnails.get("b", Stamp(1, 1), lambda: b"other picture" * 100)
    thumbnails.get("c", Stamp(1, 1), lambda: b"OLD VERSION" * 100)
    thumbnails.remove_stale({"b": Stamp(1, 1), "c": Stamp(1, 2)}.get)
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"SECRET" not in content
    assert b"OLD VERSION" not in content
    assert b"other picture" in content
    thumbnails.close()


@pytest.mark.parametrize("damage", [b"no database", b"SQLite format 3\0" + bytes(200)])
def test_a_damaged_file_is_replaced(tmp_path, damage):
    (tmp_path / FILE).write_bytes(damage)
    thumbnails = Thumbnails(tmp_path)
    assert thumbnails.get("a", Stamp(1, 1), lambda: b"one") == b"one"
    assert thumbnails.get("a", Stamp(1, 1), never) == b"one"
    thumbnails.close()


def test_without_a_place_they_are_made_each_time(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    thumbnails = Thumbnails(tmp_path / "file")
    assert thumbnails.get("a", Stamp(1, 1), lambda: b"one") == b"one"
    assert thumbnails.get("a", Stamp(1, 1), lambda: b"two") == b"two"
    thumbnails.remove_stale(lambda photo: None)
    thumbnails.close()


def test_removing_an_index_removes_its_thumbnails(tmp_path):
    paint(tmp_path / "photos" / "red.png", "red")
    index = PhotoIndex(tmp_path / "photos", TinyModel(), tmp_path / "index")
    index.update()
    service = PhotoService(index, ["a red picture"])
    service.make_picture(index.store.id_of("red.png"), "small")
    service.close()
    assert (tmp_path / "index" / FILE).exists()
    index.store.delete()
    assert not (tmp_path / "index").exists()
