"""The command and the page judge photos among all that are searched, and agree to the digit."""

import json

import pytest
from fishermix_photos.cli import load_commands
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.model.calibration import Calibration
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.server.app import create_app
from serving import show
from starlette.testclient import TestClient
from tiny_model import NAMES, TinyModel, paint
from typer.testing import CliRunner


class CalibratedModel(TinyModel):
    """Its probabilities depend on the scores of all photos that are searched."""

    calibration = Calibration(
        model_key="tiny", intercept=-3, score=3, deviations=1, log_photos=-0.3, log_words=0
    )


@pytest.fixture
def folders(tmp_path):
    """A folder of many photos of all colors, and one of a few that are partly red."""
    many, few = tmp_path / "many", tmp_path / "few"
    for number in range(40):
        paint(many / f"IMG_2019{1 + number % 12:02}14_{number}.png", *[NAMES[number % 7], NAMES[number % 5]])
    for number, name in enumerate(NAMES * 2):
        paint(few / name / f"{number}.png", "red", name, size=(48 + number, 32))
    return many, few


@pytest.fixture
def search(folders, tmp_path, monkeypatch):
    """(what the command prints, what the page gets) for a query in folders."""
    monkeypatch.setattr(ImageTextModel, "load", CalibratedModel.load)
    place, commands = tmp_path / "library", load_commands()

    def ask(query, folders):
        arguments = ["search", query, *folders, "--library", place, "--json", "-n", 100]
        result = CliRunner().invoke(commands, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output
        with PhotoLibrary(place, CalibratedModel()) as library:
            live = show(library, folders=folders)
            app = create_app(live)
            with TestClient(app, base_url="http://127.0.0.1") as client:
                answer = client.get("/api/search", params={"q": query, "n": 100}).json()
        return json.loads(result.stdout), answer["photos"]

    return ask


def test_both_say_the_same_to_the_digit(search, folders):
    printed, shown = search("red", folders)
    assert len(printed) >= 4
    assert [
        (f"{folder.name}/{photo['path'][len(str(folder)) + 1 :]}", photo["score"], photo["probability"])
        for photo in printed
        for folder in folders
        if photo["path"].startswith(f"{folder}/")
    ] == [(photo["path"], round(photo["score"], 6), round(photo["probability"], 6)) for photo in shown]
    assert [photo["band"] for photo in printed] == [photo["band"] for photo in shown]


def test_photos_are_judged_among_all_that_are_searched(search, folders):
    together, _ = search("red", folders)
    alone, _ = search("red", folders[1:])
    found = {photo["path"]: photo for photo in together}
    assert len({photo["band"] for photo in together}) > 1
    for photo in (photo for photo in alone if photo["path"] in found):  # copies of others take no place
        assert found[photo["path"]]["score"] == photo["score"]
        assert found[photo["path"]]["probability"] != photo["probability"]
    bands = [photo["band"] for photo in together]
    assert bands == sorted(bands, key=["likely", "maybe", "unlikely"].index)  # headings do not interleave
