"""Libraries of released versions, as they wrote them, are opened and migrated; others are refused."""

import sqlite3
import subprocess
import sys
import threading
import zipfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from fishermix_photos.index import migrations
from fishermix_photos.index.filters import Filter
from fishermix_photos.index.photo import Photo
from fishermix_photos.index.scan import Stamp
from fishermix_photos.index.schema import VERSION
from fishermix_photos.index.values import Entry
from fishermix_photos.index.writer import LocalIndex
from fishermix_photos.photos.details import Details
from fishermix_photos.search.results import LibraryDamaged, OtherVersion

RELEASED = sorted((Path(__file__).parent / "versions").glob("library-*.zip"))
PERU = "/photos/2019 Peru"
LIMA = Details(
    taken="2019-07-14T12:30:00",
    taken_from="exif",
    camera="Canon PowerShot",
    latitude=-12.05,
    longitude=-77.04,
    width=4000,
    height=3000,
    place="Lima, Peru",
    region="Lima Province",
)


@pytest.fixture(params=RELEASED, ids=lambda path: path.stem)
def released(request, tmp_path):
    """A library as a released version has written it."""
    with zipfile.ZipFile(request.param) as packed:
        packed.extractall(tmp_path / "library")
    return tmp_path / "library"


def pragma(folder, name):
    with closing(sqlite3.connect(folder / "library.sqlite")) as connection:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]


def embedding(content):
    return np.random.default_rng(content).normal(size=4).astype(np.float32)


def expect_everything(index):
    """What was put into each of the libraries is there."""
    assert index.folders() == (PERU, "/videos")
    assert index.state().model_key.startswith("model of ")
    assert index.count() == (5, 4, 7)
    assert index.unreadable() == {f"{PERU}/broken.jpg": "is cut off"}
    photos = {photo.picture: photo for photo in index.photos()}
    llama = photos[f"{PERU}/llama.jpg"]
    assert llama == Photo(llama.id, f"{PERU}/llama.jpg", PERU, details=LIMA, label="2019 Peru")
    assert photos["/videos/clip.mp4#t=2.5"].time == 2.5
    assert photos["/videos/scan.tif#page=1"].page == 1
    pictures = index.pictures([photo.id for photo in photos.values()])
    contents = {"llama.jpg": 1, "copy of llama.jpg": 1, "Machu Picchu/ruins.png": 2}
    for name, content in contents.items():
        picture = pictures[photos[f"{PERU}/{name}"].id]
        np.testing.assert_array_equal(picture.embedding, embedding(content))
    assert pictures[llama.id].fingerprint == bytes(range(32))
    assert index.nearest(embedding(2), 1)[0].relative == "Machu Picchu/ruins.png"
    assert index.known_contents([bytes([3]) * 32])  # a deleted photo is still recognized
    assert index.stamps("/videos/")["/videos/clip.mp4"] == Stamp(1005, 1_500_000_000_000_000_005)
    assert index.count_names(["peru"])["peru"] == (0, 4, 2, 0)
    near = Filter(near="-12,-77,20km", camera="canon", kind="JPEG", folder="/2019 Peru")
    assert [photo.relative for photo in index.photos(filter=near)] == ["llama.jpg", "copy of llama.jpg"]
    assert index.verify() == []


def test_a_library_of_each_released_version_is_opened_and_changed(released):
    index = LocalIndex(released)
    expect_everything(index)
    entry = Entry(f"{PERU}/new.jpg", Stamp(1, 2), bytes([9]) * 32, embedding(9))
    index.write(PERU, [entry, Entry(f"{PERU}/back.jpg", Stamp(1, 2), bytes([3]) * 32)])
    index.remove_folder("/videos")
    assert index.verify() == []
    assert index.nearest(embedding(9), 1)[0].relative == "new.jpg"
    assert not list(released.glob("points-*"))  # the name that 0.3 gave is gone with its file
    index.close()
    again = LocalIndex(released)
    assert again.count() == (5, 4, 5)
    again.close()
    assert pragma(released, "user_version") == VERSION
    assert pragma(released, "application_id") == migrations.APPLICATION_ID


def test_a_migrated_library_has_the_tables_of_a_new_one(released, tmp_path):
    LocalIndex(released).photos()
    with closing(sqlite3.connect(released / "library.sqlite")) as connection:
        tables, columns = (
            migrations.TABLE_NAMES,
            "SELECT name, type, `notnull`, pk FROM pragma_table_xinfo(?)",
        )
        migrated = {table: set(connection.execute(columns, (table,))) for table in tables}
        indexes = set(connection.execute("SELECT name, tbl_name FROM sqlite_master WHERE type = 'index'"))
    with closing(migrations.open_empty()) as new:
        assert migrated == {table: set(new.execute(columns, (table,))) for table in tables}
        assert indexes == set(new.execute("SELECT name, tbl_name FROM sqlite_master WHERE type = 'index'"))


def test_an_older_library_is_read_where_nothing_can_be_written(released, monkeypatch):
    before = (released / "library.sqlite").read_bytes()
    # As in a read-only place: there, SQLite writes nothing next to the database.
    monkeypatch.setattr("fishermix_photos.index.connection.os.access", lambda path, mode: mode != 2)
    index = LocalIndex(released)
    expect_everything(index)
    index.close()
    assert (released / "library.sqlite").read_bytes() == before


def test_processes_that_migrate_at_the_same_time(released):
    opened, indexes = [], [LocalIndex(released) for _ in range(4)]
    barrier = threading.Barrier(len(indexes))

    def read(index):
        barrier.wait()
        opened.append(index.count())

    threads = [threading.Thread(target=read, args=[index]) for index in indexes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened == [(5, 4, 7)] * len(indexes)
    expect_everything(indexes[0])


KILLED = """
import os, sys
from fishermix_photos.index import migrations
from fishermix_photos.index.writer import LocalIndex

run, left = migrations._run, [int(sys.argv[2])]

class Killing:
    def __init__(self, connection):
        self.connection = connection
    def execute(self, statement):
        if not left[0]:
            os.kill(os.getpid(), 9)
        left[0] -= 1
        return self.connection.execute(statement)

migrations._run = lambda connection, statements: run(Killing(connection), statements)
LocalIndex(sys.argv[1]).count()
"""


@pytest.mark.parametrize("step", [1, 4, 6])
def test_a_migration_that_is_killed_is_done_again(released, step):
    done = subprocess.run([sys.executable, "-c", KILLED, released, str(step)], check=False)
    assert done.returncode == -9
    assert pragma(released, "user_version") < VERSION
    expect_everything(LocalIndex(released))


@pytest.mark.parametrize("version", [VERSION + 1, 999, 2, -1])
def test_another_version_is_named_and_no_reason_to_delete(released, version):
    with closing(sqlite3.connect(released / "library.sqlite")) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    index = LocalIndex(released)
    with pytest.raises(OtherVersion) as caught:
        index.count()
    assert caught.value.values["version"] == version
    assert "elete" not in str(caught.value)


@pytest.mark.parametrize(
    "statements",
    [
        ["PRAGMA application_id = 77"],
        ["DROP TABLE dead"],
        ["ALTER TABLE photos DROP COLUMN camera"],
        ["CREATE TRIGGER evil AFTER INSERT ON photos BEGIN DELETE FROM photos; END"],
        ["CREATE VIEW more AS SELECT * FROM photos"],
    ],
)
def test_an_older_library_with_other_tables_or_with_code_is_not_changed(released, statements):
    with closing(sqlite3.connect(released / "library.sqlite")) as connection:
        for statement in statements:
            connection.execute(statement)
    with closing(sqlite3.connect(released / "library.sqlite")) as connection:
        before = "\n".join(connection.iterdump())
    with pytest.raises(LibraryDamaged):
        LocalIndex(released).count()
    with closing(sqlite3.connect(released / "library.sqlite")) as connection:
        assert "\n".join(connection.iterdump()) == before


def test_every_version_has_a_mark():
    assert set(migrations.MARKS) == {migrations.OLDEST_VERSION, *migrations.MIGRATIONS}
    assert max(migrations.MARKS) == VERSION


def test_a_restored_dump_has_the_version_of_its_tables(monkeypatch, tmp_path):
    later = VERSION + 1
    with closing(migrations.open_empty()) as dump:
        dump.execute("PRAGMA user_version = 0")
        monkeypatch.setattr(migrations, "VERSION", later)
        monkeypatch.setitem(migrations.MARKS, later, ("photos", "rating"))
        assert migrations.find_version(dump, tmp_path) == VERSION
        dump.execute("ALTER TABLE photos ADD COLUMN rating INTEGER")
        assert migrations.find_version(dump, tmp_path) == later


@pytest.mark.parametrize("version", [migrations.OLDEST_VERSION, VERSION])
def test_the_tables_of_a_library_count_and_not_its_number(released, version):
    for _ in range(2):  # before the migration, and after it
        with closing(sqlite3.connect(released / "library.sqlite")) as connection:
            connection.execute(f"PRAGMA user_version = {version}")
        expect_everything(LocalIndex(released))
        assert pragma(released, "user_version") == VERSION


def test_a_restored_dump_of_an_older_library_is_migrated(released):
    file = released / "library.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 0")
    expect_everything(LocalIndex(released))
    assert pragma(released, "user_version") == VERSION
