"""What reaches the terminal: names of files can neither change it nor forge a line."""

import io
import json
import os

import pytest
from fishermix_photos import cli
from fishermix_photos.cli.common import clean, complain, say, say_json, say_paths, say_table, tell
from tiny_model import paint

HOSTILE = "a\x1b[2J\x1b]0;owned\x07\n99  /etc/passwd\r\u202e\x9b31m.png"
CONTROL = set(map(chr, [*range(10), *range(11, 32), *range(127, 160)])) | {"\u202e", "\u2028"}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_control_characters_become_question_marks_and_spaces_stay():
    assert clean("red\x1b[31m\u202e\u2028.png") == "red?[31m??.png"
    unusual = "Screenshot 9.41\u202fAM, 東京\u3000駅, é.png"
    assert clean(unusual) == unusual
    assert clean(os.fsdecode(b"caf\xe9.png")) == "caf?.png"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_all_that_prints_prints_one_line(is_terminal, monkeypatch):
    for print_line in (say, tell, complain, lambda text: say_table(text, ["column"], [[text]])):
        out = Terminal() if is_terminal else io.StringIO()
        monkeypatch.setattr("sys.stdout", out)
        monkeypatch.setattr("sys.stderr", out)
        monkeypatch.setattr("fishermix_photos.cli.common.is_shown", lambda: True)
        print_line(HOSTILE)
        printed = out.getvalue()
        assert "owned" in printed
        assert "99  /etc/passwd" in printed.replace("\n", " ") or "99" in printed
        assert not any(line.startswith("99") for line in printed.splitlines())
        assert not CONTROL & set(printed) - ({"\x1b"} if print_line.__name__ == "<lambda>" else set())


def test_paths_for_other_programs_are_exact_unless_a_terminal_shows_them(monkeypatch):
    for out, printed in ((io.StringIO(), HOSTILE), (Terminal(), clean(HOSTILE))):
        monkeypatch.setattr("sys.stdout", out)
        say_paths([HOSTILE], end="\0")
        assert out.getvalue() == printed + "\0"
    monkeypatch.setattr("sys.stdout", out := io.StringIO())
    say_json({"path": HOSTILE})
    assert json.loads(out.getvalue()) == {"path": HOSTILE}
    assert not CONTROL & set(out.getvalue())


def test_a_path_that_is_no_text_is_written_as_its_bytes(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "utf8"))
    say_paths([os.fsdecode(b"caf\xe9.png")])
    assert written.getvalue() == b"caf\xe9.png\n"


@pytest.mark.skipif(os.name != "posix", reason="names of files cannot have line breaks")
def test_commands_with_hostile_names_print_no_control_characters(tiny, tmp_path, monkeypatch, capsys):
    """Results, remarks, mistakes and usage errors; the names of folders, photos and unreadable files."""
    folder = tmp_path / HOSTILE.replace("/", "∕")
    good = paint(folder / f"good{HOSTILE.replace('/', '∕')}", "red")
    bad = folder / f"bad{HOSTILE.replace('/', '∕')}"
    bad.write_bytes(b"no picture")
    skipped = folder / f"skipped{HOSTILE.replace('/', '∕')}.cr3"
    skipped.write_bytes(b"x")
    for arguments in (
        ["search", "red", folder],
        ["search", "red", folder, "--json"],
        ["search", "red", folder, "--no-update"],
        ["search", folder],
        ["search", good, folder],
        ["search", "red", folder / "missing"],
        ["search", "red", folder, "--html", folder / "no" / "x.html"],
        ["search", "red", folder, "--html", tmp_path / f"sheet{HOSTILE.replace('/', '∕')}.html"],
        ["caption", good],
        ["caption", bad],
        ["caption", good, bad],
        ["annotate", good, bad],
        ["annotate", good, "--sentences", bad],
        ["explain", "red", good],
        ["explain", "red", bad],
        ["explain", f"red {HOSTILE}", good],
        ["duplicates", folder],
        ["doctor"],
        ["doctor", "--model", folder],
        ["library", "add", folder],
        ["library", "add", bad],
        ["library", "list"],
        ["library", "list", folder],
        ["library", "list", bad],
        ["library", "update"],
        ["doctor", "--library", folder],
        ["library", "remove", folder],
        [HOSTILE],
        ["search", f"--{HOSTILE}"],
        ["search", "red", "-n", HOSTILE],
    ):
        monkeypatch.setattr("sys.argv", ["fishermix", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert end.value.code in (0, 1, 2), arguments
        out, err = capsys.readouterr()
        assert not CONTROL & set(out + err), (arguments, out, err)
        assert not any(line.startswith("99") for line in (out + err).splitlines()), (arguments, out, err)
