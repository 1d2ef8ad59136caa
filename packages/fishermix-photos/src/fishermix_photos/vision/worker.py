"""Decoding in another process, with a limit on time and memory.

Some pictures cost minutes or gigabytes, and a thread cannot be stopped. So videos, pictures from the network,
and files whose structure does not bound their cost, are decoded by worker processes. A worker that exceeds a
limit is ended, its picture is reported as unreadable, and the next picture gets a new worker.

A request is a line of JSON, then the bytes of a file; so is a response, with the pixels of a picture.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import fishermix
from PIL import Image

import fishermix_photos
from fishermix_photos.vision.decode import BYTES_PER_PIXEL
from fishermix_photos.vision.formats import UnreadableImage

SECONDS = 30.0  # for a picture of this machine
SECONDS_FROM_NETWORK = 10.0
SECONDS_TO_START = 60.0
BYTES_BESIDES_PIXELS = 256 << 20  # what a decoder may use besides its 16 bytes per pixel
MAX_IDLE = 4  # workers that are kept for the next pictures
_START = "import sys; sys.path[:] = sys.argv[1:]; from fishermix_photos.vision.worker import serve; serve()"
_PACKAGES = [str(Path(str(module.__file__)).resolve().parents[1]) for module in (fishermix, fishermix_photos)]


class NetworkBytes(bytes):
    """The bytes of a picture that somebody sent. They are always decoded by a worker."""


def ask_worker(
    task: str, data: bytes, max_pixels: int, seconds: float | None = None, **arguments: Any
) -> Any:
    """What the function of a task (see `serve`) returns for these arguments; raises `UnreadableImage`."""
    if seconds is None:
        seconds = SECONDS_FROM_NETWORK if isinstance(data, NetworkBytes) else SECONDS
    most = min(max_pixels, Image.MAX_IMAGE_PIXELS or max_pixels)
    request = {"task": task, "bytes": len(data), "max_pixels": most, "arguments": arguments}
    worker = _take()
    try:
        answer, pixels = worker.ask(request, data, seconds)
    except BaseException:
        worker.stop()
        raise
    _give_back(worker)
    if "reason" in answer:
        raise UnreadableImage(answer["reason"], may_change=answer["may_change"])
    return Image.frombytes("RGB", tuple(answer["size"]), pixels) if "size" in answer else answer["result"]


class _Worker:
    """One process, started when it is made; one picture at a time."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, *_import_folders()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        try:
            self.ask({"task": "start", "bytes": 0, "max_pixels": 1, "arguments": {}}, b"", SECONDS_TO_START)
        except UnreadableImage as error:
            self.stop()
            raise UnreadableImage("the process that decodes pictures did not start") from error

    def ask(self, request: dict, data: bytes, seconds: float) -> tuple[dict, bytes]:
        """Send a request and the bytes of a file; returns the answer and the pixels."""
        assert self.process.stdin
        assert self.process.stdout
        begun = time.monotonic()
        timer = threading.Timer(seconds, self.process.kill)
        timer.daemon = True
        timer.start()
        try:
            self.process.stdin.write(_encode(request) + data)
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline())
            width, height = answer.get("size", (0, 0))
            pixels = self.process.stdout.read(width * height * 3)
            if len(pixels) < width * height * 3:
                raise EOFError
            return answer, pixels
        except (OSError, ValueError, EOFError) as error:
            if time.monotonic() - begun >= seconds:
                raise UnreadableImage(f"decoding it took too long (more than {seconds:.3g} s)") from error
            raise UnreadableImage("its decoder crashed or needed too much memory") from error
        finally:
            timer.cancel()

    def stop(self) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                if pipe:
                    pipe.close()
        self.process.wait()


def _import_folders() -> list[str]:
    """Where a worker finds modules: never the current folder, which may be a folder of photos."""
    here = os.path.realpath(os.getcwd())
    return [
        folder
        for folder in (*sys.path, *_PACKAGES)
        if os.path.isabs(folder) and (folder in _PACKAGES or os.path.realpath(folder) != here)
    ]


_idle: list[_Worker] = []
_lock = threading.Lock()


def _take() -> _Worker:
    with _lock:
        worker = _idle.pop() if _idle else None
    if worker is not None and worker.process.poll() is not None:
        worker.stop()
        worker = None
    try:
        return worker or _Worker()
    except OSError as error:
        raise UnreadableImage(f"the process that decodes pictures did not start ({error})") from error


def _give_back(worker: _Worker) -> None:
    with _lock:
        if len(_idle) < MAX_IDLE:
            _idle.append(worker)
            return
    worker.stop()


@atexit.register
def stop_workers() -> None:
    """End all idle workers. The next picture that needs one starts a new one."""
    with _lock:
        workers, _idle[:] = list(_idle), []
    for worker in workers:
        worker.stop()


def _forget_workers() -> None:
    """A forked process must not speak to the workers of its parent."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)


# In the worker


def serve() -> None:
    """Do what standard input asks for until it ends."""
    from fishermix_photos.vision import decode, metadata, tiff, video

    tasks: dict[str, Callable[..., Any]] = {
        "start": lambda *_: None,
        "decode": decode.decode_bytes,
        "count_pages": lambda data, _: len(tiff.list_pages(data)),
        "read_exif": lambda data, _: metadata.read_exif_details(data),
        "frame": lambda _, max_pixels, **place: video.read_frame(max_pixels=max_pixels, **place),
        "list_frames": lambda _, max_pixels, file: video.list_frame_times(file, max_pixels),
        "read_video": lambda _, __, file: video.read_video_metadata(file),
    }
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "wb") as nowhere:  # no library may write between the answers
        os.dup2(nowhere.fileno(), 1)
    while line := requests.readline():
        request = json.loads(line)
        data = requests.read(request["bytes"])
        Image.MAX_IMAGE_PIXELS = request["max_pixels"]
        _limit_memory(request["max_pixels"], len(data))
        try:
            found = tasks[request["task"]](data, request["max_pixels"], **request["arguments"])
        except Exception as error:
            failure = decode.explain_failure(error, request["max_pixels"])
            answers.write(_encode({"reason": failure.reason, "may_change": failure.may_change}))
        else:
            is_picture = isinstance(found, Image.Image)
            answers.write(_encode({"size": found.size} if is_picture else {"result": found}))
            answers.write(found.tobytes() if is_picture else b"")
        answers.flush()


def _encode(message: dict) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _limit_memory(max_pixels: int, size: int) -> None:
    """Limit the address space of this process, where the system can: not on Windows and macOS."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        most = used + max_pixels * BYTES_PER_PIXEL + 2 * size + BYTES_BESIDES_PIXELS
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
    except (ImportError, OSError, ValueError):
        return
