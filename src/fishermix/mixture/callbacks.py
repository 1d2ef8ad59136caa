"""Progress and stopping early: scikit-learn's callbacks, where its version has them, and the progress bar."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from fishermix.mixture.em import State
from fishermix.progress import progress

F = TypeVar("F", bound=Callable[..., Any])

if TYPE_CHECKING:

    class CallbackSupportMixin:
        """scikit-learn's class, for type checkers."""

    def with_callbacks(method: F) -> F:
        """scikit-learn's decorator, for type checkers: it keeps the types of a method."""
        return method

else:
    try:
        from sklearn.callback import CallbackSupportMixin, with_callbacks
    except ImportError:  # scikit-learn before 1.9

        class CallbackSupportMixin:
            """Stands in for scikit-learn's class."""

        def with_callbacks(method):
            return method


class IterationCallbacks:
    """One task for the fit and one for each iteration of EM.

    A callback whose `on_fit_task_end` returns True ends the fit after that iteration. `fitted` returns the
    fitted attributes of a state, for callbacks that need a fitted estimator.
    """

    def __init__(
        self,
        estimator: Any,
        X: Any,
        sample_weight: Any,
        max_iter: int,
        fitted: Callable[[State], dict[str, Any]],
    ):
        self.estimator, self.max_iter, self.fitted = estimator, max_iter, fitted
        self.given = {"X": X, "metadata": {"sample_weight": sample_weight}}
        self.exits = ExitStack()
        self.task: Any = None

    def __enter__(self) -> IterationCallbacks:
        shown = True if self.estimator.verbose else None
        name = f"fitting {type(self.estimator).__name__}"
        self.bar = self.exits.enter_context(progress(name, total=self.max_iter, shown=shown))
        if hasattr(self.estimator, "_init_callback_context"):
            self.task = self.estimator._init_callback_context(max_subtasks=self.max_iter)
            self.task.call_on_fit_task_begin(estimator=self.estimator, **self.given)
        return self

    def before_iteration(self) -> None:
        """Report the begin of an iteration."""
        if self.task is not None:
            self.iteration = self.task.subcontext(task_name="iteration")
            self.iteration.call_on_fit_task_begin(estimator=self.estimator, **self.given)

    def after_iteration(self, state: State) -> bool:
        """Report the end of an iteration; return whether a callback asks to stop."""
        self.bar.advance(1, note=f"log likelihood {state.lower_bounds[-1]:.4f}")
        if self.task is None:
            return False
        stop = self.iteration.call_on_fit_task_end(
            estimator=self.estimator, reconstruction_attributes=lambda: self.fitted(state), **self.given
        )
        return bool(stop)

    def __exit__(self, *error: Any) -> None:
        self.exits.__exit__(*error)
        if self.task is not None:
            self.task.call_on_fit_task_end(estimator=self.estimator, **self.given)
