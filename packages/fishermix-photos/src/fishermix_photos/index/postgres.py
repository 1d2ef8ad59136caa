"""A library that several machines share: PostgreSQL with pgvector.

The tables are in the schema `fishermix` of a database: one database is one library. Paths are absolute, so
all machines have the photos mounted at the same place. Changes take turns by an advisory lock.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from sqlite3 import DatabaseError
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

import numpy as np
from fishermix.errors import FishermixError, install_command

from fishermix_photos.disk import convert_rows
from fishermix_photos.index.conditions import (
    UNDATED,
    AnyOf,
    AtLeast,
    Below,
    Condition,
    Contains,
    EqualTo,
    HasWords,
    LessThan,
    Near,
    Undated,
    limit_to,
)
from fishermix_photos.index.errors import LibraryBusy, LibraryDamaged, OtherVersion
from fishermix_photos.index.filters import NO_FILTER, Filter, list_conditions
from fishermix_photos.index.names import NAMES, NameCounts, find_name_words
from fishermix_photos.index.photo import Photo, make_photos
from fishermix_photos.index.protocol import PhotoIndex
from fishermix_photos.index.scan import Stamp
from fishermix_photos.index.schema import (
    COLUMNS,
    FOUND,
    FOUND_IN,
    RULES,
    UNREAD,
    VERSION,
    FoundPhoto,
    UnreadPhoto,
    define_photo_columns,
)
from fishermix_photos.index.values import Entry, Picture, State, Unread, today
from fishermix_photos.index.writer import DAYS_ORPHANED
from fishermix_photos.photos.details import NO_DETAILS, Details, find_bounds_of_dates
from fishermix_photos.photos.geodesy import EARTH_RADIUS_KM

try:
    import psycopg
    from pgvector.psycopg import register_vector
except ImportError as missing:
    raise FishermixError(
        f"A library in PostgreSQL needs {missing.name}. Install it with "
        f"`{install_command('fishermix-photos[postgres]')}`.",
        code="missing_package",
    ) from missing

SQL_TYPES = {
    bool: "boolean",
    int: "bigint",
    float: "double precision",
    str: 'text COLLATE "C"',
    bytes: "bytea",
}
TEXTS = """
CREATE TABLE fishermix.texts (
    rowid bigint PRIMARY KEY REFERENCES fishermix.contents ON DELETE CASCADE,
    words text NOT NULL, text text NOT NULL
);
"""
SCHEMA = f"""
CREATE EXTENSION IF NOT EXISTS vector;
CREATE SCHEMA fishermix;
CREATE TABLE fishermix.state (
    schema integer NOT NULL, model_key text NOT NULL, dimension integer NOT NULL, version bigint NOT NULL
);
INSERT INTO fishermix.state VALUES ({VERSION}, '', 0, 0);
CREATE TABLE fishermix.folders (id bigserial PRIMARY KEY, path bytea NOT NULL UNIQUE);
CREATE TABLE fishermix.contents (
    row bigserial PRIMARY KEY, sha256 bytea NOT NULL UNIQUE, embedding vector NOT NULL, fingerprint bytea
);
CREATE TABLE fishermix.orphaned (row bigint PRIMARY KEY, day integer NOT NULL);
CREATE TABLE fishermix.photos (
    number bigserial PRIMARY KEY,
    {define_photo_columns(SQL_TYPES)},
    FOREIGN KEY (folder) REFERENCES fishermix.folders,
    FOREIGN KEY (row) REFERENCES fishermix.contents,
    CHECK ((row IS NULL) != (reason IS NULL))
);
CREATE INDEX photos_by_row ON fishermix.photos (row);
CREATE INDEX photos_by_time ON fishermix.photos (taken);
CREATE INDEX photos_by_place ON fishermix.photos (latitude, longitude);
CREATE TABLE fishermix.names (
    rowid bigint PRIMARY KEY REFERENCES fishermix.photos ON DELETE CASCADE,
    file text NOT NULL, folders text NOT NULL, place text NOT NULL
);
{TEXTS}
CREATE FUNCTION fishermix.distance_km(
    a double precision, b double precision, c double precision, d double precision
) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT 2 * {EARTH_RADIUS_KM} * asin(least(1, sqrt(
        sin(radians(c - a) / 2) ^ 2 + cos(radians(a)) * cos(radians(c)) * sin(radians(d - b) / 2) ^ 2)))
$$;
"""
# To each version from the one before it; see `migrations`.
MIGRATIONS = {
    4: """
ALTER TABLE fishermix.dead RENAME TO orphaned;
ALTER TABLE fishermix.contents RENAME COLUMN point TO embedding;
""",
    5: TEXTS,
}
ORDERS = {  # doubtful dates last, then photos without a date of their own
    "date": f"{UNDATED}, p.taken < %s OR p.taken > %s, p.taken DESC, p.path",
    "oldest": f"{UNDATED}, p.taken < %s OR p.taken > %s, p.taken, p.path DESC",
}
LOCK_CHANGES = "SELECT pg_advisory_xact_lock(hashtext('fishermix change'))"
ODD_EMBEDDINGS = "SELECT count(*) FROM contents WHERE vector_dims(embedding) != (SELECT dimension FROM state)"


class PostgresIndex(PhotoIndex):
    """The library in a PostgreSQL database."""

    def __init__(self, address: str):
        self.address = address
        parts = urlsplit(address)
        self.name = f"{parts.hostname or 'the local server'}{parts.path}"
        self._threads = threading.local()
        self._all = WeakSet[_ThreadConnection]()
        with self._explain_errors(), psycopg.connect(address, connect_timeout=10) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('fishermix schema'))")
            if connection.execute("SELECT to_regclass('fishermix.state')").fetchone() == (None,):
                connection.execute(SCHEMA)
            else:
                self._migrate(connection)

    def _migrate(self, connection: psycopg.Connection) -> None:
        """Bring the tables to this version; raises if this fishermix does not know theirs."""
        ((version,),) = connection.execute("SELECT schema FROM fishermix.state").fetchall()
        if not min(MIGRATIONS) - 1 <= version <= VERSION:
            age, remedy = ("a newer", "Update") if version > VERSION else ("an older", "Use that")
            raise OtherVersion(
                f"The photo library {self.name} was made by {age} fishermix: its tables have version "
                f"{version}, not {VERSION}. {remedy} fishermix, or name another database.",
                version=version,
            )
        for number in range(version + 1, VERSION + 1):
            connection.execute(MIGRATIONS[number])
            connection.execute("UPDATE fishermix.state SET schema = %s", (number,))

    # Connections and transactions

    @property
    def _connection(self) -> psycopg.Connection:
        """This thread's connection; autocommit, transactions are opened explicitly."""
        held = getattr(self._threads, "held", None)
        if held is None or held.connection.closed:
            held = self._threads.held = _ThreadConnection(self.address)
            self._all.add(held)
        return held.connection

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise FishermixError(
                f"The photo library {self.name} cannot be used ({str(error).strip()}). "
                "Check the address, and that the server has the pgvector extension.",
                code="unreachable",
            ) from error

    def _damaged(self, problem: object) -> LibraryDamaged:
        advice = (
            "Your photos are untouched. Save the database with `pg_dump`, drop its schema `fishermix`, and "
            "add your folders again."
        )
        return LibraryDamaged(
            f"The photo library {self.name} is damaged: {problem}. {advice}", place=self.name
        )

    def _fetch(self, query: str, *values: Any) -> list[tuple]:
        with self._explain_errors():
            cursor = self._connection.execute(query, values)
            return cursor.fetchall() if cursor.description else []

    def _ask(self, row: Any, query: str, *values: Any) -> list[Any]:
        """The rows that a query finds, each converted to the tuple type `row` of bounded types."""
        return self._convert(row, self._fetch(query, *values))

    def _convert(self, row: Any, found: list[tuple]) -> list[Any]:
        try:
            return convert_rows(row, found)
        except DatabaseError as error:
            raise self._damaged(error) from error

    def close(self) -> None:
        for held in list(self._all):
            held.close()
        self._all.clear()
        self._threads = threading.local()

    # What it has

    def exists(self) -> bool:
        return True

    def state(self) -> State:
        found = self._ask(State, "SELECT 0, model_key, dimension, version, NULL FROM state")
        if len(found) != 1:
            raise self._damaged("it has no state")
        folders = self._ask(tuple[bytes], "SELECT path FROM folders ORDER BY path")
        names = tuple(os.fsdecode(path) for (path,) in folders)
        if odd := [name for name in names if os.path.abspath(name) != name]:
            raise self._damaged(f"{odd[0]!r:.100} is not the path of a folder")
        return found[0]._replace(folders=names)

    def stamps(self, prefix: str) -> dict[str, Stamp]:
        where, values = write_conditions(limit_to([prefix]))
        query = f"SELECT path, size, mtime_ns FROM photos p WHERE {where}"
        found = self._ask(tuple[bytes, int, int], query, *values)
        return {os.fsdecode(path): Stamp(size, mtime_ns) for path, size, mtime_ns in found}

    def known_contents(self, hashes: Sequence[bytes]) -> set[bytes]:
        query = "SELECT sha256 FROM contents WHERE sha256 = ANY(%s)"
        return {digest for (digest,) in self._ask(tuple[bytes], query, list(hashes))}

    def photos(self, prefixes: Sequence[str] = (), filter: Filter = NO_FILTER) -> list[Photo]:
        where, values = self._limit(prefixes, filter)
        found = self._ask(FoundPhoto, f"SELECT {FOUND} FROM {FOUND_IN} WHERE {where}", *values)
        return self._make_photos(found)

    def find(self, ids: Sequence[str]) -> list[Photo]:
        query = f"SELECT {FOUND} FROM {FOUND_IN} WHERE p.row IS NOT NULL AND p.id = ANY(%s)"
        return self._make_photos(self._ask(FoundPhoto, query, list(ids)))

    def files(self, prefixes: Sequence[str] = ()) -> list[tuple[str, bytes, bytes, str | None]]:
        where, values = write_conditions(limit_to(prefixes))
        taken = f"CASE WHEN {UNDATED} THEN NULL ELSE p.taken END"
        query = f"SELECT p.id, p.path, f.path, {taken} FROM {FOUND_IN} WHERE p.row IS NOT NULL AND p.is_file"
        return self._ask(tuple[str, bytes, bytes, str | None], f"{query} AND {where}", *values)

    def list_files(
        self, prefixes: Sequence[str], filter: Filter, order: str, n: int, offset: int
    ) -> list[Photo]:
        where, values = self._limit(prefixes, filter)
        bounds = find_bounds_of_dates() if order in ORDERS else ()
        by = ORDERS.get(order, "lower(encode(p.path, 'escape'))")
        query = f"SELECT {FOUND} FROM {FOUND_IN} WHERE {where} AND p.is_file ORDER BY {by} LIMIT %s OFFSET %s"
        return self._make_photos(self._ask(FoundPhoto, query, *values, *bounds, n, offset))

    def count_years(self, prefixes: Sequence[str], filter: Filter) -> dict[tuple[bool, str], int]:
        where, values = self._limit(prefixes, filter)
        known = f"CASE WHEN p.taken BETWEEN %s AND %s AND NOT {UNDATED} THEN 0 ELSE 1 END"
        year = f"CASE WHEN {UNDATED} THEN '' ELSE coalesce(substr(p.taken, 1, 4), '') END"
        query = f"SELECT {known}, {year}, count(*) FROM photos p WHERE {where} AND p.is_file GROUP BY 1, 2"
        found = self._ask(tuple[int, str, int], query, *find_bounds_of_dates(), *values)
        return {(bool(doubtful), year): count for doubtful, year, count in found}

    def count(self, prefixes: Sequence[str] = ()) -> tuple[int, int, int]:
        where, values = write_conditions(limit_to(prefixes))
        files = "count(row) FILTER (WHERE is_file), count(DISTINCT row) FILTER (WHERE is_file), count(row)"
        return self._ask(tuple[int, int, int], f"SELECT {files} FROM photos p WHERE {where}", *values)[0]

    def unreadable(self, prefixes: Sequence[str] = ()) -> dict[str, str]:
        where, values = write_conditions(limit_to(prefixes))
        query = f"SELECT path, reason FROM photos p WHERE reason IS NOT NULL AND {where} ORDER BY path"
        found = self._ask(tuple[bytes, str], query, *values)
        return {os.fsdecode(path): reason for path, reason in found}

    def count_names(self, phrases: Iterable[str], prefixes: Sequence[str] = ()) -> dict[str, NameCounts]:
        found = {}
        for phrase in phrases:
            counts = []
            for column in NAMES:
                where, values = write_conditions([HasWords(phrase, column), *limit_to(prefixes)])
                query = f"SELECT count(*) FROM photos p WHERE p.is_file AND {where}"
                counts += self._ask(tuple[int], query, *values)[0]
            found[phrase] = NameCounts(*counts)
        return found

    def unread(self, prefixes: Sequence[str] = ()) -> list[Unread]:
        where, values = write_conditions(limit_to(prefixes))
        found = self._ask(UnreadPhoto, UNREAD.format(where=where), *values)
        return [
            Unread(sha256, os.fsdecode(path), Stamp(size, mtime_ns), *rest)
            for sha256, path, size, mtime_ns, *rest in found
        ]

    def texts(self, ids: Sequence[str]) -> dict[str, str]:
        query = (
            "SELECT p.id, t.text FROM photos p JOIN texts t ON t.rowid = p.row "
            "WHERE t.text != '' AND p.id = ANY(%s)"
        )
        return dict(self._ask(tuple[str, str], query, list(ids)))

    def places(self, prefixes: Sequence[str] = ()) -> list[tuple[str, float, float]]:
        where, values = write_conditions(limit_to(prefixes))
        query = (
            "SELECT place, avg(latitude), avg(longitude) FROM photos p "
            f"WHERE place IS NOT NULL AND {where} GROUP BY place ORDER BY count(*) DESC"
        )
        return self._ask(tuple[str, float, float], query, *values)

    def _limit(self, prefixes: Sequence[str], filter: Filter) -> tuple[str, list[Any]]:
        """The condition of readable photos below prefixes that meet a filter."""
        where, values = write_conditions([*limit_to(prefixes), *list_conditions(filter, self.folders)])
        return f"p.row IS NOT NULL AND {where}", values

    def _make_photos(self, rows: Sequence[tuple], scores: Mapping[int, float] | None = None) -> list[Photo]:
        """The photos of rows of the database, with the scores of their embeddings."""
        folders = self.folders() if rows else ()
        try:
            return make_photos(rows, folders, scores)
        except ValueError as error:
            raise self._damaged(error) from error

    # Its embeddings

    def pictures(self, ids: Sequence[str]) -> dict[str, Picture]:
        found = self._fetch(
            "SELECT p.id, p.row, c.fingerprint, c.embedding::real[] FROM photos p "
            "JOIN contents c ON c.row = p.row WHERE p.id = ANY(%s)",
            list(ids),
        )
        return {
            id: Picture(row, fingerprint, np.array(embedding, np.float32))
            for id, row, fingerprint, embedding in found
        }

    def nearest(
        self, query: np.ndarray, n: int, prefixes: Sequence[str] = (), filter: Filter = NO_FILTER
    ) -> list[Photo]:
        where, values = self._limit(prefixes, filter)
        vector = np.asarray(query, np.float32)
        found = self._fetch(
            f"SELECT -(c.embedding <#> %s), {FOUND} FROM {FOUND_IN} JOIN contents c ON c.row = p.row "
            f"WHERE {where} ORDER BY c.embedding <#> %s, p.path LIMIT %s",
            *(vector, *values, vector, n),
        )
        scores = {row: float(score) for score, row, *_ in found}
        return self._make_photos(self._convert(FoundPhoto, [row[1:] for row in found]), scores)

    def sample_scores(self, query: np.ndarray, at_most: int, prefixes: Sequence[str] = ()) -> np.ndarray:
        where, values = write_conditions(limit_to(prefixes))
        in_use = f"c.row IN (SELECT p.row FROM photos p WHERE {where})"
        (count,) = self._fetch(f"SELECT count(*) FROM contents c WHERE {in_use}", *values)[0]
        step = max(1, -(-count // at_most))
        # The order of the hashes is random with respect to the embeddings.
        rows = self._fetch(
            "WITH numbered AS (SELECT embedding, row_number() OVER (ORDER BY sha256) AS number "
            f"FROM contents c WHERE {in_use}) "
            "SELECT -(embedding <#> %s) FROM numbered WHERE mod(number, %s) = 0",
            *(*values, np.asarray(query, np.float32), step),
        )
        return np.array(rows, np.float32).reshape(-1)

    # Its care

    @contextmanager
    def change(self) -> Iterator[PostgresChange]:
        with self._explain_errors(), self._connection.transaction():
            self._connection.execute(LOCK_CHANGES)
            self._connection.execute("UPDATE state SET version = version + 1")
            change = PostgresChange(self._connection)
            yield change
            change.finish()

    def write_texts(self, texts: Sequence[tuple[bytes, str, str]]) -> None:
        query = (
            "INSERT INTO texts (rowid, words, text) SELECT c.row, %s, %s FROM contents c WHERE c.sha256 = %s "
            "AND c.row IN (SELECT row FROM photos) ON CONFLICT DO NOTHING"
        )
        with self._explain_errors(), self._connection.transaction():
            self._connection.execute(LOCK_CHANGES)
            for sha256, words, text in texts:
                self._connection.execute(query, (words, text.replace("\0", ""), sha256))

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
        with self._explain_errors(), self._connection.transaction():
            self._connection.execute(LOCK_CHANGES)
            self._connection.execute("DROP SCHEMA fishermix CASCADE")
        self.close()

    def compact(self, all_orphaned: bool = False) -> None:
        latest = today() + 1 if all_orphaned else today() - DAYS_ORPHANED
        with self.change():
            gone = "(SELECT row FROM orphaned WHERE day <= %s)"
            self._fetch(f"DELETE FROM contents WHERE row IN {gone}", latest)
            self._fetch("DELETE FROM orphaned WHERE day <= %s", latest)

    def tune(self) -> None:
        with self._explain_errors():
            self._connection.execute("ANALYZE contents, photos")

    def size(self) -> int:
        query = "SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables WHERE schemaname = %s"
        return int(self._fetch(query, "fishermix")[0][0] or 0)

    def verify(self) -> list[str]:
        problems = []
        for rule, query in RULES.items():
            ((count,),) = self._fetch(query)
            problems += [f"{count} {rule}"] if count else []
        ((odd,),) = self._fetch(ODD_EMBEDDINGS)
        return problems + ([f"{odd} embeddings have another dimension than the library."] if odd else [])


class _ThreadConnection:
    """A connection that is closed when its thread ends: servers start threads again and again."""

    def __init__(self, address: str):
        self.connection = psycopg.connect(address, autocommit=True, connect_timeout=10)
        register_vector(self.connection)
        self.connection.execute("SET search_path = fishermix, public")

    def close(self) -> None:
        self.connection.close()

    def __del__(self) -> None:
        if hasattr(self, "connection"):
            self.close()


class PostgresChange:
    """The steps of a change, in the transaction of a connection."""

    def __init__(self, connection: psycopg.Connection):
        self._connection = connection
        self._left: set[int] = set()  # rows that a photo referred to

    def _run(self, query: str, *values: Any) -> list[tuple]:
        cursor = self._connection.execute(query, values)
        return cursor.fetchall() if cursor.description else []

    def finish(self) -> None:
        """List rows without a photo as orphaned."""
        self._run(
            "INSERT INTO orphaned (row, day) SELECT c.row, %s FROM contents c WHERE c.row = ANY(%s) "
            "AND NOT EXISTS (SELECT FROM photos p WHERE p.row = c.row) ON CONFLICT DO NOTHING",
            *(today(), list(self._left)),
        )
        self._run(
            "DELETE FROM texts WHERE rowid = ANY(%s) AND rowid IN (SELECT row FROM orphaned)",
            list(self._left),
        )

    def find_folder(self, path: str) -> int:
        found = self._run("SELECT id FROM folders WHERE path = %s", os.fsencode(path))
        if not found:
            raise FishermixError(
                f"Another process has removed {path} from the photo library. Run the command again.",
                code="removed_meanwhile",
            )
        return found[0][0]

    def add_folder(self, path: str) -> int:
        self._run("INSERT INTO folders (path) VALUES (%s) ON CONFLICT DO NOTHING", os.fsencode(path))
        return self.find_folder(path)

    def take_over(self, folder: int, path: str, inner: Sequence[str]) -> None:
        for other in map(self.find_folder, inner):
            self._run("UPDATE photos SET folder = %s WHERE folder = %s", folder, other)
            self._run("DELETE FROM folders WHERE id = %s", other)
        found = self._run("SELECT number, path, place, region FROM photos WHERE folder = %s", folder)
        for number, photo, place, region in found:
            self._write_names(number, os.fsdecode(photo), path, Details(place=place, region=region))

    def delete_folder(self, folder: int) -> None:
        found = self._run("DELETE FROM photos WHERE folder = %s RETURNING row", folder)
        self._left.update(row for (row,) in found if row is not None)
        self._run("DELETE FROM folders WHERE id = %s", folder)

    def find_content(self, sha256: bytes | None) -> int | None:
        found = self._run("SELECT row FROM contents WHERE sha256 = %s", sha256)
        return found[0][0] if found else None

    def add_content(self, entry: Entry) -> int:
        query = "INSERT INTO contents (sha256, embedding, fingerprint) VALUES (%s, %s, %s) RETURNING row"
        return self._run(query, entry.sha256, np.asarray(entry.vector, np.float32), entry.fingerprint)[0][0]

    def put_photo(self, folder: int, folder_path: str, entry: Entry, row: int | None) -> None:
        columns = entry.columns(folder, row)
        self._note_row(entry.path)
        ((number,),) = self._run(PUT_PHOTO, *(columns[name] for name in COLUMNS))
        self._write_names(number, entry.path, folder_path, entry.details or NO_DETAILS)
        self._run("DELETE FROM orphaned WHERE row = %s", row)

    def delete_photo(self, path: str) -> None:
        self._note_row(path)
        self._run("DELETE FROM photos WHERE path = %s", os.fsencode(path))

    def start_over(self, model_key: str, dimension: int) -> None:
        for table in ("names", "texts", "photos", "orphaned", "contents"):
            self._run(f"DELETE FROM {table}")
        self._run("UPDATE state SET model_key = %s, dimension = %s", model_key, dimension)

    def _note_row(self, path: str) -> None:
        """Remember the row of a photo that is about to be replaced or deleted."""
        found = self._run("SELECT row FROM photos WHERE path = %s AND row IS NOT NULL", os.fsencode(path))
        self._left.update(row for (row,) in found)

    def _write_names(self, number: int, path: str, folder: str, details: Details) -> None:
        self._run(
            "INSERT INTO names (rowid, file, folders, place) VALUES (%s, %s, %s, %s) ON CONFLICT (rowid) "
            "DO UPDATE SET file = excluded.file, folders = excluded.folders, place = excluded.place",
            *(number, *find_name_words(path, folder, details)),
        )


PUT_PHOTO = (  # or replace what is known of its path, except its id
    f"INSERT INTO photos ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))}) "
    "ON CONFLICT (path) DO UPDATE SET "
    f"{', '.join(f'{name} = excluded.{name}' for name in COLUMNS if name not in ('id', 'path'))} "
    "RETURNING number"
)


def write_conditions(conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
    """The SQL of conditions that must all hold, and its values; `p` is the table of photos."""
    written = [_write_condition(condition) for condition in conditions]
    where = " AND ".join(f"({sql})" for sql, _ in written) or "TRUE"
    return where, [value for _, values in written for value in values]


def _write_condition(condition: Condition) -> tuple[str, list[Any]]:
    match condition:
        case Below():
            values = [bound for bounds in condition.ranges for bound in bounds]
            return " OR ".join(["p.path >= %s AND p.path < %s"] * len(condition.prefixes)) or "FALSE", values
        case AtLeast(column, value):
            return f"p.{column} >= %s", [value]
        case LessThan(column, value):
            return f"p.{column} < %s", [value]
        case EqualTo(column, value):
            return f"p.{column} = %s", [value]
        case Undated():
            return UNDATED, []
        case Contains(column, text):
            escaped = re.sub("([!%_])", r"!\1", text.lower())
            return f"lower(p.{column}) LIKE %s ESCAPE '!'", [f"%{escaped}%"]
        case Near(latitude, longitude, kilometers):
            box = "p.latitude BETWEEN %s AND %s AND p.longitude BETWEEN %s AND %s"
            exact = "distance_km(p.latitude, p.longitude, %s, %s) <= %s"
            return f"{box} AND {exact}", [*condition.box, latitude, longitude, kilometers]
        case HasWords(phrase, column, is_prefix):
            words = f"% {phrase}{'' if is_prefix else ' '}%"  # words and numbers only: nothing to escape
            in_text = "p.row IN (SELECT t.rowid FROM texts t WHERE ' ' || t.words || ' ' LIKE %s)"
            if column == "text":
                return in_text, [words]
            text = f"n.{column}" if column else "concat_ws(' | ', n.file, n.folders, n.place)"
            in_names = f"p.number IN (SELECT n.rowid FROM names n WHERE ' ' || {text} || ' ' LIKE %s)"
            return (in_names, [words]) if column else (f"{in_names} OR {in_text}", [words, words])
        case AnyOf(conditions):
            written = [_write_condition(one) for one in conditions]
            where = " OR ".join(f"({sql})" for sql, _ in written) or "FALSE"
            return where, [value for _, values in written for value in values]
