"""`--help`: what an owner of photos sees first, and which words they never see."""

import re

import pytest
import typer
from fishermix_photos.cli import LAB_COMMANDS, MAINTENANCE, MODULES, load_commands
from typer.core import TyperGroup
from typer.testing import CliRunner

OWNERS = ["", *(name for name in MODULES if name not in ("library", "networks"))]
OF_THE_LAB = {name for name in LAB_COMMANDS if " " not in name}


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
    parts = dict(re.findall(r"^╭─ ([A-Z][^─]+) ─(.+?)^╰", page, re.MULTILINE | re.DOTALL))
    titles = ("Your photos", "Train and reproduce", "Maintenance")
    listed = [re.findall(r"^│ ([a-z]+) ", parts[title], re.MULTILINE) for title in titles]
    assert [set(names) for names in listed] == [{*MODULES} - {*MAINTENANCE}, OF_THE_LAB, {*MAINTENANCE}]
    assert listed[0][0] == "search"
    assert 'Start with: fishermix search "' in page
    assert page.strip() == CliRunner().invoke(load_commands(), [], env={"COLUMNS": "100"}).stdout.strip()


@pytest.mark.slow
def test_no_help_shows_types_or_doubled_brackets():
    for names in list_commands(typer.main.get_command(load_commands())):
        page = read_help(*names)
        assert "Usage:" in page
        assert not re.search(r"<[a-z]|\[\[|\.\.\.\.|[{}]\.\.\.", page), page


@pytest.mark.parametrize("command", OWNERS)
def test_owners_need_not_know_how_it_works(command):
    page = " ".join(read_help(*command.split()).lower().split())
    assert not re.findall("joint space|hubness|postgresql|mixture|index", page)


@pytest.mark.slow
@pytest.mark.parametrize("command", [*MODULES, *sorted(OF_THE_LAB)])
def test_help_shows_an_example(command):
    pages = "".join(
        read_help(*names)
        for names in list_commands(typer.main.get_command(load_commands()))
        if names[:1] == (command,)
    )
    assert re.search(rf"Examples?: fishermix\s+{command}", pages)
