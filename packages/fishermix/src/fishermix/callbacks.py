"""Callbacks of scikit-learn, such as its `ProgressBar` or an early stop; it has them from version 1.9 on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

Method = TypeVar("Method", bound=Callable)

if TYPE_CHECKING:  # scikit-learn has no types

    class CallbackSupportMixin:
        def set_callbacks(self, *callbacks: Any) -> Self: ...

    def with_callbacks(method: Method) -> Method: ...

else:
    try:
        from sklearn.callback import CallbackSupportMixin, with_callbacks
    except ImportError:

        class CallbackSupportMixin:
            """Nothing: this scikit-learn has no callbacks."""

        def with_callbacks(method: Method) -> Method:
            return method


__all__ = ["CallbackSupportMixin", "FitCallbacks", "fit_with_callbacks", "with_callbacks"]


class FitCallbacks:
    """Calls the callbacks of an estimator at the starts and iterations of its fit.

    Starts are the tasks of the fit, and iterations those of a start. A callback that returns True after an
    iteration ends the start, and one that returns True after a start ends the fit.
    """

    def __init__(self, estimator: Any, X: Any, sample_weight: Any, n_starts: int, max_iter: int):
        self.estimator, self.max_iter, self.stopped = estimator, max_iter, False
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        self.given = {"estimator": estimator, "X": X, "metadata": metadata}
        self.fit: Any = None
        self.start: Any = None
        self.iteration: Any = None
        if hasattr(estimator, "_skl_callbacks"):
            self.fit = estimator._init_callback_context(max_subtasks=n_starts)
            self.fit.call_on_fit_task_begin(**self.given)

    def begin_iteration(self) -> None:
        """Begin an iteration, and first a start if none has begun."""
        if self.fit is None:
            return
        if self.start is None:
            self.start = self.fit.subcontext(task_name="start", max_subtasks=self.max_iter)
            self.start.call_on_fit_task_begin(**self.given)
        self.iteration = self.start.subcontext(task_name="iteration")
        self.iteration.call_on_fit_task_begin(**self.given)

    def end_iteration(self, describe: Callable[[], dict[str, Any]]) -> bool:
        """End the iteration; return whether a callback wants the start to end.

        `describe` returns the attributes of an estimator that was fitted until here.
        """
        return self._end(self.iteration, describe)

    def end_start(self, describe: Callable[[], dict[str, Any]]) -> bool:
        """End the start; return whether a callback wants the fit to end."""
        ended, self.start = self.start, None
        return self._end(ended, describe)

    def end(self) -> None:
        """End the fit of an estimator that has its attributes."""
        self._end(self.fit, dict)

    def _end(self, task: Any, describe: Callable[[], dict[str, Any]]) -> bool:
        if task is None:
            return False
        stops = task.call_on_fit_task_end(**self.given, reconstruction_attributes=describe)
        self.stopped |= stops
        return stops


@contextmanager
def fit_with_callbacks(estimator: Any, part: Any) -> Iterator[None]:
    """Pass callbacks of an estimator on to a part of it, while that is fitted."""
    if not hasattr(estimator, "_skl_callbacks"):
        yield
        return
    fit = estimator._init_callback_context(max_subtasks=1)
    fit.call_on_fit_task_begin(estimator=estimator)
    task = fit.subcontext(task_name=f"fit {type(part).__name__}")
    with task.propagate_callback_context(part):
        task.call_on_fit_task_begin(estimator=estimator)
        yield
        task.call_on_fit_task_end(estimator=estimator)
    fit.call_on_fit_task_end(estimator=estimator)
