"""The whole pipeline: sentences and photographs in, points of one joint space out."""

from typing import TYPE_CHECKING

from fishermix import lazy

if TYPE_CHECKING:
    from fishermix.model.hubness import HubnessCorrection as HubnessCorrection
    from fishermix.model.model import ImageTextModel as ImageTextModel
    from fishermix.model.recipe import Recipe as Recipe

_MODULE_OF = {
    "HubnessCorrection": "hubness",
    "ImageTextModel": "model",
    "Recipe": "recipe",
}
__all__ = [
    "HubnessCorrection",
    "ImageTextModel",
    "Recipe",
]
__getattr__ = lazy.export(__name__, _MODULE_OF)
