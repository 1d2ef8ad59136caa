"""The one exception that a user's mistake raises, the one warning that a user can act on, and the command
that installs what is missing.
"""

from __future__ import annotations

import os
import sys
import warnings

# Packages whose lines a warning should not point at
INSIDE = ("fishermix", "fishermix_photos", "sklearn", "importlib")


class FishermixError(ValueError):
    """A mistake that the user can fix: the message says what is wrong, where, and how to fix it.

    The command line prints the message without a traceback and exits with code 1.

    code : the kind of mistake; each subclass has its own
    values : what the message is about, by name, for programs that word it in their own way
    """

    code = "error"

    def __init__(self, message: str = "", **values: object):
        super().__init__(message)
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


def install_command(extra: str) -> str:
    """The command that installs what an extra such as "fishermix[dask]" needs.

    pip takes the extras of an installed distribution from its metadata, also if no package index has it. In
    an environment of pipx, the pip of the shell would install the packages elsewhere.
    """
    is_pipx = os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json"))
    return f"{'pipx runpip fishermix-photos' if is_pipx else 'pip'} install '{extra}'"
