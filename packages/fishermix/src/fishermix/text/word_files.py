"""Reads word2vec (binary and text) and GloVe (text) files, plain or gzipped, and trusts nothing in them.

    word2vec binary   "N D\\n", then N times: word, space, D little-endian float32, perhaps a newline
    word2vec text     "N D\\n", then N lines: word, then D numbers, separated by spaces
    GloVe text        the same lines without the first one; a word may contain spaces

A word may contain tabs and carriage returns, as gensim writes them. word2vec, fastText, gensim and GloVe end
every line of text with a newline, so a last line without one may be truncated within its last number.

The memory used grows with what was read, never with what a header claims.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from fishermix.errors import FishermixError
from fishermix.progress import progress

MAX_DIMENSION = 10_000  # published vectors have 25 to 1,000 numbers
MAX_WORD_BYTES = 1024
MAX_NUMBER_BYTES = 40  # of a number in text and its separator
MAX_LINE_BYTES = MAX_WORD_BYTES + MAX_DIMENSION * MAX_NUMBER_BYTES
MAX_DECOMPRESSED_BYTES = 16 * 2**30
CHUNK_BYTES = 2**22
FIRST_ROWS = 1024  # the array of vectors starts with this many and doubles
WORDS_PER_STEP = 1000  # of the progress bar
HINT = 'errors="skip" (fishermix vectors import --skip-bad-words) skips such words.'
GZIP = b"\x1f\x8b"
HEADER = re.compile(rb"(\d{1,15}) (\d{1,15})[ \r]*")


class ByteSource:
    """The bytes of a file, decompressed if need be, and the offset of the next one for messages."""

    def __init__(self, path: Path, file: BinaryIO):
        self.path = path
        self.zipped = file.read(len(GZIP)) == GZIP
        file.seek(0)
        self._file: Any = gzip.GzipFile(fileobj=file) if self.zipped else file
        self._buffer, self._at, self._buffer_offset = b"", 0, 0

    @property
    def offset(self) -> int:
        return self._buffer_offset + self._at

    def fail(self, message: str, offset: int | None = None) -> FishermixError:
        of = " of the decompressed data" if self.zipped else ""
        at = self.offset if offset is None else offset
        return FishermixError(f"{self.path}, byte {at}{of}: {message}")

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end of the file, without consuming them."""
        self._fill(size)
        return self._buffer[self._at : self._at + size]

    def take(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end of the file."""
        if len(self._buffer) - self._at < size:
            self._fill(size)
        start = self._at
        self._at = min(start + size, len(self._buffer))
        return self._buffer[start : self._at]

    def take_until(self, delimiter: bytes, limit: int) -> bytes | None:
        """The bytes before the next `delimiter`, which is dropped; None if it is not within `limit` bytes."""
        end = self._buffer.find(delimiter, self._at, self._at + limit)
        if end < 0:
            self._fill(limit)
            end = self._buffer.find(delimiter, self._at, self._at + limit)
            if end < 0:
                return None
        start, self._at = self._at, end + 1
        return self._buffer[start:end]

    def _fill(self, size: int) -> None:
        while len(self._buffer) - self._at < size:
            try:
                more = self._file.read(CHUNK_BYTES)
            except (OSError, EOFError, zlib.error) as error:
                end = self._buffer_offset + len(self._buffer)
                raise self.fail(f"The rest cannot be read ({error}). Is the file complete?", end) from error
            if not more:
                return
            self._buffer_offset += self._at
            self._buffer = self._buffer[self._at :] + more
            self._at = 0
            if self.zipped and self._buffer_offset + len(self._buffer) > MAX_DECOMPRESSED_BYTES:
                raise self.fail(
                    f"More than {MAX_DECOMPRESSED_BYTES} bytes. Decompress the file first if you trust it."
                )


@dataclass(frozen=True)
class Layout:
    """The format of a file: `count` words (None: until the end of the file) of `dimension` numbers."""

    binary: bool
    count: int | None
    dimension: int


def read_vectors(
    path: str | os.PathLike,
    *,
    limit: int | None = None,
    vocabulary: Collection[str] | None = None,
    dtype: Literal["float32", "float16"] = "float32",
    errors: Literal["raise", "skip"] = "raise",
) -> tuple[list[str], np.ndarray]:
    """The words and their vectors (n, D), in the order of the file.

    limit: read only the first `limit` words (files are sorted by frequency). vocabulary: keep only these.
    errors="skip" skips a word that is not UTF-8, empty, repeated, not finite or in a last line without a
    newline; "raise" raises an error. Truncated files, invalid numbers and wrong headers are always errors.
    """
    path = Path(path)
    if not path.exists():
        raise FishermixError(f"{path} does not exist.")
    if not path.is_file():
        raise FishermixError(f"{path} is not a file.")
    with open(path, "rb") as file:
        source = ByteSource(path, file)
        layout = _detect_layout(source)
        if layout.binary:
            records = _read_binary(source, layout, limit)
        else:
            records = _read_text(source, layout, limit, errors)
        wanted = None if vocabulary is None else frozenset(vocabulary)
        return _collect(source, layout, records, wanted, np.dtype(dtype), errors)


def _detect_layout(source: ByteSource) -> Layout:
    start = source.peek(2 * MAX_LINE_BYTES)
    if not start.strip():
        raise source.fail("The file is empty.")
    first, _, rest = start.partition(b"\n")
    header = HEADER.fullmatch(first)
    if not header:
        fields = split_line(first)
        if len(fields) < 2 or not all(_is_number(field) for field in fields[1:]):
            raise source.fail(
                "This is neither a word2vec nor a GloVe file: it does not start with a word and numbers."
            )
        _check_dimension(source, len(fields) - 1)
        return Layout(False, None, len(fields) - 1)
    count, dimension = int(header[1]), int(header[2])
    _check_dimension(source, dimension)
    source.take(len(first) + 1)
    if count == 0:
        raise source.fail("The header announces no words.", 0)
    fields = split_line(rest.partition(b"\n")[0], dimension)
    binary = len(fields) <= dimension or not all(_is_number(field) for field in fields[-dimension:])
    least = count * (1 + (4 if binary else 2) * dimension)
    there = source.path.stat().st_size - source.offset
    if not source.zipped and there < least:
        raise source.fail(
            f"The header announces {count} words of {dimension} numbers, at least {least} bytes, "
            f"but only {there} bytes follow. The file is truncated or damaged."
        )
    return Layout(binary, count, dimension)


def _check_dimension(source: ByteSource, dimension: int) -> None:
    if not 1 <= dimension <= MAX_DIMENSION:
        raise source.fail(
            f"The vectors have {dimension} numbers. From 1 to {MAX_DIMENSION} are supported.", 0
        )


def split_line(line: bytes, dimension: int = -1) -> list[bytes]:
    """Split a line of text into the word and `dimension` numbers, by default all that follow the first space.

    Only spaces separate: tabs and carriage returns belong to the word.
    """
    return line.rstrip().rsplit(b" ", dimension)


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


# A record is its offset, the bytes of its word, and its numbers as they are in the file.
Record = tuple[int, bytes, Any]


def _read_binary(source: ByteSource, layout: Layout, limit: int | None) -> Iterator[Record]:
    assert layout.count is not None
    size = 4 * layout.dimension
    for done in range(layout.count if limit is None else min(limit, layout.count)):
        word = source.take_until(b" ", MAX_WORD_BYTES + 2)
        at = source.offset
        if word is None:
            if len(source.peek(MAX_WORD_BYTES + 2)) < MAX_WORD_BYTES + 2:
                raise source.fail(f"The file ends after {done} of {layout.count} words.")
            raise source.fail(f"Word {done + 1} is longer than {MAX_WORD_BYTES} bytes. The file is damaged.")
        numbers = source.take(size)
        if len(numbers) < size:
            raise source.fail(f"The file ends within the vector of word {done + 1} of {layout.count}.")
        yield at - len(word) - 1, word.lstrip(b"\n"), numbers
    if limit is None:
        _check_end(source, layout)


def _read_text(source: ByteSource, layout: Layout, limit: int | None, errors: str) -> Iterator[Record]:
    done = 0
    while (layout.count is None or done < layout.count) and (limit is None or done < limit):
        at = source.offset
        line = source.take_until(b"\n", MAX_LINE_BYTES)
        whole = line is not None
        if line is None:
            line = source.take(MAX_LINE_BYTES)
            if len(line) == MAX_LINE_BYTES:
                raise source.fail(f"A line is longer than {MAX_LINE_BYTES} bytes. The file is damaged.", at)
            if not line.strip():
                if layout.count is not None:
                    raise source.fail(f"The file ends after {done} of {layout.count} words.", at)
                return
        fields = split_line(line, layout.dimension)
        _check_fields(source, layout, fields, at, whole)
        done += 1
        if whole:
            yield at, fields[0], fields[1:]
        elif errors != "skip":
            raise source.fail(
                "The last line has no newline. If the file is complete, add it; if it is truncated, download "
                f"it again. {HINT}",
                at,
            )
    if limit is None and layout.count is not None:
        _check_end(source, layout)


def _check_fields(source: ByteSource, layout: Layout, fields: list[bytes], at: int, whole: bool) -> None:
    if len(fields) != layout.dimension + 1:
        found = "an empty line" if fields == [b""] else f"{len(fields)} fields"
        cut = "" if whole else " The file ends here: it is truncated."
        raise source.fail(f"Expected a word and {layout.dimension} numbers, found {found}.{cut}", at)
    if len(fields[0]) > MAX_WORD_BYTES:
        raise source.fail(f"A word is longer than {MAX_WORD_BYTES} bytes. The file is damaged.", at)


def _check_end(source: ByteSource, layout: Layout) -> None:
    if source.peek(64).strip():
        raise source.fail(f"There is more data after the {layout.count} words that the header announces.")


def _collect(
    source: ByteSource,
    layout: Layout,
    records: Iterator[Record],
    wanted: frozenset[str] | None,
    dtype: np.dtype,
    errors: str,
) -> tuple[list[str], np.ndarray]:
    seen: dict[str, None] = {}
    vectors = np.empty((min(FIRST_ROWS, layout.count or FIRST_ROWS), layout.dimension), dtype)
    with progress(f"reading {source.path.name}", total=layout.count) as bar, np.errstate(over="ignore"):
        for number, (at, encoded, raw) in enumerate(records, 1):
            if number % WORDS_PER_STEP == 0:
                bar.advance(WORDS_PER_STEP)
            word = _decode_word(encoded)
            if word is not None and wanted is not None and word not in wanted:
                continue
            if len(seen) == len(vectors):
                # In place: the operating system moves the array without a second copy in memory.
                vectors.resize((2 * len(vectors), layout.dimension), refcheck=False)
            row = vectors[len(seen)]
            try:
                row[:] = np.frombuffer(raw, "<f4") if layout.binary else list(map(float, raw))
            except ValueError as error:
                raise source.fail(f"The vector of '{word}' is damaged: {error}.", at) from error
            problem = _find_problem(word, row, seen)
            if problem and errors != "skip":
                raise source.fail(f"{problem} {HINT}", at)
            if word and not problem:
                seen[word] = None
    vectors.resize((len(seen), layout.dimension), refcheck=False)
    return list(seen), vectors


def _find_problem(word: str | None, vector: np.ndarray, seen: Collection[str]) -> str:
    if not word:
        return "A word is empty or not UTF-8."
    if word in seen:
        return f"The word '{word}' is repeated."
    return "" if np.isfinite(vector).all() else f"The vector of '{word}' is not finite in {vector.dtype}."


def _decode_word(encoded: bytes) -> str | None:
    try:
        return encoded.decode() or None
    except UnicodeDecodeError:
        return None
