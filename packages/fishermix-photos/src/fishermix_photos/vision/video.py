"""Frames of videos, by FFmpeg (package av): key frames, which are decoded without the frames between them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import numpy as np
from PIL import Image

from fishermix_photos.vision.formats import UnreadableImage, check_installed

SECONDS_BETWEEN_FRAMES = 4.0
MICROSECONDS = 1_000_000  # per second: the unit in which FFmpeg says how long a video is
MOST_FRAMES = 500  # of one video; a longer one gets fewer per minute
CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi"  # FFmpeg's names of what the suffixes announce
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
    with _open_video(path) as container:
        stream = _find_stream(container)
        _check_size(stream, max_pixels)
        if time:
            container.seek(round((time + 0.001) / stream.time_base) + _start(stream), stream=stream)
        for frame in container.decode(stream):
            turn = ROTATION.get(round(getattr(frame, "rotation", 0)) % 360)
            image = frame.to_image()
            return image.transpose(turn) if turn is not None else image
    raise UnreadableImage("the video has no frames")


def _walk_key_frames(path: str | os.PathLike, max_pixels: int) -> Iterator[tuple[float, Any, float]]:
    with _open_video(path) as container:
        stream = _find_stream(container)
        _check_size(stream, max_pixels)
        length = container.duration / MICROSECONDS if container.duration else 0.0
        step = max(SECONDS_BETWEEN_FRAMES, length / MOST_FRAMES)
        for frame in container.decode(stream):
            if frame.pts is not None:
                seconds = float((frame.pts - _start(stream)) * stream.time_base)
                yield round(max(0.0, seconds), 3), frame, step


def read_video_metadata(path: str | os.PathLike) -> dict[str, Any]:
    """`width`, `height` and `taken`, if the file says when."""
    with _open_video(path) as container:
        stream = container.streams.video[0]
        found: dict[str, Any] = {"width": stream.width, "height": stream.height}
        if text := container.metadata.get("creation_time"):
            moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
            found["taken"] = moment.astimezone().replace(tzinfo=None, microsecond=0).isoformat()
    return found


def _open_video(path: str | os.PathLike) -> Any:
    check_installed("video")
    import av

    # Never lists of other files or addresses, such as playlists, whatever the name of the file says.
    return av.open(os.fspath(path), options={"format_whitelist": CONTAINERS, "protocol_whitelist": "file"})


def _find_stream(container):
    if not container.streams.video:
        raise UnreadableImage("the file has no video")
    stream = container.streams.video[0]
    stream.codec_context.skip_frame = "NONKEY"
    return stream


def _start(stream) -> int:
    return stream.start_time or 0


def _check_size(stream, max_pixels: int) -> None:
    if stream.width * stream.height > max_pixels:
        raise UnreadableImage(
            f"its frames have {stream.width} x {stream.height} pixels, more than {max_pixels:,}"
        )
