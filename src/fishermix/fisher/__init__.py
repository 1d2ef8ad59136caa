"""Fisher vectors of sets of vectors."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fishermix.fisher.encoder import FisherEncoder as FisherEncoder
    from fishermix.fisher.sets import OnRows as OnRows

_MODULE_OF = {"FisherEncoder": "fishermix.fisher.encoder", "OnRows": "fishermix.fisher.sets"}
__all__ = ["FisherEncoder", "OnRows"]


def __getattr__(name: str):
    # Imported on first use: a search needs the scores and not scikit-learn.
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'fishermix.fisher' has no attribute '{name}'")
