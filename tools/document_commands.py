"""Writes the reference pages of the command line: one page per command, made from the program itself."""

import shutil
from pathlib import Path

import typer
from fishermix_photos.cli import load_commands
from typer.core import TyperCommand, TyperGroup


def list_commands() -> dict[str, TyperCommand]:
    """All commands that do something, by what the user types: `fishermix library add`."""

    def walk(name: str, command: TyperCommand) -> dict[str, TyperCommand]:
        if not isinstance(command, TyperGroup):
            return {name: command}
        found: dict[str, TyperCommand] = {}
        for part, child in sorted(command.commands.items()):
            if not child.hidden:
                found |= walk(f"{name} {part}", child)
        return found

    return walk("fishermix", typer.main.get_command(load_commands()))


def write_pages(folder: Path) -> None:
    """Write all pages into an empty folder; `index.md` lists the commands."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    commands = list_commands()
    rows = []
    for name, command in commands.items():
        page = name.replace(" ", "-")
        (folder / f"{page}.md").write_text(describe_command(name, command), "utf8")
        rows.append(f"| [`{name}`]({page}.md) | {_first_sentence(command)} |")
    pages = "\n".join(f"{name} <{name.replace(' ', '-')}>" for name in commands)
    (folder / "index.md").write_text(
        "# Command line\n\n"
        "`fishermix COMMAND --help` prints the same text. `fishermix --quiet COMMAND …` hides progress and "
        "remarks, `fishermix --version` prints the version.\n\n| command | purpose |\n|---|---|\n"
        + "\n".join(rows)
        + f"\n\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n",
        "utf8",
    )


def describe_command(name: str, command: TyperCommand) -> str:
    """The page of a command: usage, purpose, arguments, options and examples."""
    context = typer.Context(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"# {name}", _unwrap(command.help or ""), f"```text\n{name} {usage}\n```"]
    records = {"argument": [], "option": []}
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None:
            records[parameter.param_type_name].append(record)
    if records["argument"]:
        parts += [
            "## Arguments",
            *(f"`{metavar}`\n: {_unwrap(text)}" for metavar, text in records["argument"]),
        ]
    if records["option"]:
        parts += ["## Options", f"```{{program}} {name}\n```"]
        parts += [f"````{{option}} {names}\n{_unwrap(text)}\n````" for names, text in records["option"]]
    if command.epilog:
        examples = command.epilog.removeprefix("Examples: ").removeprefix("Example: ").split(" · ")
        parts.append("## Examples\n\n```text\n" + "\n".join(examples) + "\n```")
    return "\n\n".join(parts) + "\n"


def _unwrap(text: str) -> str:
    """The paragraphs of a help text as Markdown, with markup characters escaped."""
    paragraphs = [" ".join(part.split()) for part in text.replace("\b", "").split("\n\n")]
    escaped = "\n\n".join(paragraphs)
    for character in "\\*_<[]$":
        escaped = escaped.replace(character, f"\\{character}")
    return escaped


def _first_sentence(command: TyperCommand) -> str:
    text = " ".join((command.help or "").split("\n\n")[0].split())
    return _unwrap(text.partition(". ")[0].rstrip(".")).replace("|", "\\|") + "."
