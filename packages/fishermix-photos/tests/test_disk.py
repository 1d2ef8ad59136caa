"""Full disks, missing locks, read-only places; and files that only their owner can read."""

import errno
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import psutil
import pytest
from failing_calls import build_failing_calls
from fishermix.errors import FishermixError
from fishermix.joint.hubness import HUBNESS_KIND, HubnessConfig
from fishermix.saved import save_folder
from fishermix_photos import disk
from fishermix_photos.cli import main
from fishermix_photos.contact_sheet import write_contact_sheet
from fishermix_photos.disk import (
    DiskFull,
    create_private_file,
    explain_os_error,
    explain_sqlite_error,
    make_private_folder,
)
from fishermix_photos.index import nearest
from fishermix_photos.index.embeddings import EmbeddingFiles
from fishermix_photos.index.scan import Stamp
from fishermix_photos.index.values import Entry
from fishermix_photos.index.writer import LocalIndex
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.search.results import LibraryDamaged
from refuses import refuses
from tiny_model import NAMES, TinyModel, paint

posix = pytest.mark.skipif(os.name != "posix", reason="Windows has other permissions")


@pytest.fixture
def photos(tmp_path):
    for name in NAMES:
        paint(tmp_path / "photos" / f"{name}.png", name)
    return tmp_path / "photos"


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 1 MB, and a function that leaves this many kilobytes free."""
    place = tmp_path / "disk"
    place.mkdir()
    if not shutil.which("mount") or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    mount = ["mount", "-t", "tmpfs", "-o", "size=1024k", "fishermix-test", place]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this system does not let us mount a small disk")

    def leave(kilobytes):
        (place / "filler").unlink(missing_ok=True)
        space = os.statvfs(place)
        (place / "filler").write_bytes(bytes(space.f_bavail * space.f_frsize - kilobytes * 1024))

    yield place, leave
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("kilobytes", [0, 8, 40, 84, 100])
def test_a_full_disk_is_called_full_each_time_and_the_library_survives(small_disk, photos, kilobytes):
    place, leave = small_disk
    leave(kilobytes)
    for _ in range(2):
        with (
            refuses("disk_full") as caught,
            PhotoLibrary(place / "library", TinyModel()) as library,
        ):
            library.update([photos])
        assert "nother process" not in str(caught.value)
        assert "remove" not in str(caught.value)
    (place / "filler").unlink()
    with PhotoLibrary(place / "library", TinyModel()) as library:
        assert library.update([photos]).encoded == len(NAMES)
        assert library.verify() == []


@pytest.mark.parametrize("kilobytes", [112, 128, 160, 192])
def test_a_folder_can_be_removed_when_there_is_no_space_to_copy_the_points_of_the_others(
    small_disk, kilobytes
):
    place, leave = small_disk
    store = LocalIndex(place / "library")
    store.adopt("model", 4096)  # 16 kB each
    for folder, count in (("/a", 9), ("/b", 20)):
        store.add_folder(folder)
        points = [np.full(4096, number, np.float32) for number in range(count)]
        digests = [folder.encode() * 15 + bytes([0, number]) for number in range(count)]
        store.write(
            folder,
            [Entry(f"{folder}/{n}.jpg", Stamp(1, 2), digests[n], points[n]) for n in range(count)],
        )
    leave(kilobytes)
    store.remove_folder("/a")
    assert store.state().folders == ("/b",)
    assert {photo.path for photo in store.photos()} == {f"/b/{n}.jpg" for n in range(20)}
    assert store.verify() == []
    assert len(list(store.folder.glob("embeddings-*"))) == 1  # no half of a copy
    found = store.nearest(np.ones(4096, np.float32), 3)
    assert [photo.path for photo in found] == ["/b/19.jpg", "/b/18.jpg", "/b/17.jpg"]
    store.close()


@pytest.mark.parametrize("has_log", [False, True])
def test_a_library_can_be_read_when_no_byte_is_free(small_disk, photos, has_log):
    place, leave = small_disk
    with PhotoLibrary(place / "library", TinyModel()) as library:
        library.update([photos])
        expected = library.search("red")
        if has_log:  # as an update leaves it that could not finish, because the disk became full
            shutil.copytree(place / "library", place / "other", ignore=shutil.ignore_patterns("*-shm"))
    folder = place / ("other" if has_log else "library")
    log = folder / "library.sqlite-wal"
    assert (log.exists() and log.stat().st_size > 0) == has_log
    leave(0)
    with PhotoLibrary(folder, TinyModel()) as library:
        assert library.search("red") == expected
        assert library.count() == len(NAMES)
        assert [status.photos for status in library.folders()] == [len(NAMES)]
        assert library.verify() == []
        if not has_log:  # else its space is enough for a small change
            with pytest.raises(DiskFull) as caught:
                library.remove(photos)
            assert library.search("red") == expected
            leave(-(-caught.value.values["needed"] // 1024))  # what the message asks for is enough
        assert library.remove(photos) == len(NAMES)
        assert library.verify() == []


def test_a_full_disk_while_a_model_is_saved(small_disk, monkeypatch, capsys):
    place, leave = small_disk
    leave(40)
    big = {"big": np.zeros(100_000)}
    config = HubnessConfig(neighbors=1, left_mean=0.0, right_mean=0.0)
    with pytest.raises(OSError, match="No space left") as caught:
        save_folder(place / "model", HUBNESS_KIND, config, big)
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.setattr("fishermix_photos.cli.load_commands", lambda arguments: None)
    monkeypatch.setattr(
        "fishermix_photos.cli.app", lambda **_: save_folder(place / "model", HUBNESS_KIND, config, big)
    )
    with pytest.raises(SystemExit):
        main()
    assert "The disk is full" in capsys.readouterr().err


@posix
def test_a_file_system_without_locks_is_named_and_the_library_need_not_be_deleted(tmp_path, photos):
    library = tmp_path / "no_locks.so"
    source = Path(__file__).with_name("no_locks.c")
    compiler = shutil.which("cc")
    if sys.platform != "linux" or not compiler:
        pytest.skip("a C compiler on Linux makes the file system without locks")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from tiny_model import TinyModel; from fishermix_photos.library import PhotoLibrary\n"
        "from fishermix.errors import FishermixError\n"
        "try:\n    PhotoLibrary(sys.argv[3], TinyModel()).update([sys.argv[2]])\n"
        "except FishermixError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), photos, tmp_path / "library"]
    for _ in range(2):
        done = subprocess.run(
            command, env=os.environ | {"LD_PRELOAD": str(library)}, stdout=-1, text=True, check=True
        )
        assert "no working locks" in done.stdout
        assert "remove" not in done.stdout
        assert "Another process" not in done.stdout


@pytest.mark.slow
def test_a_failed_read_is_never_called_damage(tmp_path, photos):
    """SQLite reports EIO as damage, and FTS5 as a failed constructor: each read of each use fails here."""
    preload = build_failing_calls(tmp_path)
    if preload is None:
        pytest.skip("a C compiler on Linux makes the disk that fails")
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([photos])
    command = [sys.executable, Path(__file__).with_name("failing_reads.py"), tmp_path / "library"]
    environment = os.environ | {"LD_PRELOAD": str(preload)}
    reports = json.loads(subprocess.run(command, env=environment, stdout=-1, check=True).stdout)
    assert len(reports) > 40
    for name, is_single, message in reports:
        # A search reads again by itself.
        assert "Check the disk" in message or (name == "search" and is_single and message == "done"), name
        assert "elete" not in message
    assert any("could be read a moment later" in message for _, _, message in reports)
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        assert library.verify() == []


def test_a_file_that_cannot_be_looked_at_is_not_missing(tmp_path):
    """As on a drive that does not answer: the embeddings of 0.3 would be sought under another name."""
    with pytest.raises(OSError, match="too long"):
        EmbeddingFiles(tmp_path / ("x" * 300)).path(1)


def test_a_library_that_cannot_be_looked_at_is_not_empty(tmp_path):
    """An empty one would be used in its place, and its changes be written to the real one."""
    with PhotoLibrary(tmp_path / ("x" * 300), TinyModel()) as library, pytest.raises(FishermixError):
        library.count()


@posix
def test_a_read_only_place_is_called_so(small_disk, photos):
    place, _ = small_disk
    with PhotoLibrary(place / "old", TinyModel()) as library:
        library.update([photos])
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    paint(photos / "new.png", "red")
    for name, code in (("old", "cannot_lock"), ("new", "cannot_write")):
        with (
            refuses(code) as caught,
            PhotoLibrary(place / name, TinyModel()) as library,
        ):
            library.update([photos])
        assert "remove" not in str(caught.value)


def test_damage_is_still_called_damage(tmp_path, photos):
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([photos])
    (tmp_path / "library" / "library.sqlite").write_bytes(b"no database" * 1000)
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library, pytest.raises(LibraryDamaged):
        library.count()


@pytest.mark.parametrize("table", ["photos", "names_data"])
def test_damage_of_one_page_stays_damage_when_it_is_read_again(tmp_path, photos, table):
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([photos])
    file = tmp_path / "library" / "library.sqlite"
    with closing(sqlite3.connect(file)) as database:
        query = "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_master WHERE name = ?"
        page, size = database.execute(query, (table,)).fetchone()
    with open(file, "r+b") as data:
        data.seek((page - 1) * size)
        data.write(b"x" * size)
    store = LocalIndex(tmp_path / "library")
    read = store.photos if table == "photos" else lambda: store.count_names(["red"])
    with pytest.raises(LibraryDamaged) as caught:
        read()
    assert "Check the disk" not in str(caught.value)
    store.close()


def test_a_library_without_tables_yet_is_not_damaged(tmp_path):
    def open_again():
        return sqlite3.connect(tmp_path / "library.sqlite")

    with closing(open_again()) as database:
        database.execute("PRAGMA journal_mode = WAL")  # as a read fails while the tables are made
    assert disk.find_damage(tmp_path, open_again, "names") == disk.READ_FAILED


def test_a_library_is_examined_without_losing_the_locks_of_its_connections(tmp_path, photos):
    """A process that opens and closes the file of a database loses all its locks of it."""
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([photos])
        assert disk.find_damage(tmp_path, library._store._connections.open_again, "names") == disk.READ_FAILED
        code = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA journal_mode = DELETE')"
        command = [sys.executable, "-c", code, tmp_path / "library" / "library.sqlite"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "database is locked" in done.stderr


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission"),
        (errno.ENOLCK, "locks"),
        (errno.EIO, "read or write error"),
        (errno.ENOENT, "No such file"),
        (errno.EFBIG, "ulimit -f"),
        (errno.ETXTBSY, "Another program"),
        (errno.ESTALE, "network drive"),
        (errno.ETIMEDOUT, "network drive"),
    ],
)
def test_each_error_has_its_message(number, words):
    assert words in explain_os_error(OSError(number, os.strerror(number)))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("SQLITE_FULL", "disk is full"),
        ("SQLITE_IOERR_LOCK", "no working locks"),
        ("SQLITE_IOERR_SHMSIZE", "disk is full"),
        ("SQLITE_IOERR_WRITE", "read or write error"),
        ("SQLITE_CORRUPT", "damaged"),
        ("SQLITE_NOTADB", "damaged"),
        ("SQLITE_BUSY", "Another process"),
        ("SQLITE_PROTOCOL", "no working locks"),
    ],
)
def test_each_code_of_sqlite_has_its_message(code, words, tmp_path):
    error = sqlite3.OperationalError(code)
    error.sqlite_errorcode = getattr(sqlite3, code)
    assert words in explain_sqlite_error(error, tmp_path)


# Private files


@pytest.fixture(params=[0o000, 0o022, 0o777])
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes_of(folder):
    return {path: stat.S_IMODE(path.lstat().st_mode) for path in [folder, *folder.rglob("*")]}


@posix
def test_a_library_is_private_whatever_the_umask(tmp_path, photos, umask):
    home = tmp_path / "home"
    with PhotoLibrary(home / "library", TinyModel()) as library:
        library.update([photos])
        while_open = modes_of(home)
    for path, mode in {**while_open, **modes_of(home)}.items():
        assert mode == (0o700 if path.suffix == "" else 0o600), path
    assert {"library.sqlite", "library.sqlite-wal"} <= {p.name for p in while_open}
    assert any(p.name.startswith("embeddings-") for p in while_open)


@posix
def test_features_and_contact_sheets_are_private(tmp_path, umask):
    make_private_folder(tmp_path / "features")
    write_contact_sheet(tmp_path / "features" / "sheet.html", "dog", "", [], str)
    create_private_file(tmp_path / "features" / "file")
    assert set(modes_of(tmp_path / "features").values()) == {0o700, 0o600}
    assert len(modes_of(tmp_path / "features")) == 3


@posix
def test_codes_of_points_are_private(tmp_path, umask, monkeypatch):
    monkeypatch.setattr(nearest, "BLOCK_ROWS", 8)
    nearest.build_codes(tmp_path, 1, np.ones((9, 4), np.float32))
    assert stat.S_IMODE((tmp_path / "codes-1-1.i8").stat().st_mode) == 0o600


def test_the_place_of_a_library_can_be_no_file(tmp_path, photos):
    (tmp_path / "file").touch()
    with (
        PhotoLibrary(tmp_path / "file" / "library", TinyModel()) as library,
        refuses("cannot_write"),
    ):
        library.update([photos])


def test_threads_that_end_close_their_connections(tmp_path, photos):
    """A server starts threads again and again; each connection of theirs is two descriptors."""
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([photos])
        before = len(psutil.Process().open_files())
        for _ in range(20):
            thread = threading.Thread(target=library.summary)
            thread.start()
            thread.join()
        assert len(psutil.Process().open_files()) <= before + 2


def test_locks_work_here(tmp_path):
    assert disk.has_locks(tmp_path)
