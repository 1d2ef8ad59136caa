"""What the command line prints besides results: warnings, remarks and mistakes."""

import errno
import os
import shlex
import warnings

import numpy as np
import pytest
import typer
from fishermix.errors import FishermixError, FishermixWarning
from fishermix.progress import is_shown, show_progress
from fishermix_photos import cli
from fishermix_photos.__main__ import main as run_program
from fishermix_photos.cli.common import tell


@pytest.fixture
def run_main(monkeypatch, capsys):
    """Run `main` with a function in place of the commands; returns its exit code and standard error."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    was_shown = is_shown()

    def run(command):
        monkeypatch.setattr(cli, "app", lambda **_: command())
        monkeypatch.setattr(cli, "load_commands", lambda arguments: None)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            with pytest.raises(SystemExit) as end:
                run_program()
        return end.value.code, capsys.readouterr().err

    yield run
    show_progress(was_shown)


def test_a_warning_of_fishermix_is_one_line(run_main):
    ended = run_main(lambda: warnings.warn("2 of 3 sets are empty.", FishermixWarning, stacklevel=1))
    assert ended == (0, "fishermix: 2 of 3 sets are empty.\n")


@pytest.mark.parametrize("category", [UserWarning, DeprecationWarning, RuntimeWarning])
def test_warnings_of_other_packages_keep_their_own_form(run_main, category):
    _, printed = run_main(lambda: warnings.warn("something of theirs", category, stacklevel=1))
    assert f"{category.__name__}: something of theirs" in printed
    assert "fishermix: something" not in printed


@pytest.mark.slow
def test_what_the_package_warns_of_is_a_fishermix_warning():
    from fishermix import FisherEncoder, GaussianMixture, SentenceEncoder, WordVectors

    rows = [[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [0.5, 3.0]]
    mixture = GaussianMixture(1, random_state=0).fit(rows)
    with pytest.warns(FishermixWarning, match="1 of 1 sets"):
        FisherEncoder.from_fitted(mixture).transform([np.zeros((0, 2))])
    with pytest.warns(FishermixWarning, match="min_scale"):
        GaussianMixture(1, random_state=0).fit([[1.0, 2.0]] * 4)
    with pytest.warns(FishermixWarning, match="1 of 1 sentences"):
        SentenceEncoder(WordVectors(["dog"], [[1, 0]])).transform(["zorblax"])


def test_a_mistake_and_an_interruption_end_with_their_codes(run_main):
    def fail():
        raise FishermixError("The query is empty.")

    def interrupt():
        raise KeyboardInterrupt

    for command, code, message in (
        (fail, 1, "fishermix: The query is empty.\n"),
        (
            interrupt,
            130,
            "fishermix: Interrupted. Completed work is kept. Run the command again to continue.\n",
        ),
    ):
        assert run_main(command) == (code, message)


def test_remarks_are_printed_unless_quiet(run_main):
    assert run_main(lambda: tell("One remark.")) == (0, "fishermix: One remark.\n")
    assert run_main(lambda: [cli.set_options(quiet=True, version=False), tell("One remark.")][-1]) == (0, "")


def test_an_empty_condition_is_a_mistake(tiny, photos):
    for option in ("--in", "--camera"):
        for text in ("", " "):
            assert f"{option} must be a name" in tiny("search", "red", photos, option, text, fails=True)


def test_a_search_says_how_many_files_are_unreadable_in_all(tiny, photos):
    def search():
        tiny.remarks.clear()
        tiny("search", "red", photos)
        return " ".join(tiny.remarks)

    (photos / "one.jpg").write_text("no photo")
    (photos / "two.jpg").write_text("no photo")
    assert f"New unreadable files: 2, for example {photos}/one.jpg. `fishermix library list" in search()
    (photos / "three.jpg").write_text("no photo")
    assert f"New unreadable files: 1, for example {photos}/three.jpg. `" in search()
    assert "nreadable" not in search()
    assert "unreadable  3" in tiny("library", "list", photos)


@pytest.mark.parametrize("number", sorted(errno.errorcode))
def test_no_error_of_the_system_is_a_traceback(run_main, number):
    def fail():
        raise OSError(number, os.strerror(number), "photos/a.jpg")

    code, printed = run_main(fail)
    if number == errno.EINTR:  # KeyboardInterrupt has its own line
        return
    assert code == 1
    assert printed.startswith("fishermix: photos/a.jpg: ")
    assert printed.count("\n") == 1
    assert len(printed.split(". ")) > 1  # the cause, and what to do


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("index ~/Pictures", "fishermix library add '~/Pictures'"),
        ("-q add /photos", "fishermix library add /photos"),
        ("find 'two dogs'", "fishermix search 'two dogs'"),
        ("'two dogs' /photos", "fishermix search 'two dogs' /photos"),
        ("'two dogs'", "fishermix search 'two dogs'"),
        ("dedupe", "fishermix duplicates"),
        ("ls", "fishermix library list"),
        ("gui --open", "fishermix serve --open"),
    ],
)
def test_what_other_programs_call_a_command_is_answered_with_the_command(typed, meant, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["fishermix", *shlex.split(typed)])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    was_shown = is_shown()
    with pytest.raises(SystemExit) as end:
        cli.main()
    show_progress(was_shown)
    assert end.value.code == 2
    assert f"`{meant}`" in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["", "frobnicate", "--help", "search", "train x", "--frobnicate"])
def test_nothing_else_is_taken_for_another_command(typed):
    assert cli.find_meant_command(typed.split()) is None


def test_every_command_that_is_suggested_exists():
    app = typer.main.get_command(cli.load_commands())
    for name in cli.OTHER_NAMES:
        command = app
        for word in name.split():
            command = command.commands[word]
    others = [other for names in cli.OTHER_NAMES.values() for other in names.split()]
    assert len(others) == len({*others} - {*cli.MODULES})
