"""An LSTM that writes sentences for photos."""

from typing import TYPE_CHECKING

from fishermix import lazy

if TYPE_CHECKING:
    from fishermix.caption.batches import CaptionSet as CaptionSet
    from fishermix.caption.captioner import Captioner as Captioner
    from fishermix.caption.recipe import Recipe as Recipe
    from fishermix.caption.trainer import Training as Training

_MODULE_OF = {
    "CaptionSet": "batches",
    "Captioner": "captioner",
    "Recipe": "recipe",
    "Training": "trainer",
}
__all__ = [
    "CaptionSet",
    "Captioner",
    "Recipe",
    "Training",
]
__getattr__ = lazy.export(__name__, _MODULE_OF)
