"""Mistakes are reported once, on one line, and before anything slow."""

import json
from dataclasses import replace

import pytest
from fishermix.errors import FishermixError
from fishermix_photos.cli import main
from fishermix_photos.search.dates import parse_dates
from tiny_model import paint


def test_a_contact_sheet_needs_a_folder_and_the_message_says_so_once(tiny, photos, tmp_path):
    message = tiny("search", "red", photos, "--html", tmp_path / "no" / "x.html", fails=True)
    assert message == f"There is no folder {tmp_path / 'no'} to write x.html to. Create it first."
    assert not (tmp_path / "home" / "library").exists()  # nothing was indexed before


@pytest.mark.parametrize("command", ["caption", "annotate"])
def test_one_missing_photo_is_one_line(tiny, tmp_path, monkeypatch, command):
    remarks = tiny.remarks
    missing = tmp_path / "missing.jpg"
    assert tiny(command, missing, fails=True) == f"{missing} does not exist. Name a photo."
    assert remarks == []
    photo = paint(tmp_path / "a.png", "red")
    assert tiny(command, missing, photo, fails=True) == "1 of 2 photos could not be read."
    assert len(remarks) == 1


def test_explain_reports_mistakes_before_it_opens_the_network(tiny, tmp_path, monkeypatch):
    def fail(*_):
        raise AssertionError("the photo was encoded")

    monkeypatch.setattr("tiny_model.TinyModel.encode_images", fail)
    photo = paint(tmp_path / "a.png", "red")
    assert "no word that" in tiny("explain", "zorblax", photo, fails=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "search",
            'What are you looking for? For example: fishermix search "two dogs run on a beach" ~/Pictures',
        ),
        ("caption", "Which photo? For example: fishermix caption photo.jpg"),
        (
            "explain photo.jpg",
            'What are you looking for? For example: fishermix explain "two dogs run on a beach" photo.jpg',
        ),
        ("library add", "Which folder? For example: fishermix library add ~/Pictures /mnt/camera"),
        ("train", "Missing option '--out'. See `fishermix train --help`."),
    ],
)
def test_a_missing_argument_is_asked_for(monkeypatch, capsys, arguments, message):
    monkeypatch.setattr("sys.argv", ["fishermix", *arguments.split()])
    monkeypatch.setattr("warnings.showwarning", None)
    monkeypatch.setattr("fishermix_photos.cli.show_progress", lambda: None)
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code, capsys.readouterr().err) == (2, f"fishermix: {message}\n")


def test_a_minus_without_a_space_is_explained(tiny, photos):
    message = tiny("search", "red", "-blue", photos, fails=True)
    assert message == (
        "-blue was read as options. To subtract a word, put a space after the minus: "
        f"`fishermix search red - blue {photos}`."
    )


@pytest.mark.parametrize("term", ["-1:red", "1e400:red", "+2:red", "0:red", "101:red", "-0.5:red"])
def test_odd_weights_are_not_words(tiny, photos, term):
    message = tiny("search", "--", term, photos, fails=True)
    assert message.startswith(f"The weight {term.partition(':')[0]} must be above 0 and at most 100.")


@pytest.mark.parametrize("query", ["", " ", '""', '" "', '2:""'])
def test_empty_quotes_are_an_empty_query(tiny, photos, query):
    assert tiny("search", query, photos, fails=True).startswith("The query is empty.")


def test_dates_that_are_none_are_reported(tiny, photos, monkeypatch):
    remarks = tiny.remarks
    tiny("search", "red 2019-02-31", photos)
    assert "'2019-02-31'" in remarks[1]
    assert remarks[1].endswith("fishermix search 'red 2019-02'")
    message = tiny("search", "red", photos, "--after", "2020", "--before", "2019", fails=True)
    assert message.startswith("--after 2020 is later than --before 2019.")
    assert tiny("search", "red", photos, "--after", "1970", "--before", "2100")


def test_reversed_years_of_a_query_are_swapped():
    swapped, usual = parse_dates("dogs from 2019 to 2017"), parse_dates("dogs from 2017 to 2019")
    assert swapped == replace(usual, note=replace(usual.note, name="from 2019 to 2017"))
    assert usual.note.meaning == "2017-01-01/2019-12-31"


def test_the_folder_that_is_missing_is_named(tiny, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert tiny("search", "red", "photos", "nowhere", fails=True).startswith("nowhere does not exist.")


def test_an_empty_folder_has_no_photos_rather_than_no_duplicates(tiny, tmp_path, monkeypatch):
    remarks = tiny.remarks
    (tmp_path / "empty").mkdir()
    tiny("duplicates", tmp_path / "empty")
    assert remarks == [f"There are no photos in {tmp_path / 'empty'}."]


def test_explain_explains_what_is_wanted(tiny, tmp_path, monkeypatch):
    remarks = tiny.remarks
    photo = paint(tmp_path / "a.png", "red", "red", "blue")
    plain = json.loads(tiny("explain", "red", photo, "--json"))
    assert plain["subtracted"] == remarks == []
    blue = json.loads(tiny("explain", "blue", photo, "--json"))["score"]
    drop_of_blue = (blue - 0.1) + 4 * (blue - 0.2)
    for query, subtracted in {
        "red without blue": ["blue"],
        "red - blue": ["blue"],
        "red in 2019": [],
    }.items():
        found = json.loads(tiny("explain", query, photo, "--json"))
        parts = found.pop("subtracted")
        assert [part["sentence"] for part in parts] == subtracted
        drop = sum(part["drop"] for part in parts)
        assert drop == pytest.approx(drop_of_blue if parts else 0, abs=1e-5)
        assert found.pop("score") == pytest.approx(plain["score"] - drop, abs=1e-5)
        assert (found["words"], found["out_of_vocabulary"]) == (plain["words"], [])
    lines = tiny("explain", "red", "-", "blue", photo).splitlines()  # as a search takes it
    assert lines == tiny("explain", "red - blue", photo).splitlines()
    assert lines[-1].split() == [f"{-drop_of_blue:+.3f}", "blue"]
    assert lines[0].split()[1:] == [
        f"{plain['score'] - drop_of_blue:.3f}",
        "=",
        f"{plain['score']:.3f}",
        "-",
        f"{drop_of_blue:.3f}",
    ]
    assert "`fishermix explain red - blue " in tiny("explain", "red", "-blue", photo, fails=True)
    assert tiny("explain", "-", "blue", photo, fails=FishermixError).code == "wrong_query"
    remarks.clear()
    assert "not in the vocabulary" not in tiny("explain", "red yelow", photo)  # as a search reads it
    assert len(remarks) == 1
    assert "yellow" in remarks[0]
