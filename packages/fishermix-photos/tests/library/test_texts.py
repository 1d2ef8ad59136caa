"""The text in photos is read in a second pass, and searches find its words."""

import os
import sqlite3
import threading
import time
from contextlib import closing

import numpy as np
import pytest
from fishermix_photos.index import migrations, texts
from fishermix_photos.index.texts import TextCounts, find_words
from fishermix_photos.index.values import Unread
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.model.calibration import Calibration
from fishermix_photos.photos import text
from fishermix_photos.photos.formats import UnreadableImage
from fishermix_photos.photos.text import TextReader, open_picture
from fishermix_photos.search.excerpts import cut_excerpt
from fishermix_photos.search.notes import Note
from fishermix_photos.search.results import Query
from fishermix_photos.search.terms import parse_query
from PIL import Image, ImageDraw, ImageFont
from refuses import refuses
from tiny_model import COLOURS, NAMES, TinyModel, paint


class CalibratedModel(TinyModel):
    """Pictures that are mostly of the color are likely, others unlikely. It has met "grey" in no caption."""

    calibration = Calibration(
        model_key="tiny", intercept=-5.0, score=10.0, deviations=0.0, log_photos=0.0, log_words=0.0
    )
    pool = ()

    def __init__(self):
        super().__init__()
        self.word_counts["grey"] = 0


class Reader:
    """Stands for what reads text: each color of a picture has its text."""

    def __init__(self, **shown):
        self.shown, self.seen = shown, 0

    def __call__(self, image):
        self.seen += 1
        middle = image.getpixel((image.width // 2, image.height // 2))
        color = min(NAMES, key=lambda name: sum((a - b) ** 2 for a, b in zip(COLOURS[name], middle)))
        found = self.shown.get(color, "")
        if isinstance(found, BaseException):
            raise found
        return found


READER = {"red": "Please:\nNO PARKING\nat Bröadway 1234", "blue": "the grey zone", "green": "a green sign"}


@pytest.fixture
def library(photos, tmp_path):
    with PhotoLibrary(tmp_path / "library", CalibratedModel()) as library:
        library.update([photos])
        yield library


def names(results):
    return [photo.relative for photo in results.photos]


def test_a_word_that_the_model_does_not_know_is_a_filter(library):
    with refuses("unknown_term"):
        library.search("broadway")
    assert library.read_texts(read=Reader(**READER)) == TextCounts(photos=8, with_text=3)
    found = library.search("broadway")
    assert names(found) == ["red.png"]
    assert found.photos[0].text == "Please: NO PARKING at Bröadway 1234"
    assert found.notes == (Note("required", "broadway", "text", 1, '"broadway"'),)
    assert names(library.search("1234")) == ["red.png"]
    assert names(library.search("parking broadway")) == ["red.png"]
    assert names(library.search("red in broadway or in parking")) == ["red.png"]
    assert library.verify() == []


def test_a_rare_word_hides_nothing_but_its_photos_come_first(library):
    before = library.search(Query(parse_query("grey"), n=20, merge_copies=False))
    library.read_texts(read=Reader(**READER))
    found = library.search(Query(parse_query("grey"), n=20, merge_copies=False))
    first = found.photos[0]
    assert (first.relative, first.text, first.band) == ("blue.png", "the grey zone", None)
    assert [name for name in names(found) if name != "blue.png"] == [
        name for name in names(before) if name != "blue.png"
    ]
    assert found.notes[-1] == Note("written", "grey", count=1)
    assert {photo.text for photo in found.photos[1:]} == {None}
    assert found.verdict == ""
    for n in (1, 3, 7):
        pages = [
            name
            for offset in range(0, 8, n)
            for name in names(
                library.search(Query(parse_query("grey"), n=n, offset=offset, merge_copies=False))
            )
        ]
        assert pages == names(found)
    strict = library.search(Query(parse_query("grey"), min_probability=0.2))
    assert names(strict)[0] == "blue.png"


def test_an_everyday_word_in_a_text_changes_nothing(library):
    before = library.search("green")
    library.read_texts(read=Reader(**READER))
    assert names(library.search("green")) == names(before)
    assert all(note.kind != "written" for note in library.search("green").notes)


def test_several_words_are_found_as_they_are(library):
    library.read_texts(read=Reader(red="red green blue", white="green red"))
    found = library.search("red green")
    assert names(found)[0] == "red.png"
    assert [note.name for note in found.notes if note.kind == "written"] == ["red green"]


def test_words_in_quotes_are_looked_for_whatever_they_are(library):
    library.read_texts(read=Reader(**READER))
    assert [note.kind for note in library.search("green").notes] == ["preferred"]
    found = library.search('"green" + blue')
    assert found.photos[0].text == "a green sign"
    assert found.notes[-1] == Note("written", "green", count=1)


def test_an_interruption_keeps_what_was_read_and_the_next_call_goes_on(library, monkeypatch):
    reader = Reader(**READER)

    def stop(description, done, total):
        assert total == 8
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        library.read_texts(on_progress=stop, read=reader)
    assert reader.seen == 3
    assert library.read_texts(read=reader).photos == 5
    assert reader.seen == 8
    assert library.read_texts(read=reader) == TextCounts()
    assert names(library.search("broadway")) == ["red.png"]


def test_a_killed_pass_has_stored_what_was_read_some_seconds_before(library, monkeypatch):
    monkeypatch.setattr(texts, "SECONDS_PER_COMMIT", 0)
    seen = []

    def read(image):
        with PhotoLibrary(library.place, TinyModel()) as other:
            seen.append(len(other._store.unread()))
        return ""

    library.read_texts(read=read)
    assert seen == [8, 7, 6, 5, 4, 3, 2, 1]


def test_a_deleted_photo_loses_its_text(library, photos):
    library.read_texts(read=Reader(**READER))
    (photos / "red.png").rename(photos / "moved.png")
    library.update([photos])
    assert names(library.search("broadway")) == ["moved.png"]
    (photos / "moved.png").unlink()
    library.update([photos])
    with refuses("unknown_term"):
        library.search("broadway")
    library.close()
    with closing(sqlite3.connect(os.path.join(library.place, "library.sqlite"))) as connection:
        assert connection.execute("SELECT count(*) FROM texts WHERE text LIKE '%PARKING%'").fetchone() == (0,)
    assert library.verify() == []


def test_a_photo_that_changed_is_read_again(library, photos):
    reader = Reader(**READER)
    library.read_texts(read=reader)
    paint(photos / "red.png", "blue", size=(60, 40))
    assert library.read_texts(read=reader).photos == 0
    library.update([photos])
    with refuses("unknown_term"):
        library.search("broadway")
    assert library.read_texts(read=reader).photos == 1
    assert set(names(library.search("zone"))) == {"red.png", "blue.png"}


def test_a_photo_that_changed_since_the_update_is_left_to_a_later_pass(library, photos):
    paint(photos / "red.png", "blue", size=(60, 40))
    (photos / "blue.png").unlink()
    assert library.read_texts(read=Reader(**READER)).photos == 6
    library.update([photos])
    assert library.read_texts(read=Reader(**READER)).photos == 1


def test_equal_photos_are_read_once_and_folders_limit_the_pass(library, photos):
    (photos / "sub" / "copy.png").write_bytes((photos / "red.png").read_bytes())
    library.update([photos])
    reader = Reader(**READER)
    assert library.read_texts([photos / "sub"], read=reader).photos == 2
    assert set(names(library.search("broadway"))) == {"red.png", "sub/copy.png"}
    assert library.read_texts(read=reader).photos == 6


def test_texts_follow_their_photos_when_embeddings_move(library, photos, monkeypatch):
    library.read_texts(read=Reader(**READER))
    for name in ("white", "black", "grey"):
        (photos / f"{name}.png").unlink()
    library.update([photos])
    library._store.compact(all_orphaned=True)
    assert names(library.search("broadway")) == ["red.png"]
    assert names(library.search("zone")) == ["blue.png"]
    assert library.verify() == []
    library.remove(photos)
    assert library.verify() == []


def test_a_photo_that_cannot_be_read_is_not_tried_again(library):
    reader = Reader(**READER, black=UnreadableImage("its pixels are damaged"))
    assert library.read_texts(read=reader) == TextCounts(photos=7, with_text=3, failed=1)
    assert library.read_texts(read=reader) == TextCounts()


def test_a_photo_that_was_not_read_because_of_the_machine_is_tried_again(library):
    skip = set()
    killed = Reader(**READER, black=UnreadableImage("its decoder crashed", code="crashed"))
    assert library.read_texts(read=killed, skip=skip) == TextCounts(photos=7, with_text=3, failed=1)
    assert len(skip) == 1
    assert library.read_texts(read=killed, skip=skip) == TextCounts()  # not at once
    assert library.read_texts(read=Reader(**READER)) == TextCounts(photos=1)


def test_a_strip_gets_a_margin(tmp_path):
    """The reader enlarges the short side: a strip of 1600 x 3 pixels took 2 GB."""
    Image.new("RGB", (12_000, 20), "red").save(tmp_path / "strip.png")
    picture = open_picture(tmp_path / "strip.png")
    assert picture.width == 1600
    assert picture.height >= 1600 // 30
    assert (np.asarray(picture)[:, 800] == [255, 0, 0]).all(axis=1).any()


def test_a_reader_that_reads_nothing_is_reported_and_marks_no_photo(library):
    broken = UnreadableImage("its decoder crashed", code="crashed")
    with refuses("cannot_read"):
        library.read_texts(read=Reader(**dict.fromkeys(NAMES, broken)))
    assert library.read_texts(read=Reader(**READER)).photos == 8


def test_no_search_waits_for_the_pass(library):
    reading, searched = threading.Event(), threading.Event()

    def read(image):
        reading.set()
        assert searched.wait(30)
        return ""

    thread = threading.Thread(target=library.read_texts, kwargs={"read": read})
    thread.start()
    assert reading.wait(30)
    version = library.version
    assert library.search("red").photos
    library.update([library.folders()[0].folder])  # nor an update
    searched.set()
    thread.join()
    assert library.version == version  # nothing that a page shows has changed


def test_kinds_of_photos_of_text():
    def words(n, kind="PNG", camera=None, size=(1080, 2400)):
        return find_words(Unread(b"", "", None, kind, camera, *size), "word " * n).split()

    assert "screenshot" in words(10)
    assert "screenshot" in words(10, size=(1920, 1080))
    for other in (
        words(9),
        words(10, "JPEG"),
        words(10, camera="Canon"),
        words(10, size=(1081, 2400)),
        words(10, size=(None, None)),
    ):
        assert "screenshot" not in other
    assert "document" not in words(59, "JPEG")
    assert "document" in words(60, "JPEG", "Canon")


def test_screenshots_and_documents_are_found_by_these_words(library, photos):
    library.read_texts(read=Reader(red="word " * 70))
    found = library.search("documents")
    assert names(found) == ["red.png"]
    assert found.photos[0].text == "word word word word word …"


@pytest.mark.parametrize(
    ("whole", "phrase", "excerpt"),
    [
        (
            "one two three four five six seven eight nine ten",
            "six",
            "… two three four five six seven eight nine ten",
        ),
        ("NO PARKING\nany time", "no parking", "NO PARKING any time"),
        ("IMG1234, yes", "1234", "IMG1234, yes"),
        ("a b c", "b d", ""),
        ("", "", ""),
        ("- -", "", ""),
        ("word " * 3 + "x" * 500, "word", "word word word " + "x" * 105 + " …"),
    ],
)
def test_excerpts(whole, phrase, excerpt):
    assert cut_excerpt(whole, phrase) == excerpt


def test_a_library_without_texts_is_migrated(library, photos):
    library.close()
    file = os.path.join(library.place, "library.sqlite")
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("DROP TABLE texts")
        connection.execute("PRAGMA user_version = 4")
    assert library.count() == 8
    assert library.read_texts(read=Reader(**READER)).with_text == 3
    library.close()
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (migrations.VERSION,)


def test_texts_without_photos_are_reported(library):
    library.read_texts(read=Reader(**READER))
    with library._store.change() as change:
        change._run("INSERT INTO texts (rowid, words, text) VALUES (900, 'x', 'x')")
    assert library.verify() == ["1 texts belong to no photo."]


def test_without_the_package_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setattr(text, "find_reader", lambda: None)
    with refuses("missing_package"):
        TextReader()


def test_spaces_are_found_where_a_blank_hides_them():
    def decode(*steps):
        return text.decode_line(np.array(steps, np.float32), "_ab ")

    a, b, blank, space = (0, 0.9, 0.1, 0), (0, 0.1, 0.8, 0.1), (1, 0, 0, 0), (0.9, 0, 0, 0.1)
    assert decode(a, blank, b) == ("ab", pytest.approx(0.85))
    assert decode(a, a, blank, a, b, b) == ("aab", pytest.approx((0.9 + 0.9 + 0.8) / 3))
    assert decode(space, a, blank, space, b, space)[0] == "a b"
    assert decode(a, (0, 0, 0, 1), space, b)[0] == "a b"
    assert decode(blank, blank) == ("", 0.0)


# The real reader


def draw(path, *lines, size=(640, 400), font=40):
    image = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        pen.text((30, 30 + number * (font + 20)), line, "black", ImageFont.load_default(font))
    image.save(path)


@pytest.fixture
def signs(tmp_path):
    pytest.importorskip("rapidocr_onnxruntime", reason="fishermix-photos[text] is not installed")
    folder = tmp_path / "signs"
    folder.mkdir()
    draw(folder / "sign.png", "WELCOME TO OLD", "BROADWAY")
    draw(folder / "receipt.png", "Grand total", "27.50 dollars", font=60, size=(4000, 3000))
    paint(folder / "plain.png", "red", size=(200, 200))
    return folder


@pytest.mark.slow
def test_drawn_signs_are_read(signs, tmp_path):
    with PhotoLibrary(tmp_path / "library", TinyModel()) as library:
        library.update([signs])
        assert library.read_texts() == TextCounts(photos=3, with_text=2)
        assert names(library.search("broadway")) == ["sign.png"]
        assert names(library.search("total")) == ["receipt.png"]
        assert library.search("broadway").photos[0].text == "WELCOME TO OLD BROADWAY"


@pytest.mark.slow
def test_a_reader_at_its_limits_is_replaced(signs, monkeypatch):
    sign = text.open_picture(str(signs / "sign.png"))
    with TextReader() as read:
        with monkeypatch.context() as limits:
            limits.setattr(text, "SECONDS", 0.05)
            with refuses("too_slow"):
                read(sign)
        with monkeypatch.context() as limits:
            limits.setattr(text, "MOST_BYTES", 1 << 20)
            with pytest.raises(UnreadableImage):
                read(sign)
        assert "BROADWAY" in read(sign)
        process = read._worker.process
        begun = time.monotonic()
        process.kill()
        with refuses("crashed"):
            read(sign)
        assert time.monotonic() - begun < 10
        assert "BROADWAY" in read(sign)
    assert read._worker is None
