"""Frames of videos, by FFmpeg (package av): key frames, which are decoded without the frames between them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

from fishermix.vision.formats import PictureProblem

SECONDS_BETWEEN_FRAMES = 4.0
MOST_FRAMES = 500  # of one video; a longer one gets fewer per minute
SIDE = 16  # frames are compared as small gray pictures
LEAST_DIFFERENCE = 6.0  # mean absolute difference of gray values (0 to 255); a new scene has 20 or more
ROTATION = {90: Image.Transpose.ROTATE_90, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_270}


def list_frame_times(path: str | os.PathLike, max_pixels: int) -> list[float]:
    """The times, in seconds, of key frames a few seconds apart, without those that show nothing new."""
    times: list[float] = []
    last: np.ndarray | None = None
    for time, frame, step in _walk_key_frames(path, max_pixels):
        if times and time - times[-1] < step:
            continue
        small = frame.to_image(width=SIDE, height=SIDE).convert("L")
        values = np.asarray(small, np.float32)
        if last is None or np.abs(values - last).mean() >= LEAST_DIFFERENCE:
            times.append(time)
            last = values
        if len(times) == MOST_FRAMES:
            break
    return times


def read_frame(path: str | os.PathLike, time: float, max_pixels: int) -> Image.Image:
    """The key frame at `time` seconds, or the last one before it, upright."""
    import av

    with av.open(os.fspath(path)) as container:
        stream = _find_stream(container)
        _check_size(stream, max_pixels)
        if time:
            container.seek(round((time + 0.001) / stream.time_base) + _start(stream), stream=stream)
        for frame in container.decode(stream):
            turn = ROTATION.get(round(getattr(frame, "rotation", 0)) % 360)
            image = frame.to_image()
            return image.transpose(turn) if turn is not None else image
    raise PictureProblem("the video has no frames")


def _walk_key_frames(path: str | os.PathLike, max_pixels: int) -> Iterator[tuple[float, Any, float]]:
    import av

    with av.open(os.fspath(path)) as container:
        stream = _find_stream(container)
        _check_size(stream, max_pixels)
        length = container.duration / av.time_base if container.duration else 0.0
        step = max(SECONDS_BETWEEN_FRAMES, length / MOST_FRAMES)
        for frame in container.decode(stream):
            if frame.pts is not None:
                seconds = float((frame.pts - _start(stream)) * stream.time_base)
                yield round(max(0.0, seconds), 3), frame, step


def _find_stream(container):
    if not container.streams.video:
        raise PictureProblem("the file has no video")
    stream = container.streams.video[0]
    stream.codec_context.skip_frame = "NONKEY"
    return stream


def _start(stream) -> int:
    return stream.start_time or 0


def _check_size(stream, max_pixels: int) -> None:
    if stream.width * stream.height > max_pixels:
        raise PictureProblem(
            f"its frames have {stream.width} x {stream.height} pixels, more than {max_pixels:,}"
        )
