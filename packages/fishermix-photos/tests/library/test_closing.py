"""A library may be closed while others read: a server that stops has requests under way."""

import threading

import numpy as np
from fishermix_photos.index.writer import LocalIndex
from fishermix_photos.library import PhotoLibrary
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
