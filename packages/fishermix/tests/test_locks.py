"""Locks: whoever comes second waits or is told, and a lock file in any state is a message."""

import errno
import os
import tempfile
import threading
import time
from pathlib import Path

import pytest
from fishermix.errors import FishermixError
from fishermix.saved import LOCK, hold_folder, load_folder
from refuses import refuses
from things import THING, saved


def test_a_folder_is_held_once_and_its_lock_file_goes_with_the_holder(holder, tmp_path):
    other = holder(tmp_path / "x")
    with refuses("in_use"):
        hold_folder(tmp_path / "x", "--work").__enter__()
    other.communicate("")
    assert list((tmp_path / "x").iterdir()) == []
    with hold_folder(tmp_path / "x", "--work"):
        assert (tmp_path / "x" / LOCK).exists()
    assert list((tmp_path / "x").iterdir()) == []


def test_a_killed_holder_holds_nothing(holder, tmp_path):
    other = holder(tmp_path / "x")
    other.kill()
    other.wait()
    assert (tmp_path / "x" / LOCK).exists()
    saved(tmp_path / "x", 2.0)
    assert load_folder(tmp_path / "x", THING).config.value == 2.0
    assert not (tmp_path / "x" / LOCK).exists()


def test_a_save_waits_for_the_holder(holder, tmp_path):
    other = holder(tmp_path / "x")
    thread = threading.Thread(target=saved, args=(tmp_path / "x",))
    thread.start()
    time.sleep(0.3)
    assert thread.is_alive()
    other.communicate("")
    thread.join(30)
    assert load_folder(tmp_path / "x", THING).config.value == 1.0


def test_a_thread_may_hold_a_folder_twice_and_save_in_it(tmp_path):
    with hold_folder(tmp_path / "x", "--work"), hold_folder(tmp_path / "x", "--work"):
        saved(tmp_path / "x")
        assert (tmp_path / "x" / LOCK).exists()
    assert not (tmp_path / "x" / LOCK).exists()


def test_a_lock_file_with_text_serves_and_stays(tmp_path):
    (tmp_path / LOCK).write_text("mine")
    with hold_folder(tmp_path, "--work"):
        pass
    assert (tmp_path / LOCK).read_text() == "mine"


@pytest.mark.parametrize(
    "make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("elsewhere")], ids=["folder", "FIFO", "link"]
)
def test_what_is_not_a_file_is_no_lock(tmp_path, make):
    make(tmp_path / LOCK)
    for option in ("--work", None):
        with refuses("cannot_lock"):
            hold_folder(tmp_path, option).__enter__()


@pytest.fixture
def as_another_user():
    """A folder that everyone may write in; the test runs as a user who is not root."""
    folder = Path(tempfile.mkdtemp(prefix="fishermix-"))
    folder.chmod(0o777)
    lock = folder / LOCK
    lock.touch()
    if os.geteuid() == 0:
        os.seteuid(65534)
        yield lock
        os.seteuid(0)
    else:
        lock.chmod(0)
        yield lock
    lock.unlink()
    folder.rmdir()


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o600, 0o644], ids=oct)
def test_a_lock_file_of_root_is_named(as_another_user, mode):
    """What one `sudo` leaves behind."""
    if os.getuid() == 0:
        os.seteuid(0)
        as_another_user.chmod(mode)
        os.seteuid(65534)
    with refuses("cannot_lock"):
        hold_folder(as_another_user.parent, "--work").__enter__()


@pytest.mark.parametrize("name", ["nul\0byte", "n" * 300])
def test_a_folder_of_an_impossible_name_is_a_mistake(tmp_path, name):
    with pytest.raises(FishermixError):
        hold_folder(Path(tmp_path, name), "--work").__enter__()


def test_without_locks_a_save_goes_on_and_long_work_is_refused(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refuse(handle, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    saved(tmp_path / "x", 2.0)
    assert load_folder(tmp_path / "x", THING).config.value == 2.0
    with refuses("cannot_lock"):
        hold_folder(tmp_path / "x", "--work").__enter__()
