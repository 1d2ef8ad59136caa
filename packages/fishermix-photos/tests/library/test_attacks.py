"""Folders and libraries that someone made to harm: nothing hangs, nothing is lost, each gets a sentence."""

import hashlib
import os
import shutil
import sqlite3
import subprocess
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fishermix.errors import FishermixError
from fishermix_photos.disk import find_open_paths
from fishermix_photos.index import nearest
from fishermix_photos.index import scan as photo_files
from fishermix_photos.index import update as update_module
from fishermix_photos.index.scan import Stamp, read_stamp
from fishermix_photos.index.values import Entry
from fishermix_photos.index.writer import LocalIndex
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.search.results import FolderAway, LibraryDamaged
from refuses import refuses
from tiny_model import NAMES, TinyModel, paint

posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")


@pytest.mark.slow
@posix
def test_folders_nested_deeper_than_calls(library, photos, search):
    handle = os.open(photos, os.O_RDONLY)
    for _ in range(1_100):
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    data = (photos / "red.png").read_bytes() + b"a content of its own"
    with open(os.open("deep.png", os.O_WRONLY | os.O_CREAT, dir_fd=handle), "wb") as file:
        file.write(data)
    os.close(handle)
    try:
        library.update([photos])
        assert "d/" * 1_100 + "deep.png" in search("red")
    finally:  # pytest removes old folders with shutil.rmtree, which calls itself for each level
        subprocess.run(["rm", "-rf", photos / "d"], check=True)


def test_equal_files_are_encoded_once(library, photos, search):
    for number in range(5):
        shutil.copy(photos / "red.png", photos / f"copy{number}.png")
    library.update([photos])
    assert len(library.model.seen) == len(NAMES) + 1
    assert {f"copy{number}.png" for number in range(5)} < set(search("red", merge_copies=False))


def test_copies_of_a_file_that_changes_meanwhile_do_not_get_its_point(library, photos, search):
    paint(photos / "a.png", "red", "green")
    shutil.copy(photos / "a.png", photos / "b.png")
    stream = library.model.image_encoder.stream

    def change_first(images, *rest):
        if str(photos / "a.png") in images:
            paint(photos / "a.png", "blue")
            os.utime(photos / "a.png", (1, 1))
        return stream(images, *rest)

    library.model.image_encoder.stream = change_first
    library.update([photos])
    assert not {"a.png", "b.png"} & set(search("red"))
    library.model.image_encoder.stream = stream
    library.update([photos])
    assert {"a.png", "b.png"} <= set(search("red"))
    assert search("red green", 1) == ["b.png"]


@pytest.mark.parametrize("text", ["x*y.png\n" * 1_001, "x" * 100_001])
def test_too_many_rules_are_refused_at_once(library, photos, text):
    (photos / ".fishermixignore").write_text(text)
    with refuses("wrong_ignore_file"):
        library.update([photos])


def test_too_many_rules_in_many_folders_are_refused(library, photos, monkeypatch):
    monkeypatch.setattr(photo_files, "MOST_PATTERNS_IN_ALL", 50)
    folder = photos
    for _ in range(6):
        (folder / ".fishermixignore").write_text("x*y.png\n" * 10)
        folder = folder / "sub"
        folder.mkdir(exist_ok=True)
    with refuses("wrong_ignore_file"):
        library.update([photos])


def test_a_folder_that_is_renamed_while_it_is_read_is_reported(library, photos, monkeypatch):
    hash_files = update_module._hash_files

    def rename(stamps):
        photos.rename(photos.with_name("renamed"))
        return hash_files(stamps)

    monkeypatch.setattr(update_module, "_hash_files", rename)
    with pytest.raises(FolderAway):
        library.update([photos])
    assert library.folders()[0].unreadable == {}
    monkeypatch.undo()
    photos.with_name("renamed").rename(photos)
    assert library.update([photos]).encoded == len(NAMES) + 1


@pytest.mark.parametrize("is_replaced", [False, True], ids=["renamed", "unmounted"])
def test_photos_that_a_folder_lost_with_its_name_during_the_listing_stay(
    library, photos, monkeypatch, is_replaced
):
    library.update([photos])
    paint(photos / "new.png", "red", "blue")
    scan, calls = update_module.scan_folder, []

    def scan_and_rename(*arguments):
        listing = scan(*arguments)
        calls.append(arguments)
        if len(calls) == 2:
            photos.rename(photos.with_name("renamed"))
            if is_replaced:  # as the empty folder below a disk
                photos.mkdir()
            del listing.photos["red.png"]  # it could not be found any more
        return listing

    monkeypatch.setattr(update_module, "scan_folder", scan_and_rename)
    with pytest.raises(FolderAway):
        library.update([photos])
    assert library.count() == len(NAMES) + 1


@posix
def test_a_pipe_that_replaces_a_photo_is_unreadable(library, photos, monkeypatch):
    hash_files = update_module._hash_files

    def replace(stamps):
        (photos / "red.png").unlink()
        os.mkfifo(photos / "red.png")
        return hash_files(stamps)

    monkeypatch.setattr(update_module, "_hash_files", replace)
    assert "not a regular file" in library.update([photos]).unreadable[str(photos / "red.png")]


@posix
@pytest.mark.parametrize("name", ["huge.jpg", "huge.mp4"])
def test_a_huge_file_with_holes_is_not_hashed(library, photos, monkeypatch, name):
    (photos / name).touch()
    os.truncate(photos / name, 1 << 40)
    digest = hashlib.file_digest

    def hash_file(file, *arguments):
        assert os.fstat(file.fileno()).st_size < 1 << 40, "this takes hours"
        return digest(file, *arguments)

    monkeypatch.setattr(hashlib, "file_digest", hash_file)
    changes = library.update([photos])
    assert "bytes are too many" in changes.unreadable[str(photos / name)]
    assert changes.encoded == len(NAMES) + 1
    assert not library.update([photos])  # it is not tried again


@posix
@pytest.mark.parametrize("seconds", [99_999_999_999, -99_999_999_999])
def test_times_that_a_database_cannot_store(library, photos, search, seconds):
    """Some file systems store them; ext4 does not."""
    status = os.stat(photos / "red.png")
    far = SimpleNamespace(st_size=status.st_size, st_mtime_ns=seconds * 10**9)
    stamp = read_stamp(far)
    assert abs(stamp.mtime_ns) <= 2**63
    assert stamp != read_stamp(SimpleNamespace(st_size=status.st_size, st_mtime_ns=seconds * 10**9 + 1))
    assert read_stamp(status) == Stamp(status.st_size, status.st_mtime_ns)
    library.update([photos])
    entry = Entry(str(photos / "red.png"), stamp, reason="a test")
    library._store.write(str(photos), [entry])
    assert library._store.stamps(f"{photos}/")[entry.path] == stamp


@posix
def test_points_that_are_a_link_are_not_written(library, photos, tmp_path):
    library.update([photos])
    points = next(Path(library.place).glob("embeddings-*"))
    victim = tmp_path / "victim"
    victim.write_bytes(points.read_bytes())
    points.unlink()
    points.symlink_to(victim)
    before = victim.read_bytes()
    paint(photos / "another.png", "red", "blue", "red")
    with refuses("cannot_write"):
        library.update([photos])
    assert victim.read_bytes() == before


@posix
def test_a_database_that_is_a_link_is_not_used(library, photos, tmp_path):
    library.update([photos])
    library.close()
    before = (tmp_path / "library" / "library.sqlite").read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    (other / "library.sqlite").symlink_to(tmp_path / "library" / "library.sqlite")
    paint(photos / "another.png", "red", "blue", "red")
    with PhotoLibrary(other, library.model) as wrong:
        for use in (wrong.verify, lambda: wrong.update([photos]), lambda: wrong.search("red")):
            with refuses("wrong_file"):
                use()
    assert (tmp_path / "library" / "library.sqlite").read_bytes() == before


@posix
@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_pipe_next_to_the_database_is_named(library, photos, suffix):
    library.update([photos])
    library.close()
    pipe = Path(library.place) / f"library.sqlite{suffix}"
    os.mkfifo(pipe)
    with refuses("wrong_file"):
        library.search("red")
    library.delete()
    assert library.update([photos]).encoded == len(NAMES) + 1


@posix
def test_a_link_to_nowhere_does_not_stop_the_look_at_permissions(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "codes-1-1.i8").symlink_to("nowhere")
    assert find_open_paths(tmp_path) == [tmp_path]


def test_a_database_of_another_program_is_not_changed(library, photos):
    file = Path(library.place) / "library.sqlite"
    file.parent.mkdir()
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE books (title)")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(FishermixError):
        library.update([photos])
    library.close()
    assert file.read_bytes() == before


@posix
def test_codes_are_not_written_through_a_link(tmp_path, monkeypatch):
    monkeypatch.setattr(nearest, "BLOCK_ROWS", 8)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f"codes-1-1.{os.getpid()}.tmp").symlink_to(victim)
    nearest.build_codes(tmp_path, 1, np.ones((9, 4), np.float32))
    assert victim.read_text() == "precious"
    assert (tmp_path / "codes-1-1.i8").is_file()


@pytest.mark.parametrize("size", [None, 0, 1, 100])
def test_an_update_does_not_fill_in_points_that_are_missing(library, photos, size):
    library.update([photos])
    library.close()
    points = next(Path(library.place).glob("embeddings-*"))
    if size is None:
        points.unlink()
    else:
        os.truncate(points, size)
    paint(photos / "another.png", "red", "blue", "red")
    with PhotoLibrary(library.place, library.model) as again:
        for use in (lambda: again.update([photos]), lambda: again.search("red")):
            with pytest.raises(LibraryDamaged):
                use()


@posix
@pytest.mark.parametrize(
    "statement", ["INSERT INTO orphaned VALUES (5000, 1)", "UPDATE contents SET row = 5000 WHERE row = 0"]
)
def test_rows_that_nobody_listed_are_damage(library, photos, search, statement):
    """A database of some kB could otherwise ask for terabytes of a file with holes."""
    library.update([photos])
    library.close()
    with sqlite3.connect(Path(library.place) / "library.sqlite") as connection:
        connection.execute(statement)
    connection.close()
    os.truncate(next(Path(library.place).glob("embeddings-*")), 1 << 30)
    with pytest.raises(LibraryDamaged):
        search("red")


def test_points_of_another_length_than_the_model_says_are_damage(library, photos, search):
    library.update([photos])
    library.close()
    with sqlite3.connect(Path(library.place) / "library.sqlite") as connection:
        connection.execute("UPDATE state SET dimension = 1")
    connection.close()
    with pytest.raises(LibraryDamaged):
        search("red")


def test_points_that_are_much_too_long_are_damage(library, photos):
    library.update([photos])
    os.truncate(next(Path(library.place).glob("embeddings-*")), 1 << 40)
    paint(photos / "another.png", "red", "blue", "red")
    with pytest.raises(LibraryDamaged):
        library.update([photos])


# Locks


def lock_of(library, photos):
    path = Path(library.place) / f"folder-{sha256(os.fsencode(photos)).hexdigest()[:16]}.lock"
    path.unlink(missing_ok=True)
    return path


@posix
@pytest.mark.parametrize("make", [lambda path: path.write_text("text"), os.mkfifo])
def test_any_file_serves_as_a_lock(library, photos, make):
    library.update([photos])
    make(lock_of(library, photos))
    paint(photos / "new.png", "red", "blue")
    assert library.update([photos]).encoded == 1
    assert library.remove(photos) == len(NAMES) + 2


@posix
def test_a_lock_that_cannot_be_held_is_named_and_stops_no_search(library, photos, search):
    library.update([photos])
    path = lock_of(library, photos)
    path.mkdir()
    paint(photos / "new.png", "red", "blue")
    for change in (lambda: library.update([photos]), lambda: library.remove(photos)):
        with refuses("cannot_lock"):
            change()
    assert search("red", 1) == ["red.png"]
    library.delete()
    assert [file.name for file in Path(library.place).iterdir()] == [path.name]


# Libraries that someone else made


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE photos SET path = CAST('/etc/hostname.png' AS BLOB) WHERE row = 0",
        "UPDATE photos SET path = CAST(path AS TEXT) WHERE row = 0",
        "UPDATE photos SET path = CAST(replace(CAST(path AS TEXT), 'photos/', 'photos/../') AS BLOB)",
        "UPDATE photos SET path = CAST(replace(CAST(path AS TEXT), 'photos/', 'photos//') AS BLOB)",
        "UPDATE photos SET path = CAST(path || x'00' AS BLOB) WHERE row = 0",
        "UPDATE photos SET path = zeroblob(3000000) WHERE row = 0",
        "UPDATE photos SET taken = printf('%.*c', 3000000, 'x') WHERE row = 0",
        "UPDATE folders SET path = CAST('photos' AS BLOB)",
        "UPDATE folders SET path = zeroblob(3000000)",
        "UPDATE state SET model_key = printf('%.*c', 3000000, 'x')",
    ],
)
def test_hostile_values_are_damage_and_verify_sees_them(library, photos, search, statement):
    library.update([photos])
    library.close()
    with sqlite3.connect(Path(library.place) / "library.sqlite") as connection:
        connection.execute(statement)
    connection.close()
    for use in (lambda: search("red"), library.verify):
        with pytest.raises(LibraryDamaged):
            use()


def test_a_page_with_four_hundred_digits_is_a_name(library, photos, search):
    library.update([photos])
    library.close()
    path = os.fsencode(photos) + b"/x.tif#page=" + b"9" * 400
    with sqlite3.connect(Path(library.place) / "library.sqlite") as connection:
        connection.execute("UPDATE photos SET path = ? WHERE row = 0", (path,))
    connection.close()
    assert any(len(name) > 400 for name in search("red"))
    assert library.count() == len(NAMES) + 1


def test_a_kill_at_each_step_of_a_deletion_leaves_a_place_that_works(tmp_path, photos, monkeypatch):
    class Killed(BaseException):
        pass

    unlink, place = Path.unlink, tmp_path / "library"
    for step in range(10):
        library = PhotoLibrary(place, TinyModel())
        library.update([photos])
        writer = sqlite3.connect(place / "library.sqlite")  # keeps the log
        writer.execute("SELECT * FROM state").fetchall()
        library.close()
        left = [step]

        def die(path, missing_ok=False, left=left):
            if not left[0]:
                raise Killed
            left[0] -= 1
            unlink(path, missing_ok)

        monkeypatch.setattr(Path, "unlink", die)
        try:
            LocalIndex(place).delete()
            killed = False
        except Killed:
            killed = True
        monkeypatch.undo()
        writer.close()
        with PhotoLibrary(place, TinyModel()) as library:
            assert library.count() == (len(NAMES) + 1 if step == 0 else 0)
            library.update([photos])
            assert library.count() == len(NAMES) + 1
            assert library.verify() == []
        LocalIndex(place).delete()
        assert not place.exists()
        if not killed:
            break
    assert not killed
    assert step > 2


@posix
@pytest.mark.parametrize("pattern", ["library.sqlite", "embeddings-*"])
def test_files_that_may_not_be_read_are_named(library, photos, search, pattern, monkeypatch):
    library.update([photos])
    library.close()
    (file,) = Path(library.place).glob(pattern)
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != file and access(path, mode))
    with refuses("no_permission"):
        PhotoLibrary(library.place, library.model).search("red")
