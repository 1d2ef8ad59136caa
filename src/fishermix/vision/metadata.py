"""What a camera wrote into a photo: time, camera, place; and the size. Nothing here decodes pixels."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

from fishermix.vision.decoding import ORIENTATION
from fishermix.vision.formats import VIDEO, find_format
from fishermix.vision.images import open_header
from fishermix.vision.remarks import collect_remarks

MAKE, MODEL, DATE_TIME = 0x010F, 0x0110, 0x0132
EXIF_IFD, GPS_IFD, DATE_TIME_ORIGINAL = 0x8769, 0x8825, 0x9003
SIDEWAYS = (5, 6, 7, 8)  # orientations that exchange width and height


def read_metadata(path: str | os.PathLike) -> dict[str, Any]:
    """`taken`, `camera`, `latitude`, `longitude`, `width`, `height`, if the file says so; never raises."""
    with collect_remarks():
        return _read_metadata(path)


def _read_metadata(path: str | os.PathLike) -> dict[str, Any]:
    try:
        if find_format(os.fspath(path)) is VIDEO:
            return _read_video(path)
        size, exif = open_header(path)
    except Exception:  # a damaged file has no metadata; that it is unreadable is said elsewhere
        return {}
    found: dict[str, Any] = {"width": size[0], "height": size[1]}
    for read in (_read_size, _read_time, _read_camera, _read_place):
        try:
            found |= read(exif, size)
        except Exception:  # each part of a damaged EXIF block is read on its own
            continue
    return found


def _read_size(exif: Any, size: tuple[int, int]) -> dict[str, Any]:
    sideways = exif.get(ORIENTATION, 1) in SIDEWAYS
    return dict(zip(("height", "width") if sideways else ("width", "height"), size))


def _read_time(exif: Any, size: tuple[int, int]) -> dict[str, Any]:
    text = exif.get_ifd(EXIF_IFD).get(DATE_TIME_ORIGINAL) or exif.get(DATE_TIME)
    if not text:
        return {}
    return {"taken": datetime.strptime(str(text).strip("\0 ")[:19], "%Y:%m:%d %H:%M:%S").isoformat()}


def _read_camera(exif: Any, size: tuple[int, int]) -> dict[str, Any]:
    make, model = (str(exif.get(tag) or "").strip("\0 ") for tag in (MAKE, MODEL))
    name = model if model.lower().startswith(make.lower()) else f"{make} {model}".strip()
    printable = "".join(letter for letter in name if letter.isprintable())[:100]
    return {"camera": printable} if printable else {}


def _read_place(exif: Any, size: tuple[int, int]) -> dict[str, Any]:
    gps = exif.get_ifd(GPS_IFD)
    latitude, longitude = (
        (1 if str(gps[reference]).upper().startswith(positive) else -1) * _degrees(gps[reference + 1])
        for reference, positive in ((1, "N"), (3, "E"))
    )
    valid = abs(latitude) <= 90 and abs(longitude) <= 180 and (latitude, longitude) != (0, 0)
    return {"latitude": round(latitude, 6), "longitude": round(longitude, 6)} if valid else {}


def _degrees(parts: Any) -> float:
    return sum(float(part) / 60**power for power, part in enumerate(parts))


def _read_video(path: str | os.PathLike) -> dict[str, Any]:
    import av

    with av.open(os.fspath(path)) as container:
        stream = container.streams.video[0]
        found: dict[str, Any] = {"width": stream.width, "height": stream.height}
        if text := container.metadata.get("creation_time"):
            moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
            found["taken"] = moment.astimezone().replace(tzinfo=None, microsecond=0).isoformat()
    return found
