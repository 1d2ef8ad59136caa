"""Mistakes are reported once, on one line, and before anything slow."""

import sys

import pytest
from tiny_model import paint


def test_a_contact_sheet_needs_a_folder_and_the_message_says_so_once(tiny, photos, tmp_path):
    message = tiny("search", "red", photos, "--html", tmp_path / "no" / "x.html", fails=True)
    assert message == f"There is no folder {tmp_path / 'no'} to write x.html to. Create it first."
    assert not (tmp_path / "home").exists()  # nothing was indexed before


@pytest.mark.parametrize("option", ["-n", "-0", "--json"])
def test_options_after_dashes_are_named(tiny, photos, option):
    message = tiny("search", "--", "red", photos, option, fails=True)
    assert message == f"{option} comes after --, where options end. Put it before the query."
    assert "red.png" in tiny("search", "-n", "1", "--", "red", photos)


def test_one_condition_is_called_one(tiny, photos, monkeypatch):
    remarks = []
    monkeypatch.setattr("fishermix.cli.search.tell", remarks.append)
    tiny("search", "red", photos, "--camera", "nikon")
    assert remarks.pop() == "None of the 8 photos meets the condition. Omit it to see the best ones."
    tiny("search", "red in 1987", photos)
    assert remarks.pop() == "None of the 8 photos meets the condition. Omit it to see the best ones."
    tiny("search", "red", photos, "--camera", "nikon", "--portrait")
    assert remarks.pop() == "None of the 8 photos meets all conditions. Omit one of them."


@pytest.mark.parametrize("command", ["caption", "annotate"])
def test_one_missing_photo_is_one_line(tiny, tmp_path, monkeypatch, command):
    remarks = []
    monkeypatch.setattr(f"fishermix.cli.{command}.tell", remarks.append)
    missing = tmp_path / "missing.jpg"
    assert tiny(command, missing, fails=True) == f"{missing} is not a file. Name a photo."
    assert remarks == []
    photo = paint(tmp_path / "a.png", "red")
    assert tiny(command, missing, photo, fails=True) == "1 of 2 photos could not be read."
    assert len(remarks) == 1


def test_explain_reports_mistakes_before_it_opens_the_network(tiny, tmp_path, monkeypatch):
    def fail(*_):
        raise AssertionError("the photo was encoded")

    monkeypatch.setattr("tiny_model.TinyModel.encode_images", fail)
    photo = paint(tmp_path / "a.png", "red")
    (tmp_path / "notes.txt").write_text("a red photo")
    assert "vocabulary" in tiny("explain", "zorblax", photo, fails=True)
    message = tiny("explain", "red", tmp_path / "notes.txt", fails=True)
    assert message.startswith(f"Cannot read {tmp_path / 'notes.txt'}: not an image")
    assert sys.modules["tiny_model"].TinyModel.encode_images is fail
