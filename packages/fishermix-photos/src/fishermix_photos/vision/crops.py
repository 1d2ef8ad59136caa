"""The crops of an image that a network sees. A view is a list of crops, whose features are averaged.

A crop is a box in the image, resampled directly to the size of the network's input, so a very wide image is
never enlarged as a whole.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from fishermix.errors import FishermixError
from PIL import Image

Box = tuple[float, float, float, float]
# 224 of the 256 pixels of the short side, the usual proportion for networks trained on ImageNet.
CROP = 224 / 256


def _box_whole(width: int, height: int) -> list[Box]:
    return [(0, 0, width, height)]


def _box_center(width: int, height: int) -> list[Box]:
    crop = CROP * min(width, height)
    left, top = (width - crop) / 2, (height - crop) / 2
    return [(left, top, left + crop, top + crop)]


def _box_corners_and_center(width: int, height: int) -> list[Box]:
    crop = CROP * min(width, height)
    right, bottom = width - crop, height - crop
    corners = [(left, top, left + crop, top + crop) for top in (0, bottom) for left in (0, right)]
    return [*corners, *_box_center(width, height)]


View = tuple[Callable[[int, int], list[Box]], bool]
# Name: a function of width and height that gives the boxes, and whether mirror images are added.
VIEWS: dict[str, View] = {
    "squeeze": (_box_whole, False),
    "flip": (_box_whole, True),
    "center": (_box_center, False),
    "ten-crop": (_box_corners_and_center, True),
}


def cut_crops(image: Image.Image, view: str, side: int) -> np.ndarray:
    """The crops of an RGB image, (n_crops, side, side, 3) uint8; mirror images follow the plain crops."""
    boxes, mirrored = parse_view(view)
    resampled = [
        np.asarray(image.resize((side, side), Image.Resampling.BICUBIC, box=box))
        for box in boxes(*image.size)
    ]
    plain = np.stack(resampled)
    return np.concatenate([plain, plain[:, :, ::-1]]) if mirrored else plain


def count_crops(view: str) -> int:
    """The number of crops per image."""
    boxes, mirrored = parse_view(view)
    return len(boxes(1, 1)) * (2 if mirrored else 1)


def parse_view(view: str) -> View:
    if view not in VIEWS:
        raise FishermixError(f"There is no view '{view}'. Choose one of {', '.join(VIEWS)}.")
    return VIEWS[view]
