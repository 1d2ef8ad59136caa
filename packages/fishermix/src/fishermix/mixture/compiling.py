"""`njit` for the kernels: numba's, with compiled code kept on disk where that is possible."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import cache
from typing import Any

from fishermix.errors import warn_user
from fishermix.progress import tell_person


def njit(**options: Any) -> Callable[[Callable], Any]:
    """Compile a function at its first call, and keep the result for the next process.

    numba writes it next to the module, or into the cache folder of the user, or to NUMBA_CACHE_DIR. If none
    of them is writable, as in a read-only container, every process compiles again, and one warning says so.
    """
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
    """Say once that numba compiles a function of fishermix, and let no garbage be collected meanwhile.

    The compiler makes a million objects. To look through them again and again takes a tenth of its time.
    """
    from numba.core import event

    class Watcher(event.Listener):
        depth, said, collected = 0, False, False

        def on_start(self, event: Any) -> None:
            if not _is_ours(event):
                return
            if not self.said:
                self.said = True
                tell_person("fishermix: compiling for this processor, once; this takes a few seconds.")
            if self.depth == 0:
                self.collected = gc.isenabled()
                gc.disable()
            self.depth += 1

        def on_end(self, event: Any) -> None:
            if not _is_ours(event):
                return
            self.depth -= 1
            if self.depth == 0 and self.collected:
                gc.enable()

    event.register("numba:compile", Watcher())


def _is_ours(event: Any) -> bool:
    module = str(event.data["dispatcher"].py_func.__module__)  # None for code made by exec
    return module.startswith("fishermix.")


@cache
def _warn_once() -> None:
    warn_user(
        "Compiled code cannot be kept: neither the installation nor the home folder is writable, so each "
        "process spends some seconds compiling. Set NUMBA_CACHE_DIR to a writable folder to avoid this."
    )
