"""Frames of videos, by FFmpeg (package av): key frames, which are decoded without the frames between them.

Only a worker calls these functions.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
from PIL import Image

from fishermix_photos.photos.decode import BYTES_PER_PIXEL, Take
from fishermix_photos.photos.formats import UnreadableImage

SECONDS_BETWEEN_FRAMES = 4.0
MICROSECONDS = 1_000_000  # per second: the unit in which FFmpeg says how long a video is
MOST_FRAMES = 500  # of one video; a longer one gets fewer per minute
CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi"  # FFmpeg's names of what the suffixes announce
BYTES_PER_PIXEL_OF_FRAMES = 16  # the frame, its copies, and the frames that others refer to
SIDE = 16  # frames are compared as small gray pictures
LEAST_DIFFERENCE = 6.0  # mean absolute difference of gray values (0 to 255); a new scene has 20 or more
ROTATION = {90: Image.Transpose.ROTATE_90, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_270}


def list_frame_times(file: str, max_pixels: int, take: Take) -> list[float]:
    """The times, in seconds, of key frames a few seconds apart, without those that show nothing new."""
    times: list[float] = []
    last: np.ndarray | None = None
    with _open_video(file) as container:
        stream = _find_stream(container, max_pixels, take)
        length = container.duration / MICROSECONDS if container.duration else 0.0
        step = max(SECONDS_BETWEEN_FRAMES, length / MOST_FRAMES)
        for frame in container.decode(stream):
            if frame.pts is None:
                continue
            seconds = float((frame.pts - (stream.start_time or 0)) * stream.time_base)
            time = round(max(0.0, seconds), 3)
            if times and time - times[-1] < step:
                continue
            small = np.asarray(frame.to_image(width=SIDE, height=SIDE).convert("L"), np.float32)
            if last is None or np.abs(small - last).mean() >= LEAST_DIFFERENCE:
                times.append(time)
                last = small
            if len(times) == MOST_FRAMES:
                break
    return times


def read_frame(file: str, time: float, max_pixels: int, take: Take) -> Image.Image:
    """The key frame at `time` seconds, or the last one before it, upright."""
    with _open_video(file) as container:
        stream = _find_stream(container, max_pixels, take)
        if time:
            position = round((time + 0.001) / stream.time_base) + (stream.start_time or 0)
            container.seek(position, stream=stream)
        for frame in container.decode(stream):
            turn = ROTATION.get(round(getattr(frame, "rotation", 0)) % 360)
            image = frame.to_image()
            return image.transpose(turn) if turn is not None else image
    raise UnreadableImage("the video has no frames", code="no_video")


def read_video_metadata(file: str) -> dict[str, Any]:
    """`width`, `height` and `taken`, if the file says when."""
    with _open_video(file) as container:
        stream = container.streams.video[0]
        found: dict[str, Any] = {"width": stream.width, "height": stream.height}
        if text := container.metadata.get("creation_time"):
            moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
            found["taken"] = moment.astimezone().replace(tzinfo=None, microsecond=0).isoformat()
    return found


def _open_video(file: str) -> Any:
    import av

    # Never lists of other files or addresses, such as playlists, whatever the name of the file says.
    return av.open(file, options={"format_whitelist": CONTAINERS, "protocol_whitelist": "file"})


def _find_stream(container: Any, max_pixels: int, take: Take) -> Any:
    if not container.streams.video:
        raise UnreadableImage("the file has no video", code="no_video")
    stream = container.streams.video[0]
    most = max_pixels * BYTES_PER_PIXEL // BYTES_PER_PIXEL_OF_FRAMES
    if stream.width * stream.height > most:
        size = f"{stream.width} x {stream.height} pixels"
        raise UnreadableImage(f"its frames have {size}, more than {most:,}", code="too_large")
    take(stream.width * stream.height * BYTES_PER_PIXEL_OF_FRAMES)
    stream.codec_context.skip_frame = "NONKEY"
    stream.codec_context.thread_count = 1  # each thread would take memory of its own
    return stream
