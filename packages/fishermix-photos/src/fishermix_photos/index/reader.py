"""What is read from a library on this machine: its photos from SQLite, their embeddings from a file."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fishermix_photos.disk import KEYS_PER_QUERY, ReadFailed, convert_rows, explain_os_error
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
from fishermix_photos.index.connection import Connections
from fishermix_photos.index.embeddings import EmbeddingFiles
from fishermix_photos.index.errors import LibraryDamaged
from fishermix_photos.index.filters import NO_FILTER, Filter, list_conditions
from fishermix_photos.index.names import NAMES, NameCounts
from fishermix_photos.index.nearest import EmbeddingCodes, find_nearest_rows, open_codes
from fishermix_photos.index.photo import Photo, make_photos
from fishermix_photos.index.protocol import PhotoIndex
from fishermix_photos.index.scan import Stamp
from fishermix_photos.index.schema import (
    FOUND,
    FOUND_IN,
    RULES,
    UNREAD,
    Fingerprint,
    FoundPhoto,
    RowNumber,
    UnreadPhoto,
)
from fishermix_photos.index.values import Picture, State, Unread
from fishermix_photos.photos.details import find_bounds_of_dates

T = TypeVar("T")
WRONG_CODES = (
    "A codes file does not match the embeddings. Delete the files `codes-*` of the library and nothing else: "
    "the next update makes them again."
)
# Rows of the file of embeddings that are neither those of a content nor orphaned.
HOLES = (
    "SELECT coalesce(max(row) + 1, 0) - count(*) FROM "
    "(SELECT row FROM contents UNION SELECT row FROM orphaned)"
)
ORDERS = {  # doubtful dates last, then photos without a date of their own
    "date": f"{UNDATED}, p.taken < ? OR p.taken > ?, p.taken DESC, p.path",
    "oldest": f"{UNDATED}, p.taken < ? OR p.taken > ?, p.taken, p.path DESC",
}


class LocalReader(PhotoIndex):
    """The files of a library in a directory of this machine, as readers see them."""

    def __init__(self, place: str | os.PathLike):
        self.folder = Path(place)
        self.name = str(self.folder)
        self._connections = Connections(self.folder)
        self._embeddings = EmbeddingFiles(self.folder)
        self._codes: dict[int, EmbeddingCodes | None] = {}

    def close(self) -> None:
        self._connections.close()

    def size(self) -> int:
        return sum(path.stat().st_size for path in self.folder.glob("*") if path.is_file())

    @property
    def _connection(self) -> sqlite3.Connection:
        return self._connections.current

    def _ask(self, row: Any, query: str, *values: Any) -> list[Any]:
        """The rows that a query finds, each converted to the tuple type `row` of bounded types."""
        with self._connections.explain_damage():
            return convert_rows(row, self._connection.execute(query, values).fetchall())

    def _ask_keys(self, row: Any, query: str, keys: Iterable[Any], *values: Any) -> list[Any]:
        """The rows that a query with these values, which ends in IN, finds for these keys."""
        distinct, found = list(dict.fromkeys(keys)), []
        for start in range(0, len(distinct), KEYS_PER_QUERY):
            chunk = distinct[start : start + KEYS_PER_QUERY]
            found += self._ask(row, f"{query} ({', '.join('?' * len(chunk))})", *values, *chunk)
        return found

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        """Everything that is read in the block is of the same moment."""
        with self._connections.explain_damage():
            connection = self._connection
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")

    # Photos

    def exists(self) -> bool:
        return self._connections.exists()

    def state(self) -> State:
        found = self._ask(
            State,
            "SELECT generation, model_key, dimension, version, (SELECT max(row) FROM "
            "(SELECT max(row) AS row FROM contents UNION ALL SELECT max(row) FROM orphaned)) FROM state",
        )
        if len(found) != 1:
            raise self._connections.damaged("is damaged: it has no state")
        folders = self._ask(tuple[bytes], "SELECT path FROM folders ORDER BY path")
        names = tuple(os.fsdecode(path) for (path,) in folders)
        if odd := [name for name in names if os.path.abspath(name) != name]:
            raise self._connections.damaged(f"is damaged: {odd[0]!r:.100} is not the path of a folder")
        return found[0]._replace(folders=names)

    def stamps(self, prefix: str) -> dict[str, Stamp]:
        where, values = write_conditions(limit_to([prefix]))
        found = self._ask(
            tuple[bytes, int, int], f"SELECT path, size, mtime_ns FROM photos p WHERE {where}", *values
        )
        return {os.fsdecode(path): Stamp(size, mtime_ns) for path, size, mtime_ns in found}

    def known_contents(self, hashes: Sequence[bytes]) -> set[bytes]:
        found = self._ask_keys(tuple[bytes], "SELECT sha256 FROM contents WHERE sha256 IN", hashes)
        return {digest for (digest,) in found}.intersection(hashes)

    def photos(self, prefixes: Sequence[str] = (), filter: Filter = NO_FILTER) -> list[Photo]:
        where, values = self._limit(prefixes, filter)
        return self._make_photos(
            self._ask(FoundPhoto, f"SELECT {FOUND} FROM {FOUND_IN} WHERE {where}", *values)
        )

    def find(self, ids: Sequence[str]) -> list[Photo]:
        query = f"SELECT {FOUND} FROM {FOUND_IN} WHERE p.row IS NOT NULL AND p.id IN"
        return self._make_photos(self._ask_keys(FoundPhoto, query, ids))

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
        by = ORDERS.get(order, "lower(CAST(p.path AS TEXT))")
        query = f"SELECT {FOUND} FROM {FOUND_IN} WHERE {where} AND p.is_file ORDER BY {by} LIMIT ? OFFSET ?"
        return self._make_photos(self._ask(FoundPhoto, query, *values, *bounds, n, offset))

    def count_years(self, prefixes: Sequence[str], filter: Filter) -> dict[tuple[bool, str], int]:
        where, values = self._limit(prefixes, filter)
        known = f"CASE WHEN p.taken BETWEEN ? AND ? AND NOT {UNDATED} THEN 0 ELSE 1 END"
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
        return {os.fsdecode(path): reason for path, reason in self._ask(tuple[bytes, str], query, *values)}

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
            "SELECT p.id, t.text FROM photos p JOIN texts t ON t.rowid = p.row WHERE t.text != '' AND p.id IN"
        )
        return dict(self._ask_keys(tuple[str, str], query, ids))

    def places(self, prefixes: Sequence[str] = ()) -> list[tuple[str, float, float]]:
        where, values = write_conditions(limit_to(prefixes))
        query = (
            "SELECT place, avg(latitude), avg(longitude) FROM photos p "
            f"WHERE place IS NOT NULL AND {where} GROUP BY place ORDER BY count(*) DESC"
        )
        return self._ask(tuple[str, float, float], query, *values)

    def _limit(self, prefixes: Sequence[str], filter: Filter) -> tuple[str, list[Any]]:
        """The condition of readable photos below prefixes that meet a filter."""
        conditions = [*limit_to(prefixes), *list_conditions(filter, self.folders)]
        where, values = write_conditions(conditions)
        return f"p.row IS NOT NULL AND {where}", values

    def _make_photos(self, rows: Sequence[tuple], scores: Mapping[int, float] | None = None) -> list[Photo]:
        """The photos of rows of the database, with the scores of their embeddings."""
        folders = self.folders() if rows else ()
        try:
            return make_photos(rows, folders, scores)
        except ValueError as error:
            raise self._connections.damaged(f"is damaged: {error}") from error

    # Embeddings

    def _open_embeddings(self, state: State) -> np.ndarray:
        """All committed rows (N, d)."""
        file = state.generation, state.n_rows, state.dimension
        if not self._embeddings.has_mapped(*file) and state.n_rows:
            if not self._embeddings.has_rows(*file):
                name = self._embeddings.path(state.generation).name
                raise self._connections.damaged(f"is damaged: {name} is missing or too short")
            listed = "SELECT (SELECT count(*) FROM contents) + (SELECT count(*) FROM orphaned)"
            if self._ask(tuple[int], listed)[0][0] < state.n_rows:  # else a file with holes could have 2**40
                raise self._connections.damaged("is damaged: embeddings are neither in use nor orphaned")
        return self._embeddings.open(*file)

    def _open_codes(self, state: State) -> EmbeddingCodes | None:
        if state.generation not in self._codes:
            found = open_codes(self.folder, state.generation, state.dimension, state.n_rows)
            self._codes = {state.generation: found}
        found = self._codes.get(state.generation)  # another thread may have cleared them
        return found if found and found.n_rows <= state.n_rows else None

    def _read_embeddings(self, read: Callable[[State, np.ndarray], T]) -> T:
        """What `read` finds in one snapshot. It is read again if a writer has just replaced the embeddings,
        or if a read has failed once.
        """
        for is_last in (False, True):
            try:
                with self._snapshot():
                    state = self.state()
                    return read(state, self._open_embeddings(state))
            except (LibraryDamaged, ReadFailed, FileNotFoundError):
                if is_last:
                    raise
        raise AssertionError

    def _ask_rows(self, embeddings: np.ndarray, query: str, *values: Any) -> np.ndarray:
        """The rows that a query finds, if each has an embedding."""
        rows = np.array(self._ask(tuple[RowNumber], query, *values), np.int64).reshape(-1)
        self._expect_rows(rows, embeddings)
        return rows

    def _expect_rows(self, rows: Sequence[int] | np.ndarray, embeddings: np.ndarray) -> None:
        """Raise if a row of a damaged database is beyond the embeddings."""
        if len(rows) and max(rows) >= len(embeddings):
            raise self._connections.damaged(f"is damaged: the embedding {max(rows)} is missing")

    def _expect_length(self, embeddings: np.ndarray, query: np.ndarray) -> None:
        if embeddings.shape[1] != len(query):
            raise self._connections.damaged(
                f"is damaged: its embeddings have {embeddings.shape[1]} numbers, not {len(query)}"
            )

    def _find_excluded(
        self, embeddings: np.ndarray, prefixes: Sequence[str], filter: Filter = NO_FILTER
    ) -> np.ndarray:
        """The rows that a search must not find: those of no photo below the prefixes that meets a filter."""
        if not prefixes and filter == NO_FILTER:
            return self._ask_rows(embeddings, "SELECT row FROM orphaned")
        where, values = self._limit(prefixes, filter)
        query = f"SELECT DISTINCT p.row FROM photos p WHERE {where}"
        outside = np.ones(len(embeddings), bool)
        outside[self._ask_rows(embeddings, query, *values)] = False
        return np.flatnonzero(outside)

    def pictures(self, ids: Sequence[str]) -> dict[str, Picture]:
        query = (
            "SELECT p.id, p.row, c.fingerprint FROM photos p LEFT JOIN contents c ON c.row = p.row "
            "WHERE p.row IS NOT NULL AND p.id IN"
        )

        def read(state: State, embeddings: np.ndarray) -> dict[str, Picture]:
            found = self._ask_keys(tuple[str, RowNumber, Fingerprint], query, ids)
            rows = [row for _, row, _ in found]
            self._expect_rows(rows, embeddings)
            return {
                id: Picture(row, fingerprint, embedding)
                for (id, row, fingerprint), embedding in zip(found, embeddings[rows])
            }

        return self._read_embeddings(read)

    def nearest(
        self, query: np.ndarray, n: int, prefixes: Sequence[str] = (), filter: Filter = NO_FILTER
    ) -> list[Photo]:
        def read(state: State, embeddings: np.ndarray) -> list[Photo]:
            if not len(embeddings):
                return []
            self._expect_length(embeddings, query)
            excluded = self._find_excluded(embeddings, prefixes, filter)
            vector = np.ascontiguousarray(query[None], np.float32)
            best, scores = find_nearest_rows(embeddings, vector, n, excluded, self._open_codes(state))
            ranks = {row: rank for rank, row in enumerate(best[0].tolist())}
            where, values = self._limit(prefixes, filter)
            columns = f"SELECT {FOUND} FROM {FOUND_IN} WHERE {where} AND p.row IN"
            found = self._ask_keys(FoundPhoto, columns, ranks, *values)
            if foreign := {row for row, *_ in found}.difference(ranks):
                raise self._connections.damaged(
                    f"is damaged: the row {min(foreign)} was found, but not asked for"
                )
            found.sort(key=lambda values: (ranks[values[0]], values[2]))
            return self._make_photos(found[:n], dict(zip(ranks, scores[0].tolist())))

        return self._read_embeddings(read)

    def sample_scores(self, query: np.ndarray, at_most: int, prefixes: Sequence[str] = ()) -> np.ndarray:
        def read(state: State, embeddings: np.ndarray) -> np.ndarray:
            if not len(embeddings):
                return np.empty(0, np.float32)
            self._expect_length(embeddings, query)
            is_in_use = np.ones(len(embeddings), bool)
            is_in_use[self._find_excluded(embeddings, prefixes)] = False
            rows = np.flatnonzero(is_in_use)
            step = max(1, -(-len(rows) // at_most))
            return embeddings[rows[::step]] @ np.asarray(query, np.float32)

        return self._read_embeddings(read)

    # Checks

    def verify(self) -> list[str]:
        with self._snapshot() as connection:
            lines = [line for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]
            if lines:
                self._connections.expect_damage()
                return [f"The database is damaged: {line}." for line in lines]
            state = self.state()
            self.photos()  # raises
            ((holes,),) = self._ask(tuple[int], HOLES)
            problems = [f"{holes} embeddings are neither in use nor orphaned."] if holes else []
            for rule, query in RULES.items():
                ((count,),) = self._ask(tuple[int], query)
                problems += [f"{count} {rule}"] if count else []
            problems += self._find_damaged_embeddings(state)
            codes = None if problems else self._open_codes(state)
            if codes and not codes.match(self._open_embeddings(state)):
                problems.append(WRONG_CODES)
            return problems

    def _find_damaged_embeddings(self, state: State) -> list[str]:
        """A sentence if embeddings differ from their checksums."""
        expected = self._ask(tuple[RowNumber, int], "SELECT row, crc32 FROM contents ORDER BY row")
        if not expected:
            return []
        try:
            path = self._embeddings.path(state.generation)
            if not path.is_file():
                return [f"{path} is missing."]
            damaged = self._embeddings.count_damaged(state.generation, state.dimension, expected)
        except OSError as error:
            raise self._connections.unusable(explain_os_error(error)) from error
        return [f"{damaged} embeddings in {path} do not match their checksums."] if damaged else []


def write_conditions(conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
    """The SQL of conditions that must all hold, and its values; `p` is the table of photos."""
    written = [_write_condition(condition) for condition in conditions]
    where = " AND ".join(f"({sql})" for sql, _ in written) or "TRUE"
    return where, [value for _, values in written for value in values]


def _write_condition(condition: Condition) -> tuple[str, list[Any]]:
    match condition:
        case Below():
            values = [bound for bounds in condition.ranges for bound in bounds]
            return " OR ".join(["p.path >= ? AND p.path < ?"] * len(condition.prefixes)) or "FALSE", values
        case AtLeast(column, value):
            return f"p.{column} >= ?", [value]
        case LessThan(column, value):
            return f"p.{column} < ?", [value]
        case EqualTo(column, value):
            return f"p.{column} = ?", [value]
        case Undated():
            return UNDATED, []
        case Contains(column, text):
            escaped = re.sub("([!%_])", r"!\1", text.lower())
            return f"lower(p.{column}) LIKE ? ESCAPE '!'", [f"%{escaped}%"]
        case Near(latitude, longitude, kilometers):
            box = "p.latitude BETWEEN ? AND ? AND p.longitude BETWEEN ? AND ?"
            exact = "distance_km(p.latitude, p.longitude, ?, ?) <= ?"
            return f"{box} AND {exact}", [*condition.box, latitude, longitude, kilometers]
        case HasWords(phrase, column, is_prefix):
            where = f"{{{column}}} : " if column else ""  # quotes: the words are no operators
            match = f'"{phrase}"{" *" if is_prefix else ""}'
            in_text = "p.row IN (SELECT rowid FROM texts WHERE texts MATCH ?)"
            if column == "text":
                return in_text, [match]
            in_names = "p.number IN (SELECT rowid FROM names WHERE names MATCH ?)"
            return (in_names, [where + match]) if column else (f"{in_names} OR {in_text}", [match, match])
        case AnyOf(conditions):
            written = [_write_condition(one) for one in conditions]
            where = " OR ".join(f"({sql})" for sql, _ in written) or "FALSE"
            return where, [value for _, values in written for value in values]
