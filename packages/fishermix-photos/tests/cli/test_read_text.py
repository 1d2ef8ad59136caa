"""`fishermix library read-text`, and how the command says that the text of a photo was found."""

import json

import pytest
from fishermix_photos.photos import text


class Reader:
    """Stands for the process that reads: every picture that is mostly red shows a sign."""

    closed = 0

    def __call__(self, image):
        red, green, _ = image.getpixel((1, 1))
        return "Theatre\nBROADWAY\x1b[2J 1681" if red > 150 > green else ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        Reader.closed += 1


@pytest.fixture
def read(tiny, photos, monkeypatch):
    monkeypatch.setattr(text, "TextReader", Reader)
    monkeypatch.setattr(text, "find_reader", lambda: "rapidocr-onnxruntime 1.4.4")
    tiny("library", "add", photos)
    return tiny


def test_the_text_in_photos_is_read_and_found(read, photos, remarks):
    assert "contains no word" in read("search", "broadway", "--no-update", fails=True)
    assert read("library", "read-text") == "8 photos read: 2 with text.\n"
    assert Reader.closed == 1
    assert read("library", "read-text", photos) == "0 photos read: 0 with text.\n"
    found = read("search", "broadway", "--no-update").splitlines()
    shown = "(text in the photo: Theatre BROADWAY?[2J 1681)"
    assert sorted(found) == [f"{photos}/red.png  {shown}", f"{photos}/sub/flag.png  {shown}"]
    assert remarks[-1].startswith("Only photos with the name or text 'broadway': 2.")
    listed = json.loads(read("search", "red in broadway", "--no-update", "--json"))
    assert [photo["text"] for photo in listed] == ["Theatre BROADWAY\x1b[2J 1681"] * 2
    assert "text" not in json.loads(read("search", "blue", "--no-update", "--json"))[0]


def test_only_folders_of_the_library_are_read(read, tmp_path):
    assert "is not in the photo library" in read("library", "read-text", tmp_path / "other", fails=True)


def test_without_the_package_the_commands_say_what_to_install(tiny, photos, monkeypatch):
    monkeypatch.setattr(text, "find_reader", lambda: None)
    missing = text.explain_missing_reader()
    for command in (("library", "read-text"), ("serve", photos, "--text")):
        assert missing in tiny(*command, fails=True)
    tiny("library", "add", photos)
    assert f"text        is not read (not installed: {missing})" in tiny("doctor")


def test_the_doctor_names_the_package(read):
    assert "text        rapidocr-onnxruntime 1.4.4\n" in read("doctor")


def test_a_server_that_changes_nothing_reads_no_text(read, photos):
    assert "--no-update" in read("serve", photos, "--text", "--no-update", fails=True)
