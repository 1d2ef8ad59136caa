"""Why a photo cannot be read, in words for the user, whatever its decoder raises."""

from __future__ import annotations

import logging

from PIL import Image, UnidentifiedImageError

from fishermix.errors import FishermixError
from fishermix.vision.formats import PictureProblem, list_formats

LOG = logging.getLogger("fishermix.vision")  # remarks of decoders, at the level INFO: not shown by default


class UnreadableImage(FishermixError):
    """An image that cannot be decoded; `reason` says why, `name` which image it is.

    `may_change` : whether the same bytes may be readable later: with a higher limit, or another package
    """

    def __init__(self, reason: str, name: str = "the image", may_change: bool = False):
        super().__init__(f"Cannot read {name}: {reason}.")
        self.reason, self.may_change = reason, may_change


def explain_error(error: Exception, max_pixels: int, is_empty: bool = False) -> UnreadableImage:
    """The `UnreadableImage` that says what a decoder's error means."""
    if isinstance(error, UnreadableImage):
        return error
    if isinstance(error, Image.DecompressionBombWarning | Image.DecompressionBombError):
        return UnreadableImage(f"the image is too large; {explain_limit(max_pixels)}", may_change=True)
    if isinstance(error, UnidentifiedImageError):
        problem = "the file is empty" if is_empty else "not an image, or its first bytes are damaged"
        return UnreadableImage(f"{problem}. Supported formats: {list_formats()}")
    if isinstance(error, MemoryError):
        return UnreadableImage(
            f"the image does not fit in memory; {explain_limit(max_pixels)}", may_change=True
        )
    if isinstance(error, PictureProblem):
        return UnreadableImage(str(error))
    LOG.info("a decoder reports: %r", error)  # for whoever reports a problem with a decoder
    return UnreadableImage(_describe_damage(error))


def _describe_damage(error: Exception) -> str:
    """Decoders speak of their own code; a user can act on one thing only, that a file is not complete."""
    text = str(error).lower()
    is_cut = any(words in text for words in ("truncat", "end of file", "not enough", "outside of file"))
    return "the file is truncated" if is_cut else "the file is damaged"


def explain_limit(max_pixels: int) -> str:
    return (
        f"the limit is {max_pixels:,} pixels. Use a smaller copy or, if you trust the image, raise "
        "max_pixels (on the command line: --max-pixels)"
    )
