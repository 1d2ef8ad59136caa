"""Photos as vectors of a convolutional network."""

from typing import TYPE_CHECKING

from fishermix import lazy

if TYPE_CHECKING:
    from fishermix.vision.encoders import FusedEncoder as FusedEncoder
    from fishermix.vision.encoders import ImageEncoder as ImageEncoder
    from fishermix.vision.encoders import open_encoders as open_encoders
    from fishermix.vision.feature_cache import extract as extract
    from fishermix.vision.images import list_parts as list_parts
    from fishermix.vision.images import open_photo as open_photo
    from fishermix.vision.install import add_encoder as add_encoder

_MODULE_OF = {
    "FusedEncoder": "encoders",
    "ImageEncoder": "encoders",
    "add_encoder": "install",
    "extract": "feature_cache",
    "list_parts": "images",
    "open_encoders": "encoders",
    "open_photo": "images",
}
__all__ = [
    "FusedEncoder",
    "ImageEncoder",
    "add_encoder",
    "extract",
    "list_parts",
    "open_encoders",
    "open_photo",
]
__getattr__ = lazy.export(__name__, _MODULE_OF)
