"""Ranks of the paper's tasks and measures of captions."""

from importlib import import_module

__all__ = ["figures", "recall_sum", "task_ranks"]  # of 0.1, where this package was one module


def __getattr__(name: str):
    if name in __all__:
        return getattr(import_module("fishermix.evaluation.ranks"), name)
    raise AttributeError(f"module 'fishermix.evaluation' has no attribute '{name}'")
