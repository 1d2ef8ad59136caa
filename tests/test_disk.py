"""Full disks, missing locks, read-only places; and files that only their owner can read."""

import errno
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest
from tiny_model import NAMES, TinyModel, paint

from fishermix import disk
from fishermix.cli import load_commands, main
from fishermix.disk import create_private_file, explain_os_error, explain_sqlite_error, make_private_folder
from fishermix.errors import FishermixError
from fishermix.model.hubness import KIND, HubnessConfig
from fishermix.retrieval import point_codes
from fishermix.retrieval.contact_sheet import write_contact_sheet
from fishermix.retrieval.faiss_index import build_faiss_index
from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.sqlite_store import LocalStore
from fishermix.storage import save_folder
from fishermix.vision.feature_cache import write_table

posix = pytest.mark.skipif(os.name != "posix", reason="Windows has other permissions")


@pytest.fixture
def photos(tmp_path):
    for name in NAMES:
        paint(tmp_path / "photos" / f"{name}.png", name)
    return tmp_path / "photos"


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 512 kB, and a function that leaves this many kilobytes free."""
    place = tmp_path / "disk"
    place.mkdir()
    if not shutil.which("mount") or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "fishermix-test", place]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this system does not let us mount a small disk")

    def leave(kilobytes):
        (place / "filler").unlink(missing_ok=True)
        space = os.statvfs(place)
        (place / "filler").write_bytes(bytes(space.f_bavail * space.f_frsize - kilobytes * 1024))

    yield place, leave
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("kilobytes", [0, 8, 40, 84, 100])
def test_a_full_disk_is_called_full_the_second_time_too_and_the_index_survives(small_disk, photos, kilobytes):
    place, leave = small_disk
    leave(kilobytes)
    for _ in range(2):
        with (
            pytest.raises(FishermixError, match=r"The disk is full\. Free some space") as caught,
            PhotoIndex(photos, TinyModel(), place / "index") as index,
        ):
            index.update()
        assert "nother process" not in str(caught.value)
        assert "remove" not in str(caught.value)
    (place / "filler").unlink()
    with PhotoIndex(photos, TinyModel(), place / "index") as index:
        assert index.update().encoded == len(NAMES)
        assert index.store.verify() == []


def test_a_full_disk_while_a_model_is_saved(small_disk, monkeypatch, capsys):
    place, leave = small_disk
    leave(40)
    big = {"big": np.zeros(100_000)}
    config = HubnessConfig(neighbours=1, mean_of_images=0.0, mean_of_sentences=0.0)
    with pytest.raises(OSError, match="No space left") as caught:
        save_folder(place / "model", KIND, config, big)
    assert caught.value.errno == errno.ENOSPC
    app = load_commands()
    monkeypatch.setattr("fishermix.cli.app", lambda: save_folder(place / "model", KIND, config, big))
    assert app
    with pytest.raises(SystemExit):
        main()
    assert "The disk is full" in capsys.readouterr().err


@posix
def test_a_file_system_without_locks_is_named_and_the_index_need_not_be_removed(tmp_path, photos):
    library = tmp_path / "no_locks.so"
    source = Path(__file__).with_name("no_locks.c")
    compiler = shutil.which("cc")
    if sys.platform != "linux" or not compiler:
        pytest.skip("a C compiler on Linux makes the file system without locks")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from tiny_model import TinyModel; from fishermix.retrieval.index import PhotoIndex\n"
        "from fishermix.errors import FishermixError\n"
        "try:\n    PhotoIndex(sys.argv[2], TinyModel(), sys.argv[3]).update()\n"
        "except FishermixError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), photos, tmp_path / "index"]
    for _ in range(2):
        done = subprocess.run(
            command, env=os.environ | {"LD_PRELOAD": str(library)}, stdout=-1, text=True, check=True
        )
        assert "no working locks" in done.stdout
        assert "remove" not in done.stdout
        assert "Another process" not in done.stdout


@posix
def test_a_read_only_place_is_called_so(small_disk, photos):
    place, _ = small_disk
    with PhotoIndex(photos, TinyModel(), place / "old") as index:
        index.update()
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    paint(photos / "new.png", "red")
    for name in ("old", "new"):
        with (
            pytest.raises(FishermixError, match="read-only") as caught,
            PhotoIndex(photos, TinyModel(), place / name) as index,
        ):
            index.update()
        assert "remove" not in str(caught.value)


def test_damage_is_still_called_damage(tmp_path, photos):
    with PhotoIndex(photos, TinyModel(), tmp_path / "index") as index:
        index.update()
    (tmp_path / "index" / "index.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(FishermixError, match="fishermix index remove"):
        LocalStore(tmp_path / "index")


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
    ],
)
def test_each_error_has_its_message(number, words):
    assert words in explain_os_error(OSError(number, os.strerror(number)))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("SQLITE_FULL", "disk is full"),
        ("SQLITE_IOERR_LOCK", "no working locks"),
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
def test_an_index_is_private_whatever_the_umask(tmp_path, photos, umask):
    home = tmp_path / "home"
    with PhotoIndex(photos, TinyModel(), home / "indexes" / "i") as index:
        index.update()
        while_open = modes_of(home)
    for path, mode in {**while_open, **modes_of(home)}.items():
        assert mode == (0o700 if path.suffix == "" else 0o600), path
    assert {"index.sqlite", "index.sqlite-wal", "vectors-1.f32", "writer.lock"} <= {
        p.name for p in while_open
    }


@posix
def test_features_and_contact_sheets_are_private(tmp_path, umask):
    make_private_folder(tmp_path / "features")
    write_table(tmp_path / "features", ["a.jpg"], np.zeros((1, 2)))
    write_contact_sheet(tmp_path / "features" / "sheet.html", "<html>")
    create_private_file(tmp_path / "features" / "file")
    assert set(modes_of(tmp_path / "features").values()) == {0o700, 0o600}
    assert len(modes_of(tmp_path / "features")) == 5


@posix
def test_a_faiss_index_is_private(tmp_path, umask):
    pytest.importorskip("faiss")
    build_faiss_index(tmp_path, 1, np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32))
    assert stat.S_IMODE((tmp_path / "faiss-1.index").stat().st_mode) == 0o600


@posix
def test_codes_of_points_are_private(tmp_path, umask, monkeypatch):
    monkeypatch.setattr(point_codes, "ROWS", 8)
    point_codes.build_codes(tmp_path, 1, np.ones((9, 4), np.float32))
    assert stat.S_IMODE((tmp_path / "codes-1-1.i8").stat().st_mode) == 0o600


@posix
def test_doctor_reports_an_index_that_others_can_read(tmp_path, photos, monkeypatch):
    monkeypatch.setenv("FISHERMIX_HOME", str(tmp_path / "home"))
    from fishermix.cli.doctor import _indexes

    with PhotoIndex(photos, TinyModel()) as index:
        index.update()
        place = index.store.folder
    problems = []
    assert "no problems" in list(_indexes(photos, problems))[1]
    assert problems == []
    place.chmod(0o755)
    (place / "index.sqlite").chmod(0o644)
    list(_indexes(photos, problems))
    assert "Other users of this machine can read it" in problems[0]
    subprocess.run(problems[0].partition("`")[2].partition("`")[0], shell=True, check=True)
    problems.clear()
    list(_indexes(photos, problems))
    assert problems == []


def test_the_folder_of_an_index_can_be_no_file(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FishermixError, match="cannot be created"):
        LocalStore(tmp_path / "file" / "index")


def test_threads_that_end_close_their_connections(tmp_path, photos):
    """A server starts threads again and again; each connection of theirs is two descriptors."""
    with PhotoIndex(photos, TinyModel(), tmp_path / "index") as index:
        index.update()
        before = len(psutil.Process().open_files())
        for _ in range(20):
            thread = threading.Thread(target=index.store.summary)
            thread.start()
            thread.join()
        assert len(psutil.Process().open_files()) <= before + 2


def test_locks_work_here(tmp_path):
    assert disk.has_locks(tmp_path)
