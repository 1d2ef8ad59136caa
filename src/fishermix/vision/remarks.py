"""Collects what other packages have to say about a picture while they decode it.

Pillow warns of damaged metadata by Python's `warnings`, which belong to the whole process; photos are
decoded by several threads. So while any thread collects, one hook passes each warning to the list of the
thread that caused it.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()
_thread = threading.local()
_collecting = 0
_before: Any = None


@contextmanager
def collect_remarks() -> Iterator[list[str]]:
    """A list that receives the warnings that this thread causes, in place of the terminal."""
    remarks: list[str] = []
    outer, _thread.remarks = getattr(_thread, "remarks", None), remarks
    _begin()
    try:
        yield remarks
    finally:
        _end()
        _thread.remarks = outer


def _begin() -> None:
    global _collecting, _before
    with _lock:
        _collecting += 1
        if _collecting == 1:
            _before = warnings.catch_warnings()
            _before.__enter__()
            shown = warnings.showwarning
            # Without this, Python passes on only the first warning of each line of code.
            warnings.filterwarnings("always", module=r"PIL\b")

            def pass_on(message, category, filename, lineno, file=None, line=None):
                remarks = getattr(_thread, "remarks", None)
                if remarks is None:
                    shown(message, category, filename, lineno, file, line)
                else:
                    remarks.append(str(message))

            warnings.showwarning = pass_on


def _end() -> None:
    global _collecting, _before
    with _lock:
        _collecting -= 1
        if not _collecting:
            _before.__exit__(None, None, None)
            _before = None
