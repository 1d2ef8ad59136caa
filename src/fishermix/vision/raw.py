"""RAW photos, by LibRaw (package rawpy): the preview that the camera embedded, or else the sensor's data."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

# How LibRaw says that the camera was turned, as an EXIF orientation.
ORIENTATION_OF_FLIP = {0: 1, 3: 3, 5: 8, 6: 6}


def open_raw(data: bytes):
    """LibRaw's object for a RAW file; None if the bytes are no RAW file."""
    import rawpy

    try:
        return rawpy.imread(io.BytesIO(data))
    except rawpy.LibRawFileUnsupportedError:
        return None


def read_preview(raw) -> tuple[bytes, int] | None:
    """The embedded JPEG and the EXIF orientation of the photo; None if there is no JPEG."""
    import rawpy

    try:
        preview = raw.extract_thumb()
    except rawpy.LibRawError:
        return None
    if preview.format != rawpy.ThumbFormat.JPEG:
        return None
    return preview.data, ORIENTATION_OF_FLIP.get(raw.sizes.flip, 1)


def develop(raw) -> np.ndarray:
    """The photo (height, width, 3) uint8 at half the sensor's size, upright, as the camera balanced it."""
    return raw.postprocess(half_size=True, use_camera_wb=True)
