"""One small progress interface for every stage that takes more than a few seconds.

    with progress("encoding photos", total=8091) as bar:
        bar.advance(32)

A library is silent unless asked: nothing is shown until `show_progress()` was called (the command line does)
or `shown=True` is passed. On a terminal it is a rich bar; elsewhere a line on standard error now and then,
with `shown=True` also for the first step and at the end, however quick.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Protocol, TypeVar

T = TypeVar("T")
SECONDS_BETWEEN_LINES = 10.0
_shown = False


def show_progress(shown: bool = True) -> None:
    """Show, or hide, the progress of everything that follows in this process."""
    global _shown
    _shown = shown


def is_shown() -> bool:
    """Whether progress is shown in this process."""
    return _shown


class Bar(Protocol):
    def advance(self, steps: int = 1, note: str | None = None) -> None: ...


class _Silent:
    def advance(self, steps: int = 1, note: str | None = None) -> None:
        pass


class _Lines:
    def __init__(self, description: str, total: int | None, always: bool):
        self.description, self.total, self.done, self.note = description, total, 0, ""
        self.started = self.spoke = time.monotonic()
        self.always = always

    def advance(self, steps: int = 1, note: str | None = None) -> None:
        first = self.done == 0
        self.done += steps
        self.note = note or ""
        if (first and self.always) or time.monotonic() - self.spoke >= SECONDS_BETWEEN_LINES:
            self.say(self.note)

    def finish(self) -> None:
        if self.always or time.monotonic() - self.started >= 1:
            self.say(f"{self.note}, done" if self.note else "done")

    def say(self, note: str) -> None:
        self.spoke = time.monotonic()
        of = f"/{self.total}" if self.total else ""
        tail = f" ({note})" if note else ""
        elapsed = self.spoke - self.started
        print(f"{self.description}: {self.done}{of} after {elapsed:.0f} s{tail}", file=sys.stderr, flush=True)


class _Rich:
    def __init__(self, bars, task, description: str):
        self.bars, self.task, self.description = bars, task, description

    def advance(self, steps: int = 1, note: str | None = None) -> None:
        self.bars.update(self.task, advance=steps, description=_described(self.description, note))


def _described(description: str, note: str | None) -> str:
    from rich.markup import escape

    return escape(f"{description} ({note})" if note else description)


@contextmanager
def progress(description: str, total: int | None = None, shown: bool | None = None) -> Iterator[Bar]:
    """A bar for `total` steps (unknown when None)."""
    if not (_shown if shown is None else shown):
        yield _Silent()
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=False) as bars:
            yield _Rich(bars, bars.add_task(_described(description, None), total=total), description)
    else:
        lines = _Lines(description, total, always=bool(shown))
        yield lines
        lines.finish()


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Iterate over `items` with a bar."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with progress(description, total) as bar:
        for item in items:
            yield item
            bar.advance()
