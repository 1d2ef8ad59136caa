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
from collections.abc import Callable, Collection, Iterator
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
FIRST_ROWS = 1024  # the array of vectors starts with this many and doubles
WORDS_PER_STEP = 1000  # of the progress bar
HINT = 'errors="skip" (fishermix vectors import --skip-bad-words) skips such words.'
GZIP = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # that editors on Windows put before text
HEADER = re.compile(rb"(\d{1,15}) (\d{1,15})[ \r]*")


class ByteSource:
    """The bytes of a file, decompressed if need be; errors name the file and the offset."""

    def __init__(self, path: Path, file: BinaryIO):
        self.path = path
        self.zipped = file.read(len(GZIP)) == GZIP
        file.seek(0)
        self.file: Any = gzip.GzipFile(fileobj=file) if self.zipped else file

    def fail(self, message: str, offset: int | None = None) -> FishermixError:
        of = " of the decompressed data" if self.zipped else ""
        at = self.file.tell() if offset is None else offset
        return FishermixError(f"{self.path}, byte {at}{of}: {message}", code="damaged", byte=at)

    def read(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end of the file."""
        return self._read(self.file.read, size)

    def read_line(self) -> bytes:
        """The next line with its newline, if it has one within the longest line."""
        return self._read(self.file.readline, MAX_LINE_BYTES)

    def _read(self, read: Callable[[int], bytes], size: int) -> bytes:
        if self.zipped and self.file.tell() > MAX_DECOMPRESSED_BYTES:
            raise self.fail(
                f"More than {MAX_DECOMPRESSED_BYTES} bytes. Decompress the file first if you trust it."
            )
        try:
            return read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise self.fail(f"The rest cannot be read ({error}). Is the file complete?") from error


@dataclass(frozen=True)
class Layout:
    """The format of a file: `count` words (None: until the end of the file) of `dimension` numbers."""

    binary: bool
    count: int | None
    dimension: int


def read_vectors(
    path: str | os.PathLike[str],
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
        raise FishermixError(f"{path} does not exist.", code="not_found")
    if not path.is_file():
        raise FishermixError(f"{path} is not a file.", code="wrong_file")
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
    """The format; the next byte to read is that of the first word."""
    mark = len(BYTE_ORDER_MARK) if source.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK else 0
    source.file.seek(mark)
    first, second = source.read_line(), source.read_line()
    if not (first + second).strip():
        raise source.fail("The file is empty.", 0)
    header = HEADER.fullmatch(first.rstrip(b"\n"))
    source.file.seek(mark + len(first) if header else mark)
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
    if count == 0:
        raise source.fail("The header announces no words.", 0)
    fields = split_line(second, dimension)
    binary = len(fields) <= dimension or not all(_is_number(field) for field in fields[-dimension:])
    least = count * (1 + (4 if binary else 2) * dimension)
    there = source.path.stat().st_size - mark - len(first)
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
        at = source.file.tell()
        # As long as no space was found, a space and a vector follow: this never reads too much.
        record = source.read(size + 1)
        while (end := record.find(b" ", 0, MAX_WORD_BYTES + 2)) < 0:
            if len(record) > MAX_WORD_BYTES + 1:
                raise source.fail(
                    f"Word {done + 1} is longer than {MAX_WORD_BYTES} bytes. The file is damaged.", at
                )
            if not (more := source.read(size + 1)):
                raise source.fail(f"The file ends after {done} of {layout.count} words.", at)
            record += more
        record += source.read(end + 1 + size - len(record))
        if len(record) < end + 1 + size:
            raise source.fail(f"The file ends within the vector of word {done + 1} of {layout.count}.")
        yield at, record[:end].lstrip(b"\n"), record[end + 1 :]
    if limit is None:
        _check_end(source, layout)


def _read_text(source: ByteSource, layout: Layout, limit: int | None, errors: str) -> Iterator[Record]:
    done = 0
    while (layout.count is None or done < layout.count) and (limit is None or done < limit):
        at = source.file.tell()
        line = source.read_line()
        whole = line.endswith(b"\n")
        if len(line) == MAX_LINE_BYTES and not whole:
            raise source.fail(f"A line is longer than {MAX_LINE_BYTES} bytes. The file is damaged.", at)
        if not whole and not line.strip():
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
    if source.read(64).strip():
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
