"""Two processes change their folders and the library that has both; they are killed at random moments."""

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.results import Query
from tiny_model import TinyModel

WRITER = Path(__file__).with_name("changing_writer.py")


def kill_writers(scratch, kills, seed=5):
    """The number of writers that were killed. Raises an error if the library is damaged or lost a photo."""
    folders, place = [scratch / "one", scratch / "two"], scratch / "library"
    for folder in folders:
        folder.mkdir()
    rng, killed, counts = random.Random(seed), 0, []
    while killed < kills:
        writers = [
            subprocess.Popen(
                [sys.executable, WRITER, folder, place, str(seed + killed)], stdout=subprocess.PIPE
            )
            for folder in folders
        ]
        for writer in writers:
            assert writer.stdout.readline() == b"ready\n"
        time.sleep(rng.uniform(0, 0.5))
        for writer in writers:
            assert writer.poll() is None, "the writer failed by itself"
            writer.kill()
            writer.communicate()
            killed += 1
        with PhotoLibrary(place, TinyModel()) as library:
            problems = library.verify()
            assert problems == [], f"after {killed} kills: {problems}"
            counts.append([library.count([folder]) for folder in folders])
    assert min(max(count) for count in zip(*counts)) > 15, "the writers got nowhere before they were killed"
    _check_everything(place, folders)
    return killed


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
