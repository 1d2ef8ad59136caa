"""What a photo says of itself, without its pixels being decoded: size, time, camera and coordinates."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from PIL import ExifTags, Image

from fishermix_photos.photos.decode import (
    ORIENTATION,
    Take,
    list_png_chunks,
    open_file,
    open_raw,
    read_preview,
    sniff_format,
)
from fishermix_photos.photos.formats import RAW, UnreadableImage
from fishermix_photos.photos.memory import PIXELS
from fishermix_photos.photos.tiff import TIFF_HEADS, get_stored_size, looks_like_raw, select_page

SIDEWAYS = (5, 6, 7, 8)  # orientations that exchange width and height
Header = tuple[tuple[int, int], Image.Exif]


def read_exif_details(data: bytes, take: Take = lambda _: None) -> dict[str, Any]:
    """`taken`, `camera`, `latitude`, `longitude`, `width` and `height`, as far as the file says so.

    take : is called with the memory in bytes that this needs, if opening the file decodes it
    """
    size, exif = _open_header(data, take)
    sideways = exif.get(ORIENTATION, 1) in SIDEWAYS
    found: dict[str, Any] = dict(zip(("height", "width") if sideways else ("width", "height"), size))
    readers: tuple[Callable[[Any], dict[str, Any]], ...] = (_read_time, _read_camera, _read_coordinates)
    for read in readers:
        with suppress(Exception):  # each part of a damaged EXIF block is read on its own
            found |= read(exif)
    return found


def _open_header(data: bytes, take: Take) -> Header:
    """The size of a photo before it is turned upright, and its EXIF."""
    if not data:
        raise UnreadableImage("the file is empty", code="empty")
    kind = sniff_format(data)
    is_tiff = data[:4] in TIFF_HEADS
    may_be_raw = is_tiff and looks_like_raw(data) is not False and RAW.is_installed
    if (kind == "RAW" or may_be_raw) and (header := _open_raw_header(data)) is not None:
        return header
    if kind == "TIFF":
        data = select_page(data, 1)
    if kind == "JPEG XL":
        take(PIXELS.total)
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
