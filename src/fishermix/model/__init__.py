"""The whole pipeline: sentences and photographs in, points of one joint space out."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fishermix.model.model import ImageTextModel as ImageTextModel

__all__ = ["ImageTextModel"]


def __getattr__(name: str):
    # Imported on first use, so that `fishermix.model.hubness` and the like load alone.
    if name in __all__:
        return getattr(import_module("fishermix.model.model"), name)
    raise AttributeError(f"module 'fishermix.model' has no attribute '{name}'")
