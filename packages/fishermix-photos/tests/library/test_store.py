"""The store keeps its promises: all or nothing, one snapshot a reader, nothing that was shared is lost."""

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import numpy as np
import pytest
from fishermix_photos.index import nearest
from fishermix_photos.index import writer as writer_module
from fishermix_photos.index.reader import WRONG_CODES
from fishermix_photos.index.scan import Stamp
from fishermix_photos.index.schema import VERSION
from fishermix_photos.index.values import Entry
from fishermix_photos.index.writer import LocalIndex
from fishermix_photos.photos.details import Details
from fishermix_photos.search.results import LibraryBusy, LibraryDamaged
from hypothesis import given, settings
from hypothesis import strategies as st
from refuses import refuses

STAMP = Stamp(1, 2)


def point(i):
    return np.random.default_rng(i).normal(size=4).astype(np.float32)


def entry(path, content):
    return Entry(path, STAMP, bytes([content]) * 32, point(content))


def paths(store, *prefixes):
    return {photo.path for photo in store.photos(prefixes)}


def point_of(store, path):
    (photo,) = [photo for photo in store.photos() if photo.path == path]
    return store.pictures([photo.id])[photo.id].embedding


@pytest.fixture
def store(tmp_path):
    store = LocalIndex(tmp_path / "library")
    store.adopt("model", 4)
    store.add_folder("/a")
    store.add_folder("/b")
    yield store
    store.close()


NAMES = st.sampled_from(["/a/1", "/a/2", "/a/3", "/b/1", "/b/2", "/b/3"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.lists(st.tuples(NAMES, st.integers(0, 7)), max_size=4), st.lists(NAMES, max_size=2)),
        st.sampled_from(["tidy", "/a", "/b"]),
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_any_changes_leave_what_a_dictionary_would(tmp_path_factory, steps):
    """Photos of two folders are written, removed and moved, folders are removed, dead points dropped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer_module, "FEWEST_TO_COMPACT", 1)
        patch.setattr(writer_module, "DAYS_ORPHANED", 0)
        store = LocalIndex(tmp_path_factory.mktemp("library"))
        store.adopt("model", 4)
        expected = {}
        for step in steps:
            if step == "tidy":
                store.compact()
            elif isinstance(step, str):
                store.add_folder(step)
                store.remove_folder(step)
                expected = {path: content for path, content in expected.items() if not path.startswith(step)}
            else:
                written, removed = dict(step[0]), step[1]
                for folder in ("/a", "/b"):
                    store.add_folder(folder)
                    entries = [entry(path, content) for path, content in written.items()]
                    store.write(
                        folder,
                        [one for one in entries if one.path.startswith(folder)],
                        [path for path in removed if path.startswith(folder)],
                    )
                expected = {
                    path: content for path, content in (expected | written).items() if path not in removed
                }
            assert store.verify() == []
        assert paths(store) == set(expected)
        for path, content in expected.items():
            np.testing.assert_array_equal(point_of(store, path), point(content))
        query = point(99)
        found = store.nearest(query, 100)
        assert sorted(photo.path for photo in found) == sorted(expected)
        for photo in found:
            exact = float(point(expected[photo.path]) @ query)
            assert photo.score == pytest.approx(exact, rel=1e-4, abs=1e-5)
        inside = {photo.path for photo in store.nearest(query, 100, ["/a/"])}
        assert inside == {path for path in expected if path.startswith("/a/")} == set(store.stamps("/a/"))
        assert store.count()[0] == len(expected)
        store.close()


def test_a_library_that_does_not_exist_is_empty_and_is_created_by_the_first_change(tmp_path):
    store = LocalIndex(tmp_path / "library")
    assert store.state() == (0, "", 0, 0, None, ())
    assert store.photos() == store.nearest(point(0), 5) == store.verify() == []
    assert not len(store.sample_scores(point(0), 5))
    assert not (tmp_path / "library").exists()
    store.add_folder("/a")
    assert store.state().folders == LocalIndex(tmp_path / "library").state().folders == ("/a",)
    with refuses("wrong_folder"):
        LocalIndex(tmp_path).add_folder("/a")


def test_a_content_is_stored_once_and_stays_as_long_as_a_folder_has_it(store):
    store.write("/a", [entry("/a/x", 1), entry("/a/y", 2)])
    store.write("/b", [Entry("/b/x", STAMP, bytes([1]) * 32)])  # no point needed
    assert store.count() == (3, 2, 3)
    store.remove_folder("/a")
    assert store.known_contents([bytes([1]) * 32, bytes([2]) * 32]) == {bytes([1]) * 32}
    np.testing.assert_array_equal(point_of(store, "/b/x"), point(1))
    assert (store.folder / f"embeddings-{store.state().generation}.f32").stat().st_size == 4 * 4
    assert store.verify() == []


def test_a_photo_that_is_gone_is_recognized_for_some_weeks(store, monkeypatch):
    store.write("/a", [entry("/a/x", 1), entry("/a/y", 2)])
    store.write("/a", [], ["/a/x"])
    monkeypatch.setattr(writer_module, "FEWEST_TO_COMPACT", 1)
    store.compact()
    assert store.known_contents([bytes([1]) * 32])
    store.write("/b", [Entry("/b/moved", STAMP, bytes([1]) * 32)])
    np.testing.assert_array_equal(point_of(store, "/b/moved"), point(1))
    store.write("/b", [], ["/b/moved"])
    monkeypatch.setattr(writer_module, "DAYS_ORPHANED", 0)
    store.compact()
    assert not store.known_contents([bytes([1]) * 32])
    assert store.verify() == []


def test_a_folder_takes_over_those_inside(store):
    store.write("/a", [entry("/a/x", 1)])
    store.add_folder("/", ["/a", "/b"])
    assert store.state().folders == ("/",)
    assert [photo.folder for photo in store.photos()] == ["/"]
    with refuses("removed_meanwhile"):
        store.write("/a", [entry("/a/y", 2)])


def test_details_and_reasons_are_kept(store):
    details = Details(
        taken="2019-01-02T03:04:05",
        taken_from="exif",
        camera="Box",
        latitude=1.5,
        longitude=-2.5,
        width=30,
        height=40,
    )
    store.write("/a", [Entry("/a/x", STAMP, bytes(32), point(0), details=details)])
    store.write("/a", [Entry("/a/no", STAMP, reason="broken")])
    assert [photo.details for photo in store.photos()] == [details]
    assert store.find([store.photos()[0].id]) == store.photos()
    assert store.unreadable() == {"/a/no": "broken"}
    assert store.unreadable(["/b/"]) == {}


def test_a_content_that_another_process_has_just_dropped_is_named(store):
    assert store.write("/a", [entry("/a/x", 1), Entry("/a/y", STAMP, bytes(32))]) == ["/a/y"]
    assert paths(store) == {"/a/x"}


def test_a_failed_write_changes_nothing(store):
    store.write("/a", [entry("/a/x", 1)])
    with pytest.raises(TypeError):
        store.write("/a", [entry("/a/y", 2), Entry(None, STAMP, bytes([3]) * 32, point(3))])
    assert paths(store) == {"/a/x"}
    assert store.verify() == []
    store.write("/a", [entry("/a/y", 2)])  # over the bytes that the failed write may have left
    np.testing.assert_array_equal(point_of(store, "/a/y"), point(2))


def test_readers_in_between_see_whole_states_of_a_compaction(store, monkeypatch):
    monkeypatch.setattr(writer_module, "FEWEST_TO_COMPACT", 4)
    monkeypatch.setattr(writer_module, "DAYS_ORPHANED", 0)
    reader = LocalIndex(store.folder)
    store.write("/a", [entry(f"/a/{i}", i) for i in range(20)])
    size = next(store.folder.glob("embeddings-*.f32")).stat().st_size
    assert len(reader.nearest(point(0), 50)) == 20
    store.write("/a", [], removed=[f"/a/{i}" for i in range(0, 20, 2)])
    store.compact()
    files = list(store.folder.glob("embeddings-*.f32"))
    assert [file.stat().st_size for file in files] == [size // 2]
    assert store.verify() == []
    for i in range(1, 20, 2):
        np.testing.assert_array_equal(point_of(reader, f"/a/{i}"), point(i))
    store.write("/a", [entry("/a/new", 30)])
    assert len(reader.nearest(point(0), 50)) == 11
    reader.close()


def test_readers_in_threads_while_two_writers_write(store):
    stop, wrong = threading.Event(), []

    def read():
        while not stop.is_set():
            for photo in store.nearest(point(7), 5):
                expected = float(point(int(photo.path.rpartition("/")[2])) @ point(7))
                if abs(photo.score - expected) > 1e-4:
                    wrong.append(photo)

    def write(folder):
        writer = LocalIndex(store.folder)
        for i in range(40):
            writer.write(folder, [entry(f"{folder}/{i}", i)], removed=[f"{folder}/{i - 10}"])
        writer.close()

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=[folder]) for folder in ("/a", "/b")]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert wrong == []
    assert store.count()[0] == 20
    assert store.verify() == []


def test_one_process_updates_a_folder_and_another_one_another(store):
    other = LocalIndex(store.folder)
    with other.updating(["/a"]):
        with (
            pytest.raises(LibraryBusy) as caught,
            store.updating(["/a"]),
        ):
            pass
        assert caught.value.values["folder"] == "/a"
        with store.updating(["/b"]):
            store.write("/b", [entry("/b/x", 1)])
        with pytest.raises(LibraryBusy):
            LocalIndex(store.folder).delete()
    with store.updating(["/a"]):
        pass


def test_the_version_counts_changes(store):
    reader = LocalIndex(store.folder)
    before = reader.state().version
    assert reader.state().version == before
    store.write("/a", [entry("/a/x", 1)])
    assert reader.state().version > before


def change_database(store, *statements):
    store.close()
    with sqlite3.connect(store.folder / "library.sqlite") as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE VIEW more AS SELECT * FROM photos"],
        ["CREATE TRIGGER evil AFTER INSERT ON photos BEGIN DELETE FROM photos; END"],
        ["ALTER TABLE photos ADD COLUMN y"],
        ["ALTER TABLE photos ADD COLUMN y GENERATED ALWAYS AS (row + 1)"],
        ["DROP TABLE names"],
        ["DROP TABLE names", "CREATE TABLE names (file, folders, place)"],
        ["DROP TABLE names", "CREATE VIRTUAL TABLE names USING fts5 (file, place)"],
        ["DROP TABLE orphaned", "CREATE TABLE orphaned (row TEXT PRIMARY KEY, day INTEGER NOT NULL)"],
        ["DROP TABLE folders", "CREATE TABLE folders (id INTEGER PRIMARY KEY, path BLOB NOT NULL)"],
    ],
)
def test_a_database_with_other_tables_or_with_code_is_refused(store, statements):
    change_database(store, *statements)
    with pytest.raises(LibraryDamaged):
        store.state()


def rewrite(old, new):
    """Statements that change how the tables are written down."""
    change = f"UPDATE sqlite_master SET sql = replace(sql, '{old}', '{new}')"
    return ["PRAGMA writable_schema = ON", change, "PRAGMA writable_schema = RESET"]


@pytest.mark.parametrize(
    "statements",
    [
        ["ANALYZE"],
        ["CREATE INDEX more ON photos (camera)"],
        ["DROP INDEX photos_by_row"],
        ["CREATE TABLE lost_and_found (x)"],
        rewrite(" NOT NULL", "  not  null "),
        rewrite("INTEGER", "integer"),
        rewrite("fts5 (", "fts5("),
        rewrite("names_docsize''(id", "names_docsize''( id"),
        ["PRAGMA user_version = 0"],
    ],
)
def test_a_library_may_be_written_down_in_another_way(store, statements):
    store.write("/a", [entry("/a/x", 1)])
    with closing(sqlite3.connect(store.folder / "library.sqlite")) as connection:
        before = connection.execute("SELECT sql FROM sqlite_master").fetchall()
    change_database(store, *statements)
    with closing(sqlite3.connect(store.folder / "library.sqlite")) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()
        assert (connection.execute("SELECT sql FROM sqlite_master").fetchall(), version) != (before, (4,))
    store.write("/a", [entry("/a/x", 2), entry("/a/y", 1)])
    assert store.verify() == []
    assert paths(store) == {"/a/x", "/a/y"}
    assert store.nearest(point(2), 1)[0].path == "/a/x"


def test_a_restored_dump_is_a_library(store):
    store.write("/a", [entry("/a/x", 1)])
    store.close()
    file = store.folder / "library.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        # as `.dump` writes it: the rows of FTS5 are in its own tables
        dump = [line for line in connection.iterdump() if not line.startswith('INSERT INTO "names" ')]
    for path in store.folder.glob("library.sqlite*"):
        path.unlink()
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript("\n".join(["PRAGMA writable_schema = ON;", *dump]))
        assert connection.execute("PRAGMA user_version").fetchone() == (0,)
    store.write("/a", [entry("/a/y", 2)])
    assert store.verify() == []
    assert store.count_names(["x"])["x"].files == 1
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE photos SET id = 'x'",
        "UPDATE photos SET path = x'2f622f78'",
        "UPDATE photos SET latitude = 'north'",
        "UPDATE photos SET taken = 'yesterday'",
        "UPDATE photos SET row = 77",
        "UPDATE photos SET row = 'x'",
        "UPDATE photos SET row = -1",
        "UPDATE contents SET row = 1000000000000000",
        "UPDATE state SET dimension = 'four'",
        "UPDATE state SET dimension = 5",
        "DELETE FROM state",
    ],
)
def test_values_that_no_writer_writes_are_damage(store, statement):
    store.write("/a", [entry("/a/x", 1)])
    change_database(store, statement)

    def read():
        store.pictures([photo.id for photo in store.photos()])
        store.nearest(point(0), 3)

    with pytest.raises(LibraryDamaged):
        read()


def test_damage_is_explained_and_the_files_can_be_deleted(tmp_path):
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "library.sqlite").write_bytes(b"no database" * 1000)
    (folder / "mine.txt").write_text("mine")
    (folder / "codes-1-2.i8").touch()
    (folder / "embeddings-notes").mkdir()
    with pytest.raises(LibraryDamaged) as caught:
        LocalIndex(folder).state()
    assert caught.value.values["place"] == str(folder)
    LocalIndex(folder).delete()
    assert sorted(path.name for path in folder.iterdir()) == ["embeddings-notes", "mine.txt"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("DELETE FROM contents WHERE row = 2", "refer to a missing embedding"),
        ("DELETE FROM folders", "refer to a missing folder"),
        ("DELETE FROM photos WHERE path = CAST('/a/x' AS BLOB)", "belong to no photo"),
        ("INSERT INTO orphaned SELECT row, 0 FROM contents WHERE row != 1", "orphaned embeddings belong"),
        ("DELETE FROM orphaned", "not listed as orphaned"),
        ("UPDATE contents SET row = 7 WHERE row = 1", "neither in use nor orphaned"),
        ("UPDATE contents SET crc32 = crc32 + 1 WHERE row = 2", "checksums"),
        ("UPDATE contents SET sha256 = x'00' WHERE row = 2", "32 bytes"),
    ],
)
def test_verify_sees_every_broken_rule(store, damage, message):
    store.write("/a", [entry("/a/x", 1), entry("/a/y", 2), entry("/a/z", 3)])
    store.write("/a", [], removed=["/a/y"])
    assert store.verify() == []
    change_database(store, damage)
    assert any(message in problem for problem in store.verify())


def test_verify_sees_a_short_or_missing_file_of_points(store):
    store.write("/a", [entry("/a/x", 1), entry("/a/y", 2)])
    file = next(store.folder.glob("embeddings-*.f32"))
    file.write_bytes(file.read_bytes()[:-1])
    assert any("checksums" in problem for problem in store.verify())
    file.unlink()
    assert any("missing" in problem for problem in store.verify())
    with pytest.raises(LibraryDamaged):
        LocalIndex(store.folder).nearest(point(0), 1)


CRASH = """
import os, sys
import numpy as np
from fishermix_photos.index import embeddings, writer
from fishermix_photos.index.scan import Stamp
from fishermix_photos.index.values import Entry
from fishermix_photos.index.writer import LocalIndex

step, place = sys.argv[1:]
append = embeddings.write_at

def crashing_append(path, offset, data):
    append(path, offset, {"before": b"", "half": data[: len(data) // 2], "after": data}[step])
    os.kill(os.getpid(), 9)

def crashing_cleanup(self):
    os.kill(os.getpid(), 9)

store = LocalIndex(place)
entry = Entry("/a/new", Stamp(1, 2), bytes([9]) * 32, np.ones(4, np.float32))
if step == "compacted":
    writer.FEWEST_TO_COMPACT, writer.DAYS_ORPHANED = 1, 0
    store.write("/a", [entry], removed=["/a/x"])
    LocalIndex._remove_stale_files = crashing_cleanup
    store.compact()
embeddings.write_at = crashing_append
store.write("/a", [entry], removed=["/a/x"])
"""


@pytest.mark.parametrize("step", ["before", "half", "after", "compacted"])
def test_a_crash_at_each_step_of_a_change_leaves_the_old_state_or_the_new_one(store, step):
    store.write("/a", [entry("/a/x", 1), entry("/a/y", 2)])
    result = subprocess.run([sys.executable, "-c", CRASH, step, str(store.folder)], check=False)
    assert result.returncode == -9
    again = LocalIndex(store.folder)
    assert again.verify() == []
    assert paths(again) == ({"/a/y", "/a/new"} if step == "compacted" else {"/a/x", "/a/y"})
    np.testing.assert_array_equal(point_of(again, "/a/y"), point(2))
    again.compact()  # as every update does; it removes what the crash left
    again.write("/a", [entry("/a/z", 3)], removed=["/a/y"])
    assert again.verify() == []
    assert len(list(again.folder.glob("embeddings-*.f32"))) == 1
    np.testing.assert_array_equal(point_of(again, "/a/z"), point(3))
    again.close()


def test_codes_follow_the_points_and_change_no_answer(store, monkeypatch):
    monkeypatch.setattr(nearest, "BLOCK_ROWS", 8)
    used = []
    score = nearest.EmbeddingCodes.score
    monkeypatch.setattr(
        nearest.EmbeddingCodes, "score", lambda codes, query: used.append(codes.n_rows) or score(codes, query)
    )

    def agree(rows_with_codes):
        for query in (point(100), point(101)):
            for prefixes in ((), ("/b/",), ("/a/", "/b/")):
                found = [(photo.path, photo.score) for photo in store.nearest(query, 5, prefixes)]
                assert used[-1] == rows_with_codes
                everything = {path: float(point_of(store, path) @ query) for path in paths(store, *prefixes)}
                assert [path for path, _ in found] == sorted(everything, key=lambda path: -everything[path])[
                    :5
                ]

    store.write("/a", [entry(f"/a/{i}", i) for i in range(0, 20, 2)])
    store.write("/b", [entry(f"/b/{i}", i) for i in range(1, 20, 2)])
    store.tune()
    agree(16)
    store.write("/b", [entry(f"/b/{i}", i) for i in range(20, 26)], removed=["/b/3"])
    agree(16)  # the new rows have none yet
    store.tune()
    agree(24)
    (file,) = store.folder.glob("codes-*")
    assert file.name.endswith("-3.i8")
    assert store.verify() == []
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert LocalIndex(store.folder).verify() == [WRONG_CODES]
    store.adopt("another model", 4)
    store.compact()
    assert not file.exists()
