"""The command line: each module of this package adds its commands to `app`. Commands parse options, call one
method of the package and print what it returns.
"""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any, TextIO

import typer
from fishermix import __version__
from fishermix.errors import FishermixError, FishermixWarning
from fishermix.progress import show_progress
from typer.core import TyperCommand, TyperGroup

from fishermix_photos import find_commit
from fishermix_photos.cli.common import complain

QUIET = ("--quiet", "-q")
UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # click's, of which typer may have a copy

# The module of each command, in the order of `fishermix --help`.
HELP_PANELS = {
    "Your photos": {
        "search": "search",
        "serve": "serve",
        "caption": "describe",
        "annotate": "describe",
        "explain": "describe",
        "duplicates": "duplicates",
        "library": "library",
    },
    "Train and reproduce": {
        "train": "train",
        "evaluate": "train",
        "reproduce": "train",
        "captioner": "captioner",
    },
    "Maintenance": {
        "doctor": "doctor",
        "demo": "demo",
        "networks": "materials",
        "vectors": "materials",
    },
}
# The commands that help with the mistakes of the library, by the codes of their errors.
ADVICE = {
    "library_damaged": "`fishermix library remove --all` deletes it, but not your photos.",
    "not_in_library": "Add it with `fishermix library add {folder}`.",
    "other_model": "`fishermix library update` encodes all photos again.",
    "folder_away": "`fishermix library remove {folder}` removes it.",
}
# What to ask for an argument that is missing.
QUESTIONS = {
    "query": "What are you looking for?",
    "folders": "Which folder?",
    "photos": "Which photo?",
    "photo": "Which photo?",
    "sentence": "Which sentence?",
}
MODULES = {command: module for commands in HELP_PANELS.values() for command, module in commands.items()}


class Command(TyperCommand):
    """A command whose help names values by their option, as argparse does, and shows no types."""

    def __init__(self, name: str | None, *, help: str | None = None, **settings: Any) -> None:
        # Typer breaks lines where the source does.
        super().__init__(name, help=re.sub(r"(?<!\n)\n(?!\n)", " ", help or ""), **settings)

    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_types(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = super().collect_usage_pieces(ctx)
        return [re.sub(r"\[(\w+)\]\.\.\.", r"[\1...]", re.sub("[{}]", "", piece)) for piece in pieces]


class CommandGroup(TyperGroup):
    """A group of commands whose help shows no types."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_types(super().get_params(ctx))


def _hide_types(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if parameter.metavar is None:
            is_flag = getattr(parameter, "is_flag", False)
            parameter.metavar = "" if is_flag else parameter.name.upper()
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None
    return parameters


class App(typer.Typer):
    """A Typer application whose commands are `Command`s."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=CommandGroup, no_args_is_help=True, **settings)

    def command(self, name: str | None = None, *, cls: type[TyperCommand] | None = None, **settings: Any):
        return super().command(name, cls=cls or Command, **settings)


app = App(
    name="fishermix",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Find your photos with sentences and describe them, offline.\n\n"
    'Start with: fishermix search "two dogs run on a beach" ~/Pictures',
)


def _print_version(wanted: bool) -> None:
    if wanted:
        commit = find_commit()
        print(f"fishermix {__version__}" + (f" (commit {commit})" if commit else ""))
        raise typer.Exit


@app.callback()
def set_options(
    quiet: bool = typer.Option(False, *QUIET, help="Print results only: no progress, no remarks."),
    version: bool = typer.Option(
        False,
        "--version",
        callback=_print_version,
        is_eager=True,
        help="Print the version and exit.",
    ),
) -> None:
    if quiet:
        show_progress(False)


def load_commands(arguments: Sequence[str] = ()) -> typer.Typer:
    """Import the modules of the commands, which register them, and return the app.

    If `arguments` begin with a command, only its module is imported: a search does not wait for the options
    of all other commands.
    """
    command = next((argument for argument in arguments if argument not in QUIET), "")
    for module in {MODULES[command]: 0} if command in MODULES else dict.fromkeys(MODULES.values()):
        import_module(f"{__name__}.{module}")
    order = list(MODULES)
    registered: list[Any] = [*app.registered_commands, *app.registered_groups]
    for info in registered:
        info.name = info.name or info.callback.__name__
        info.rich_help_panel = next(panel for panel, commands in HELP_PANELS.items() if info.name in commands)
    app.registered_commands.sort(key=lambda info: order.index(str(info.name)))
    app.registered_groups.sort(key=lambda info: order.index(str(info.name)))
    return app


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of fishermix on one line, and those of other packages as Python does."""
    if issubclass(category, FishermixWarning):
        complain(str(message))
    else:
        (file or sys.stderr).write(warnings.formatwarning(message, category, filename, lineno))


def main() -> None:
    """Run the command line. A mistake is reported on one line, with exit code 1, or 2 for wrong options."""
    try:
        load_commands(sys.argv[1:])
        show_progress()
        warnings.showwarning = _show_warning
        code = app(prog_name="fishermix", standalone_mode=False) or 0
    except UsageError as error:
        _explain_usage(error)
        code = 2
    except FishermixError as error:
        complain(explain_error(error))
        code = 1
    except OSError as error:
        from fishermix_photos.disk import explain_os_error, is_known_os_error

        if not is_known_os_error(error):
            raise
        place = f"{error.filename}: " if error.filename else ""
        complain(f"{place}{explain_os_error(error)}")
        code = 1
    if code == 130:  # typer's code for Ctrl-C
        raise KeyboardInterrupt
    sys.exit(code)


def explain_error(error: FishermixError) -> str:
    """The message of a mistake, with the command that helps."""
    folder = shlex.quote(str(error.values.get("folder", "FOLDER")))
    return f"{error} {ADVICE[error.code].format(folder=folder)}" if error.code in ADVICE else str(error)


def _explain_usage(error: Any) -> None:
    """Report a wrong option, argument or command; help that was asked for by no arguments is printed."""
    missing = error.param.name if type(error).__name__ == "MissingParameter" else ""
    if missing in QUESTIONS:
        example = re.split("Examples?: | · ", error.ctx.command.epilog)[1]
        complain(f"{QUESTIONS[missing]} For example: {example}")
    elif message := error.format_message():
        stop = "" if message.endswith((".", "?")) else "."
        complain(f"{message}{stop} See `{error.ctx.command_path if error.ctx else 'fishermix'} --help`.")
