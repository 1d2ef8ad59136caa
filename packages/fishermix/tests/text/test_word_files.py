"""The reader gives back what was written, and stops with file and offset at every kind of damage."""

import gzip
import tracemalloc

import numpy as np
import pytest
from fishermix.errors import FishermixError
from fishermix.text import word_files as formats
from fishermix.text.word_files import read_vectors
from hypothesis import given, settings
from hypothesis import strategies as st
from refuses import refuses

WORDS = ["the", "dog", "New_York", "naïve", "日本"]
VECTORS = np.arange(20, dtype=np.float32).reshape(5, 4) / 8 - 1


def binary(words=WORDS, vectors=VECTORS, newline=b"", header=None):
    start = header or f"{len(words)} {vectors.shape[1]}\n".encode()
    records = (w.encode() + b" " + v.astype("<f4").tobytes() + newline for w, v in zip(words, vectors))
    return start + b"".join(records)


def lines(words=WORDS, vectors=VECTORS):
    return "".join(f"{w} {' '.join(map(repr, v.tolist()))}\n" for w, v in zip(words, vectors)).encode()


def text(words=WORDS, vectors=VECTORS):
    return f"{len(words)} {vectors.shape[1]}\n".encode() + lines(words, vectors)


EVERY_FORMAT = {
    "binary": binary(),
    "binary with newlines": binary(newline=b"\n"),
    "text": text(),
    "text with trailing spaces": text().replace(b"\n", b" \r\n"),
    "glove": lines(),
    "text with a byte order mark": b"\xef\xbb\xbf" + text(),
    "glove with a byte order mark": b"\xef\xbb\xbf" + lines(),
}


@pytest.fixture
def write(tmp_path):
    def write(content, name="vectors"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize("content", EVERY_FORMAT.values(), ids=EVERY_FORMAT.keys())
@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_every_format_reads_alike(write, content, compress):
    words, vectors = read_vectors(write(compress(content)))
    assert words == WORDS
    np.testing.assert_array_equal(vectors, VECTORS)
    assert vectors.dtype == np.float32


@pytest.mark.parametrize("content", [binary(), text(), lines()])
def test_limit_and_vocabulary(write, content):
    path = write(content)
    assert read_vectors(path, limit=2)[0] == ["the", "dog"]
    words, vectors = read_vectors(path, vocabulary={"日本", "dog", "unseen"})
    assert words == ["dog", "日本"]
    np.testing.assert_array_equal(vectors, VECTORS[[1, 4]])
    assert read_vectors(path, limit=2, vocabulary=["日本"])[0] == []


def test_a_glove_word_may_hold_spaces(write):
    words, vectors = read_vectors(write(b"the 1 2\n. . . 3 4\nat name@domain.com 5 6\n"))
    assert words == ["the", ". . .", "at name@domain.com"]
    assert vectors.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_float16_is_half_and_refuses_what_it_cannot_hold(write):
    assert read_vectors(write(binary()), dtype="float16")[1].dtype == np.float16
    with refuses("damaged"):
        read_vectors(write(b"1 2\ndog 1e6 1\n"), dtype="float16")


ONE = binary(["dog"], VECTORS[:1])
DAMAGED = {
    "empty": (b"", 0),
    "no vectors at all": (b"hello world\nthis is prose\n", 0),
    "an image": (b"\x89PNG\r\n\x1a\n" + bytes(100), 0),
    "header promises more than the file holds": (
        b"3000000 300\nthe " + bytes(1200),
        12,
    ),
    "header with an absurd dimension": (b"1 999999\nthe " + bytes(100), 0),
    "header with no words": (b"0 300\n", 0),
    "binary cut within a vector": (binary()[:-3], None),
    "binary of too few words": (binary(header=b"6 4\n"), None),
    "binary of too many words": (binary(header=b"4 4\n"), None),
    "word too long": (b"1 2\n" + b"x" * 5000 + b" " + bytes(8), 4),
    "bad UTF-8": (b"1 2\nd\xffg " + bytes(8), 4),
    "empty word": (b"1 2\n " + bytes(8), 4),
    "duplicate": (binary(["dog", "cat", "dog"], VECTORS[:3]), 4 + 2 * 20),
    "NaN": (binary(["dog", "cat"], np.array([[1, 2], [np.nan, 0]])), 4 + 12),
    "text cut within a line": (text()[:-8], None),
    "GloVe with an empty line": (
        b"a 1 2\n\nb 1 2\n",
        6,
    ),
    "text of too few words": (b"3 1\na 1\nb 2\n      ", 12),
    "text with a word for a number": (b"2 2\na 1 2\nb 1 x\n", 10),
    "GloVe of uneven lines": (b"a 1 2\nb 1\n", 6),
    "endless line": (b"a 1 2\nb " + b"1" * (formats.MAX_LINE_BYTES + 10), 6),
}


@pytest.mark.parametrize(("content", "offset"), DAMAGED.values(), ids=DAMAGED.keys())
def test_damage_is_named_with_file_and_offset(write, content, offset):
    path = write(content)
    with refuses("damaged") as error:
        read_vectors(path)
    assert str(path) in str(error.value)
    assert offset is None or error.value.values["byte"] == offset


@pytest.mark.parametrize("content", [text(), lines()])
def test_a_last_line_without_a_newline_may_be_truncated(write, content):
    with refuses("damaged"):
        read_vectors(write(content[:-1]))


@pytest.mark.parametrize("kind", [binary, text, lines])
def test_words_with_tabs_and_carriage_returns_are_read_as_gensim_writes_them(write, kind):
    words = ["\t", "a\tb", "\r", "\rx", "x\r", "x\t", "\tx", "x\x0b", "plain"]
    vectors = np.arange(len(words) * 3, dtype=np.float32).reshape(-1, 3) / 4
    found, numbers = read_vectors(write(kind(words, vectors)))
    assert found == words
    np.testing.assert_array_equal(numbers, vectors)


@pytest.mark.parametrize("binary_file", [True, False])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_files_that_gensim_writes(tmp_path, binary_file, suffix):
    keyed = pytest.importorskip("gensim.models.keyedvectors", reason="gensim is not installed")
    words = ["the", "\t", "a\tb", "x\r", "\rx", "naïve", "日本"]
    vectors = np.random.default_rng(0).normal(size=(len(words), 5)).astype(np.float32)
    written = keyed.KeyedVectors(5)
    written.add_vectors(words, vectors)
    path = tmp_path / f"vectors{suffix}"
    written.save_word2vec_format(str(path), binary=binary_file)
    found, numbers = read_vectors(path)
    assert found == words
    np.testing.assert_array_equal(numbers, vectors)


@pytest.mark.parametrize("content", [binary(), text(), lines()])
def test_a_cut_gzip_stops(write, content):
    whole = gzip.compress(content * 1)
    with refuses("damaged"):
        read_vectors(write(whole[:-12]))
    with refuses("damaged"):
        read_vectors(write(whole[:10] + b"\x00\xff\x13" + whole[13:]))


@pytest.mark.slow
def test_a_gzip_bomb_stops_at_the_cap_and_in_little_memory(write, monkeypatch):
    record = b"%07d " + bytes(400)
    content = b"100000 100\n" + b"".join(record % i for i in range(100_000))
    path = write(gzip.compress(content, 1))
    del content
    assert path.stat().st_size < 2_000_000
    monkeypatch.setattr(formats, "MAX_DECOMPRESSED_BYTES", 10_000_000)
    tracemalloc.start()
    with refuses("damaged"):
        read_vectors(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40_000_000


def test_a_lying_header_in_a_gzip_costs_no_memory(write):
    path = write(gzip.compress(b"999999999999 10000\n" + b"dog " + bytes(40_000)))
    tracemalloc.start()
    with refuses("damaged"):
        read_vectors(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000_000


def test_errors_skip_keeps_the_first_of_each_word(write):
    content = binary(["dog", "cat", "dog"], VECTORS[:3]).replace(b"cat", b"c\xfft")
    words, vectors = read_vectors(write(content), errors="skip")
    assert words == ["dog"]
    np.testing.assert_array_equal(vectors, VECTORS[:1])


@pytest.mark.parametrize("content", [text(), lines()])
def test_errors_skip_leaves_out_a_last_line_that_may_be_cut(write, content):
    words, vectors = read_vectors(write(content[:-2]), errors="skip")
    assert words == WORDS[:-1]
    np.testing.assert_array_equal(vectors, VECTORS[:-1])
    with refuses("damaged"):
        read_vectors(write(content[:-8]), errors="skip")
    assert read_vectors(write(content[:-2]), limit=4)[0] == WORDS[:4]


def test_errors_skip_leaves_out_what_is_not_finite(write):
    content = b"4 2\ndog nan 1\ncat 1 2\ndog 3 4\ncar inf 0\n"
    words, vectors = read_vectors(write(content), errors="skip")
    assert words == ["cat", "dog"]
    assert vectors.tolist() == [[1, 2], [3, 4]]


def test_no_file_and_a_folder(tmp_path):
    with refuses("wrong_file"):
        read_vectors(tmp_path)
    with refuses("not_found"):
        read_vectors(tmp_path / "none")


@settings(max_examples=150, deadline=None)
@given(
    data=st.binary(max_size=300), cut=st.integers(0, 120), place=st.integers(0, 120), kind=st.integers(0, 2)
)
def test_any_damage_reads_or_raises_only_our_error(tmp_path_factory, data, cut, place, kind):
    good = (binary(), text(), lines())[kind]
    path = tmp_path_factory.mktemp("fuzz") / "file"
    path.write_bytes(good[:place] + data + good[place + cut :])
    try:
        words, vectors = read_vectors(path)
    except FishermixError:
        return
    assert len(set(words)) == len(words) == len(vectors)
    assert np.isfinite(vectors).all()
