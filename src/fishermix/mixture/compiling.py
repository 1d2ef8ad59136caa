"""`njit` for the kernels: numba's, with compiled code kept on disk where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

from fishermix.errors import warn_user

_warned = False


def njit(**options: Any) -> Callable[[Callable], Any]:
    """Compile a function at its first call, and keep the result for the next process.

    numba writes it next to the module, or into the cache folder of the user, or to NUMBA_CACHE_DIR. If none
    of them is writable, as in a read-only container, every process compiles again, and one warning says so.
    """

    def decorate(function: Callable) -> Any:
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError as error:
            if "cannot cache function" not in str(error):
                raise
        _warn_once()
        return numba.njit(**options)(function)

    return decorate


def _warn_once() -> None:
    global _warned
    if not _warned:
        _warned = True
        warn_user(
            "Compiled code cannot be kept: neither the installation nor the home folder is writable, so each "
            "process spends some seconds compiling. Set NUMBA_CACHE_DIR to a writable folder to avoid this."
        )
