"""Whether a photo has colors."""

from __future__ import annotations

import numpy as np
from fishermix.errors import FishermixError
from PIL import Image

from fishermix_photos.photos.open import ImageSource, open_photo

LEAST_CHROMA = 6.0  # of 255: the compression of a gray photo adds up to about 3, and a scan is tinted
LEAST_SHARE = 0.02  # of the pixels
SIDE = 64  # pixels; small enough that the noise of a gray scan is gone


def has_colors(photo: Image.Image) -> bool:
    """Whether some of an RGB photo differs from one gray or one tint.

    In a tinted photo, such as a sepia print, the tint depends on the brightness alone.
    """
    pixels = np.asarray(photo.convert("YCbCr").resize((SIDE, SIDE), Image.Resampling.BOX), np.float32)
    brightness = pixels[..., 0].ravel() / 255
    tints = pixels[..., 1:].reshape(-1, 2)
    curve = np.stack([np.ones_like(brightness), brightness, brightness**2], axis=1)
    differences = np.abs(tints - curve @ np.linalg.lstsq(curve, tints, rcond=None)[0])
    return bool((differences.max(axis=1) > LEAST_CHROMA).mean() > LEAST_SHARE)


def look_for_colors(photo: ImageSource | None) -> bool | None:
    """Whether the photo in a file has colors; None if it cannot be read now."""
    try:
        return None if photo is None else has_colors(open_photo(photo, side=SIDE))
    except FishermixError:
        return None
