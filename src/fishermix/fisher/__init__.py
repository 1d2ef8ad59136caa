"""Fisher vectors of sets of vectors."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fishermix.fisher.encoder import FisherEncoder as FisherEncoder

__all__ = ["FisherEncoder"]


def __getattr__(name: str):
    # Imported on first use: a search needs the scores and not scikit-learn.
    if name in __all__:
        return getattr(import_module("fishermix.fisher.encoder"), name)
    raise AttributeError(f"module 'fishermix.fisher' has no attribute '{name}'")
