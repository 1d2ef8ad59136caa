"""Small pictures for a contact sheet and for the page: decoded, turned upright, scaled and encoded anew.

Nothing of the original file but its pixels goes out: no place, no camera, and no content that is not a
picture.
"""

from __future__ import annotations

import io
import os
from typing import IO

from PIL import Image, ImageOps

from fishermix.errors import FishermixError

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
MOST_PIXELS = 200_000_000


def jpeg(photo: str | os.PathLike | IO[bytes], longest_side: int, quality: int = 82) -> bytes:
    """A photo as JPEG bytes with no side longer than `longest_side` pixels."""
    try:
        with Image.open(photo, formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise FishermixError(f"has {image.width} x {image.height} pixels: too many to show")
            image.draft("RGB", (longest_side, longest_side))
            upright = ImageOps.exif_transpose(image)
            upright.thumbnail((longest_side, longest_side))
            if "transparency" in upright.info or upright.mode in ("RGBA", "LA", "PA"):
                white = Image.new("RGBA", upright.size, "white")
                upright = Image.alpha_composite(white, upright.convert("RGBA"))
            out = io.BytesIO()
            upright.convert("RGB").save(out, "JPEG", quality=quality)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        if isinstance(error, FishermixError):
            raise
        raise FishermixError(f"cannot be read as a photo ({error})") from error
    return out.getvalue()
