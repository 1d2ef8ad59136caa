"""`open_photo`, the one function that opens photos, and what else may be asked of a photo file.

Photo files may be hostile or damaged: whatever a decoder raises becomes an `UnreadableImage` with a reason.
So does a photo that takes too long or needs too much memory (see `decode` and `worker`).
"""

from __future__ import annotations

import os
from typing import Any

from PIL import Image

from fishermix_photos.vision.decode import LOG, decode_bytes, is_bounded, sniff_format
from fishermix_photos.vision.formats import (
    TIFF,
    VIDEO,
    UnreadableImage,
    check_installed,
    find_format,
    split_place,
)
from fishermix_photos.vision.limits import (
    default_max_pixels,
    open_binary,
    read_bytes,
)
from fishermix_photos.vision.metadata import read_exif_details
from fishermix_photos.vision.worker import SECONDS_OF_FILE, NetworkBytes, TimeBudget, ask_worker

ImageSource = str | os.PathLike | bytes | Image.Image


def open_photo(
    photo: ImageSource, max_pixels: int | None = None, side: int = 0, budget: TimeBudget | None = None
) -> Image.Image:
    """The upright RGB image of a path, bytes or a PIL image; of an animation, the first frame.

    An image that would take more than `max_pixels` pixels in memory is rejected before it is decoded. A JPEG
    much larger than `side` x `side` pixels is decoded at a half, a quarter or an eighth of its size, never
    below twice `side`; of a HEIC photo, a thumbnail of about `side` serves, and of a RAW photo the preview;
    other HEIC, AVIF and JPEG XL photos are reduced after they are decoded. This is several times faster, and
    deterministic. A path may name a frame, `clip.mp4#t=12.5`, or a page, `scan.tif#page=2`. The message of an
    `UnreadableImage` names the file if `photo` is a path.

    Parameters
    ----------
    photo : path, bytes or PIL image
        The photo.
    max_pixels : int, optional
        Reject larger photos. Default: depends on the memory.
    side : int
        A JPEG much larger than side x side pixels is decoded at a reduced size. 0: never.
    budget : TimeBudget, optional
        What is left for the pages or frames of each file. Default: nothing was spent.

    Returns
    -------
    image : PIL.Image.Image

    Examples
    --------
    >>> open_photo("photo.jpg").size
    (80, 60)
    """
    limit = default_max_pixels() if max_pixels is None else max_pixels
    if not isinstance(photo, str | os.PathLike):
        return _decode(photo, limit, side)
    try:
        place = split_place(os.fspath(photo))
        data = b"" if place.time is not None else read_bytes(place.file, limit)
        with (budget or TimeBudget()).spend(place.file) as seconds:
            if place.time is not None:
                return _ask_video("frame", place.file, limit, seconds, time=place.time)
            return _decode(data, limit, side, place.page or 1, seconds)
    except UnreadableImage as error:
        raise UnreadableImage(error.reason, os.fspath(photo), error.may_change) from error


def _decode(
    data: bytes | Image.Image, max_pixels: int, side: int, page: int = 1, seconds: float | None = None
) -> Image.Image:
    """Decode here or, if the cost is unknown or the photo is from the network, in a worker."""
    if isinstance(data, NetworkBytes) or (isinstance(data, bytes) and not is_bounded(data)):
        return ask_worker("decode", data, max_pixels, seconds, side=side, page=page)
    return decode_bytes(data, max_pixels, side, page)


def _ask_video(
    task: str, file: str, max_pixels: int, seconds: float | None = None, **arguments: float
) -> Any:
    check_installed("video")
    open_binary(file).close()  # of a file that is not regular, only its own message
    return ask_worker(task, b"", max_pixels, seconds, file=os.path.abspath(file), **arguments)


def list_photos(file: str | os.PathLike, max_pixels: int | None = None) -> list[str]:
    """List the photos in a file: distinct frames of a video, a few seconds apart, or pages of a TIFF file.

    Parameters
    ----------
    file : str or path
        The file.
    max_pixels : int, optional
        Reject images with more pixels than this. Default: depends on the memory of the machine.

    Returns
    -------
    places : list of str
        The first is the file itself; the others look like `clip.mp4#t=12.5` (seconds) and `scan.tif#page=2`.
        Any other file, and a damaged one, has one photo.

    Examples
    --------
    >>> list_photos("photo.jpg")
    ['photo.jpg']
    """
    limit = default_max_pixels() if max_pixels is None else max_pixels
    name = os.fspath(file)
    try:
        if find_format(name) is VIDEO:
            times = _ask_video("list_frames", name, limit, SECONDS_OF_FILE)
            return [name, *(f"{name}#t={time:g}" for time in times[1:])]
        if find_format(name) is TIFF and sniff_format(data := read_bytes(name, limit)) == "TIFF":
            n_pages = ask_worker("count_pages", data, limit)
            return [name, *(f"{name}#page={page}" for page in range(2, n_pages + 1))]
    except UnreadableImage as error:
        LOG.info("%s", error)  # whoever opens the file gets the reason
    return [name]


def read_metadata(path: str | os.PathLike) -> dict[str, Any]:
    """`taken`, `camera`, `latitude`, `longitude`, `width`, `height`, if the file says so; never raises."""
    name, limit = os.fspath(path), default_max_pixels()
    try:
        if find_format(name) is VIDEO:
            return _ask_video("read_video", name, limit)
        data = read_bytes(name, limit)
        return read_exif_details(data) if is_bounded(data) else ask_worker("read_exif", data, limit)
    except Exception:  # a damaged file has no metadata; that it is unreadable is said elsewhere
        return {}
