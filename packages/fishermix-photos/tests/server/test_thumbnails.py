"""The thumbnails on disk: private, bounded, zeroed when removed, and never a reason to fail."""

import os
import sqlite3
import stat

import pytest
from fishermix_photos.photo_files import Stamp
from fishermix_photos.server.thumbnails import THUMBNAILS_FILE, Thumbnails
from serving import id_of, make_library
from tiny_model import TinyModel, paint


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
    assert stat.S_IMODE((tmp_path / "index" / THUMBNAILS_FILE).stat().st_mode) == 0o600


def test_they_stay_within_the_bound(tmp_path):
    thumbnails = Thumbnails(tmp_path, most_bytes=100_000)
    for number in range(300):
        thumbnails.get(str(number), Stamp(0, 0), lambda number=number: bytes([number % 256]) * 1000)
        assert (tmp_path / THUMBNAILS_FILE).stat().st_size < 180_000  # with SQLite's own pages
    assert thumbnails.get("299", Stamp(0, 0), never) == bytes([299 % 256]) * 1000
    made = []
    thumbnails.get("0", Stamp(0, 0), lambda: made.append(1) or b"")
    assert made  # the oldest were removed
    thumbnails.close()
    smaller = Thumbnails(tmp_path, most_bytes=10_000)  # the bound also holds for what is there already
    smaller.get("new", Stamp(0, 0), lambda: b"x" * 1000)
    assert (tmp_path / THUMBNAILS_FILE).stat().st_size < 40_000
    smaller.close()


def test_what_is_removed_is_overwritten(tmp_path):
    folder = tmp_path / "photos"
    for name in ("gone.png", "kept.png", "changed.png"):
        paint(folder / name, "red")
    with make_library(folder, tmp_path / "library", TinyModel()) as library:
        thumbnails = Thumbnails.of_library(library)
        for name, content in (("gone", b"SECRET PICTURE"), ("kept", b"same"), ("changed", b"OLD VERSION")):
            status = (folder / f"{name}.png").stat()
            stamp = Stamp(status.st_size, status.st_mtime_ns)
            thumbnails.get(id_of(library, f"{name}.png"), stamp, lambda content=content: content * 100)
        (folder / "gone.png").unlink()
        paint(folder / "changed.png", "green", "blue")
        library.update([folder])
        thumbnails.remove_stale(library)
        content = thumbnails.file.read_bytes()
        assert b"SECRET" not in content
        assert b"OLD VERSION" not in content
        assert b"same" in content
        folder.rename(tmp_path / "away")  # a disk that is not mounted
        thumbnails.remove_stale(library)
        assert b"same" in thumbnails.file.read_bytes()
        thumbnails.close()


@pytest.mark.parametrize("damage", [b"no database", b"SQLite format 3\0" + bytes(200)])
def test_a_damaged_file_is_replaced(tmp_path, damage):
    (tmp_path / THUMBNAILS_FILE).write_bytes(damage)
    thumbnails = Thumbnails(tmp_path)
    assert thumbnails.get("a", Stamp(1, 1), lambda: b"one") == b"one"
    assert thumbnails.get("a", Stamp(1, 1), never) == b"one"
    thumbnails.close()


def test_without_a_place_they_are_made_each_time(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    thumbnails = Thumbnails(tmp_path / "file")
    assert thumbnails.get("a", Stamp(1, 1), lambda: b"one") == b"one"
    assert thumbnails.get("a", Stamp(1, 1), lambda: b"two") == b"two"
    thumbnails.remove_stale(None)
    thumbnails.close()


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_a_database_of_another_program_is_not_changed(tmp_path):
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE bookmarks (address TEXT)")
    connection.close()
    before = other.read_bytes()
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / THUMBNAILS_FILE).symlink_to(other)
    thumbnails = Thumbnails(tmp_path / "index")
    assert thumbnails.get("a", Stamp(1, 2), lambda: b"one") == b"one"
    assert thumbnails.get("a", Stamp(1, 2), never) == b"one"
    thumbnails.close()
    assert other.read_bytes() == before
