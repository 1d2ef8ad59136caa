"""What of an image a network sees: each view is a list of square crops, whose features are averaged.

A crop is a box in the image, resampled straight to the network's input: a very wide image never has to be
enlarged as a whole.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image

from fishermix.errors import FishermixError

Box = tuple[float, float, float, float]
# A crop is 224 of the 256 pixels of the short side, the usual proportion for networks trained on ImageNet.
CROP = 224 / 256


def _whole(width: int, height: int) -> list[Box]:
    return [(0, 0, width, height)]


def _centre(width: int, height: int) -> list[Box]:
    crop = CROP * min(width, height)
    left, top = (width - crop) / 2, (height - crop) / 2
    return [(left, top, left + crop, top + crop)]


def _corners_and_centre(width: int, height: int) -> list[Box]:
    crop = CROP * min(width, height)
    right, bottom = width - crop, height - crop
    corners = [(left, top, left + crop, top + crop) for top in (0, bottom) for left in (0, right)]
    return [*corners, *_centre(width, height)]


# Name: the boxes of an image of this width and height, and whether their mirror images are added.
VIEWS: dict[str, tuple[Callable[[int, int], list[Box]], bool]] = {
    "squeeze": (_whole, False),
    "flip": (_whole, True),
    "center": (_centre, False),
    "ten-crop": (_corners_and_centre, True),
}


def crops(image: Image.Image, view: str, side: int) -> np.ndarray:
    """The crops of an RGB image, (n_crops, side, side, 3) uint8; mirrored ones follow the plain ones."""
    boxes, mirrored = _view(view)
    resampled = [
        np.asarray(image.resize((side, side), Image.Resampling.BICUBIC, box=box))
        for box in boxes(*image.size)
    ]
    plain = np.stack(resampled)
    return np.concatenate([plain, plain[:, :, ::-1]]) if mirrored else plain


def crops_per_image(view: str) -> int:
    boxes, mirrored = _view(view)
    return len(boxes(1, 1)) * (2 if mirrored else 1)


def _view(view: str) -> tuple[Callable[[int, int], list[Box]], bool]:
    if view not in VIEWS:
        raise FishermixError(f"there is no view '{view}': choose one of {', '.join(VIEWS)}")
    return VIEWS[view]
