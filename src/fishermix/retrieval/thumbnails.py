"""Small pictures for a contact sheet and for the page: decoded, turned upright, scaled and encoded anew.

Nothing of the original file but its pixels goes out: no place, no camera, and no content that is not a
picture.
"""

from __future__ import annotations

import io
import os

from fishermix.vision.images import default_max_pixels, open_photo, read_bytes


def jpeg(photo: str | os.PathLike, longest_side: int, quality: int = 82) -> bytes:
    """A photo as JPEG bytes with no side longer than `longest_side` pixels."""
    most = default_max_pixels()
    # Bytes, not the path: the message of an error goes to clients, who must not learn where photos are.
    image = open_photo(read_bytes(photo, most), most, side=longest_side)
    image.thumbnail((longest_side, longest_side))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=quality)
    return out.getvalue()
