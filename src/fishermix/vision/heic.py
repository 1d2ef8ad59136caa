"""HEIC photos by FFmpeg (package av), which takes less than half of the time of libheif's decoder.

libheif opens every HEIC photo and says how it is stored. FFmpeg decodes the picture, or the tiles that phones
make of it, if the photo is reduced by two or more: then the filter that smooths the edges of blocks is not
needed. libheif decodes everything unusual.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from PIL import Image

TURNS = {90: Image.Transpose.ROTATE_90, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_270}
RGB_MATRIX, FULL_RANGE = 0, 2  # as ITU-T H.273 and FFmpeg number them
HEADER_BYTES = 1 << 20  # a file begins with the references to its tiles


class Layout(NamedTuple):
    """How a photo is stored: its size before it is turned, that of a tile, tiles per row, and the turn."""

    size: tuple[int, int]
    tile: tuple[int, int]
    columns: int
    rows: int
    turn: Image.Transpose | None


def decode_reduced(image: Image.Image, data: bytes, least: int) -> Image.Image | None:
    """An opened HEIC photo, reduced by a power of two so that no side is shorter than `least` pixels.

    None if the photo is too small for that, av is not installed, or the photo is stored in an unusual way.
    """
    try:
        import av
    except ImportError:
        return None
    try:
        layout = _read_layout(image)
        factor = _choose_factor(layout, least) if layout else 1
        if not layout or factor == 1:
            return None
        with av.open(io.BytesIO(data), format="mov") as container:
            streams = [one for one in container.streams.video if (one.width, one.height) == layout.tile]
            if len(streams) != layout.columns * layout.rows or not _are_in_order(streams, data):
                return None
            whole = _paste_tiles(container, streams, layout, factor, image.info.get("nclx_profile"))
    except Exception:  # libheif reports what is wrong with the photo, if anything is
        return None
    return whole if whole is None or layout.turn is None else whole.transpose(layout.turn)


def _read_layout(image: Any) -> Layout | None:
    """How an opened photo is stored; None if there is more to it than a color picture that may be turned."""
    if image.mode != "RGB" or image.info.get("bit_depth") != 8:
        return None
    turn = None
    for kind, *values in image._heif_file[image.tell()]._c_image.transformations:
        if kind != "irot" or turn is not None or (values[0] and values[0] not in TURNS):
            return None
        turn = TURNS.get(values[0])
    tiling = image.info.get("tiling") or {}
    size, tile = image.size, (tiling.get("tile_width", image.width), tiling.get("tile_height", image.height))
    if turn not in (None, Image.Transpose.ROTATE_180):  # libheif describes the photo as turned
        size, tile = size[::-1], tile[::-1]
    return Layout(size, tile, math.ceil(size[0] / tile[0]), math.ceil(size[1] / tile[1]), turn)


def _choose_factor(layout: Layout, least: int) -> int:
    factor = 1
    while min(layout.size) >= 2 * factor * least and not any(side % (2 * factor) for side in layout.tile):
        factor *= 2
    return factor


def _are_in_order(streams: list[Any], data: bytes) -> bool:
    """Whether the photo refers to its tiles in the order of the streams."""
    ids = [stream.id for stream in streams]
    return len(ids) == 1 or struct.pack(f">{len(ids) + 1}H", len(ids), *ids) in data[:HEADER_BYTES]


def _has_colors(frame: Any, colors: Mapping[str, int] | None) -> bool:
    """Whether the colors of a frame are those that the file declares, which FFmpeg does not read."""
    if colors is None:
        return True
    matrix, is_full = colors["matrix_coefficients"], bool(colors["full_range_flag"])
    return matrix != RGB_MATRIX and (frame.colorspace, frame.color_range == FULL_RANGE) == (matrix, is_full)


def _paste_tiles(
    container: Any, streams: list[Any], layout: Layout, factor: int, colors: Mapping[str, int] | None
) -> Image.Image | None:
    width, height = (side // factor for side in layout.tile)
    whole = Image.new("RGB", (layout.size[0] // factor, layout.size[1] // factor))
    for stream in streams:
        stream.codec_context.thread_count = 1
        most = layout.tile[0] * layout.tile[1]
        stream.codec_context.options = {"skip_loop_filter": "all", "max_pixels": str(most)}
    places = {stream.index: place for place, stream in enumerate(streams)}
    for packet in container.demux(streams):
        for frame in packet.decode():
            if (frame.width, frame.height) != layout.tile or not _has_colors(frame, colors):
                return None
            row, column = divmod(places.pop(packet.stream.index), layout.columns)
            small = frame.reformat(width, height, "rgb24", interpolation="AREA")
            whole.paste(small.to_image(), (column * width, row * height))
    return None if places else whole
