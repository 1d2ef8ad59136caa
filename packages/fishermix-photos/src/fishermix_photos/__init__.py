"""Find your own photos with a sentence, offline: photo library, model, command line and page."""

from typing import TYPE_CHECKING

from fishermix import __version__ as __version__
from fishermix import export_lazily

if TYPE_CHECKING:
    from fishermix_photos.library import PhotoLibrary as PhotoLibrary
    from fishermix_photos.model import ImageTextModel as ImageTextModel
    from fishermix_photos.results import Query as Query
    from fishermix_photos.vision.encoder import ImageEncoder as ImageEncoder

_MODULE_OF = {
    "ImageEncoder": "vision.encoder",
    "ImageTextModel": "model",
    "PhotoLibrary": "library",
    "Query": "results",
}
__all__ = ["ImageEncoder", "ImageTextModel", "PhotoLibrary", "Query", "__version__"]
__getattr__ = export_lazily(__name__, _MODULE_OF)
