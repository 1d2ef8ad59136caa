"""A library that several machines share: PostgreSQL with pgvector, with the methods of the local store.

The tables are in the schema `fishermix` of a database: one database is one library. Paths are absolute, so
all machines have the photos mounted at the same place. Changes take turns by an advisory lock.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from fishermix.errors import FishermixError, install_command

from fishermix_photos.database import (
    COLUMNS,
    CONTENTS,
    PHOTOS,
    TABLES_VERSION,
    Condition,
    Entry,
    PhotoRow,
    Picture,
    limit_to,
    today,
)
from fishermix_photos.details import DETAILS
from fishermix_photos.query import EARTH_RADIUS_KM, NO_FILTER, Filter
from fishermix_photos.results import LibraryBusy, LibraryDamaged, Photo
from fishermix_photos.store import DAYS_DEAD, Store

try:
    import psycopg
    from pgvector.psycopg import register_vector
except ImportError as missing:
    raise FishermixError(
        f"A library in PostgreSQL needs {missing.name}. Install it with "
        f"`{install_command('fishermix-photos[postgres]')}`."
    ) from missing

TYPES = ('text COLLATE "C"', *["text"] * 2, *["double precision"] * 2, *["bigint"] * 2, *["text"] * 2)
SCHEMA = f"""
CREATE EXTENSION IF NOT EXISTS vector;
CREATE SCHEMA IF NOT EXISTS fishermix;
CREATE TABLE IF NOT EXISTS fishermix.state (
    schema integer NOT NULL, model_key text NOT NULL, dimension integer NOT NULL, version bigint NOT NULL
);
INSERT INTO fishermix.state SELECT {TABLES_VERSION}, '', 0, 0 WHERE NOT EXISTS (SELECT FROM fishermix.state);
CREATE TABLE IF NOT EXISTS fishermix.folders (
    id bigserial PRIMARY KEY, path bytea NOT NULL UNIQUE
);
CREATE TABLE IF NOT EXISTS fishermix.contents (
    row bigserial PRIMARY KEY, sha256 bytea NOT NULL UNIQUE, point vector NOT NULL, fingerprint bytea
);
CREATE TABLE IF NOT EXISTS fishermix.dead (row bigint PRIMARY KEY, day integer NOT NULL);
CREATE TABLE IF NOT EXISTS fishermix.photos (
    number bigserial PRIMARY KEY,
    id text NOT NULL UNIQUE,
    path bytea NOT NULL UNIQUE,
    folder bigint NOT NULL REFERENCES fishermix.folders,
    is_file boolean NOT NULL,
    kind text NOT NULL,
    size bigint NOT NULL,
    mtime_ns bigint NOT NULL,
    row bigint REFERENCES fishermix.contents,
    reason text,
    {", ".join(f"{name} {type}" for name, type in zip(DETAILS, TYPES))},
    CHECK ((row IS NULL) != (reason IS NULL))
);
CREATE INDEX IF NOT EXISTS photos_by_row ON fishermix.photos (row);
CREATE INDEX IF NOT EXISTS photos_by_time ON fishermix.photos (taken);
CREATE INDEX IF NOT EXISTS photos_by_place ON fishermix.photos (latitude, longitude);
CREATE TABLE IF NOT EXISTS fishermix.names (
    rowid bigint PRIMARY KEY REFERENCES fishermix.photos ON DELETE CASCADE,
    file text NOT NULL, folders text NOT NULL, place text NOT NULL
);
CREATE OR REPLACE FUNCTION fishermix.distance_km(
    a double precision, b double precision, c double precision, d double precision
) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT 2 * {EARTH_RADIUS_KM} * asin(least(1, sqrt(
        sin(radians(c - a) / 2) ^ 2 + cos(radians(a)) * cos(radians(c)) * sin(radians(d - b) / 2) ^ 2)))
$$;
"""
ODD_POINTS = "SELECT count(*) FROM contents WHERE vector_dims(point) != (SELECT dimension FROM state)"


class PostgresStore(Store):
    """The library in a PostgreSQL database. It has the methods of `LocalStore`, which describes them."""

    _PATH = "encode(p.path, 'escape')"
    _STATE = "SELECT 0, model_key, dimension, version, NULL FROM state"

    def __init__(self, address: str):
        self.address, parts = address, urlsplit(address)
        self.name = f"{parts.hostname or 'the local server'}{parts.path}"
        self._threads, self._connections = threading.local(), list[psycopg.Connection]()
        with self._explain_errors(), psycopg.connect(address, connect_timeout=10) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('fishermix schema'))")
            if connection.execute("SELECT to_regclass('fishermix.state')").fetchone() == (None,):
                connection.execute(SCHEMA)
        (version,) = self._fetch("SELECT schema FROM state")[0]
        if version != TABLES_VERSION:
            raise self._damaged("was made by another version of fishermix")

    # Connections and transactions

    @property
    def _connection(self) -> psycopg.Connection:
        """This thread's connection; autocommit, transactions are opened explicitly."""
        connection = getattr(self._threads, "connection", None)
        if connection is None or connection.closed:
            connection = psycopg.connect(self.address, autocommit=True, connect_timeout=10)
            self._connections.append(connection)
            register_vector(connection)
            connection.execute("SET search_path = fishermix, public")
            self._threads.connection = connection
        return connection

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise FishermixError(
                f"The photo library {self.name} cannot be used ({str(error).strip()}). "
                "Check the address, and that the server has the pgvector extension."
            ) from error

    def _fetch(self, query: str, *values: Any) -> list[tuple]:
        with self._explain_errors():
            cursor = self._connection.execute(query.replace("?", "%s"), values)
            return cursor.fetchall() if cursor.description else []

    def _ask(self, row: Any, query: str, *values: Any) -> list[Any]:
        return self._convert(row, self._fetch(query, *values))

    def _match(self, phrase: str, column: str | None = None, is_prefix: bool = False) -> Condition:
        text = f"n.{column}" if column else "concat_ws(' | ', n.file, n.folders, n.place)"
        match = f"% {phrase}{'' if is_prefix else ' '}%"  # words and numbers only: nothing to escape
        return f"p.number IN (SELECT n.rowid FROM names n WHERE ' ' || {text} || ' ' LIKE ?)", [match]

    def _damaged(self, problem: str) -> LibraryDamaged:
        advice = "Drop the schema `fishermix` of the database, and add your folders again."
        return LibraryDamaged(f"The photo library {self.name} {problem}. {advice}", place=self.name)

    @contextmanager
    def _writing(self) -> Iterator[psycopg.Connection]:
        with self._explain_errors(), self._connection.transaction():
            self._connection.execute("SELECT pg_advisory_xact_lock(hashtext('fishermix change'))")
            self._connection.execute("UPDATE state SET version = version + 1")
            yield self._connection

    @contextmanager
    def updating(self, folders: Sequence[str]) -> Iterator[None]:
        with self._explain_errors():
            lock = psycopg.connect(self.address, autocommit=True)  # advisory locks end with it
        try:
            for folder in sorted(set(folders)):
                query = "SELECT pg_try_advisory_lock(hashtext(%s))"
                row = lock.execute(query, (f"fishermix {os.fsencode(folder).hex()}",)).fetchone()
                if not row or not row[0]:
                    raise LibraryBusy(
                        f"Another process is updating {folder}. Wait until it has finished.", folder=folder
                    )
            yield
        finally:
            lock.close()

    def delete(self) -> None:
        with self._writing() as connection:
            connection.execute("DROP SCHEMA fishermix CASCADE")
        self.close()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._threads = threading.local()

    # Changes

    def _add_content(self, entry: Entry) -> int:
        query = "INSERT INTO contents (sha256, point, fingerprint) VALUES (?, ?, ?) RETURNING row"
        point = np.asarray(entry.vector, np.float32)
        return self._fetch(query, entry.sha256, point, entry.fingerprint)[0][0]

    def _drop_dead(self) -> None:
        self._drop(today() + 1)

    def tidy(self) -> None:
        self._drop(today() - DAYS_DEAD)

    def _drop(self, latest: int) -> None:
        """Drop the points that died by this day."""
        with self._writing():
            gone = "(SELECT row FROM dead WHERE day <= ?)"
            self._execute(f"DELETE FROM contents WHERE row IN {gone}", latest)
            self._execute("DELETE FROM dead WHERE day <= ?", latest)

    def tune(self) -> None:
        with self._explain_errors():
            self._connection.execute("ANALYZE contents, photos")

    # Points

    def pictures(self, ids: Sequence[str]) -> dict[str, Picture]:
        query = CONTENTS.replace("c.fingerprint", "c.fingerprint, c.point::real[]")
        found = self._fetch(f"{query} AND p.id = ANY(?)", list(ids))
        return {
            id: Picture(row, fingerprint, np.array(point, np.float32))
            for id, row, fingerprint, point in found
        }

    def nearest(
        self, query: np.ndarray, n: int, prefixes: Sequence[str] = (), filter: Filter = NO_FILTER
    ) -> list[Photo]:
        where, values = self._limit(prefixes, filter)
        point = np.asarray(query, np.float32)
        found = self._fetch(
            f"SELECT -(c.point <#> ?), {COLUMNS} FROM {PHOTOS} JOIN contents c ON c.row = p.row "
            f"WHERE {where} ORDER BY c.point <#> ?, p.path LIMIT ?",
            *(point, *values, point, n),
        )
        scores = {row: float(score) for score, row, *_ in found}
        return self._make_photos(self._convert(PhotoRow, [row[1:] for row in found]), scores)

    def sample_scores(self, query: np.ndarray, at_most: int, prefixes: Sequence[str] = ()) -> np.ndarray:
        where, bounds = limit_to(prefixes)
        alive = f"c.row IN (SELECT p.row FROM photos p WHERE {where})"
        (count,) = self._fetch(f"SELECT count(*) FROM contents c WHERE {alive}", *bounds)[0]
        step = max(1, -(-count // at_most))
        # The order of the hashes is random with respect to the points.
        rows = self._fetch(
            "WITH numbered AS (SELECT point, row_number() OVER (ORDER BY sha256) AS number "
            f"FROM contents c WHERE {alive}) SELECT -(point <#> ?) FROM numbered WHERE mod(number, ?) = 0",
            *(*bounds, np.asarray(query, np.float32), step),
        )
        return np.array(rows, np.float32).reshape(-1)

    # Files

    def size(self) -> int:
        query = "SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables WHERE schemaname = ?"
        return int(self._fetch(query, "fishermix")[0][0] or 0)

    def verify(self) -> list[str]:
        ((odd,),) = self._fetch(ODD_POINTS)
        problems = [f"{odd} points have another dimension than the library."] if odd else []
        return self._check_rules() + problems
