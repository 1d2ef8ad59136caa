"""What the command line prints besides results: warnings, remarks and mistakes."""

import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

from fishermix import cli
from fishermix.cli.common import tell
from fishermix.cli.train import RECIPE_HELP, VARIANT_HELP
from fishermix.errors import FishermixError, FishermixWarning
from fishermix.model.recipe import RECIPES, VARIANTS
from fishermix.progress import is_shown, show_progress


@pytest.fixture
def run_main(monkeypatch, capsys):
    """Run `main` with a function in place of the commands; returns standard error."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    cli.load_commands()  # before `app` is replaced
    was_shown = is_shown()

    def run(command):
        monkeypatch.setattr(cli, "app", command)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            cli.main()
        return capsys.readouterr().err

    yield run
    show_progress(was_shown)


def test_a_warning_of_fishermix_is_one_line(run_main):
    printed = run_main(lambda: warnings.warn("2 of 3 sets are empty.", FishermixWarning, stacklevel=1))
    assert printed == "fishermix: 2 of 3 sets are empty.\n"


@pytest.mark.parametrize("category", [UserWarning, DeprecationWarning, RuntimeWarning])
def test_warnings_of_other_packages_keep_their_own_form(run_main, category):
    printed = run_main(lambda: warnings.warn("something of theirs", category, stacklevel=1))
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


def test_a_mistake_and_an_interruption_end_with_their_codes(run_main, capsys):
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
        with pytest.raises(SystemExit) as end:
            run_main(command)
        assert end.value.code == code
        assert capsys.readouterr().err == message


def test_remarks_are_printed_unless_quiet(run_main):
    assert run_main(lambda: tell("One remark.")) == "fishermix: One remark.\n"
    quiet = run_main(lambda: (cli.set_options(quiet=True, version=False), tell("One remark.")))
    assert quiet == ""


def test_the_help_names_every_recipe_and_variant():
    assert f"One of {', '.join(RECIPES)}." == RECIPE_HELP
    assert ", ".join(VARIANTS) == VARIANT_HELP


def test_an_empty_condition_is_a_mistake(tiny, photos):
    for option in ("--in", "--camera"):
        for text in ("", " ", "/"):
            assert f"{option} must be a name" in tiny("search", "red", photos, option, text, fails=True)


def test_a_search_says_how_many_files_are_unreadable_in_all(tiny, photos):
    def search():
        return CliRunner().invoke(cli.load_commands(), ["search", "red", str(photos)]).output

    (photos / "one.jpg").write_text("no photo")
    (photos / "two.jpg").write_text("no photo")
    was_shown = is_shown()
    show_progress(True)
    try:
        assert "New unreadable files: 2, for example one.jpg. 2 in all" in search()
        (photos / "three.jpg").write_text("no photo")
        assert "New unreadable files: 1, for example three.jpg. 3 in all" in search()
        assert "nreadable" not in search()
    finally:
        show_progress(was_shown)
    assert "unreadable  3" in tiny("index", "info", photos)


def test_the_advice_for_a_damaged_index_names_its_place(tiny, photos, tmp_path):
    place = tmp_path / "my index"
    tiny("index", "add", photos, "--index", place)
    next(place.glob("vectors-*")).write_bytes(b"")
    message = tiny("index", "verify", photos, "--index", place, fails=True)
    assert f"fishermix index remove {photos} --index '{place}'" in message
    (place / "index.sqlite").write_bytes(b"no database" * 1000)
    message = tiny("search", "red", photos, "--index", place, fails=True)
    assert f"--index '{place}'" in message
    tiny("index", "remove", photos, "--index", place)
    tiny("search", "red", photos, "--index", place)
