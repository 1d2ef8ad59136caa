"""Copies of a photo as they get around: smaller, recompressed, in other formats, with other filters."""

from __future__ import annotations

import io

from PIL import Image

COPIES = {
    "half the size": {"scale": 0.5, "filter": Image.Resampling.BICUBIC, "format": "PNG"},
    "quality 40": {"format": "JPEG", "quality": 40},
    "PNG": {"format": "PNG"},
    "WebP": {"format": "WEBP", "quality": 75},
    "two thirds, Lanczos": {"scale": 2 / 3, "filter": Image.Resampling.LANCZOS, "format": "PNG"},
    "two thirds, box, quality 75": {
        "scale": 2 / 3,
        "filter": Image.Resampling.BOX,
        "format": "JPEG",
        "quality": 75,
    },
}


def write_copy(photo: Image.Image, name: str) -> bytes:
    """The file of one of `COPIES` of a photo."""
    how = dict(COPIES[name])
    scale, resampling = how.pop("scale", 1.0), how.pop("filter", Image.Resampling.BICUBIC)
    size = round(scale * photo.width), round(scale * photo.height)
    file = io.BytesIO()
    photo.convert("RGB").resize(size, resampling).save(file, **how)
    return file.getvalue()
