"""Photos as they get around: copies in other sizes, with other filters, qualities and small damages.

A network that meets each source of its training photos in one compression learns the compression: it tells
the source, and the source tells most of the wrong answers. So a photo of the training is met in copies that
are drawn at random, and every copy goes through the reader that opens a user's photos.
"""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter


@dataclass(frozen=True)
class Version:
    """What happens to a photo on its way.

    short_side : in pixels; a smaller photo keeps its size
    filter : of the reduction
    quality : of the JPEG file; None: saved without loss
    blur : radius of a Gaussian blur, in pixels; 0: none
    sharpening : in percent, of an unsharp mask; 0: none
    noise : standard deviation of its pixels, of 255; 0: none
    seed : of the noise
    """

    short_side: int
    filter: Image.Resampling
    quality: int | None = None
    blur: float = 0.0
    sharpening: int = 0
    noise: float = 0.0
    seed: int = 0

    def write(self, photo: Image.Image) -> bytes | Image.Image:
        """The copy of an RGB photo: a JPEG file, or the pixels themselves."""
        scale = min(1.0, self.short_side / min(photo.size))
        size = max(1, round(scale * photo.width)), max(1, round(scale * photo.height))
        copy = photo.resize(size, self.filter) if scale < 1 else photo
        if self.blur:
            copy = copy.filter(ImageFilter.GaussianBlur(self.blur))
        if self.sharpening:
            copy = copy.filter(ImageFilter.UnsharpMask(1.5, self.sharpening, 2))
        if self.noise:
            drawn = np.random.default_rng(self.seed).normal(0, self.noise, (*reversed(copy.size), 3))
            copy = Image.fromarray((np.asarray(copy) + drawn).clip(0, 255).astype(np.uint8))
        if self.quality is None:
            return copy
        file = io.BytesIO()
        copy.save(file, "JPEG", quality=self.quality)
        return file.getvalue()


def draw_version(path: str | Path, number: int) -> Version | None:
    """Copy `number` of a photo: always the same for a file name and a number. None: the file itself."""
    random = np.random.default_rng([number, zlib.crc32(Path(path).name.encode())])
    if random.random() < 0.2:  # of the copies are the file itself
        return None
    filters = {
        Image.Resampling.NEAREST: 0.05,
        Image.Resampling.BOX: 0.2,
        Image.Resampling.BILINEAR: 0.25,
        Image.Resampling.BICUBIC: 0.25,
        Image.Resampling.LANCZOS: 0.25,
    }
    return Version(
        short_side=round(160 * (500 / 160) ** random.random()),
        filter=list(filters)[random.choice(len(filters), p=list(filters.values()))],
        quality=None if random.random() < 0.2 else int(random.integers(30, 96)),
        blur=random.uniform(0.3, 1.2) if random.random() < 0.15 else 0.0,
        sharpening=int(random.integers(40, 160)) if random.random() < 0.15 else 0,
        noise=random.uniform(1, 8) if random.random() < 0.15 else 0.0,
        seed=number,
    )
