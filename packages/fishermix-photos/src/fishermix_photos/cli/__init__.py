"""The command line: each module of this package adds its commands to `app`. Commands parse options, call one
method of the package and print what it returns.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TextIO, TypeVar

import typer
from fishermix import __version__
from fishermix.errors import FishermixError, FishermixWarning, install_command
from fishermix.progress import show_progress
from typer.core import TyperCommand, TyperGroup

from fishermix_photos import find_commit
from fishermix_photos.cli.common import complain

Function = TypeVar("Function", bound=Callable[..., Any])

QUIET = ("--quiet", "-q")
UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # click's, of which typer may have a copy

# The commands and their modules, in the order of `fishermix --help`.
MODULES = {
    "search": "search",
    "serve": "serve",
    "caption": "describe",
    "annotate": "describe",
    "explain": "describe",
    "duplicates": "duplicates",
    "library": "library",
    "doctor": "doctor",
    "demo": "demo",
    "networks": "networks",
}
MAINTENANCE = ("doctor", "demo", "networks")
# Other distributions add commands as modules in this group of entry points. A name with a dot adds to a group
# of commands: "networks.tune".
PLUGINS = "fishermix.commands"
# What fishermix-lab adds, so that it can be named where it is not installed.
LAB_COMMANDS = ("train", "evaluate", "reproduce", "captioner", "vectors", "networks tune")
# What other programs call these commands.
OTHER_NAMES = {
    "search": "find query ask look grep similar like",
    "library add": "index add import scan reindex embed ingest upload init",
    "library update": "update sync refresh rescan",
    "library list": "list ls status folders stats",
    "library remove": "remove rm delete forget",
    "serve": "server web ui gui start open run browse show",
    "caption": "describe captions",
    "annotate": "tag label tags",
    "duplicates": "dedupe dedup dupes duplicate copies",
    "doctor": "check verify info diagnose repair",
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
}


class Command(TyperCommand):
    """A command whose help names values by their option, as argparse does, and shows no types."""

    examples: Sequence[str] = ()

    def __init__(self, name: str | None, *, help: str | None = None, **settings: Any) -> None:
        # Typer breaks lines where the source does.
        super().__init__(name, help=re.sub(r"(?<!\n)\n(?!\n)", " ", help or ""), **settings)

    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_types(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = super().collect_usage_pieces(ctx)
        return [re.sub(r"\[(\w+)\]\.\.\.", r"[\1...]", re.sub("[{}]", "", piece)) for piece in pieces]


class QueryCommand(Command):
    """A command whose first arguments are a query. Explains a minus without a space, which the command line
    takes for options.
    """

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [parameter for parameter in self.params if parameter.param_type_name == "argument"]
        return ["[OPTIONS]", *(str(argument.metavar) for argument in arguments)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, list(args))
        except UsageError:
            word = next((arg for arg in args if re.fullmatch(r"-[^\W\d_][\w\s'-]+", arg)), None)
            if word is None:
                raise
            terms = [part for arg in args for part in (("-", arg[1:]) if arg == word else (arg,))]
            raise FishermixError(
                f"{word} was read as options. To subtract a word, put a space after the minus: "
                f"`fishermix {ctx.info_name} {shlex.join(terms)}`.",
                code="wrong_query",
            ) from None


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

    def command(
        self,
        name: str | None = None,
        *,
        examples: Sequence[str] = (),
        cls: type[TyperCommand] | None = None,
        **settings: Any,
    ) -> Callable[[Function], Function]:
        """Add a command with examples: its help shows all, a missing argument the first."""
        title = "Example: " if len(examples) == 1 else "Examples: "
        shown = type("CommandWithExamples", (cls or Command,), {"examples": examples})
        return super().command(name, cls=shown, epilog=title + " · ".join(examples), **settings)


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

    If `arguments` begin with a command of this package, only its module is imported: a search waits neither
    for the options of all other commands nor for the look for plug-ins.
    """
    name = next((argument for argument in arguments if argument not in QUIET), "")
    modules = [MODULES[name]] if name in MODULES else MODULES.values()
    for module in dict.fromkeys(modules):
        import_module(f"{__name__}.{module}")
    if name not in MODULES:
        load_plugins("")
    elif name == "networks":
        load_plugins("networks.")
    order = [*MODULES, *LAB_COMMANDS]
    registered: list[Any] = [*app.registered_commands, *app.registered_groups]
    for info in registered:
        info.name = info.name or info.callback.__name__
        if info.name in MAINTENANCE:
            info.rich_help_panel = "Maintenance"
        elif info.name in MODULES:
            info.rich_help_panel = "Your photos"
        else:
            info.rich_help_panel = "Train and reproduce"

    def place(info: Any) -> int:
        return order.index(info.name) if info.name in order else len(order)

    app.registered_commands.sort(key=place)
    app.registered_groups.sort(key=place)
    return app


def load_plugins(prefix: str) -> None:
    """Import the plug-ins whose names begin with `prefix`."""
    from importlib.metadata import entry_points

    for plugin in entry_points(group=PLUGINS):
        if plugin.name.startswith(prefix):
            plugin.load()


def find_missing_package(arguments: Sequence[str]) -> str | None:
    """How to install fishermix-lab, if `arguments` begin with a command that it would add."""
    words = [argument for argument in arguments if argument not in QUIET]
    command = " ".join(words[:2]) if words[:1] == ["networks"] else " ".join(words[:1])
    if command not in LAB_COMMANDS or find_spec("fishermix_lab"):
        return None
    return f"`fishermix {command}` is part of fishermix-lab. Run: {install_command('fishermix-lab')}"


def find_meant_command(arguments: Sequence[str]) -> str | None:
    """The command that is meant, if `arguments` begin with what others call it, or with a sentence."""
    words = [argument for argument in arguments if argument not in QUIET]
    if not words or words[0].startswith("-") or words[0] in (*MODULES, *LAB_COMMANDS):
        return None
    meant = next((name for name, others in OTHER_NAMES.items() if words[0] in others.split()), None)
    if meant is not None:
        return f"Did you mean `fishermix {shlex.join([*meant.split(), *words[1:]])}`?"
    if " " in words[0] or (len(words) > 1 and os.path.isdir(os.path.expanduser(words[-1]))):
        return f"Did you mean `fishermix {shlex.join(['search', *words])}`?"
    return None


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
        hint = find_missing_package(sys.argv[1:]) or find_meant_command(sys.argv[1:])
        complain(hint) if hint else _explain_usage(error)
        code = 2
    except FishermixError as error:
        complain(explain_error(error))
        code = 1
    except OSError as error:
        if error.errno is None:  # of a package, not of the system
            raise
        from fishermix_photos.disk import explain_os_error

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
        complain(f"{QUESTIONS[missing]} For example: {error.ctx.command.examples[0]}")
    elif message := error.format_message():
        stop = "" if message.endswith((".", "?")) else "."
        complain(f"{message}{stop} See `{error.ctx.command_path if error.ctx else 'fishermix'} --help`.")
