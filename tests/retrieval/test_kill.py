"""kill -9 at fifty random moments of index changes: the index verifies after each, and catches up after
all.
"""

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from tiny_model import TinyModel

from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.sqlite_store import LocalStore

KILLS = 50


def test_fifty_kills_never_corrupt_the_index(tmp_path):
    photos, place = tmp_path / "photos", tmp_path / "index"
    photos.mkdir()
    rng = random.Random(5)
    sizes = []
    for kill in range(KILLS):
        writer = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("changing_writer.py"), photos, place, str(kill)],
            stdout=subprocess.PIPE,
        )
        assert writer.stdout.readline() == b"ready\n"
        time.sleep(rng.uniform(0, 0.25))
        assert writer.poll() is None, "the writer failed by itself"
        writer.kill()
        writer.communicate()
        store = LocalStore(place)
        assert store.verify() == []
        sizes.append(len(store.stamps()))
        store.close()
    assert max(sizes) > 20, "the writer got nowhere before it was killed"

    with PhotoIndex(photos, TinyModel(), place) as index:
        index.update()
        paths = sorted(str(path.relative_to(photos)) for path in photos.rglob("*.png"))
        assert sorted(index.store.stamps()) == paths
        assert index.store.verify() == []
        unreadable = index.store.summary().unreadable
        readable = [path for path in paths if path not in unreadable]
        stored = np.stack([index.store.vector_of(index.store.id_of(path)) for path in readable])
        np.testing.assert_array_equal(stored, index.model.encode_images([photos / path for path in readable]))
