"""The faiss index finds nearly all that exact search finds, with exact scores."""

import numpy as np
import pytest

from fishermix.retrieval.sqlite_store import LocalStore, State
from fishermix.retrieval.store import Entry, Stamp

pytest.importorskip("faiss")


def entries(points, first=0):
    return [
        Entry(f"{first + i}", Stamp(0, 0), (first + i).to_bytes(32, "big"), point)
        for i, point in enumerate(points)
    ]


def unit(points):
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(0)
    return unit(rng.normal(size=(60, 24))[rng.integers(60, size=4000)] + 0.5 * rng.normal(size=(4000, 24)))


@pytest.fixture
def store(tmp_path, points):
    store = LocalStore(tmp_path / "index", exact_up_to=1000)
    store.adopt("model", 24)
    store.write(entries(points))
    store.tune()
    yield store
    store.close()


def test_it_is_used_and_agrees_with_exact_search(store, points, tmp_path):
    assert store._faiss_index(State(1, "model", 24, 3999)) is not None
    exact = LocalStore(tmp_path / "index")
    queries = unit(points[::100] + 0.1)
    agreed = 0
    for fast, slow in zip(store.nearest(queries, 10), exact.nearest(queries, 10)):
        truth = {hit.path: hit.score for hit in slow}
        agreed += len(truth.keys() & {hit.path for hit in fast})
        for hit in fast:
            if hit.path in truth:
                assert hit.score == pytest.approx(truth[hit.path], abs=1e-6)
        assert [hit.score for hit in fast] == sorted((hit.score for hit in fast), reverse=True)
    assert agreed >= 0.95 * 10 * len(queries)
    exact.close()


def test_points_added_since_are_found_and_dead_ones_are_not(store, points):
    new = unit(points[:3] + 0.01)
    store.write(entries(new, first=4000), removed=["7"])
    assert [store.nearest(point[None], 1)[0][0].path for point in new] == ["4000", "4001", "4002"]
    assert store.nearest(points[7][None], 1)[0][0].path != "7"


def test_it_is_built_anew_when_it_has_fallen_behind(store, points):
    store.write(entries(unit(points[:1000] + 0.05), first=4000))
    assert store._faiss_index(State(1, "model", 24, 4999)) is None  # exact search meanwhile
    store.tune()
    assert store._faiss_index(State(1, "model", 24, 4999)).rows == 5000


def test_a_damaged_one_is_ignored(store, points, tmp_path):
    file = store.folder / "faiss-1.index"
    file.write_bytes(file.read_bytes()[:1000])
    again = LocalStore(tmp_path / "index", exact_up_to=1000)
    assert again.nearest(points[5][None], 1)[0][0].path == "5"
    again.close()
