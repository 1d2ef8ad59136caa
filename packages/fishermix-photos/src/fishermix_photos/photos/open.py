"""`open_photo`, the one function that opens photos, and what else may be asked of a photo file.

Photo files may be hostile or damaged: whatever a decoder raises becomes an `UnreadableImage` with a reason.
So does a photo that takes too long or needs too much memory (see `decode` and `worker`).
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import Any

from fishermix.errors import FishermixError
from PIL import Image

from fishermix_photos.photos import worker
from fishermix_photos.photos.decode import (
    BYTES_PER_PIXEL,
    LOG,
    decode_bytes,
    explain_limit,
    is_bounded,
    sniff_format,
)
from fishermix_photos.photos.formats import (
    TIFF,
    VIDEO,
    UnreadableImage,
    check_installed,
    find_format,
    split_place,
)
from fishermix_photos.photos.memory import FILES, PIXELS, Hold
from fishermix_photos.photos.metadata import read_exif_details
from fishermix_photos.photos.worker import NetworkBytes, ask_worker

FILE_BYTES_PER_PIXEL = 4  # half of what the pixels may take: the file is in memory besides them
HEADER_BYTES = 1 << 20  # what an uncompressed file may hold besides its pixels
LARGEST_VIDEO = 256 << 30  # bytes; 16 hours at 36 Mbit/s
SECONDS_OF_FILE = 120.0  # for all pages or frames of a file, and for listing them
_chosen_max_pixels: int | None = None

ImageSource = str | os.PathLike | bytes | Image.Image


def open_photo(
    photo: ImageSource, max_pixels: int | None = None, side: int = 0, budget: TimeBudget | None = None
) -> Image.Image:
    """The upright RGB image of a path, bytes or a PIL image; of an animation, the first frame.

    An image that would take more memory than `max_pixels` pixels is rejected before it is decoded. The images
    that all threads decode at a time take at most 512 MB: the next thread waits. A JPEG much larger than
    `side` x `side` pixels is decoded at a half, a quarter or an eighth of its size, never below twice `side`;
    of a HEIC photo, a thumbnail of about `side` serves, and of a RAW photo the preview; other HEIC, AVIF and
    JPEG XL photos are reduced after they are decoded. This is several times faster, and deterministic. A path
    may name a frame, `clip.mp4#t=12.5`, or a page, `scan.tif#page=2`. The message of an `UnreadableImage`
    names the file if `photo` is a path.

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
    with borrow_photo(photo, max_pixels, side, budget) as image:
        return image


@contextmanager
def borrow_photo(
    photo: ImageSource, max_pixels: int | None = None, side: int = 0, budget: TimeBudget | None = None
) -> Iterator[Image.Image]:
    """What `open_photo` returns, in a `with` block that ends when the image is not needed any more.

    Its memory counts until then, and other threads may wait for it: the block must open no other photo.
    """
    limit = default_max_pixels() if max_pixels is None else max_pixels
    with PIXELS.hold() as held:
        image = _open(photo, limit, side, budget, held)
        held.shrink(image.width * image.height * Image.getmodebands("RGBX"))
        yield image


def _open(photo: ImageSource, limit: int, side: int, budget: TimeBudget | None, held: Hold) -> Image.Image:
    if not isinstance(photo, str | os.PathLike):
        return _decode(photo, limit, side, held)
    try:
        place = split_place(os.fspath(photo))
        with (budget or TimeBudget()).spend(place.file) as seconds:
            if place.time is not None:
                return _ask_video("frame", place.file, limit, seconds, held, time=place.time)
            with _read(place.file, limit) as data:
                return _decode(data, limit, side, held, place.page or 1, seconds)
    except UnreadableImage as error:
        raise UnreadableImage(error.reason, os.fspath(photo), error.may_change, error.code) from error


def _decode(
    data: bytes | Image.Image,
    max_pixels: int,
    side: int,
    held: Hold,
    page: int = 1,
    seconds: float | None = None,
) -> Image.Image:
    """Decode here or, if the cost is unknown or the photo is from the network, in a worker."""
    if isinstance(data, NetworkBytes) or (isinstance(data, bytes) and not is_bounded(data)):
        return ask_worker("decode", data, max_pixels, seconds, held, side=side, page=page)
    return decode_bytes(data, max_pixels, side, page, held.take)


def _ask_video(
    task: str,
    file: str,
    max_pixels: int,
    seconds: float | None = None,
    held: Hold | None = None,
    **arguments: float,
) -> Any:
    check_installed("video")
    open_binary(file).close()  # of a file that is not regular, only its own message
    return ask_worker(task, b"", max_pixels, seconds, held, file=os.path.abspath(file), **arguments)


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
            return [name, *(f"{name}#t={start:g}" for start in times[1:])]
        if find_format(name) is TIFF:
            with _read(name, limit) as data:
                n_pages = ask_worker("count_pages", data, limit) if sniff_format(data) == "TIFF" else 1
            return [name, *(f"{name}#page={page}" for page in range(2, n_pages + 1))]
    except UnreadableImage as error:
        LOG.info("%s", error)  # whoever opens the file gets the reason
    return [name]


def read_metadata(path: str | os.PathLike) -> dict[str, Any]:
    """`taken`, `camera`, `latitude`, `longitude`, `width`, `height`, if the file says so; never raises."""
    name = os.fspath(path)
    limit = default_max_pixels()
    try:
        if find_format(name) is VIDEO:
            return _ask_video("read_video", name, limit)
        with _read(name, limit) as data:
            return read_exif_details(data) if is_bounded(data) else ask_worker("read_exif", data, limit)
    except Exception:  # a damaged file has no metadata; that it is unreadable is said elsewhere
        return {}


# How large a photo may be


def set_default_max_pixels(max_pixels: int) -> None:
    """Set the default pixel limit of this process."""
    global _chosen_max_pixels
    _chosen_max_pixels = allow_pixels(max_pixels)


def default_max_pixels() -> int:
    """The default pixel limit: what `set_default_max_pixels` chose, or else as many as all images that are
    decoded at a time may have together.
    """
    return _chosen_max_pixels or PIXELS.total // BYTES_PER_PIXEL


def allow_pixels(max_pixels: int | None) -> int:
    """The pixel limit that `max_pixels` means (None: the default).

    A limit above Pillow's own raises that one too, for the whole process.
    """
    if max_pixels is None:
        return default_max_pixels()
    if max_pixels < 1:
        raise FishermixError(f"max_pixels must be at least 1, not {max_pixels}.", code="wrong_parameter")
    if Image.MAX_IMAGE_PIXELS and max_pixels > Image.MAX_IMAGE_PIXELS:
        Image.MAX_IMAGE_PIXELS = max_pixels
    return max_pixels


def open_regular(path: str | os.PathLike) -> BufferedReader:
    """Open a file to read, if it is a regular one; `OSError` if not.

    A pipe that took the place of a file would otherwise stop the program until somebody writes to it.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        is_folder = stat.S_ISDIR(mode)
        raise OSError(errno.EINVAL, "it is a folder" if is_folder else "not a regular file", os.fspath(path))
    return os.fdopen(handle, "rb")


def open_binary(path: str | os.PathLike) -> BufferedReader:
    """Open the file of a photo to read, if it is a regular file."""
    try:
        return open_regular(path)
    except OSError as error:
        raise UnreadableImage(error.strerror or str(error), code="cannot_read") from error


def read_bytes(path: str | os.PathLike, max_pixels: int) -> bytes:
    """The content of a regular file, unless it is larger than any image of `max_pixels` pixels."""
    most = _find_largest_file(max_pixels)
    with open_binary(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise _refuse_size(size, max_pixels)
        try:
            return file.read()
        except OSError as error:
            raise UnreadableImage(error.strerror or str(error), code="cannot_read") from error


@contextmanager
def _read(path: str, max_pixels: int) -> Iterator[bytes]:
    """The content of a regular file, whose memory counts until the end of the `with` block: it may be in that
    of a worker, too.
    """
    try:
        size = os.stat(path).st_size
    except OSError as error:
        raise UnreadableImage(error.strerror or str(error), code="cannot_read") from error
    with FILES.hold(2 * min(size, _find_largest_file(max_pixels))):
        yield read_bytes(path, max_pixels)


def check_photo_size(file: str, size: int) -> None:
    """Raise if a file is too large to be read whole: one with holes takes no space, whatever its size."""
    limit = default_max_pixels()
    if find_format(file) is VIDEO:
        if size > LARGEST_VIDEO:
            reason = f"{size:,} bytes are too many for a video; the limit is {LARGEST_VIDEO:,} bytes"
            raise UnreadableImage(reason, code="too_large")
    elif size > _find_largest_file(limit):
        raise _refuse_size(size, limit)


def _find_largest_file(max_pixels: int) -> int:
    return max_pixels * FILE_BYTES_PER_PIXEL + HEADER_BYTES


def _refuse_size(size: int, max_pixels: int) -> UnreadableImage:
    reason = f"{size:,} bytes are too many for an image; {explain_limit(max_pixels)}"
    return UnreadableImage(reason, may_change=True, code="too_large")


class TimeBudget:
    """The seconds that are left for each file of one update: all its pages or frames share them."""

    def __init__(self) -> None:
        self._spent: dict[str, float] = defaultdict(float)

    @contextmanager
    def spend(self, file: str) -> Iterator[float]:
        """Yield the seconds for the next picture of the file, and count those that it took."""
        left = SECONDS_OF_FILE - self._spent[file]
        if left <= 0:
            raise UnreadableImage(
                f"the pictures in its file took too long (more than {SECONDS_OF_FILE:g} s)", code="too_slow"
            )
        begun = time.monotonic()
        try:
            yield min(left, worker.SECONDS)
        finally:
            self._spent[file] += time.monotonic() - begun
