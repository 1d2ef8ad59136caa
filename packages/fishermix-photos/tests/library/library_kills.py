"""Two processes change their folders and the library that has both. They are killed at random moments and, in
every other round, at a system call on a file of the library: the first, the second, and so on.
"""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from failing_calls import build_failing_calls
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.search.results import Query
from tiny_model import TinyModel

WRITER = Path(__file__).with_name("changing_writer.py")


def kill_writers(scratch, kills, seed=5):
    """The number of writers that were killed. Raises an error if the library is damaged or lost a photo."""
    folders, place = [scratch / "one", scratch / "two"], scratch / "library"
    for folder in folders:
        folder.mkdir()
    rng, killed, calls, counts = random.Random(seed), 0, itertools.count(1), []
    preload = build_failing_calls(scratch)
    while killed < kills:
        at_calls = preload is not None and killed // 2 % 2 == 1
        writers = [
            _start([folder, place, str(seed + killed), *([str(next(calls))] if at_calls else [])], preload)
            for folder in folders
        ]
        for writer in writers:
            assert writer.stdout.readline() == b"ready\n"
        if not at_calls:
            time.sleep(rng.uniform(0, 0.5))
            assert all(writer.poll() is None for writer in writers), "a writer failed by itself"
        for writer in writers:
            if not at_calls:
                writer.kill()
            writer.communicate(timeout=60)
            assert writer.returncode == -signal.SIGKILL, "a writer failed by itself"
            killed += 1
        with PhotoLibrary(place, TinyModel()) as library:
            problems = library.verify()
            assert problems == [], f"after {killed} kills: {problems}"
            counts.append([library.count([folder]) for folder in folders])
    assert min(max(count) for count in zip(*counts)) > 15, "the writers got nowhere before they were killed"
    _check_everything(place, folders)
    return killed


def _start(arguments, preload):
    environment = os.environ | ({"LD_PRELOAD": str(preload)} if preload else {})
    return subprocess.Popen([sys.executable, WRITER, *arguments], stdout=subprocess.PIPE, env=environment)


def _check_everything(place, folders):
    """After an update without a kill, the library has all photos with the points of a fresh encoding."""
    with PhotoLibrary(place, TinyModel()) as library:
        library.update(folders)
        assert library.verify() == []
        unreadable = {path for status in library.folders() for path in status.unreadable}
        expected = {str(path) for folder in folders for path in folder.rglob("*.png")} - unreadable
        photos = library.browse(Query(n=10_000)).photos
        assert {photo.path for photo in photos} == expected
        stored = np.stack([library._point(photo.id) for photo in photos])
        np.testing.assert_array_equal(stored, library.model.encode_images([photo.path for photo in photos]))
