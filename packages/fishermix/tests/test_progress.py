"""Progress: silent in a library, lines where there is no terminal."""

import subprocess
import sys

import pytest
from fishermix import progress as module
from fishermix.progress import progress, track


def test_a_library_is_silent(capsys):
    assert list(track(range(3), "counting")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")


def test_a_process_knows_whether_it_shows_progress(capsys, monkeypatch):
    monkeypatch.setattr(module, "_shown", False)  # other tests run commands in this process
    assert not module.is_shown()
    module.show_progress()
    try:
        assert module.is_shown()
        with progress("encoding") as bar:
            assert type(bar) is not module.Bar
    finally:
        module.show_progress(False)
    assert not module.is_shown()


def test_lines_tell_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0)
    with progress("encoding", total=4, shown=True) as bar:
        bar.advance(3, note="dogs")
    first, last = capsys.readouterr().err.splitlines()
    assert first == "encoding: 3/4 after 0 s (dogs)"
    assert last == "encoding: 3/4 after 0 s (dogs, done)"


def test_lines_tell_how_long_the_rest_takes(monkeypatch, capsys):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0)
    monkeypatch.setattr(module, "SECONDS_BEFORE_ESTIMATES", 0)
    with progress("encoding", total=400, shown=True) as bar:
        bar.started -= 100  # seconds
        bar.advance(100)
        bar.advance(300)
    first, *others = capsys.readouterr().err.splitlines()
    assert module.word_rest(300) in first
    assert not any("left" in line for line in others)


@pytest.mark.parametrize(
    ("seconds", "number"),
    [(None, ""), (3, ""), (12, "10"), (89, "90"), (170, "3"), (9000, "2")],
)
def test_an_estimate_has_one_round_number(seconds, number):
    assert "".join(letter for letter in module.word_rest(seconds) if letter.isdigit()) == number


def test_a_terminal_gets_a_bar():
    code = (
        "import sys; sys.stderr.isatty = lambda: True\nfrom fishermix.progress import progress\n"
        "with progress('encoding [photos]', 4, shown=True) as bar:\n    bar.advance(4, '[b]')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "encoding [photos] ([b])" in done.stderr
    assert "4/4" in done.stderr
    assert done.stdout == ""
