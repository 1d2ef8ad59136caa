"""caption, annotate, explain, serve, doctor and demo as a user types them."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from fishermix_photos.cli import demo as demo_command
from fishermix_photos.model.sentences import read_sentences


@pytest.fixture
def sentences(tmp_path):
    file = tmp_path / "sentences.txt"
    file.write_text("a red thing\n\nblue sky\nred white blue\nzorblax\na red thing\n")
    return file


def test_annotate_ranks_sentences(tiny, photos, sentences):
    lines = tiny("annotate", photos / "red.png", "--sentences", sentences).splitlines()
    assert [line.split("  ")[1] for line in lines] == ["a red thing", "red white blue", "blue sky"]
    assert lines[0].startswith("1.000")
    listed = json.loads(
        tiny("annotate", photos / "red.png", photos / "blue.png", "--sentences", sentences, "-n", 1, "--json")
    )
    assert [entry["sentences"][0]["sentence"] for entry in listed] == ["a red thing", "blue sky"]


def test_annotate_goes_on_after_a_bad_photo(tiny, photos, sentences, capfd):
    bad = photos / "bad.png"
    bad.write_text("no photo")
    assert "1 of 2" in tiny("annotate", bad, photos / "red.png", "--sentences", sentences, fails=True)
    assert "does not exist" in tiny("annotate", photos / "none.png", fails=True)


@pytest.mark.parametrize("command", ["annotate", "caption"])
def test_a_photo_that_is_not_there_does_not_stop_the_others(tiny, photos, command):
    assert "1 of 2" in tiny(command, photos / "none.png", photos / "red.png", fails=True)


def test_a_folder_is_described_photo_by_photo(tiny, photos):
    entries = json.loads(tiny("caption", photos, "--json"))
    assert {Path(entry["path"]) for entry in entries} == set(photos.rglob("*.png"))
    (photos.parent / "empty").mkdir()
    assert "There are no photos" in tiny("caption", photos.parent / "empty", fails=True)


def test_caption_says_when_it_is_unsure(tiny, photos):
    assert tiny("caption", photos / "red.png").startswith("a red picture")
    assert "unsure" not in tiny("caption", photos / "red.png")
    assert tiny("caption", photos / "black.png").endswith(" (unsure)\n")
    listed = json.loads(tiny("caption", photos / "red.png", photos / "black.png", "--json"))
    assert [(entry["confidence"], entry["unsure"]) for entry in listed] == [(0.8, False), (0.1, True)]
    assert not any("(unsure)" in entry["sentence"] for entry in listed)


@pytest.mark.parametrize(
    "command", [("caption",), ("annotate",), ("explain", "red boat white"), ("search", "red white")]
)
def test_numbers_of_json_are_rounded(tiny, photos, command):
    printed = tiny(*command, photos / "sub" / ("flag.png" if command[0] != "search" else ""), "--json")
    numbers = re.findall(r"-?\d+\.\d+(?:e-?\d+)?", printed)
    assert numbers
    assert all(len(number.partition(".")[2]) <= 6 for number in numbers), numbers


def test_sentence_files_that_cannot_be_used(tiny, photos, tmp_path):
    def annotate(file):
        return tiny("annotate", photos / "red.png", "--sentences", file, fails=True)

    assert "cannot be read" in annotate(tmp_path / "none.txt")
    (tmp_path / "empty.txt").write_text("\n\n")
    assert "no sentence" in annotate(tmp_path / "empty.txt")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    assert "UTF-8" in annotate(tmp_path / "latin.txt")


def test_the_everyday_sentences_are_plain():
    sentences = read_sentences()
    assert len(sentences) == len(set(sentences)) > 500
    assert all(sentence == sentence.lower().strip() and sentence.isascii() for sentence in sentences)


def test_explain(tiny, photos):
    lines = tiny("explain", "red boat", photos / "red.png").splitlines()
    assert lines[0] == "score 1.000"
    assert lines[3].split()[:2] == ["red", "+1.000"]
    assert lines[4].split()[:2] == ["boat", "+0.000"]
    assert lines[4].endswith("not in the vocabulary")
    listed = json.loads(tiny("explain", "red boat", photos / "red.png", "--json"))
    assert [part["word"] for part in listed["words"]] == ["red", "boat"]
    assert listed["out_of_vocabulary"] == ["boat"]


def test_doctor_checks_the_library(tiny, photos, tmp_path):
    assert "0 photos, 0 problems" in tiny("doctor")
    tiny("library", "add", photos)
    assert "8 photos, 0 problems" in tiny("doctor")
    assert f"  8  {photos}" in tiny("doctor").splitlines()
    next((tmp_path / "home").rglob("embeddings*")).unlink()
    assert "missing" in tiny("doctor", fails=True)


@pytest.mark.skipif(os.name != "posix", reason="Windows has other permissions")
def test_doctor_reports_a_library_that_others_can_read(tiny, photos, tmp_path):
    tiny("library", "add", photos)
    place = tmp_path / "home" / "library"
    place.chmod(0o755)
    message = tiny("doctor", fails=True)
    assert "Other users of this machine can read your library" in message
    subprocess.run(message.partition("`")[2].partition("`")[0], shell=True, check=True)
    tiny("doctor")


def test_demo_uses_photos_that_packages_carry(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(demo_command, "QUERIES", ("black", "grey"))
    text = tiny("demo", "--out", tmp_path / "out")
    assert "15 photos" in text
    assert 'fishermix search "grey"' in text
    assert "fishermix caption" in text
    assert "score 1.000" in text
    assert {path.name for path in (tmp_path / "out" / "photos").iterdir()} >= {"china.jpg", "coffee.png"}


@pytest.mark.slow
def test_serve_answers_and_stops(photos, tmp_path):
    """The command itself, in a process of its own, with the tiny model in place of the shipped one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = (
        "from fishermix_photos import ImageTextModel; from tiny_model import TinyModel; "
        "ImageTextModel.load = TinyModel.load; from fishermix_photos.cli import main; main()"
    )
    environment = os.environ | {
        "FISHERMIX_HOME": str(tmp_path / "home"),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent.parent), *sys.path]),
    }
    command = [sys.executable, "-c", start, "--quiet", "serve", str(photos), "--port", str(port)]
    server = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert f"http://127.0.0.1:{port}" in server.stdout.readline()
        for _ in range(100):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/status") as answer:
                    if json.load(answer)["state"] == "ready":
                        break
            except urllib.error.URLError:
                pass
            time.sleep(0.1)
        else:
            pytest.fail("the service did not come up")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/search?q=red&n=1") as answer:
            assert json.load(answer)["photos"][0]["path"] == "photos/red.png"
        again = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert again.returncode == 1
        assert "Choose another with --port." in again.stderr
    finally:
        server.terminate()
        _, errors = server.communicate(timeout=20)
    assert errors == ""
