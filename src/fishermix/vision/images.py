"""`open_photo`, the one function that opens photos: an allow-list of formats, a pixel limit, upright RGB.

Photo files may be hostile or damaged: whatever a decoder raises becomes an `UnreadableImage` with a reason.
So does a photo that takes too long or needs too much memory (see `picture_cost` and `worker`).
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from PIL import ExifTags, Image

from fishermix.vision.decoding import check_installed, decode_bytes, open_as, open_file, sniff_format
from fishermix.vision.formats import RAW, VIDEO, find_format, split_part
from fishermix.vision.picture_cost import find_excess, is_bounded
from fishermix.vision.pixel_limit import default_max_pixels, read_bytes
from fishermix.vision.remarks import collect_remarks
from fishermix.vision.tiff import get_stored_size, list_pages, looks_like_raw
from fishermix.vision.unreadable import LOG, UnreadableImage, explain_error
from fishermix.vision.worker import NetworkBytes, WorkerFailed, decode_in_worker

ImageSource = str | os.PathLike | bytes | Image.Image


def open_photo(photo: ImageSource, max_pixels: int | None = None, side: int = 0) -> Image.Image:
    """The upright RGB image of a path, bytes or a PIL image; of an animation, the first frame.

    An image that would take more than `max_pixels` pixels in memory (None: the default) is rejected before it
    is decoded. A JPEG much larger than `side` x `side` pixels is decoded at a half, a quarter or an eighth of
    its size, but never below twice `side`; of a HEIC photo, a thumbnail of about `side` serves, and of a RAW
    photo the preview; other HEIC, AVIF and JPEG XL photos are reduced after they are decoded. This is several
    times faster, and deterministic. A path may name a part of a file: `clip.mp4#t=12.5` is a frame,
    `scan.tif#page=2` a page. The message of an `UnreadableImage` names the file if `photo` is a path.

    Parameters
    ----------
    photo : path, bytes or PIL image
        The photo.
    max_pixels : int, optional
        Reject larger photos. Default: depends on the memory.
    side : int
        A JPEG much larger than side x side pixels is decoded at a reduced size. 0: never.
    """
    limit = default_max_pixels() if max_pixels is None else max_pixels
    if not isinstance(photo, str | os.PathLike):
        return _decode_within_limits(photo, limit, side, "a photo")
    try:
        file, part, number = split_part(os.fspath(photo))
        if find_format(file) is VIDEO:
            return _decode_frame(file, number, limit)
        page = int(number) if part else 1
        return _decode_within_limits(read_bytes(file, limit), limit, side, os.fspath(photo), page)
    except UnreadableImage as error:
        raise UnreadableImage(error.reason, os.fspath(photo), error.may_change) from error


def _decode_within_limits(
    data: bytes | Image.Image, max_pixels: int, side: int, name: str, page: int = 1
) -> Image.Image:
    """Decode here or, if the cost is unknown or the photo is from the network, in a worker; log what the
    decoder remarks on the photo.
    """
    if isinstance(data, bytes) and (excess := find_excess(data)):
        raise UnreadableImage(excess)
    try:
        from_network = isinstance(data, NetworkBytes)
        if isinstance(data, bytes) and sys.executable and (from_network or not is_bounded(data)):
            image, remarks = decode_in_worker(data, max_pixels, side, page)
        else:
            image, remarks = decode_bytes(data, max_pixels, side, page)
    except WorkerFailed as error:
        raise UnreadableImage(str(error), may_change=error.may_change) from error
    for remark in remarks:
        LOG.info("%s: %s", name, remark)
    return image


def open_header(path: str | os.PathLike) -> tuple[tuple[int, int], Image.Exif]:
    """The size of a photo before it is turned upright, and its EXIF; the pixels are not decoded."""
    data = read_bytes(path, default_max_pixels())
    if not data:
        raise UnreadableImage("the file is empty")
    kind = sniff_format(data)
    may_be_raw = kind == "RAW" or (kind == "TIFF" and looks_like_raw(data) is not False and RAW.is_installed)
    if may_be_raw and (header := _open_raw_header(data)) is not None:
        return header
    with open_file(data, kind) as image:
        size = get_stored_size(image) if image.format == "TIFF" else image.size
        return size, _read_exif(image)


def check_header(path: str | os.PathLike) -> None:
    """Raise `UnreadableImage` if the first bytes of a file are not those of a photo. Videos pass."""
    if find_format(os.fspath(path)) is VIDEO:
        return
    try:
        open_header(path)
    except Exception as error:
        explained = explain_error(error, default_max_pixels())
        raise UnreadableImage(explained.reason, os.fspath(path), explained.may_change) from error


def _read_exif(image: Image.Image) -> Image.Exif:
    """The EXIF of an opened image, with the blocks that Pillow reads from the file only when asked."""
    exif = image.getexif()
    for block in (ExifTags.IFD.Exif, ExifTags.IFD.GPSInfo):
        with suppress(Exception):  # a damaged block is as good as none
            exif.get_ifd(block)
    return exif


def _open_raw_header(data: bytes) -> tuple[tuple[int, int], Image.Exif] | None:
    """The size of the sensor, and the EXIF of a RAW file that is a TIFF file or else of its preview."""
    from fishermix.vision.raw import open_raw, read_preview

    check_installed("RAW")
    if (raw := open_raw(data)) is None:
        return None
    with raw:
        exif = Image.Exif()
        if data[:2] in (b"II", b"MM") and data[2:4] in (b"*\0", b"\0*"):
            exif.load(data)
        elif (preview := read_preview(raw)) is not None:
            with open_file(preview[0], "JPEG") as image:
                exif = _read_exif(image)
        return (raw.sizes.width, raw.sizes.height), exif


def list_parts(path: str | os.PathLike, max_pixels: int | None = None) -> list[str]:
    """List the parts of a file: distinct frames of a video, a few seconds apart, or the pages of a TIFF file.

    Parameters
    ----------
    path : str or path
        The file.
    max_pixels : int, optional
        Reject images with more pixels than this. Default: depends on the memory of the machine.

    Returns
    -------
    parts : list of str
        The names of the parts. The first is the file itself; the others look like `clip.mp4#t=12.5` (seconds)
        and `scan.tif#page=2`. Any other file, and a damaged one, has one part.
    """
    limit = default_max_pixels() if max_pixels is None else max_pixels
    try:
        with collect_remarks():
            return _list_parts(os.fspath(path), limit)
    except Exception as error:
        explain_error(error, limit)  # for the log
        return [os.fspath(path)]


def _list_parts(name: str, max_pixels: int) -> list[str]:
    found = find_format(name)
    if found is VIDEO:
        from fishermix.vision.video import list_frame_times

        check_installed("video")
        return [name, *(f"{name}#t={time:g}" for time in list_frame_times(name, max_pixels)[1:])]
    if found is not None and found.name == "TIFF":
        with open_as(read_bytes(name, max_pixels), ("TIFF",)) as image:
            return [name, *(f"{name}#page={page}" for page in range(2, len(list_pages(image)) + 1))]
    return [name]


def _decode_frame(path: str, time: float, max_pixels: int) -> Image.Image:
    from fishermix.vision.video import read_frame

    check_installed("video")
    try:
        return read_frame(path, time, max_pixels)
    except Exception as error:
        raise explain_error(error, max_pixels) from error
