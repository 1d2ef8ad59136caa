"""The command line: each module of this package adds its commands to `app`. Commands open things and print
results; the library computes.
"""

from __future__ import annotations

import pkgutil
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import TextIO

import typer

from fishermix import __version__
from fishermix.__main__ import INTERRUPTED
from fishermix.errors import FishermixError, FishermixWarning
from fishermix.progress import show_progress

QUIET = ("--quiet", "-q")

app = typer.Typer(
    name="fishermix",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Find your photos with sentences and describe them, offline. Train the models that do it.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fishermix {__version__}")
        raise typer.Exit


@app.callback()
def set_options(
    quiet: bool = typer.Option(False, *QUIET, help="Print results only: no progress, no remarks."),
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    if quiet:
        show_progress(False)


def load_commands(arguments: Sequence[str] = ()) -> typer.Typer:
    """Import the modules of this package, which register their commands, and return the app.

    If `arguments` begin with a command that has a module of the same name, only that module is imported: a
    search does not wait for the options of all other commands.
    """
    command = next((argument for argument in arguments if argument not in QUIET), "")
    modules = sorted(found.name for found in pkgutil.iter_modules(__path__))
    if command in modules:
        import_module(f"{__name__}.{command}")
        if command in _list_commands():
            return app
    for module in modules:
        import_module(f"{__name__}.{module}")
    return app


def _list_commands() -> set[str | None]:
    """The commands and groups of commands that are registered so far."""
    commands = {one.name or getattr(one.callback, "__name__", None) for one in app.registered_commands}
    return commands | {group.name for group in app.registered_groups}


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of fishermix on one line, and those of other packages as Python does."""
    ours = issubclass(category, FishermixWarning)
    text = f"fishermix: {message}\n" if ours else warnings.formatwarning(message, category, filename, lineno)
    (file or sys.stderr).write(text)


def main() -> None:
    """Run the command line. A user's mistake is reported on one line, with exit code 1."""
    try:
        load_commands(sys.argv[1:])
        show_progress()
        warnings.showwarning = _show_warning
        app()
    except FishermixError as error:
        print(f"fishermix: {error}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            sys.stderr.close()
            sys.exit(141)
        from fishermix.disk import explain_os_error, is_known_os_error

        if not is_known_os_error(error):
            raise
        place = f"{error.filename}: " if error.filename else ""
        print(f"fishermix: {place}{explain_os_error(error)}", file=sys.stderr)
        sys.exit(1)
    except (KeyboardInterrupt, SystemExit) as end:
        if not _was_interrupted(end):
            raise
        print(INTERRUPTED, file=sys.stderr)
        sys.exit(130)


def _was_interrupted(end: BaseException | None) -> bool:
    """Whether Ctrl-C ended the command. Typer turns it into an exit without a word."""
    while end is not None:
        if isinstance(end, KeyboardInterrupt):
            return True
        end = end.__cause__ or end.__context__
    return False
