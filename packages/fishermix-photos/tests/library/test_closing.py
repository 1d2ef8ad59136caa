"""A library may be closed while others read: a server that stops has requests under way."""

import threading

import numpy as np
from fishermix_photos.index.writer import LocalIndex
from fishermix_photos.library import PhotoLibrary
from refuses import refuses
from tiny_model import TinyModel, paint


def test_a_library_that_is_closed_while_threads_read_goes_on(tmp_path):
    paint(tmp_path / "photos" / "red.png", "red")
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([tmp_path / "photos"])
    index, done, found = LocalIndex(tmp_path / "library"), threading.Event(), []

    def read() -> None:
        counts = []
        while not done.is_set():
            counts.append(len(index.folders()))
        found.append(counts)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(2000):
        index.close()
    done.set()
    for thread in threads:
        thread.join()
    index.close()
    assert len(found) == 4
    assert set(np.concatenate(found)) == {1}


def test_a_thread_that_could_not_open_its_library_again_can_do_so_later(tmp_path):
    paint(tmp_path / "photos" / "red.png", "red")
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([tmp_path / "photos"])
    index = LocalIndex(tmp_path / "library")
    assert len(index.folders()) == 1
    other = threading.Thread(target=index.close)  # so that this thread needs another connection
    other.start()
    other.join()
    database = tmp_path / "library" / "library.sqlite"
    moved = database.rename(tmp_path / "moved.sqlite")
    database.symlink_to(moved)
    for _ in range(2):
        with refuses("wrong_file"):
            index.folders()
    database.unlink()
    moved.rename(database)
    assert len(index.folders()) == 1
    index.close()
