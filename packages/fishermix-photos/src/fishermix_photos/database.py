"""The tables of a library, and what is read from them; `store` and `postgres` change them.

A photo has the absolute path of its file and a row: equal contents have the same row, frames of a video and
pages of a TIFF file have their own. A photo that could not be read has a reason instead.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import sqlite3
import stat
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar
from weakref import WeakSet

import msgspec
import numpy as np
from fishermix.errors import FishermixError
from fishermix.storage import Count, Text
from msgspec import Meta

from fishermix_photos.details import DETAILS, EARLIEST, Details, DetailsTypes, find_kind
from fishermix_photos.disk import (
    DAMAGED,
    FULL,
    KEYS_PER_QUERY,
    DiskFull,
    explain_sqlite_error,
    transaction,
)
from fishermix_photos.nearest import PointCodes, find_nearest, open_codes
from fishermix_photos.photo_files import Stamp, add_slash, resolve
from fishermix_photos.query import (
    EARTH_RADIUS_KM,
    NO_FILTER,
    Filter,
    NameCounts,
    distance_km,
    fold,
    parse_day,
    parse_near,
)
from fishermix_photos.results import LibraryDamaged, OtherModel, Photo
from fishermix_photos.vision.formats import TIFF, VIDEO, Place, split_place

T = TypeVar("T")
DATABASE = "library.sqlite"
SECONDS_PER_DAY = 86_400
LONGEST_VALUE = 1 << 20  # bytes of a row; a path has at most some thousand
TABLES_VERSION = 3  # of the tables
TABLES = f"""
CREATE TABLE state (
    generation INTEGER NOT NULL, model_key TEXT NOT NULL, dimension INTEGER NOT NULL, version INTEGER NOT NULL
);
CREATE TABLE folders (id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE);
CREATE TABLE contents (
    row INTEGER PRIMARY KEY, sha256 BLOB NOT NULL UNIQUE, crc32 INTEGER NOT NULL, fingerprint BLOB
);
CREATE TABLE dead (row INTEGER PRIMARY KEY, day INTEGER NOT NULL);
CREATE TABLE photos (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    path BLOB NOT NULL UNIQUE,
    folder INTEGER NOT NULL,
    is_file INTEGER NOT NULL,
    kind TEXT NOT NULL,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    row INTEGER,
    reason TEXT,
    {", ".join(DETAILS)},
    CHECK ((row IS NULL) != (reason IS NULL))
);
CREATE INDEX photos_by_row ON photos (row);
CREATE INDEX photos_by_time ON photos (taken, row, is_file);  -- all that counting by year reads
CREATE INDEX photos_by_place ON photos (latitude, longitude);
CREATE VIRTUAL TABLE names USING fts5 (file, folders, place);
INSERT INTO state VALUES (0, '', 0, 0)
"""
COLUMNS = f"p.row, p.id, p.path, f.path, p.kind, {', '.join(f'p.{name}' for name in DETAILS)}"
PHOTOS = "photos p JOIN folders f ON f.id = p.folder"
READABLE = f"SELECT {COLUMNS} FROM {PHOTOS} WHERE p.row IS NOT NULL"
CONTENTS = (
    "SELECT p.id, p.row, c.fingerprint FROM photos p LEFT JOIN contents c ON c.row = p.row "
    "WHERE p.row IS NOT NULL"
)
WRITTEN = ("folder", "is_file", "kind", "size", "mtime_ns", "row", "reason", *DETAILS)
WRITE_PHOTO = (  # or replace what is known of its path
    f"INSERT INTO photos (id, path, {', '.join(WRITTEN)}) VALUES (?, ?{', ?' * len(WRITTEN)}) "
    f"ON CONFLICT (path) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in WRITTEN)} "
    "RETURNING number"
)
LISTED_ROWS = "SELECT (SELECT count(*) FROM contents) + (SELECT count(*) FROM dead)"  # some are in both
SEVERAL = VIDEO.name, TIFF.name  # kinds of files that may hold several photos
NAMES = ("file", "folders", "place")  # columns of words
Condition = tuple[str, Sequence[Any]]  # of SQL, and its values
Row = Annotated[int, Meta(ge=0, le=2**40)]  # of a table
SQL_ORDERS = {  # doubtful dates last
    "date": "p.taken < ? OR p.taken > ?, p.taken DESC, p.path",
    "oldest": "p.taken < ? OR p.taken > ?, p.taken, p.path DESC",
}
_ODD_PATH = re.compile(rb"\0|/\.{0,2}(?:/|\Z)")  # names that no listing gives
Fingerprint: Any = Annotated[bytes, Meta(min_length=32, max_length=32)] | None
PhotoRow: Any = tuple[
    (Row, Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}\Z")], bytes, bytes, Text, *DetailsTypes)
]


class Scope(NamedTuple):
    """Where a search looks: the beginnings of paths, none for all photos, in this version of the library."""

    version: int
    model_key: str
    prefixes: tuple[str, ...]

    def expect_model(self, key: str) -> None:
        """Raise if the points are not of the model with this key."""
        if self.model_key not in ("", key):
            raise OtherModel("The photo library was made with another model. Update it.")


class State(NamedTuple):
    """What a library says of itself.

    version : the number of changes so far
    last : the last committed row of the points
    folders : the folders of the library, by path
    """

    generation: Count
    model_key: Text
    dimension: Annotated[int, Meta(ge=0, le=2**20)]
    version: Count
    last: Row | None = None
    folders: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        """The number of committed rows of the file of points."""
        return 0 if self.last is None else self.last + 1


@dataclass(frozen=True)
class Entry:
    """One photo to store, by its absolute path.

    A readable photo has the hash of its content, its details, its vector and its fingerprint; the last two
    may be None if the store already holds them for this content. An unreadable photo has the reason instead.
    """

    path: str
    stamp: Stamp
    sha256: bytes | None = None
    vector: np.ndarray | None = None
    reason: str | None = None
    details: Details | None = None
    fingerprint: bytes | None = None

    def values(self, folder: int, row: int | None) -> tuple:
        """What `WRITE_PHOTO` stores of a photo of this folder with this point."""
        file = split_place(self.path).file
        photo = secrets.token_hex(8), os.fsencode(self.path), folder, file == self.path, find_kind(file)
        stamp = self.stamp.size, self.stamp.mtime_ns
        return *photo, *stamp, row, self.reason, *astuple(self.details or Details())


class Picture(NamedTuple):
    """The content of a photo: its row, which equal contents share, its fingerprint (see `duplicates`; None of
    plain surfaces, videos and TIFF files) and its vector (d,).
    """

    row: int
    fingerprint: bytes | None
    point: np.ndarray


def today() -> int:
    """The number of days since 1970."""
    return int(time.time() // SECONDS_PER_DAY)


def limit_to(prefixes: Sequence[str]) -> Condition:
    """The condition of paths that begin with a prefix, which ends in a slash."""
    if not prefixes:
        return "TRUE", ()
    starts = [os.fsencode(prefix) for prefix in prefixes]
    bounds = tuple(bound for start in starts for bound in (start, start[:-1] + b"0"))  # 0 follows the slash
    return f"({' OR '.join(['p.path >= ? AND p.path < ?'] * len(starts))})", bounds


def _limit_details(filter: Filter) -> Iterator[Condition]:
    """The conditions of what is known of a photo."""
    if filter.after is not None:
        yield "p.taken >= ?", [parse_day(filter.after, "after").isoformat()]
    if filter.before is not None:
        yield "p.taken < ?", [parse_day(filter.before, "before").isoformat()]
    if filter.camera is not None:
        escaped = re.sub("([!%_])", r"!\1", filter.camera.lower())
        yield "lower(p.camera) LIKE ? ESCAPE '!'", [f"%{escaped}%"]
    if filter.kind is not None:
        yield "p.kind = ?", [filter.kind]
    if filter.near is not None:
        yield _limit_distance(*parse_near(filter.near))


def _limit_distance(latitude: float, longitude: float, kilometers: float) -> Condition:
    """The condition of photos around a place; a box excludes most of the others."""
    height = math.degrees(kilometers / EARTH_RADIUS_KM)
    widest = math.cos(math.radians(min(90.0, abs(latitude) + height)))
    width = height / widest if widest > 0.01 else 360.0
    is_round = abs(longitude) + width > 180  # the box would cross the date line
    west, east = (-180.0, 180.0) if is_round else (longitude - width, longitude + width)
    where = "p.latitude BETWEEN ? AND ? AND p.longitude BETWEEN ? AND ?"
    values = latitude - height, latitude + height, west, east, latitude, longitude, kilometers
    return f"{where} AND distance_km(p.latitude, p.longitude, ?, ?) <= ?", values


class Database(ABC):
    """What SQLite and PostgreSQL answer to the same SQL."""

    name: str
    _STATE: str  # the query of the state without its folders
    _PATH: str  # the path of a photo as text

    @abstractmethod
    def _ask(self, row: Any, query: str, *values: Any) -> list[Any]:
        """The rows that a query finds, each converted to the tuple type `row` of bounded types."""

    @abstractmethod
    def _damaged(self, problem: str) -> LibraryDamaged:
        """The error that says what is wrong with the library, and what to do."""

    @abstractmethod
    def nearest(
        self, query: np.ndarray, n: int, prefixes: Sequence[str] = (), filter: Filter = NO_FILTER
    ) -> list[Photo]:
        """The n photos below one of the prefixes that meet a filter with the largest dot products with the
        query (d,), best first; photos of the same content by their paths.
        """

    @abstractmethod
    def _match(self, phrase: str, column: str | None = None, is_prefix: bool = False) -> Condition:
        """The condition of photos with these words in a row in a column of names, or in any; with
        `is_prefix`, the last word may be incomplete.
        """

    def _convert(self, row: Any, found: list[tuple]) -> list[Any]:
        """Rows of the database, each converted to a tuple type; raises if one is out of its bounds."""
        try:
            # Text is not bytes: without their names, msgspec would decode it as base64.
            return msgspec.convert(found, list[row], builtin_types=(bytes,))
        except msgspec.ValidationError as error:
            raise self._damaged(f"is damaged: a value has a wrong type ({error})") from error

    def _ask_keys(self, row: Any, query: str, keys: Iterable[Any], *values: Any) -> list[Any]:
        """The rows that a query with these values, which ends in IN, finds for these keys."""
        distinct, found = list(dict.fromkeys(keys)), []
        for start in range(0, len(distinct), KEYS_PER_QUERY):
            chunk = distinct[start : start + KEYS_PER_QUERY]
            found += self._ask(row, f"{query} ({', '.join('?' * len(chunk))})", *values, *chunk)
        return found

    def state(self) -> State:
        found = self._ask(State, self._STATE)
        if len(found) != 1:
            raise self._damaged("is damaged: it has no state")
        folders = self._ask(tuple[bytes], "SELECT path FROM folders ORDER BY path")
        names = tuple(os.fsdecode(path) for (path,) in folders)
        if odd := [name for name in names if os.path.abspath(name) != name]:
            raise self._damaged(f"is damaged: {odd[0]!r:.100} is not the path of a folder")
        return found[0]._replace(folders=names)

    def scope(self, folders: Iterable[str | os.PathLike], model_key: str | None = None) -> Scope:
        """Where the photos of folders are; raises if their points are not of the model with this key."""
        state = self.state()
        prefixes, known = tuple(map(add_slash, map(resolve, folders))), list(map(add_slash, state.folders))
        if known and all(path.startswith(prefixes) for path in known):
            prefixes = ()
        scope = Scope(state.version, state.model_key, prefixes)
        if model_key is not None:
            scope.expect_model(model_key)
        return scope

    def _find_folder(self, folder: str) -> int:
        """The number of a folder."""
        found = self._ask(tuple[int], "SELECT id FROM folders WHERE path = ?", os.fsencode(folder))
        if not found:
            raise FishermixError(
                f"Another process has removed {folder} from the photo library. Run the command again."
            )
        return found[0][0]

    def _find_row(self, digest: bytes | None) -> int | None:
        """The row of a content, if it is known."""
        found = self._ask(tuple[Row], "SELECT row FROM contents WHERE sha256 = ?", digest)
        return found[0][0] if found else None

    def stamps(self, prefix: str) -> dict[str, Stamp]:
        """The stamps of the files below `prefix`, which ends in a slash, by path."""
        where, bounds = limit_to([prefix])
        query = f"SELECT path, size, mtime_ns FROM photos p WHERE {where}"
        found = self._ask(tuple[bytes, int, int], query, *bounds)
        return {os.fsdecode(path): Stamp(size, mtime_ns) for path, size, mtime_ns in found}

    def known_contents(self, hashes: Sequence[bytes]) -> set[bytes]:
        """Those of the hashes for which there are points."""
        found = self._ask_keys(tuple[bytes], "SELECT sha256 FROM contents WHERE sha256 IN", hashes)
        return {digest for (digest,) in found}.intersection(hashes)

    def photos(self, prefixes: Sequence[str] = (), filter: Filter = NO_FILTER) -> list[Photo]:
        """The readable photos, frames and pages below one of the prefixes that meet a filter."""
        where, values = self._limit(prefixes, filter)
        return self._make_photos(
            self._ask(PhotoRow, f"SELECT {COLUMNS} FROM {PHOTOS} WHERE {where}", *values)
        )

    def list_files(
        self, prefixes: Sequence[str], filter: Filter, order: str, n: int, offset: int
    ) -> tuple[list[Photo], dict[tuple[bool, str], int]]:
        """Some of the files that meet a filter, in an order, and the number of all by year, doubtful dates
        apart.
        """
        where, values = self._limit(prefixes, filter)
        where += " AND p.is_file"
        bounds = EARLIEST, (datetime.now() + timedelta(days=1)).isoformat()
        by = SQL_ORDERS.get(order, f"lower({self._PATH})")
        query = f"SELECT {COLUMNS} FROM {PHOTOS} WHERE {where} ORDER BY {by} LIMIT ? OFFSET ?"
        found = self._ask(PhotoRow, query, *values, *(bounds if order in SQL_ORDERS else ()), n, offset)
        known = "CASE WHEN p.taken BETWEEN ? AND ? THEN 0 ELSE 1 END"
        query = f"SELECT {known}, coalesce(substr(p.taken, 1, 4), ''), count(*) FROM photos p WHERE {where}"
        years = self._ask(tuple[int, str, int], f"{query} GROUP BY 1, 2", *bounds, *values)
        return self._make_photos(found), {(bool(doubtful), year): count for doubtful, year, count in years}

    def nearest_files(
        self, query: np.ndarray, n: int, prefixes: Sequence[str] = (), filter: Filter = NO_FILTER
    ) -> list[Photo]:
        """The n best files: of a video, its best frame; of a TIFF file, its best page. See `nearest`."""
        asked = n
        while True:
            found = self.nearest(query, asked, prefixes, filter)
            best: dict[str, Photo] = {}
            for photo in found:
                best.setdefault(photo.path, photo)
            if len(best) >= n or len(found) < asked:
                return list(best.values())[:n]
            asked *= 4

    def _limit(self, prefixes: Sequence[str], filter: Filter) -> tuple[str, list[Any]]:
        """The condition of readable photos below prefixes that meet a filter."""
        conditions = [limit_to(prefixes), *_limit_details(filter)]
        if filter.folder is not None:
            conditions.append(self._limit_folder(filter.folder))
        conditions += [self._match(name) for name in filter.names]
        parts = " AND ".join(f"({condition})" for condition, _ in conditions)
        return f"p.row IS NOT NULL AND {parts}", [value for _, values in conditions for value in values]

    def _limit_folder(self, name: str) -> Condition:
        """The condition of photos in folders of a name or, if it begins with a slash, in one folder."""
        if not name.startswith("/"):
            words = fold(name)
            return self._match(words, "folders", is_prefix=True) if words else ("FALSE", ())
        inside = []
        for folder in self.state().folders:
            place, root = add_slash(os.path.dirname(folder).rstrip("/") + name), add_slash(folder)
            if place.startswith(root) or root.startswith(place):
                inside.append(place)
        return limit_to(inside) if inside else ("FALSE", ())

    def count_names(self, phrases: Iterable[str], prefixes: Sequence[str] = ()) -> dict[str, NameCounts]:
        """The number of files that have these words in the names of the file, its folders and its place."""
        where, bounds = limit_to(prefixes)
        found = {}
        for phrase in phrases:
            counts = []
            for column in NAMES:
                match, value = self._match(phrase, column)
                query = f"SELECT count(*) FROM photos p WHERE {match} AND p.is_file AND {where}"
                counts += self._ask(tuple[int], query, *value, *bounds)[0]
            found[phrase] = NameCounts(*counts)
        return found

    def places(self, prefixes: Sequence[str] = ()) -> list[tuple[str, float, float]]:
        """Name, mean latitude and mean longitude of the places of photos; of the most photos first."""
        where, bounds = limit_to(prefixes)
        query = (
            "SELECT place, avg(latitude), avg(longitude) FROM photos p "
            f"WHERE place IS NOT NULL AND {where} GROUP BY place ORDER BY count(*) DESC"
        )
        return self._ask(tuple[str, float, float], query, *bounds)

    def _write_names(self, number: int, path: str, folder: str, details: Details | None) -> None:
        """Store the words of a photo's names, from the name of the library's folder on."""
        place = "" if details is None else f"{details.place or ''} {details.region or ''}"
        folders, _, file = split_place(path).file[len(os.path.dirname(folder)) :].rpartition("/")
        words = fold(file), fold(folders), fold(place)
        self._ask(tuple[int], "DELETE FROM names WHERE rowid = ?", number)
        self._ask(
            tuple[int], "INSERT INTO names (rowid, file, folders, place) VALUES (?, ?, ?, ?)", number, *words
        )

    def _rename(self, folder: str) -> None:
        """Store the names of all photos of a folder again: it has taken over others."""
        query = "SELECT number, path, place, region FROM photos WHERE folder = ?"
        row = tuple[int, bytes, str | None, str | None]
        for number, path, place, region in self._ask(row, query, self._find_folder(folder)):
            self._write_names(number, os.fsdecode(path), folder, Details(place=place, region=region))

    def find(self, ids: Sequence[str]) -> list[Photo]:
        """The photos with these ids."""
        return self._make_photos(self._ask_keys(PhotoRow, f"{READABLE} AND p.id IN", ids))

    def _make_photos(self, rows: Sequence[tuple], scores: Mapping[int, float] | None = None) -> list[Photo]:
        """The photos of rows of the database, with the scores of their points."""
        photos = []
        for row, id, path, folder, kind, *details in rows:
            if not path.startswith(folder.rstrip(b"/") + b"/") or _ODD_PATH.search(path):
                raise self._damaged("is damaged: a photo is outside of its folder")
            name, top = os.fsdecode(path), os.fsdecode(folder)
            place = split_place(name) if kind in SEVERAL else Place(name)
            score = None if scores is None else scores[row]
            photos.append(Photo(id, place.file, top, place.time, place.page, Details(*details), score))
        return photos

    def files(self, prefixes: Sequence[str] = ()) -> list[tuple[str, bytes, bytes, str | None]]:
        """Id, path, folder and time of the readable files below one of the prefixes."""
        where, bounds = limit_to(prefixes)
        query = f"SELECT p.id, p.path, f.path, p.taken FROM {PHOTOS} WHERE p.row IS NOT NULL AND p.is_file"
        return self._ask(tuple[str, bytes, bytes, str | None], f"{query} AND {where}", *bounds)

    def count(self, prefixes: Sequence[str] = ()) -> tuple[int, int, int]:
        """The number of files that can be read, of their contents, and of files, frames and pages."""
        where, bounds = limit_to(prefixes)
        files = "count(row) FILTER (WHERE is_file), count(DISTINCT row) FILTER (WHERE is_file), count(row)"
        return self._ask(tuple[int, int, int], f"SELECT {files} FROM photos p WHERE {where}", *bounds)[0]

    def unreadable(self, prefixes: Sequence[str] = ()) -> dict[str, str]:
        """Why files could not be read, by path."""
        where, bounds = limit_to(prefixes)
        query = f"SELECT path, reason FROM photos p WHERE reason IS NOT NULL AND {where} ORDER BY path"
        found = self._ask(tuple[bytes, str], query, *bounds)
        return {os.fsdecode(path): reason for path, reason in found}


def _expect_readable(file: Path) -> None:
    if not os.access(file, os.R_OK):
        raise FishermixError(f"You have no permission to read {file}. Correct its permissions.")


class _ThreadConnection:
    """A connection that is closed when its thread ends: servers start threads again and again."""

    def __init__(self, file: Path | None):
        self.is_empty = file is None
        self.connection = open_empty() if file is None else connect(file)
        self.connection.create_function("distance_km", 4, distance_km, deterministic=True)

    def close(self) -> None:
        self.connection.close()

    def __del__(self) -> None:
        if hasattr(self, "connection"):
            self.close()


def _expect_sqlite_files(file: Path) -> None:
    """Raise if a database, or what SQLite keeps next to it, is a link, perhaps to a library of yours, or a
    pipe, for which SQLite would wait without end.
    """
    for suffix in ("", "-wal", "-shm", "-journal"):
        path = Path(f"{file}{suffix}")
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(path.lstat().st_mode):
                raise FishermixError(f"{path} is not a file, or a link, which is not followed. Remove it.")


def connect(file: Path) -> sqlite3.Connection:
    """A connection that writes or, in a read-only place, reads what was committed.

    SQLite needs its shared memory next to a database with a write-ahead log. Where it cannot create it, the
    database is opened as one that nobody changes, unless a log with newer content is there.
    """
    _expect_sqlite_files(file)
    kind, name = "?mode=rw", file.absolute().as_uri()
    if not (os.access(file.parent, os.W_OK) and os.access(file, os.W_OK)):
        log = file.with_name(f"{file.name}-wal")
        kind = "?mode=ro" if log.exists() and log.stat().st_size else "?mode=ro&immutable=1"
    connection = sqlite3.connect(
        name + kind, timeout=60, isolation_level=None, check_same_thread=False, uri=True
    )
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        if kind == "?mode=rw" and not _read_schema(connection):
            connection.execute("PRAGMA journal_mode = WAL")
            _create_tables(connection)
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > TABLES_VERSION:
            raise FishermixError(
                f"The photo library in {file.parent} was made by a newer fishermix. Upgrade, or name another "
                "place."
            )
        if version < TABLES_VERSION:
            raise sqlite3.DatabaseError("it was made by an earlier version of fishermix")
        if _read_schema(connection) != _expected_schema():
            raise sqlite3.DatabaseError("the database has other tables than a photo library")
        if kind == "?mode=rw":  # which changes the file: it is a library
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def open_empty() -> sqlite3.Connection:
    """An empty database, in memory: what can be read before the first change."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _create_tables(connection)
    return connection


def _create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables in one transaction, unless another process has just done so."""
    with transaction(connection):
        if not _read_schema(connection):
            for statement in TABLES.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {TABLES_VERSION}")


def _read_schema(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Tables, indexes, views and triggers with their definitions."""
    return set(connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall())


@cache
def _expected_schema() -> set[tuple[str, str, str]]:
    return _read_schema(open_empty())


class LocalDatabase(Database):
    """The files of a library in a directory of this machine, as readers see them."""

    _PATH = "CAST(p.path AS TEXT)"
    _STATE = (
        "SELECT generation, model_key, dimension, version, (SELECT max(row) FROM "
        "(SELECT max(row) AS row FROM contents UNION ALL SELECT max(row) FROM dead)) FROM state"
    )

    def __init__(self, place: str | os.PathLike):
        self.folder = Path(place)
        self.name = str(self.folder)
        self._file = self.folder / DATABASE
        self._threads, self._connections = threading.local(), WeakSet[_ThreadConnection]()
        self._codes: dict[int, PointCodes | None] = {}
        self._mapped: tuple[int, np.ndarray] = (-1, np.empty((0, 0), np.float32))

    def close(self) -> None:
        for held in list(self._connections):
            held.close()
        self._connections.clear()
        self._threads = threading.local()

    def size(self) -> int:
        """The number of bytes of the files."""
        return sum(path.stat().st_size for path in self.folder.glob("*") if path.is_file())

    def _exists(self) -> bool:
        try:
            return self._file.stat().st_size > 0
        except OSError:
            return False

    @property
    def _connection(self) -> sqlite3.Connection:
        """This thread's connection: threads that search at the same time do not share a snapshot."""
        held = getattr(self._threads, "held", None)
        if held is None or (held.is_empty and self._exists()):
            if self._exists():
                _expect_readable(self._file)
            held = self._threads.held = _ThreadConnection(self._file if self._exists() else None)
            self._connections.add(held)
        return held.connection

    @contextmanager
    def _explain_damage(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            reason = DAMAGED
            if isinstance(error, sqlite3.Error) and hasattr(error, "sqlite_errorcode"):
                # SQLite's own; the others are values that nobody wrote
                reason = explain_sqlite_error(error, self.folder)
            if reason == DAMAGED:
                raise self._damaged(f"cannot be used ({error})") from error
            kind = DiskFull if reason == FULL else FishermixError
            raise kind(f"The photo library in {self.folder} cannot be used. {reason}") from error

    def _damaged(self, problem: str) -> LibraryDamaged:
        return LibraryDamaged(
            f"The photo library in {self.folder} {problem}. Delete it, and add your folders again.",
            place=self.name,
        )

    def _match(self, phrase: str, column: str | None = None, is_prefix: bool = False) -> Condition:
        where = f"{{{column}}} : " if column else ""  # quotes: the words are no operators
        match = f'{where}"{phrase}"{" *" if is_prefix else ""}'
        return "p.number IN (SELECT rowid FROM names WHERE names MATCH ?)", [match]

    def _ask(self, row: Any, query: str, *values: Any) -> list[Any]:
        with self._explain_damage():
            found = self._connection.execute(query, values).fetchall()
        return self._convert(row, found)

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        """Everything that is read in the block is of the same moment."""
        with self._explain_damage():
            connection = self._connection
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")

    # Points

    def _point_file(self, generation: int) -> Path:
        return self.folder / f"points-{generation}.f32"

    def _points(self, state: State) -> np.ndarray:
        """All committed rows (N, d), memory-mapped. Committed rows never change, so the mapping is kept."""
        rows, dimension = state.n_rows, state.dimension
        generation, points = self._mapped
        if generation != state.generation or len(points) < rows or points.shape[1] != dimension:
            points = np.empty((0, dimension), np.float32)
            if rows:
                path = self._point_file(state.generation)
                if not dimension or not path.is_file() or path.stat().st_size < rows * dimension * 4:
                    raise self._damaged(f"is damaged: {path.name} is missing or too short")
                if self._ask(tuple[int], LISTED_ROWS)[0][0] < rows:  # else a file with holes could have 2**40
                    raise self._damaged("is damaged: rows of the points are neither alive nor dead")
                _expect_readable(path)
                points = np.memmap(path, np.float32, "r", shape=(rows, dimension))
            self._mapped = state.generation, points
        return points[:rows]

    def _point_codes(self, state: State) -> PointCodes | None:
        if state.generation not in self._codes:
            found = open_codes(self.folder, state.generation, state.dimension, state.n_rows)
            self._codes = {state.generation: found}
        found = self._codes.get(state.generation)  # another thread may have cleared them
        return found if found and found.n_rows <= state.n_rows else None

    def _read_points(self, read: Callable[[State, np.ndarray], T]) -> T:
        """What `read` finds in one snapshot. It is read again if a writer has just replaced the points."""
        for is_last in (False, True):
            try:
                with self._snapshot():
                    state = self.state()
                    return read(state, self._points(state))
            except (LibraryDamaged, FileNotFoundError):
                if is_last:
                    raise
        raise AssertionError

    def _ask_rows(self, points: np.ndarray, query: str, *values: Any) -> np.ndarray:
        """The rows that a query finds, if each has a point."""
        rows = np.array(self._ask(tuple[Row], query, *values), np.int64).reshape(-1)
        self._expect_points(rows, points)
        return rows

    def _expect_points(self, rows: Sequence[int] | np.ndarray, points: np.ndarray) -> None:
        """Raise if a row of a damaged database is beyond the points."""
        if len(rows) and max(rows) >= len(points):
            raise self._damaged(f"is damaged: the point {max(rows)} is missing")

    def _expect_length(self, points: np.ndarray, query: np.ndarray) -> None:
        if points.shape[1] != len(query):
            raise self._damaged(f"is damaged: its points have {points.shape[1]} numbers, not {len(query)}")

    def _find_excluded(
        self, points: np.ndarray, prefixes: Sequence[str], filter: Filter = NO_FILTER
    ) -> np.ndarray:
        """The rows that a search must not find: those of no photo below the prefixes that meets a filter."""
        if not prefixes and filter == NO_FILTER:
            return self._ask_rows(points, "SELECT row FROM dead")
        where, values = self._limit(prefixes, filter)
        outside = np.ones(len(points), bool)
        outside[self._ask_rows(points, f"SELECT DISTINCT p.row FROM photos p WHERE {where}", *values)] = False
        return np.flatnonzero(outside)

    def pictures(self, ids: Sequence[str]) -> dict[str, Picture]:
        """The contents of photos, by id."""

        def read(state: State, points: np.ndarray) -> dict[str, Picture]:
            found = self._ask_keys(tuple[str, Row, Fingerprint], f"{CONTENTS} AND p.id IN", ids)
            rows = [row for _, row, _ in found]
            self._expect_points(rows, points)
            return {
                id: Picture(row, fingerprint, point)
                for (id, row, fingerprint), point in zip(found, points[rows])
            }

        return self._read_points(read)

    def nearest(
        self, query: np.ndarray, n: int, prefixes: Sequence[str] = (), filter: Filter = NO_FILTER
    ) -> list[Photo]:
        def read(state: State, points: np.ndarray) -> list[Photo]:
            if not len(points):
                return []
            self._expect_length(points, query)
            excluded = self._find_excluded(points, prefixes, filter)
            vector = np.ascontiguousarray(query[None], np.float32)
            best, scores = find_nearest(points, vector, n, excluded, self._point_codes(state))
            ranks = {row: rank for rank, row in enumerate(best[0].tolist())}
            where, values = self._limit(prefixes, filter)
            columns = f"SELECT {COLUMNS} FROM {PHOTOS} WHERE {where} AND p.row IN"
            found = self._ask_keys(PhotoRow, columns, ranks, *values)
            if foreign := {row for row, *_ in found}.difference(ranks):
                raise self._damaged(f"is damaged: the row {min(foreign)} was found, but not asked for")
            found.sort(key=lambda values: (ranks[values[0]], values[2]))
            return self._make_photos(found[:n], dict(zip(ranks, scores[0].tolist())))

        return self._read_points(read)

    def sample_scores(self, query: np.ndarray, at_most: int, prefixes: Sequence[str] = ()) -> np.ndarray:
        """Scores of a query (d,) with at most `at_most` contents, spread evenly over the library."""

        def read(state: State, points: np.ndarray) -> np.ndarray:
            if not len(points):
                return np.empty(0, np.float32)
            self._expect_length(points, query)
            alive = np.ones(len(points), bool)
            alive[self._find_excluded(points, prefixes)] = False
            rows = np.flatnonzero(alive)
            step = max(1, -(-len(rows) // at_most))
            return points[rows[::step]] @ np.asarray(query, np.float32)

        return self._read_points(read)
