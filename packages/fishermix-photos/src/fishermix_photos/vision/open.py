"""`open_photo`, the one function that opens photos, and what can be read without decoding one.

Photo files may be hostile or damaged: whatever a decoder raises becomes an `UnreadableImage` with a reason.
So does a photo that takes too long or needs too much memory (see `limits` and `worker`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from PIL import ExifTags, Image

from fishermix_photos.vision.decode import (
    ORIENTATION,
    TIFF_HEADS,
    decode_bytes,
    explain_failure,
    get_stored_size,
    list_pages,
    looks_like_raw,
    open_file,
    open_raw,
    read_preview,
    select_page,
    sniff_format,
)
from fishermix_photos.vision.formats import RAW, TIFF, VIDEO, UnreadableImage, find_format, split_place
from fishermix_photos.vision.limits import (
    default_max_pixels,
    find_excess,
    is_bounded,
    list_png_chunks,
    open_binary,
    read_bytes,
)
from fishermix_photos.vision.worker import NetworkBytes, decode_in_worker

ImageSource = str | os.PathLike | bytes | Image.Image
SIDEWAYS = (5, 6, 7, 8)  # orientations that exchange width and height
Header = tuple[tuple[int, int], Image.Exif]


def open_photo(photo: ImageSource, max_pixels: int | None = None, side: int = 0) -> Image.Image:
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
    """
    limit = default_max_pixels() if max_pixels is None else max_pixels
    if not isinstance(photo, str | os.PathLike):
        return _decode_within_limits(photo, limit, side)
    try:
        place = split_place(os.fspath(photo))
        if place.time is not None:
            return _decode_frame(place.file, place.time, limit)
        return _decode_within_limits(read_bytes(place.file, limit), limit, side, place.page or 1)
    except UnreadableImage as error:
        raise UnreadableImage(error.reason, os.fspath(photo), error.may_change) from error


def _decode_within_limits(
    data: bytes | Image.Image, max_pixels: int, side: int, page: int = 1
) -> Image.Image:
    """Decode here or, if the cost is unknown or the photo is from the network, in a worker."""
    if isinstance(data, bytes) and (excess := find_excess(data)):
        raise UnreadableImage(excess)
    from_network = isinstance(data, NetworkBytes)
    if isinstance(data, bytes) and sys.executable and (from_network or not is_bounded(data)):
        return decode_in_worker(data, max_pixels, side, page)
    return decode_bytes(data, max_pixels, side, page)


def _decode_frame(file: str, time: float, max_pixels: int) -> Image.Image:
    from fishermix_photos.vision.video import read_frame

    open_binary(file).close()
    try:
        return read_frame(file, time, max_pixels)
    except Exception as error:
        raise explain_failure(error, max_pixels) from error


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
    """
    limit = default_max_pixels() if max_pixels is None else max_pixels
    name = os.fspath(file)
    try:
        found = find_format(name)
        if found is VIDEO:
            from fishermix_photos.vision.video import list_frame_times

            open_binary(name).close()
            return [name, *(f"{name}#t={time:g}" for time in list_frame_times(name, limit)[1:])]
        if found is TIFF and sniff_format(data := read_bytes(name, limit)) == "TIFF":
            return [name, *(f"{name}#page={page}" for page in range(2, len(list_pages(data)) + 1))]
    except Exception as error:
        explain_failure(error, limit)  # for the log
    return [name]


# What a file says without its pixels being decoded


def open_header(path: str | os.PathLike) -> Header:
    """The size of a photo before it is turned upright, and its EXIF."""
    data = read_bytes(path, default_max_pixels())
    if not data:
        raise UnreadableImage("the file is empty")
    kind, is_tiff = sniff_format(data), data[:4] in TIFF_HEADS
    may_be_raw = is_tiff and looks_like_raw(data) is not False and RAW.is_installed
    if (kind == "RAW" or may_be_raw) and (header := _open_raw_header(data)) is not None:
        return header
    if kind == "TIFF":
        data = select_page(data, 1)
    with open_file(data, kind) as image:
        size = get_stored_size(image) if image.format == "TIFF" else image.size
        return size, _read_exif(image, data)


def _read_exif(image: Image.Image, data: bytes) -> Image.Exif:
    """The EXIF of an opened image, with the blocks that Pillow reads from the file only when asked."""
    if image.format == "PNG" and not {"exif", "Raw profile type exif"} & image.info.keys():
        # Pillow would decode the pixels to find what follows them.
        chunks = (data[content] for kind, content in list_png_chunks(data) if kind == b"eXIf")
        image.info["exif"] = next(chunks, b"")
    exif = image.getexif()
    for block in (ExifTags.IFD.Exif, ExifTags.IFD.GPSInfo):
        with suppress(Exception):  # a damaged block is as good as none
            exif.get_ifd(block)
    return exif


def _open_raw_header(data: bytes) -> Header | None:
    """The size of the sensor, and the EXIF of a RAW file that is a TIFF file or else of its preview."""
    if (raw := open_raw(data)) is None:
        return None
    with raw:
        exif = Image.Exif()
        if data[:4] in TIFF_HEADS:
            exif.load(data)
        elif (preview := read_preview(raw)) is not None:
            with open_file(preview[0], "JPEG") as image:
                exif = _read_exif(image, preview[0])
        return (raw.sizes.width, raw.sizes.height), exif


def read_metadata(path: str | os.PathLike) -> dict[str, Any]:
    """`taken`, `camera`, `latitude`, `longitude`, `width`, `height`, if the file says so; never raises."""
    try:
        if find_format(os.fspath(path)) is VIDEO:
            from fishermix_photos.vision.video import read_video_metadata

            open_binary(path).close()
            return read_video_metadata(path)
        size, exif = open_header(path)
    except Exception:  # a damaged file has no metadata; that it is unreadable is said elsewhere
        return {}
    sideways = exif.get(ORIENTATION, 1) in SIDEWAYS
    found: dict[str, Any] = dict(zip(("height", "width") if sideways else ("width", "height"), size))
    readers: tuple[Callable[[Any], dict[str, Any]], ...] = (_read_time, _read_camera, _read_coordinates)
    for read in readers:
        with suppress(Exception):  # each part of a damaged EXIF block is read on its own
            found |= read(exif)
    return found


def _read_time(exif: Image.Exif) -> dict[str, Any]:
    original = exif.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.DateTimeOriginal)
    text = original or exif.get(ExifTags.Base.DateTime)
    if not text:
        return {}
    return {"taken": datetime.strptime(str(text).strip("\0 ")[:19], "%Y:%m:%d %H:%M:%S").isoformat()}


def _read_camera(exif: Image.Exif) -> dict[str, Any]:
    tags = ExifTags.Base.Make, ExifTags.Base.Model
    make, model = (str(exif.get(tag) or "").strip("\0 ") for tag in tags)
    name = model if model.lower().startswith(make.lower()) else f"{make} {model}".strip()
    printable = "".join(letter for letter in name if letter.isprintable())[:100]
    return {"camera": printable} if printable else {}


def _read_coordinates(exif: Image.Exif) -> dict[str, Any]:
    gps = exif.get_ifd(ExifTags.IFD.GPSInfo)
    latitude, longitude = (
        (1 if str(gps[reference]).upper().startswith(positive) else -1) * _read_degrees(gps[reference + 1])
        for reference, positive in ((1, "N"), (3, "E"))
    )
    valid = abs(latitude) <= 90 and abs(longitude) <= 180 and (latitude, longitude) != (0, 0)
    return {"latitude": round(latitude, 6), "longitude": round(longitude, 6)} if valid else {}


def _read_degrees(values: Any) -> float:
    return sum(float(value) / 60**power for power, value in enumerate(values))
