"""The local store keeps its promises: all or nothing, one snapshot a reader, old versions brought up to
date.
"""

import shutil
import sqlite3
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fishermix.errors import FishermixError
from fishermix.retrieval import point_codes, sqlite_schema, sqlite_write
from fishermix.retrieval.sqlite_store import LocalStore
from fishermix.retrieval.store import Entry, Stamp

STAMP = Stamp(1, 2)


def point(i):
    return np.random.default_rng(i).normal(size=4).astype(np.float32)


def entry(path, content):
    return Entry(path, STAMP, bytes([content]) * 32, point(content))


@pytest.fixture
def store(tmp_path):
    store = LocalStore(tmp_path / "index")
    store.adopt("model", 4)
    yield store
    store.close()


steps = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 7)), max_size=4),
        st.lists(st.sampled_from("abcdef"), max_size=2),
    ),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(steps)
def test_any_changes_leave_what_a_dictionary_would(tmp_path_factory, steps):
    store = LocalStore(tmp_path_factory.mktemp("index"))
    store.adopt("model", 4)
    expected = {}
    for written, removed in steps:
        written = dict(written)
        with store.writing():
            store.write([entry(path, content) for path, content in written.items()], removed=removed)
        expected |= written
        for path in removed:
            expected.pop(path, None)
        assert store.verify() == []
    assert set(store.stamps()) == set(expected)
    for path, content in expected.items():
        np.testing.assert_array_equal(store.vector_of(store.id_of(path)), point(content))
    query = point(99)
    hits = store.nearest(query[None], 100)[0]
    assert sorted(hit.path for hit in hits) == sorted(expected)
    for hit in hits:
        assert hit.score == pytest.approx(float(point(expected[hit.path]) @ query), rel=1e-4, abs=1e-5)
    store.close()


def test_a_failed_write_changes_nothing(store):
    store.write([entry("a", 1)])
    with pytest.raises(ValueError, match="no point"):
        store.write([entry("b", 2), Entry("c", STAMP, bytes(32))])
    assert set(store.stamps()) == {"a"}
    assert store.verify() == []
    store.write([entry("b", 2)])  # over the bytes that the failed write may have left
    np.testing.assert_array_equal(store.vector_of(store.id_of("b")), point(2))


def test_dead_rows_are_compacted_and_readers_in_between_see_whole_states(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_write, "FEWEST_DEAD_TO_COMPACT", 4)
    store, reader = LocalStore(tmp_path / "index"), LocalStore(tmp_path / "index")
    store.adopt("model", 4)
    store.write([entry(str(i), i) for i in range(20)])
    size = next(store.folder.glob("vectors-*.f32")).stat().st_size
    assert len(reader.nearest(point(0)[None], 50)[0]) == 20
    store.write([], removed=[str(i) for i in range(0, 20, 2)])
    files = list(store.folder.glob("vectors-*.f32"))
    assert [file.stat().st_size for file in files] == [size // 2]
    assert store.verify() == []
    for i in range(1, 20, 2):
        np.testing.assert_array_equal(reader.vector_of(reader.id_of(str(i))), point(i))
    store.write([entry("new", 30)])
    assert {hit.path for hit in reader.nearest(point(0)[None], 50)[0]} == {*map(str, range(1, 20, 2)), "new"}
    store.close()
    reader.close()


def test_readers_in_threads_while_a_writer_writes(store, tmp_path):
    stop, wrong = threading.Event(), []

    def read():
        while not stop.is_set():
            for hit in store.nearest(point(7)[None], 5)[0]:
                expected = float(point(int(hit.path)) @ point(7))
                if abs(hit.score - expected) > 1e-4:
                    wrong.append(hit)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    writer = LocalStore(tmp_path / "index")
    for i in range(60):
        writer.write([entry(str(i), i)], removed=[str(i - 10)])
    stop.set()
    for thread in threads:
        thread.join()
    writer.close()
    assert wrong == []


def test_an_old_version_is_migrated_with_its_photos(tmp_path, monkeypatch):
    new = LocalStore(tmp_path / "new")
    new.adopt("model", 4)
    new.write([entry("a", 1)])
    new.close()
    with monkeypatch.context() as past:
        past.setattr(sqlite_schema, "MIGRATIONS", sqlite_schema.MIGRATIONS[:1])
        LocalStore(tmp_path / "index").close()
    shutil.copy(tmp_path / "new" / "vectors-1.f32", tmp_path / "index")
    with sqlite3.connect(tmp_path / "index" / "index.sqlite") as old:
        old.execute("ATTACH ? AS new", (str(tmp_path / "new" / "index.sqlite"),))
        old.execute("DELETE FROM main.state")
        for table, columns in (
            ("state", "*"),
            ("vectors", "*"),
            ("photos", "id, path, size, mtime_ns, row, reason"),
        ):
            old.execute(f"INSERT INTO main.{table} SELECT {columns} FROM new.{table}")
    old.close()
    store = LocalStore(tmp_path / "index")
    assert [hit.path for hit in store.nearest(point(1)[None], 5)[0]] == ["a"]
    assert store.verify() == []
    with sqlite3.connect(tmp_path / "index" / "index.sqlite") as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == len(sqlite_schema.MIGRATIONS)
        fresh = LocalStore(tmp_path / "fresh")
        schema = "SELECT name, sql FROM sqlite_master ORDER BY name"
        assert connection.execute(schema).fetchall() == fresh._connection.execute(schema).fetchall()
    connection.close()
    fresh.close()
    store.close()


def test_a_newer_version_is_refused(tmp_path):
    LocalStore(tmp_path / "index").close()
    with sqlite3.connect(tmp_path / "index" / "index.sqlite") as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    with pytest.raises(FishermixError, match="has version 999"):
        LocalStore(tmp_path / "index")


def test_damage_is_explained(tmp_path):
    folder = tmp_path / "index"
    folder.mkdir()
    (folder / "index.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(FishermixError, match="index remove"):
        LocalStore(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("DELETE FROM vectors", "refer to a missing point"),
        ("DELETE FROM photos WHERE path = CAST('a' AS BLOB)", "belong to no photo"),
        ("INSERT INTO dead SELECT row FROM vectors", "both alive and dead"),
        ("DELETE FROM dead", "neither alive nor dead"),
        ("UPDATE vectors SET crc32 = crc32 + 1 WHERE row = 2", "checksums"),
        ("UPDATE vectors SET sha256 = x'00' WHERE row = 2", "32 bytes"),
    ],
)
def test_verify_sees_every_broken_rule(store, damage, message):
    store.write([entry("a", 1), entry("b", 2), entry("c", 3)])
    store.write([], removed=["b"])
    assert store.verify() == []
    store._connection.execute(damage)
    assert any(message in problem for problem in store.verify())


def test_verify_sees_a_short_or_missing_vector_file(store):
    store.write([entry("a", 1), entry("b", 2)])
    file = next(store.folder.glob("vectors-*.f32"))
    file.write_bytes(file.read_bytes()[:-1])
    assert any("checksums" in problem for problem in store.verify())
    file.unlink()
    assert any("missing" in problem for problem in store.verify())
    with pytest.raises(FishermixError, match="missing or too short"):
        LocalStore(store.folder).nearest(point(0)[None], 1)


CRASH = """
import os, sys
import numpy as np
from fishermix.retrieval import sqlite_write
from fishermix.retrieval.sqlite_store import LocalStore
from fishermix.retrieval.store import Entry, Stamp

step, place = sys.argv[1:]
append = sqlite_write.append

def crashing_append(path, offset, data):
    append(path, offset, {"before": b"", "half": data[: len(data) // 2], "after": data}[step])
    os.kill(os.getpid(), 9)

def crashing_cleanup(self):
    os.kill(os.getpid(), 9)

store = LocalStore(place)
if step == "compacted":
    sqlite_write.FEWEST_DEAD_TO_COMPACT = 1
    LocalStore._remove_stale_files = crashing_cleanup
else:
    sqlite_write.append = crashing_append
entry = Entry("new", Stamp(1, 2), bytes([9]) * 32, np.ones(4, np.float32))
store.write([entry], removed=["a"])
"""


@pytest.mark.parametrize("step", ["before", "half", "after", "compacted"])
def test_a_crash_at_each_step_of_a_change_leaves_the_old_state_or_the_new_one(store, step):
    store.write([entry("a", 1), entry("b", 2)])
    result = subprocess.run([sys.executable, "-c", CRASH, step, str(store.folder)], check=False)
    assert result.returncode == -9
    again = LocalStore(store.folder)
    assert again.verify() == []
    assert set(again.stamps()) == ({"b", "new"} if step == "compacted" else {"a", "b"})
    np.testing.assert_array_equal(again.vector_of(again.id_of("b")), point(2))
    with again.writing():
        assert not again.adopt("model", 4)  # as every update does; it removes what the crash left
        again.write([entry("c", 3)], removed=["b"])
    assert again.verify() == []
    assert len(list(again.folder.glob("vectors-*.f32"))) == 1
    np.testing.assert_array_equal(again.vector_of(again.id_of("c")), point(3))
    again.close()


def test_codes_follow_the_points_and_change_no_answer(store, monkeypatch):
    monkeypatch.setattr(point_codes, "ROWS", 8)
    plain = LocalStore(store.folder)
    plain._point_codes = lambda state: None
    used = []
    score = point_codes.PointCodes.score
    monkeypatch.setattr(
        point_codes.PointCodes, "score", lambda codes, query: used.append(codes.n_rows) or score(codes, query)
    )

    def agree(rows_with_codes):
        for query in (point(100), point(101)):
            for prefix in ("", "sub/"):
                found = store.nearest(query[None], 5, prefix)
                assert used[-1] == rows_with_codes
                assert found == plain.nearest(query[None], 5, prefix)
                assert len(found[0]) == 5

    store.write([entry(f"{'sub/' * (i % 2)}{i}", i) for i in range(20)])
    store.tune()
    agree(16)
    store.write([entry(f"sub/{i}", i) for i in range(20, 26)], removed=["sub/3", "4"])
    agree(16)  # the new rows have none yet
    store.tune()
    agree(24)
    assert [file.name for file in store.folder.glob("codes-*")] == ["codes-1-3.i8"]
    assert store.verify() == []
    file = store.folder / "codes-1-3.i8"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert "does not match the points" in " ".join(LocalStore(store.folder).verify())
    store.adopt("another model", 4)
    assert not file.exists()
    plain.close()


def test_delete_removes_the_files_of_the_index_and_no_others(tmp_path):
    place = tmp_path / "index"
    store = LocalStore(place)
    with store.writing():
        pass
    assert (place / "index.sqlite").exists()
    (place / "mine.txt").write_text("mine")
    (place / "codes-1-2.i8").touch()
    (place / "faiss-notes").mkdir()
    store.delete()
    assert sorted(path.name for path in place.iterdir()) == ["faiss-notes", "mine.txt"]
    (place / "mine.txt").unlink()
    (place / "faiss-notes").rmdir()
    store = LocalStore(place)
    with store.writing():
        pass
    store.delete()
    assert not place.exists()
