"""The command line: every module of this package adds its commands to `app`, thin layers over the library."""

from __future__ import annotations

import pkgutil
import sys
import warnings
from importlib import import_module
from typing import TextIO

import typer

from fishermix import __version__
from fishermix.errors import FishermixError
from fishermix.progress import show_progress

app = typer.Typer(
    name="fishermix",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Find and describe your own photos with sentences, offline; and the tools behind it.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fishermix {__version__}")
        raise typer.Exit


@app.callback()
def common(
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show no progress."),
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    show_progress(not quiet)


def load_commands() -> typer.Typer:
    """Import every module of this package, each of which registers its commands; returns the whole app."""
    for module in sorted(found.name for found in pkgutil.iter_modules(__path__)):
        import_module(f"{__name__}.{module}")
    return app


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A remark of ours in one line; those of other packages as Python prints them."""
    ours = category is UserWarning
    text = f"fishermix: {message}\n" if ours else warnings.formatwarning(message, category, filename, lineno)
    (file or sys.stderr).write(text)


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error and exit code 1."""
    load_commands()
    warnings.showwarning = _show_warning
    try:
        app()
    except FishermixError as error:
        print(f"fishermix: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("fishermix: interrupted; finished parts are kept", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
