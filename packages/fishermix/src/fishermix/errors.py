"""The one exception that a user's mistake raises, the one warning that a user can act on, and the command
that installs what is missing.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

DAMAGED = "The file is damaged."
# What a disk or the system fails with, whatever the file contains
FAILURES = {errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT}
READ_AGAIN = 1 << 28  # bytes; a file with holes takes no space, whatever its size
# Packages whose lines a warning should not point at
INSIDE = ("fishermix", "fishermix_photos", "fishermix_lab", "sklearn", "importlib")


class FishermixError(ValueError):
    """A mistake that the user can fix: the message says what is wrong, where, and how to fix it.

    The command line prints the message without a traceback and exits with code 1.

    code : the kind of mistake, such as "not_finite"; a subclass may have one of its own
    values : what the message is about, by name, for programs that word it in their own way
    """

    code = "error"

    def __init__(self, message: str = "", *, code: str | None = None, **values: object):
        super().__init__(message)
        self.code = code or type(self).code
        self.values = values


class FishermixWarning(UserWarning):
    """A result that the user should check: the message says what happened and what to change.

    The command line prints the message on one line; warnings of other packages keep Python's format.
    """


def warn_user(message: str, category: type[Warning] = FishermixWarning) -> None:
    """Warn, and point at the line of the user's program that called fishermix.

    scikit-learn's wrappers of `fit` lie between the two, so a fixed `stacklevel` would point at them.
    """
    level, frame = 2, sys._getframe(1)  # level 2 is the caller of this function
    while frame.f_back and (module := frame.f_globals.get("__name__", "")).partition(".")[0] in INSIDE:
        frame = frame.f_back
        level += not module.startswith("importlib._bootstrap")  # `warn` does not count these
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def explain_damage(path: str | os.PathLike, advice: str = DAMAGED) -> Iterator[None]:
    """Whatever another package raises while it parses the file at `path` becomes one error.

    A parser of a damaged file raises classes that its documentation does not list, so all are caught here,
    and only here. Put nothing but the call of the parser into the block. If the disk has failed, and not the
    parser, the `OSError` says so.
    """
    try:
        yield
    except FishermixError:
        raise
    except Exception as error:
        if failure := _find_failure(error, path):
            raise failure from error
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise FishermixError(f"{path} cannot be read ({reason}). {advice}", code="damaged") from error


def _find_failure(error: Exception, path: str | os.PathLike) -> OSError | None:
    """Why a sound file could not be read, if so: a parser may call that damage, or say that there is none."""
    number = getattr(error, "errno", None) or 0
    if found := re.search(r"(?:os error|system error number) (\d+)", str(error)):
        number = int(found[1])
    try:
        with open(path, "rb") as file:
            for _ in range(READ_AGAIN >> 20):
                file.read(1 << 20)
        if isinstance(error, FileNotFoundError):  # as safetensors calls it whatever the cause
            number = errno.EIO
    except OSError as failed:
        number = failed.errno or 0
    return OSError(number, os.strerror(number), os.fspath(path)) if number in FAILURES else None


def install_command(extra: str) -> str:
    """The command that installs what an extra such as "fishermix[dask]" needs.

    pip takes the extras of an installed distribution from its metadata, also if no package index has it. In
    an environment of pipx, the pip of the shell would install the packages elsewhere.
    """
    is_pipx = os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json"))
    return f"{'pipx runpip fishermix-photos' if is_pipx else 'pip'} install '{extra}'"
