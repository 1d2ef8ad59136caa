"""Reads word2vec (binary and text) and GloVe (text) files, plain or gzipped, and trusts nothing in them.

    word2vec binary   "N D\\n", then N times: word, space, D little-endian float32, perhaps a newline
    word2vec text     "N D\\n", then N lines: word, then D numbers, separated by spaces
    GloVe text        the same lines without the first one; a word may hold spaces

A UTF-8 byte order mark before all this is passed over. The tools of word2vec, fastText, gensim and GloVe end
every line of text with a newline, so a last line without one may be cut off within its last number.

The memory used grows with what was really read, never with what a header promises.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from array import array
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from fishermix.errors import FishermixError
from fishermix.progress import progress

MADE_BY_MAKE = (".cache", "word2vec")
MAX_DIMENSION = 10_000
MAX_WORD_BYTES = 1024
MAX_NUMBER_BYTES = 40
MAX_LINE_BYTES = MAX_WORD_BYTES + MAX_DIMENSION * MAX_NUMBER_BYTES
MAX_DECOMPRESSED_BYTES = 16 * 2**30
CHUNK_BYTES = 2**22
SKIPPED = 'errors="skip" (fishermix vectors import --skip-bad-words) leaves such words out'
HEADER = re.compile(rb"(\d{1,15})[ \t](\d{1,15})[ \t\r]*")


class ByteSource:
    """The bytes of a file, decompressed if it is gzipped, and the offset of the next for error messages."""

    def __init__(self, path: Path, file: BinaryIO, max_bytes: int):
        self.path = path
        self.zipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        self._file: Any = gzip.GzipFile(fileobj=file) if self.zipped else file
        self._max_bytes = max_bytes
        self._buffer, self._at, self._buffer_offset = b"", 0, 0

    @property
    def offset(self) -> int:
        return self._buffer_offset + self._at

    def fail(self, message: str, offset: int | None = None) -> FishermixError:
        of = " of the decompressed data" if self.zipped else ""
        return FishermixError(f"{self.path}, byte {self.offset if offset is None else offset}{of}: {message}")

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end of the file, without passing them."""
        self._fill(size)
        return self._buffer[self._at : self._at + size]

    def take(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end of the file."""
        if len(self._buffer) - self._at < size:
            self._fill(size)
        start = self._at
        self._at = min(start + size, len(self._buffer))
        return self._buffer[start : self._at]

    def until(self, delimiter: bytes, limit: int) -> bytes | None:
        """The bytes before the next `delimiter`, which is passed; None if it is not within `limit` bytes."""
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
                raise self.fail(f"cannot be read on ({error}); is the file complete?", end) from error
            if not more:
                return
            self._buffer_offset += self._at
            self._buffer = self._buffer[self._at :] + more
            self._at = 0
            if self.zipped and self._buffer_offset + len(self._buffer) > self._max_bytes:
                raise self.fail(f"more than {self._max_bytes} bytes; raise max_bytes= if you trust the file")


@dataclass
class Layout:
    """What the first bytes say: `count` words (None: until the end of the file) of `dimension` numbers."""

    name: Literal["word2vec binary", "word2vec text", "GloVe text"]
    count: int | None
    dimension: int


def read_vectors(
    path: str | os.PathLike,
    *,
    limit: int | None = None,
    vocabulary: Collection[str] | None = None,
    dtype: Literal["float32", "float16"] = "float32",
    errors: Literal["raise", "skip"] = "raise",
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> tuple[list[str], np.ndarray]:
    """The words and their vectors (n, D), in the order of the file.

    limit: read the first `limit` words only (files are sorted by frequency). vocabulary: keep only these.
    errors="skip" leaves out a word that is no UTF-8, empty, a repetition, not finite, or in a last line
    without a newline; "raise" stops there. Certain truncation, numbers that are none, and headers that lie
    always stop.
    """
    path = Path(path)
    if not path.exists():
        hint = ": `make word2vec` makes it" if path.parts[-2:] == MADE_BY_MAKE else ""
        raise FishermixError(f"there is no file or folder {path}{hint}")
    if not path.is_file():
        raise FishermixError(f"{path} is not a file")
    with open(path, "rb") as file:
        source = ByteSource(path, file, max_bytes)
        layout = _detect(source)
        numbers: Callable[[Any], Any]
        if layout.name == "word2vec binary":
            records, numbers = _binary_records(source, layout, limit), _numbers_of_bytes
        else:
            records, numbers = _text_records(source, layout, limit, errors), _numbers_of_texts
        wanted = None if vocabulary is None else frozenset(vocabulary)
        return _collect(source, layout, records, numbers, wanted, np.dtype(dtype), errors)


def _detect(source: ByteSource) -> Layout:
    if source.peek(len(BOM_UTF8)) == BOM_UTF8:
        source.take(len(BOM_UTF8))
    start = source.peek(2 * MAX_LINE_BYTES)
    if not start.strip():
        raise source.fail("the file is empty")
    first, _, rest = start.partition(b"\n")
    header = HEADER.fullmatch(first)
    if not header:
        fields = first.split()
        if len(fields) < 2 or not all(_is_number(field) for field in fields[1:]):
            raise source.fail(
                "this is neither a word2vec nor a GloVe file: it begins with no word and numbers"
            )
        return Layout("GloVe text", None, _checked_dimension(source, len(fields) - 1))
    count, dimension = int(header[1]), _checked_dimension(source, int(header[2]))
    source.take(len(first) + 1)
    if count == 0:
        raise source.fail("the header promises no words", 0)
    fields = rest.partition(b"\n")[0].split()
    if len(fields) > dimension and all(_is_number(field) for field in fields[-dimension:]):
        layout = Layout("word2vec text", count, dimension)
        least = count * (1 + 2 * dimension)
    else:
        layout = Layout("word2vec binary", count, dimension)
        least = count * (1 + 4 * dimension)
    if not source.zipped:
        there = source.path.stat().st_size - source.offset
        if there < least:
            raise source.fail(
                f"the header promises {count} words of {dimension} numbers, at least {least} bytes, "
                f"but only {there} follow; the file is cut off or damaged"
            )
    return layout


def _checked_dimension(source: ByteSource, dimension: int) -> int:
    if not 1 <= dimension <= MAX_DIMENSION:
        raise source.fail(f"vectors of {dimension} numbers; from 1 to {MAX_DIMENSION} can be read", 0)
    return dimension


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


# A record is its offset, the bytes of its word, and its numbers as they stand in the file.
Record = tuple[int, bytes, Any]


def _binary_records(source: ByteSource, layout: Layout, limit: int | None) -> Iterator[Record]:
    assert layout.count is not None
    size = 4 * layout.dimension
    for done in range(layout.count if limit is None else min(limit, layout.count)):
        word = source.until(b" ", MAX_WORD_BYTES + 2)
        at = source.offset
        if word is None:
            if len(source.peek(MAX_WORD_BYTES + 2)) < MAX_WORD_BYTES + 2:
                raise source.fail(f"the file ends after {done} of {layout.count} words")
            raise source.fail(f"word {done + 1} is longer than {MAX_WORD_BYTES} bytes; the file is damaged")
        numbers = source.take(size)
        if len(numbers) < size:
            raise source.fail(f"the file ends within the vector of word {done + 1} of {layout.count}")
        yield at - len(word) - 1, word.lstrip(b"\n"), numbers
    if limit is None:
        _expect_end(source, layout)


def _text_records(source: ByteSource, layout: Layout, limit: int | None, errors: str) -> Iterator[Record]:
    done = 0
    while (layout.count is None or done < layout.count) and (limit is None or done < limit):
        at = source.offset
        line = source.until(b"\n", MAX_LINE_BYTES)
        whole = line is not None
        if line is None:
            line = source.take(MAX_LINE_BYTES)
            if len(line) == MAX_LINE_BYTES:
                raise source.fail(f"a line of more than {MAX_LINE_BYTES} bytes; the file is damaged", at)
            if not line.strip():
                if layout.count is not None:
                    raise source.fail(f"the file ends after {done} of {layout.count} words", at)
                return
        fields = line.rsplit(maxsplit=layout.dimension)
        if len(fields) != layout.dimension + 1:
            found = f"{len(fields)} fields" if fields else "an empty line"
            cut = "" if whole else ", with which the file ends: it is cut off"
            raise source.fail(f"a word and {layout.dimension} numbers expected, found {found}{cut}", at)
        if len(fields[0]) > MAX_WORD_BYTES:
            raise source.fail(f"a word of more than {MAX_WORD_BYTES} bytes; the file is damaged", at)
        done += 1
        if whole:
            yield at, fields[0], fields[1:]
        elif errors != "skip":
            raise source.fail(
                "the last line has no newline, its last number may be cut off; if the file is complete, "
                f"add a newline; {SKIPPED}",
                at,
            )
    if limit is None and layout.count is not None:
        _expect_end(source, layout)


def _numbers_of_bytes(raw: bytes) -> np.ndarray:
    return np.frombuffer(raw, "<f4")


def _numbers_of_texts(raw: list[bytes]) -> list[float]:
    return [float(text) for text in raw]


def _expect_end(source: ByteSource, layout: Layout) -> None:
    if source.peek(64).strip():
        raise source.fail(f"data goes on after the {layout.count} words that the header promises")


def _collect(
    source: ByteSource,
    layout: Layout,
    records: Iterator[Record],
    numbers: Callable[[Any], Any],
    wanted: frozenset[str] | None,
    dtype: np.dtype,
    errors: str,
) -> tuple[list[str], np.ndarray]:
    seen: dict[str, None] = {}
    offsets = array("q")
    vectors = np.empty((min(1024, layout.count or 1024), layout.dimension), dtype)
    with progress(f"reading {source.path.name}", total=layout.count) as bar, np.errstate(over="ignore"):
        for number, (at, encoded, raw) in enumerate(records, 1):
            if number % 1000 == 0:
                bar.advance(1000)
            word = _decoded(encoded)
            if word is not None and wanted is not None and word not in wanted:
                continue
            if word is None or word in seen:
                if errors == "skip":
                    continue
                reason = "a word that is empty or not UTF-8" if word is None else f"the word '{word}' again"
                raise source.fail(f"{reason}; {SKIPPED}", at)
            if len(seen) == len(vectors):
                # In place: the block is moved by the operating system, not copied beside itself.
                vectors.resize((2 * len(vectors), layout.dimension), refcheck=False)
            try:
                vectors[len(seen)] = numbers(raw)
            except ValueError as error:
                raise source.fail(f"the vector of '{word}' is damaged: {error}", at) from error
            if errors == "skip" and not np.isfinite(vectors[len(seen)]).all():
                continue
            seen[word] = None
            offsets.append(at)
    vectors.resize((len(seen), layout.dimension), refcheck=False)
    words = list(seen)
    for start in range(0, len(words), 65536):
        bad = ~np.isfinite(vectors[start : start + 65536]).all(axis=1)
        if bad.any():
            row = start + int(np.argmax(bad))
            raise source.fail(
                f"the vector of '{words[row]}' is not finite in {dtype}; {SKIPPED}", offsets[row]
            )
    return words, vectors


def _decoded(encoded: bytes) -> str | None:
    try:
        return encoded.decode() or None
    except UnicodeDecodeError:
        return None
