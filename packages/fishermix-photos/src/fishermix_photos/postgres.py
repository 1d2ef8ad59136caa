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
from fishermix.errors import FishermixError
from fishermix.runtime import install_command

from fishermix_photos.database import (
    COLUMNS,
    CONTENTS,
    PHOTOS,
    VERSION,
    WRITE_PHOTO,
    Condition,
    Database,
    Entry,
    PhotoRow,
    Picture,
    limit_to,
    today,
)
from fishermix_photos.details import DETAILS
from fishermix_photos.query import EARTH_RADIUS_KM
from fishermix_photos.results import LibraryBusy, LibraryDamaged, Photo
from fishermix_photos.store import DAYS_DEAD

try:
    import psycopg
    from pgvector.psycopg import register_vector
except ImportError as missing:
    raise FishermixError(
        f"A library in PostgreSQL needs {missing.name}. Install it with `{install_command('postgres')}`."
    ) from missing

TYPES = ('text COLLATE "C"', *["text"] * 2, *["double precision"] * 2, *["bigint"] * 2, *["text"] * 2)
SCHEMA = f"""
CREATE EXTENSION IF NOT EXISTS vector;
CREATE SCHEMA IF NOT EXISTS fishermix;
CREATE TABLE IF NOT EXISTS fishermix.state (
    schema integer NOT NULL, model_key text NOT NULL, dimension integer NOT NULL, version bigint NOT NULL
);
INSERT INTO fishermix.state SELECT {VERSION}, '', 0, 0 WHERE NOT EXISTS (SELECT FROM fishermix.state);
CREATE TABLE IF NOT EXISTS fishermix.folders (
    id bigserial PRIMARY KEY, path bytea NOT NULL UNIQUE
);
CREATE TABLE IF NOT EXISTS fishermix.contents (
    row bigserial PRIMARY KEY, sha256 bytea NOT NULL UNIQUE, died integer, point vector NOT NULL,
    fingerprint bytea
);
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
HAS_PHOTO = "EXISTS (SELECT FROM photos p WHERE p.row = c.row)"
RULES = {
    "points belong to no photo and are not listed as dead.": f"died IS NULL AND NOT {HAS_PHOTO}",
    "dead points belong to a photo.": f"died IS NOT NULL AND {HAS_PHOTO}",
    "points have another dimension than the library.": "vector_dims(point) != (SELECT dimension FROM state)",
    "content hashes do not have 32 bytes.": "length(sha256) != 32",
}


class PostgresStore(Database):
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
        (version,) = self._execute("SELECT schema FROM state")[0]
        if version != VERSION:
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

    def _execute(self, query: str, *values: Any) -> list[tuple]:
        with self._explain_errors():
            cursor = self._connection.execute(query.replace("?", "%s"), values)
            return cursor.fetchall() if cursor.description else []

    def _ask(self, row: Any, query: str, *values: Any) -> list[Any]:
        return self._convert(row, self._execute(query, *values))

    def _match(self, phrase: str, column: str | None = None, is_prefix: bool = False) -> Condition:
        text = f"n.{column}" if column else "concat_ws(' | ', n.file, n.folders, n.place)"
        match = f"% {phrase}{'' if is_prefix else ' '}%"  # words and numbers only: nothing to escape
        return f"p.number IN (SELECT n.rowid FROM names n WHERE ' ' || {text} || ' ' LIKE ?)", [match]

    def _damaged(self, problem: str) -> LibraryDamaged:
        advice = "Drop the schema `fishermix` of the database, and add your folders again."
        return LibraryDamaged(f"The photo library {self.name} {problem}. {advice}", place=self.name)

    @contextmanager
    def _writing(self) -> Iterator[psycopg.Connection]:
        """A change: one client at a time; the others wait."""
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

    # Folders

    def adopt(self, model_key: str, dimension: int) -> bool:
        state = self.state()
        if (state.model_key, state.dimension) == (model_key, dimension):
            return False
        with self._writing() as connection:
            gone = connection.execute("DELETE FROM photos").rowcount
            connection.execute("DELETE FROM contents")
            connection.execute("UPDATE state SET model_key = %s, dimension = %s", (model_key, dimension))
            return gone > 0

    def add_folder(self, folder: str, inner: Sequence[str] = ()) -> None:
        with self._writing() as connection:
            query = "INSERT INTO folders (path) VALUES (%s) ON CONFLICT DO NOTHING"
            connection.execute(query, (os.fsencode(folder),))
            number = self._find_folder(folder)
            old = [self._find_folder(path) for path in inner]
            connection.execute("UPDATE photos SET folder = %s WHERE folder = ANY(%s)", (number, old))
            connection.execute("DELETE FROM folders WHERE id = ANY(%s)", (old,))
            if inner:
                self._rename(folder)

    def remove_folder(self, folder: str) -> None:
        with self._writing() as connection:
            number = self._find_folder(folder)
            connection.execute("DELETE FROM photos WHERE folder = %s", (number,))
            connection.execute("DELETE FROM folders WHERE id = %s", (number,))
            connection.execute(f"DELETE FROM contents c WHERE NOT {HAS_PHOTO}")

    # Changes

    def write(self, folder: str, entries: Sequence[Entry], removed: Sequence[str] = ()) -> list[str]:
        missing: list[str] = []
        with self._writing() as connection:
            number = self._find_folder(folder)
            paths = [os.fsencode(path) for path in (*removed, *(entry.path for entry in entries))]
            found = self._execute("SELECT row FROM photos WHERE path = ANY(?)", paths)
            touched = {row for (row,) in found}
            for entry in entries:
                row = None
                if entry.reason is None and (row := self._store_content(entry)) is None:
                    missing.append(entry.path)
                    continue
                ((photo,),) = self._execute(WRITE_PHOTO, *entry.values(number, row))
                self._write_names(photo, entry.path, folder, entry.details)
                touched.add(row)
            gone = [os.fsencode(path) for path in removed]
            connection.execute("DELETE FROM photos WHERE path = ANY(%s)", (gone,))
            connection.execute(
                f"UPDATE contents c SET died = CASE WHEN {HAS_PHOTO} THEN NULL ELSE coalesce(died, %s) END "
                "WHERE row = ANY(%s)",
                (today(), list(touched - {None})),
            )
        return missing

    def _store_content(self, entry: Entry) -> int | None:
        """The row of a content, new or known; None if it is not known and came without a vector."""
        row = self._find_row(entry.sha256)
        if row is None and entry.vector is not None:
            query = "INSERT INTO contents (sha256, point, fingerprint) VALUES (?, ?, ?) RETURNING row"
            point = np.asarray(entry.vector, np.float32)
            return self._execute(query, entry.sha256, point, entry.fingerprint)[0][0]
        return row

    def tidy(self) -> None:
        with self._writing() as connection:
            connection.execute("DELETE FROM contents WHERE died <= %s", (today() - DAYS_DEAD,))

    def tune(self) -> None:
        with self._explain_errors():
            self._connection.execute("ANALYZE contents, photos")

    # Points

    def pictures(self, ids: Sequence[str]) -> dict[str, Picture]:
        query = CONTENTS.replace("c.fingerprint", "c.fingerprint, c.point::real[]")
        found = self._execute(f"{query} AND p.id = ANY(?)", list(ids))
        return {
            id: Picture(row, fingerprint, np.array(point, np.float32))
            for id, row, fingerprint, point in found
        }

    def nearest(
        self, query: np.ndarray, n: int, prefixes: Sequence[str] = (), rows: np.ndarray | None = None
    ) -> list[Photo]:
        where, bounds = limit_to(prefixes)
        point, chosen = np.asarray(query, np.float32), [] if rows is None else [rows.tolist()]
        found = self._execute(
            f"SELECT -(c.point <#> ?), {COLUMNS} FROM {PHOTOS} JOIN contents c ON c.row = p.row "
            f"WHERE {where} {'AND p.row = ANY(?) ' if chosen else ''}"
            "ORDER BY c.point <#> ?, p.path LIMIT ?",
            *(point, *bounds, *chosen, point, n),
        )
        scores = {row: float(score) for score, row, *_ in found}
        return self._make_photos(self._convert(PhotoRow, [row[1:] for row in found]), scores)

    def sample_scores(self, query: np.ndarray, at_most: int, prefixes: Sequence[str] = ()) -> np.ndarray:
        where, bounds = limit_to(prefixes)
        alive = f"c.row IN (SELECT p.row FROM photos p WHERE {where})"
        (count,) = self._execute(f"SELECT count(*) FROM contents c WHERE {alive}", *bounds)[0]
        step = max(1, -(-count // at_most))
        # The order of the hashes is random with respect to the points.
        rows = self._execute(
            "WITH numbered AS (SELECT point, row_number() OVER (ORDER BY sha256) AS number "
            f"FROM contents c WHERE {alive}) SELECT -(point <#> ?) FROM numbered WHERE mod(number, ?) = 0",
            *(*bounds, np.asarray(query, np.float32), step),
        )
        return np.array(rows, np.float32).reshape(-1)

    # Files

    def size(self) -> int:
        query = "SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables WHERE schemaname = ?"
        return int(self._execute(query, "fishermix")[0][0] or 0)

    def verify(self) -> list[str]:
        counts = {
            rule: self._execute(f"SELECT count(*) FROM contents c WHERE {condition}")[0][0]
            for rule, condition in RULES.items()
        }
        return [f"{count} {rule}" for rule, count in counts.items() if count]
