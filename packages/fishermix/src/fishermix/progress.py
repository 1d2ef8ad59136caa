"""Progress of every stage that takes more than a few seconds.

    with progress("encoding photos", total=8091) as bar:
        bar.advance(32)

Nothing is shown until `show_progress()` is called, as the command line does, or `shown=True` is passed. On a
terminal it is a bar, if the package rich is there; elsewhere it is a line on standard error every ten
seconds, and with `shown=True` also one after the first step and one at the end. Both say how long the rest
takes. `listen_to_progress` passes it on to a function as well.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any, TypeVar

T = TypeVar("T")
SECONDS_BETWEEN_LINES = 10.0
SECONDS_BEFORE_ESTIMATES = 5.0  # the first steps of a stage take longer
SECONDS_WORTH_A_LINE = 1.0  # shorter stages end without a line
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


def word_rest(seconds: float | None) -> str:
    """How long the rest of a stage takes, in words: "about 3 minutes left"."""
    if seconds is None:
        return ""
    if seconds < 10:
        return "a few seconds left"
    if seconds < 90:
        return f"about {round(seconds, -1):.0f} seconds left"
    if seconds < 90 * 60:
        return f"about {seconds / 60:.0f} minutes left"
    return f"about {seconds / 3600:.0f} hours left"


def tell_person(message: str) -> None:
    """Print a line on standard error if a person reads it, on a terminal or in a notebook.

    Nothing is printed after `show_progress(False)`, nor into files and pipes.
    """
    if _shown is not False and (_is_in_notebook() or (sys.stderr is not None and sys.stderr.isatty())):
        print(message, file=sys.stderr, flush=True)


def _is_in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


class Bar:
    """Counts the steps of a stage and passes them on to the listener; shows nothing."""

    def __init__(self, description: str, total: int | None):
        self.description = description
        self.total = total
        self.done = 0
        self.note = ""
        self._listener = _listener.get()
        self._tell()

    def advance(self, steps: int = 1, note: str | None = None) -> None:
        """Count steps; the note says what the stage is at."""
        self.done += steps
        self.note = note or ""
        self.draw()
        self._tell()

    def draw(self) -> None:
        """Show the state after a step."""

    def _tell(self) -> None:
        if self._listener is not None:
            self._listener(self.description, self.done, self.total)


class _Lines(Bar):
    """A line every ten seconds; with `always` also after the first step and at the end."""

    def __init__(self, description: str, total: int | None, always: bool):
        super().__init__(description, total)
        self.always = always
        self.spoken = 0
        self.started = self.spoke = time.monotonic()

    def draw(self) -> None:
        due = time.monotonic() - self.spoke >= SECONDS_BETWEEN_LINES
        if due or (self.always and not self.spoken):
            self._say(self.note)

    def finish(self) -> None:
        if self.always or time.monotonic() - self.started >= SECONDS_WORTH_A_LINE:
            self._say(f"{self.note}, done" if self.note else "done")

    def _say(self, note: str) -> None:
        self.spoke = time.monotonic()
        self.spoken += 1
        of = f"/{self.total}" if self.total else ""
        elapsed = self.spoke - self.started
        rest = None
        if self.total and 0 < self.done < self.total and elapsed >= SECONDS_BEFORE_ESTIMATES:
            rest = elapsed * (self.total - self.done) / self.done
        tail = "".join(f" ({text})" for text in (note, word_rest(rest)) if text)
        print(f"{self.description}: {self.done}{of} after {elapsed:.0f} s{tail}", file=sys.stderr, flush=True)


class _Terminal(Bar):
    """A bar of the package rich."""

    def __init__(self, description: str, total: int | None, bars: Any):
        super().__init__(description, total)
        self.bars = bars
        self.task = bars.add_task("", total=total)
        self.draw()

    def draw(self) -> None:
        from rich.markup import escape

        text = f"{self.description} ({self.note})" if self.note else self.description
        self.bars.update(self.task, completed=self.done, description=escape(text))


@contextmanager
def progress(description: str, total: int | None = None, shown: bool | None = None) -> Iterator[Bar]:
    """A bar for `total` steps (None: unknown)."""
    if not (is_shown() if shown is None else shown):
        yield Bar(description, total)
    elif sys.stderr.isatty() and find_spec("rich") is not None:  # the photo package brings it
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
        from rich.text import Text

        class RestColumn(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text("" if task.finished else word_rest(task.time_remaining))

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), RestColumn())
        with Progress(*columns, console=Console(stderr=True), transient=False) as bars:
            yield _Terminal(description, total, bars)
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
