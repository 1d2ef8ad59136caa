"""`fishermix vectors` end to end."""

import gzip
import subprocess
import sys

import pytest
from fishermix.text.word_vectors import WordVectors

CONTENT = b"3 2\nin 1 0\ndog 0.5 0.5\ncat 0 1\n"


@pytest.fixture
def run(tmp_path):
    def run(*arguments):
        command = [
            sys.executable,
            "-c",
            "from fishermix_photos.cli import main; main()",
            "vectors",
            *arguments,
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    (tmp_path / "vectors.txt.gz").write_bytes(gzip.compress(CONTENT))
    (tmp_path / "broken.bin").write_bytes(b"9 300\nthe ")
    return run


def test_import_then_load(run, tmp_path):
    code, text = run("import", "vectors.txt.gz", "out", "--half")
    assert (code, text) == (0, "out: 3 words of 2 dimensions\n")
    loaded = WordVectors.load(tmp_path / "out")
    assert list(loaded.words) == ["in", "dog", "cat"]
    assert loaded.vectors.dtype == "float16"


@pytest.mark.slow
def test_a_broken_file_is_one_line_and_makes_nothing(run, tmp_path):
    code, text = run("import", "broken.bin", "out")
    assert code == 1
    assert text.startswith("fishermix: broken.bin, byte 6: The header announces 9 words of 300 numbers")
    assert text.count("\n") == 1
    assert not (tmp_path / "out").exists()
    code, text = run("import", "missing", "out")
    assert (code, text) == (1, "fishermix: missing does not exist.\n")


@pytest.mark.slow
def test_bad_words_are_left_out_on_request(run, tmp_path):
    (tmp_path / "twice.txt").write_bytes(b"dog 1 0\ncat 0 1\ndog 1 1\n")
    code, text = run("import", "twice.txt", "out")
    assert code == 1
    assert "The word 'dog' is repeated" in text
    assert "--skip-bad-words" in text
    assert run("import", "twice.txt", "out", "--skip-bad-words") == (0, "out: 2 words of 2 dimensions\n")
    (tmp_path / "diary").mkdir()
    (tmp_path / "diary" / "page").write_text("mine")
    assert "holds no config.json and so no saved word vectors" in run("import", "diary", "out")[1]
    code, text = run("import", "vectors.txt.gz", "diary")
    assert (code, "is not empty and holds no word vectors" in text) == (1, True)
