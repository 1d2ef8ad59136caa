"""What the command line prints besides results: warnings, remarks and mistakes."""

import inspect
import warnings
from dataclasses import asdict

import numpy as np
import pytest
from fishermix.caption.captioner import Captioner
from fishermix.errors import FishermixError, FishermixWarning
from fishermix.progress import is_shown, show_progress
from fishermix_photos import cli
from fishermix_photos.__main__ import main as run_program
from fishermix_photos.cli.captioner import Decoding
from fishermix_photos.cli.common import tell
from fishermix_photos.cli.options import RECIPE_HELP, VARIANT_HELP
from fishermix_photos.lab.recipe import RECIPES, VARIANTS


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


def test_what_the_package_warns_of_is_a_fishermix_warning():
    from fishermix import FisherEncoder, GaussianMixture, SentenceEncoder, WordVectors

    rows = [[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [0.5, 3.0]]
    mixture = GaussianMixture(1, random_state=0).fit(rows)
    with pytest.warns(FishermixWarning, match="1 of 1 sets"):
        FisherEncoder(mixture).transform([np.zeros((0, 2))])
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


def test_the_help_names_every_recipe_and_variant():
    assert f"One of {', '.join(RECIPES)}." == RECIPE_HELP
    assert ", ".join(VARIANTS) == VARIANT_HELP


def test_options_that_are_written_out_are_those_of_the_package():
    assert asdict(Decoding()) == {
        name: parameter.default
        for name, parameter in inspect.signature(Captioner.describe).parameters.items()
        if name in ("beam", "samples")
    }


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
