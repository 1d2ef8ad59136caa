"""`njit` for the kernels: numba's, with compiled code kept on disk where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

from fishermix.errors import FishermixError, install_command, warn_user
from fishermix.progress import tell_person

HAS_NUMBA = find_spec("numba") is not None  # the extra `compiled`; photo search does without it


def njit(**options: Any) -> Callable[[Callable], Any]:
    """Compile a function at its first call, and keep the result for the next process.

    numba writes it next to the module, or into the cache folder of the user, or to NUMBA_CACHE_DIR. If none
    of them is writable, as in a read-only container, every process compiles again, and one warning says so.
    """
    if not HAS_NUMBA:
        raise FishermixError(
            f"This needs numba. Run: {install_command('fishermix[compiled]')}", code="missing_package"
        )
    import numba

    _watch_compiler()
    # No rewrites: the kernels have no array expressions to fuse.
    always: dict[str, Any] = {
        "error_model": "numpy",
        "nogil": True,
        "no_cfunc_wrapper": True,
        "no_rewrites": True,
    }
    options = {**always, **options}

    def decorate(function: Callable) -> Any:
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError as error:
            if "cannot cache function" not in str(error):
                raise
        _warn_once()
        return numba.njit(**options)(function)

    return decorate


def njit_inner(**options: Any) -> Callable[[Callable], Any]:
    """Compile a function that only other compiled functions of the same file call.

    It is kept on disk as a part of these. What Python would need to call it is not compiled.
    """
    import numba

    settings = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True, **options}
    return numba.njit(**settings)


@cache
def _watch_compiler() -> None:
    """Say once that numba compiles a function of fishermix."""
    from numba.core import event

    class Watcher(event.Listener):
        said = False

        def on_start(self, event: Any) -> None:
            module = str(event.data["dispatcher"].py_func.__module__)  # None for code made by exec
            if module.startswith("fishermix.") and not self.said:
                self.said = True
                tell_person("fishermix: compiling for this processor, once; this takes a few seconds.")

        def on_end(self, event: Any) -> None:
            pass

    event.register("numba:compile", Watcher())


@cache
def _warn_once() -> None:
    warn_user(
        "Compiled code cannot be kept: neither the installation nor the home folder is writable, so each "
        "process spends some seconds compiling. Set NUMBA_CACHE_DIR to a writable folder to avoid this."
    )
