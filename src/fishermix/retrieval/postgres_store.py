"""An index that several machines share: PostgreSQL with pgvector, with the interface of the local store.

The address is `postgresql://USER@HOST/DATABASE#NAME`; one database holds any number of named indexes. Paths
are relative to the folder, so each machine may mount the photos in a different place.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from fishermix.errors import FishermixError
from fishermix.extras import install_command
from fishermix.retrieval.details import COLUMNS, Details, DetailsRow
from fishermix.retrieval.store import Entry, Hit, Stamp, StoreLocked, Summary
from fishermix.schemas import Text
from fishermix.vision.formats import is_part

try:
    import psycopg
    from pgvector.psycopg import register_vector
except ImportError as missing:
    raise FishermixError(
        f"An index in PostgreSQL needs {missing.name}. Install it with `{install_command('postgres')}`."
    ) from missing

State: Any = tuple[Text, Annotated[int, msgspec.Meta(ge=0, le=2**20)]]  # model key, dimension
MIGRATIONS = (
    """
    CREATE TABLE fishermix_indexes (
        name text PRIMARY KEY, model_key text NOT NULL DEFAULT '', dimension integer NOT NULL DEFAULT 0
    );
    CREATE TABLE fishermix_contents (
        index_name text NOT NULL REFERENCES fishermix_indexes ON DELETE CASCADE,
        sha256 bytea NOT NULL,
        point vector NOT NULL,
        PRIMARY KEY (index_name, sha256)
    );
    CREATE TABLE fishermix_photos (
        index_name text NOT NULL REFERENCES fishermix_indexes ON DELETE CASCADE,
        id text NOT NULL,
        path bytea NOT NULL,
        size bigint NOT NULL,
        mtime_ns bigint NOT NULL,
        sha256 bytea,
        reason text,
        PRIMARY KEY (index_name, id),
        UNIQUE (index_name, path),
        FOREIGN KEY (index_name, sha256) REFERENCES fishermix_contents,
        CHECK ((sha256 IS NULL) != (reason IS NULL))
    );
    """,
    # A search looks up the photos of the points that it found.
    "CREATE INDEX fishermix_photos_by_content ON fishermix_photos (index_name, sha256);",
    # Details are read when they are missing. What could not be read is tried again once: there are more
    # formats now.
    """
    ALTER TABLE fishermix_photos
        ADD COLUMN taken text,
        ADD COLUMN taken_from text,
        ADD COLUMN camera text,
        ADD COLUMN latitude double precision,
        ADD COLUMN longitude double precision,
        ADD COLUMN width integer,
        ADD COLUMN height integer;
    UPDATE fishermix_photos SET mtime_ns = -1 WHERE reason IS NOT NULL;
    """,
)
ORPHANED = (
    "NOT EXISTS (SELECT FROM fishermix_photos p WHERE (p.index_name, p.sha256) = (c.index_name, c.sha256))"
)


class PostgresStore:
    """The `Store` of one folder in a PostgreSQL database."""

    def __init__(self, address: str):
        self.address, _, name = address.partition("#")
        self.index = name or "photos"
        self.name = f"{self.index} in {_without_password(self.address)}"
        self.root = None
        self._threads, self._connections = threading.local(), list[psycopg.Connection]()
        with self._explain_errors():
            _migrate(self._connection)
            self._connection.execute(
                "INSERT INTO fishermix_indexes (name) VALUES (%s) ON CONFLICT DO NOTHING", (self.index,)
            )

    def remember_folder(self, folder: Path) -> None:
        """Do nothing: each machine may have mounted the folder elsewhere."""

    @property
    def _connection(self) -> psycopg.Connection:
        """This thread's connection; autocommit, transactions are opened explicitly."""
        connection = getattr(self._threads, "connection", None)
        if connection is None or connection.closed:
            connection = psycopg.connect(self.address, autocommit=True, connect_timeout=10)
            self._connections.append(connection)
            connection.execute("SELECT pg_advisory_lock(hashtext('fishermix schema'))")
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute("SELECT pg_advisory_unlock(hashtext('fishermix schema'))")
            register_vector(connection)
            self._threads.connection = connection
        return connection

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise FishermixError(
                f"The index {self.name} cannot be used ({str(error).strip()}). "
                "Check the address, and that the server has the pgvector extension."
            ) from error

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection]:
        """One transaction with one snapshot."""
        with self._explain_errors():
            connection = self._connection
            with connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                yield connection

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold an advisory lock, which ends with its connection."""
        with self._explain_errors():
            lock = psycopg.connect(self.address, autocommit=True)
        try:
            row = lock.execute(
                "SELECT pg_try_advisory_lock(hashtext(%s))", (f"fishermix {self.index}",)
            ).fetchone()
            if not row or not row[0]:
                raise StoreLocked(
                    f"Another process is updating the index {self.name}. Wait until it has finished."
                )
            yield
        finally:
            lock.close()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._threads = threading.local()

    def delete(self) -> None:
        with self.writing(), self._transaction() as connection:
            connection.execute("DELETE FROM fishermix_photos WHERE index_name = %s", (self.index,))
            connection.execute("DELETE FROM fishermix_indexes WHERE name = %s", (self.index,))
        self.close()

    # Writing

    def model_key(self) -> str:
        return self._state()[0]

    def _state(self) -> tuple[str, int]:
        rows = self._rows("SELECT model_key, dimension FROM fishermix_indexes WHERE name = %s")
        if not rows:
            raise FishermixError(f"Another process has deleted the index {self.name}. Run the command again.")
        return self._check(rows[0], State)

    def _check(self, values: Any, schema: Any) -> Any:
        """Values of the database, if they are within their bounds."""
        try:
            return msgspec.convert(values, schema)
        except msgspec.ValidationError as error:
            raise FishermixError(
                f"The index {self.name} is damaged: a value is invalid ({error}). Delete it with `fishermix "
                "index remove FOLDER --index ADDRESS`; the next search builds it again."
            ) from error

    def _rows(self, query: str, *arguments) -> list[tuple]:
        """The rows of a query whose first parameter is the name of this index."""
        with self._explain_errors():
            return self._connection.execute(query, (self.index, *arguments)).fetchall()

    def adopt(self, model_key: str, dimension: int) -> bool:
        with self._transaction() as connection:
            if self._state() == (model_key, dimension):
                return False
            gone = connection.execute("DELETE FROM fishermix_photos WHERE index_name = %s", (self.index,))
            connection.execute("DELETE FROM fishermix_contents WHERE index_name = %s", (self.index,))
            connection.execute(
                "UPDATE fishermix_indexes SET model_key = %s, dimension = %s WHERE name = %s",
                (model_key, dimension, self.index),
            )
            return gone.rowcount > 0

    def stamps(self) -> dict[str, Stamp]:
        rows = self._rows("SELECT path, size, mtime_ns FROM fishermix_photos WHERE index_name = %s")
        return {os.fsdecode(path): Stamp(size, mtime_ns) for path, size, mtime_ns in rows}

    def known_contents(self, hashes: Sequence[bytes]) -> set[bytes]:
        query = "SELECT sha256 FROM fishermix_contents WHERE index_name = %s AND sha256 = ANY(%s)"
        return {digest for (digest,) in self._rows(query, list(hashes))}

    def write(self, entries: Sequence[Entry], removed: Sequence[str] = ()) -> None:
        touched = [os.fsencode(path) for path in [*(entry.path for entry in entries), *removed]]
        with self._transaction() as connection:
            old = self._rows(
                "SELECT DISTINCT sha256 FROM fishermix_photos WHERE index_name = %s AND path = ANY(%s) "
                "AND sha256 IS NOT NULL",
                touched,
            )
            points = [
                (self.index, entry.sha256, np.asarray(entry.vector, np.float32))
                for entry in entries
                if entry.reason is None and entry.vector is not None
            ]
            photos = [
                (
                    self.index,
                    secrets.token_hex(8),
                    os.fsencode(entry.path),
                    entry.stamp.size,
                    entry.stamp.mtime_ns,
                )
                + ((entry.sha256, None) if entry.reason is None else (None, entry.reason))
                for entry in entries
            ]
            with connection.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO fishermix_contents VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", points
                )
                cursor.executemany(
                    "INSERT INTO fishermix_photos VALUES (%s, %s, %s, %s, %s, %s, %s) "
                    "ON CONFLICT (index_name, path) DO UPDATE SET size = excluded.size, "
                    "mtime_ns = excluded.mtime_ns, sha256 = excluded.sha256, reason = excluded.reason, "
                    "taken = NULL",
                    photos,
                )
                cursor.execute(
                    "DELETE FROM fishermix_photos WHERE index_name = %s AND path = ANY(%s)",
                    (self.index, [os.fsencode(path) for path in removed]),
                )
                cursor.execute(
                    "DELETE FROM fishermix_contents c WHERE index_name = %s AND sha256 = ANY(%s) "
                    f"AND {ORPHANED}",
                    (self.index, [digest for (digest,) in old]),
                )

    def paths_without_details(self) -> list[str]:
        rows = self._rows(
            "SELECT path FROM fishermix_photos WHERE index_name = %s AND taken IS NULL AND reason IS NULL"
        )
        return [os.fsdecode(path) for (path,) in rows]

    def write_details(self, details: Mapping[str, Details]) -> None:
        assignments = ", ".join(f"{name} = %s" for name in COLUMNS)
        with self._transaction() as connection, connection.cursor() as cursor:
            cursor.executemany(
                f"UPDATE fishermix_photos SET {assignments} WHERE index_name = %s AND path = %s",
                [(*astuple(one), self.index, os.fsencode(path)) for path, one in details.items()],
            )

    # Reading

    def details(self, paths: Sequence[str] | None = None) -> dict[str, Details]:
        select = (
            f"SELECT path, {', '.join(COLUMNS)} FROM fishermix_photos "
            "WHERE index_name = %s AND taken IS NOT NULL"
        )
        if paths is None:
            rows = self._rows(select)
        else:
            rows = self._rows(f"{select} AND path = ANY(%s)", [os.fsencode(path) for path in paths])
        typed = self._check(rows, list[DetailsRow])
        return {os.fsdecode(path): Details(*values) for path, *values in typed}

    def nearest(self, queries: np.ndarray, n: int) -> list[list[Hit]]:
        query = (
            "SELECT id, path, -(point <#> %s) "
            "FROM fishermix_contents JOIN fishermix_photos USING (index_name, sha256) "
            "WHERE index_name = %s ORDER BY point <#> %s, path LIMIT %s"
        )
        found = []
        with self._explain_errors():
            for point in np.asarray(queries, np.float32):
                rows = self._connection.execute(query, (point, self.index, point, n))
                found.append([Hit(photo, os.fsdecode(path), float(score)) for photo, path, score in rows])
        return found

    def sample_scores(self, query: np.ndarray, at_most: int) -> np.ndarray:
        count = self._rows("SELECT count(*) FROM fishermix_contents WHERE index_name = %s")[0][0]
        step = max(1, -(-count // at_most))
        # The order of the hashes is random with respect to the points.
        query_of_scores = (
            "WITH numbered AS (SELECT point, row_number() OVER (ORDER BY sha256) AS number "
            "FROM fishermix_contents WHERE index_name = %s) "
            "SELECT -(point <#> %s) FROM numbered WHERE number %% %s = 0"
        )
        rows = self._rows(query_of_scores, np.asarray(query, np.float32), step)
        return np.array([score for (score,) in rows], np.float32)

    def contents(self) -> tuple[list[list[str]], np.ndarray]:
        query = (
            "SELECT array_agg(p.path ORDER BY p.path), (array_agg(c.point))[1] FROM fishermix_photos p "
            "JOIN fishermix_contents c USING (index_name, sha256) WHERE p.index_name = %s GROUP BY sha256"
        )
        rows = self._rows(query)
        vectors = [np.asarray(point, np.float32) for _, point in rows]
        paths = [[os.fsdecode(bytes(path)) for path in some] for some, _ in rows]
        return paths, np.stack(vectors) if vectors else np.empty((0, 0), np.float32)

    def tune(self) -> None:
        with self._explain_errors():
            self._connection.execute("ANALYZE fishermix_contents, fishermix_photos")

    def path_of(self, photo: str) -> str | None:
        rows = self._rows("SELECT path FROM fishermix_photos WHERE index_name = %s AND id = %s", photo)
        return os.fsdecode(rows[0][0]) if rows else None

    def id_of(self, path: str) -> str | None:
        query = "SELECT id FROM fishermix_photos WHERE index_name = %s AND path = %s"
        rows = self._rows(query, os.fsencode(path))
        return rows[0][0] if rows else None

    def vector_of(self, photo: str) -> np.ndarray | None:
        rows = self._rows(
            "SELECT point::real[] FROM fishermix_photos JOIN fishermix_contents USING (index_name, sha256) "
            "WHERE index_name = %s AND id = %s",
            photo,
        )
        return np.array(rows[0][0], np.float32) if rows else None

    def summary(self) -> Summary:
        model_key, dimension = self._state()
        photos = "FROM fishermix_photos WHERE index_name = %s"
        pictures = self._rows(f"SELECT count(*) {photos} AND reason IS NULL")[0][0]
        query = f"SELECT sha256, path {photos} AND reason IS NULL AND position('#'::bytea IN path) > 0"
        named = self._rows(query)
        parts = [digest for digest, path in named if is_part(os.fsdecode(path))]
        contents = self._rows("SELECT count(*) FROM fishermix_contents WHERE index_name = %s")[0][0]
        failed = self._rows(f"SELECT path, reason {photos} AND reason IS NOT NULL ORDER BY path")
        size = self._rows(
            "SELECT coalesce(sum(pg_column_size(c.*)), 0) FROM fishermix_contents c WHERE index_name = %s"
        )[0][0]
        unreadable = {os.fsdecode(path): reason for path, reason in failed}
        readable, contents = pictures - len(parts), contents - len(set(parts))
        return Summary(readable, contents, unreadable, model_key, dimension, int(size), pictures)

    def verify(self) -> list[str]:
        contents = "SELECT count(*) FROM fishermix_contents c JOIN fishermix_indexes ON name = index_name"
        mine = f"{contents} WHERE index_name = %s AND"
        rules = {
            "points belong to no photo.": f"{mine} {ORPHANED}",
            "points have another dimension than the index.": f"{mine} vector_dims(point) != dimension",
            "content hashes do not have 32 bytes.": f"{mine} length(sha256) != 32",
        }
        counts = {rule: self._rows(query)[0][0] for rule, query in rules.items()}
        return [f"{count} {rule}" for rule, count in counts.items() if count]


def _migrate(connection: psycopg.Connection) -> None:
    """Run the migrations that this database has not seen, in one transaction, one client at a time."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('fishermix schema'))")
        connection.execute("CREATE TABLE IF NOT EXISTS fishermix_schema (version integer NOT NULL)")
        row = connection.execute("SELECT version FROM fishermix_schema").fetchone()
        version = row[0] if row else 0
        if version > len(MIGRATIONS):
            raise FishermixError(
                f"The database has version {version}; this fishermix reads up to {len(MIGRATIONS)}. "
                "Upgrade to a newer fishermix."
            )
        for migration in MIGRATIONS[version:]:
            connection.execute(migration)
        connection.execute("DELETE FROM fishermix_schema")
        connection.execute("INSERT INTO fishermix_schema VALUES (%s)", (len(MIGRATIONS),))


def _without_password(address: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    return f"{parts.hostname or 'the local server'}{parts.path}"
