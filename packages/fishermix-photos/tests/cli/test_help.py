"""`--help`: what an owner of photos sees first, and which words they never see."""

import re

import pytest
import typer
from fishermix_photos.cli import HELP_PANELS, load_commands
from typer.core import TyperGroup
from typer.testing import CliRunner

OWNERS = ["", *(name for name in HELP_PANELS["Your photos"] if name != "library"), "demo", "doctor"]


def read_help(*arguments):
    return CliRunner().invoke(load_commands(), [*arguments, "--help"], env={"COLUMNS": "100"}).stdout


def list_commands(command, *names):
    """The words of every command and group of commands."""
    yield names
    if isinstance(command, TyperGroup):
        for name, child in command.commands.items():
            yield from list_commands(child, *names, name)


def test_commands_are_in_three_groups_and_search_comes_first():
    page = read_help()
    positions = [page.index(title) for title in ("Your photos", "Train and reproduce", "Maintenance")]
    assert positions == sorted(positions)
    parts = re.split("Your photos|Train and reproduce|Maintenance", page)[1:]
    listed = [re.findall(r"^│ ([a-z]+) ", part, re.MULTILINE) for part in parts]
    assert [set(names) for names in listed] == [set(commands) for commands in HELP_PANELS.values()]
    assert listed[0][0] == "search"
    assert 'Start with: fishermix search "' in page
    assert page.strip() == CliRunner().invoke(load_commands(), [], env={"COLUMNS": "100"}).stdout.strip()


def test_no_help_shows_types_or_doubled_brackets():
    for names in list_commands(typer.main.get_command(load_commands())):
        page = read_help(*names)
        assert "Usage:" in page
        assert not re.search(r"<[a-z]|\[\[|\.\.\.\.|[{}]\.\.\.", page), page


@pytest.mark.parametrize("command", OWNERS)
def test_owners_need_not_know_how_it_works(command):
    page = " ".join(read_help(*command.split()).lower().split())
    assert not re.findall("joint space|hubness|postgresql|mixture|index", page)


@pytest.mark.parametrize("command", [name for commands in HELP_PANELS.values() for name in commands])
def test_help_shows_an_example(command):
    pages = "".join(
        read_help(*names)
        for names in list_commands(typer.main.get_command(load_commands()))
        if names[:1] == (command,)
    )
    assert re.search(rf"Examples?: fishermix\s+{command}", pages)
