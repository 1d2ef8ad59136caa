"""Progress of every stage that takes more than a few seconds.

    with progress("encoding photos", total=8091) as bar:
        bar.advance(32)

Nothing is shown until `show_progress()` is called, as the command line does, or `shown=True` is passed. On a
terminal it is a rich bar, and in a Jupyter notebook a bar below the cell; elsewhere it is a line on standard
error every ten seconds, and with `shown=True` also one after the first step and one at the end.
`listen_to_progress` passes it on to a function as well.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

T = TypeVar("T")
SECONDS_BETWEEN_LINES = 10.0
SECONDS_WORTH_A_LINE = 1.0  # shorter stages end without a line
SECONDS_BETWEEN_FRAMES = 0.2  # of a bar in a notebook: each is a message to the browser
_shown: bool | None = None  # None: nobody has asked to show or to hide anything
Listener = Callable[[str, int, int | None], None]  # the description, the steps done, their total
_listener: ContextVar[Listener | None] = ContextVar("_listener", default=None)


@contextmanager
def listen_to_progress(listener: Listener) -> Iterator[None]:
    """Call `listener` at the start and after each step of all progress of this thread. What it raises ends
    the work.
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def show_progress(shown: bool = True) -> None:
    """Show or hide the progress of everything that follows in this process."""
    global _shown
    _shown = shown


def is_shown() -> bool:
    """Whether this process shows progress and remarks."""
    return bool(_shown)


def tell_person(message: str) -> None:
    """Print a line on standard error if a person reads it, on a terminal or in a notebook.

    Nothing is printed after `show_progress(False)`, nor into files and pipes.
    """
    if _shown is not False and (_is_in_notebook() or (sys.stderr is not None and sys.stderr.isatty())):
        print(message, file=sys.stderr, flush=True)


class Bar(Protocol):
    def advance(self, steps: int = 1, note: str | None = None) -> None: ...


class _Silent:
    def advance(self, steps: int = 1, note: str | None = None) -> None:
        pass


class _Heard:
    """Passes the steps of a bar on to a listener."""

    def __init__(self, bar: Bar, listener: Listener, description: str, total: int | None):
        self.bar, self.listener, self.description, self.total, self.done = (
            bar,
            listener,
            description,
            total,
            0,
        )
        listener(description, 0, total)

    def advance(self, steps: int = 1, note: str | None = None) -> None:
        self.bar.advance(steps, note)
        self.done += steps
        self.listener(self.description, self.done, self.total)


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
        if self.always or time.monotonic() - self.started >= SECONDS_WORTH_A_LINE:
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
        self.bars.update(self.task, advance=steps, description=_describe(self.description, note))


class _Notebook:
    """A bar below a cell, redrawn in place."""

    def __init__(self, description: str, total: int | None):
        from IPython.display import display

        self.description, self.total, self.done, self.note = description, total, 0, ""
        self.drawn = time.monotonic()
        self.handle = display(self, display_id=True)

    def advance(self, steps: int = 1, note: str | None = None) -> None:
        self.done += steps
        self.note = note or ""
        if time.monotonic() - self.drawn >= SECONDS_BETWEEN_FRAMES:
            self.draw()

    def draw(self) -> None:
        self.drawn = time.monotonic()
        self.handle.update(self)

    def __repr__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"{self.description}: {self.done}{f'/{self.total}' if self.total else ''}{note}"

    def _repr_html_(self) -> str:
        from html import escape

        value = f' value="{min(self.done, self.total)}" max="{self.total}"' if self.total else ""
        return f"<progress{value}></progress> {escape(repr(self))}"


def _is_in_notebook() -> bool:
    """Whether the output of this process goes to a Jupyter notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def _describe(description: str, note: str | None) -> str:
    from rich.markup import escape

    return escape(f"{description} ({note})" if note else description)


@contextmanager
def progress(description: str, total: int | None = None, shown: bool | None = None) -> Iterator[Bar]:
    """A bar for `total` steps (None: unknown)."""
    with _show(description, total, shown) as bar:
        listener = _listener.get()
        yield bar if listener is None else _Heard(bar, listener, description, total)


@contextmanager
def _show(description: str, total: int | None, shown: bool | None) -> Iterator[Bar]:
    if not (is_shown() if shown is None else shown):
        yield _Silent()
    elif _is_in_notebook():
        bar = _Notebook(description, total)
        yield bar
        bar.draw()
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=False) as bars:
            yield _Rich(bars, bars.add_task(_describe(description, None), total=total), description)
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
