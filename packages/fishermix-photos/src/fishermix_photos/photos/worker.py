"""Decoding in another process, with a limit on time and memory.

Some pictures cost minutes or gigabytes, and a thread cannot be stopped. So videos, pictures from the network,
and files whose structure does not bound their cost, are decoded by worker processes. A worker that exceeds a
limit is ended, its picture is reported as unreadable, and the next picture gets a new worker.

A request is a line of JSON, then the bytes of a file; so is a response, with the pixels of a picture. A
response may also say how much memory the decoder needs: it goes on when it gets an empty line.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import fishermix
from PIL import Image

import fishermix_photos
from fishermix_photos.photos.decode import BYTES_PER_PIXEL
from fishermix_photos.photos.formats import UnreadableImage
from fishermix_photos.photos.memory import PIXELS, Hold

SECONDS = 30.0  # for a picture of this machine
SECONDS_FROM_NETWORK = 10.0
SECONDS_TO_START = 60.0
BYTES_BESIDES_PIXELS = 128 << 20  # what a decoder may use besides what it has taken for pixels
MOST_WORKERS = 4  # at a time; each takes about 40 MB besides its picture
ROWS_OF_BAND = 256  # of a picture, which are sent at a time
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "1000000",  # glibc then gives a picture's memory back when it is not needed
}
_START = "import sys; sys.path[:] = sys.argv[1:]; from fishermix_photos.photos.worker import serve; serve()"
_PACKAGES = [str(Path(str(module.__file__)).resolve().parents[1]) for module in (fishermix, fishermix_photos)]


class NetworkBytes(bytes):
    """The bytes of a picture that somebody sent. They are always decoded by a worker."""


def ask_worker(
    task: str,
    data: bytes,
    max_pixels: int,
    seconds: float | None = None,
    held: Hold | None = None,
    **arguments: Any,
) -> Any:
    """What the function of a task (see `serve`) returns for these arguments; raises `UnreadableImage`.

    held : the memory for the pixels of the result is held with it; otherwise until the result is there
    """
    if seconds is None:
        seconds = SECONDS_FROM_NETWORK if isinstance(data, NetworkBytes) else SECONDS
    most = min(max_pixels, Image.MAX_IMAGE_PIXELS or max_pixels)
    request = {"task": task, "bytes": len(data), "max_pixels": most, "arguments": arguments}
    with _places, PIXELS.hold() if held is None else nullcontext(held) as held:
        worker = _take()
        try:
            answer = worker.ask(request, data, seconds, held)
        except BaseException:
            worker.stop()
            raise
        _give_back(worker)
    if isinstance(answer, Image.Image):
        return answer
    if "reason" in answer:
        raise UnreadableImage(answer["reason"], may_change=answer["may_change"], code=answer["code"])
    return answer["result"]


class Worker:
    """One process, started when it is made; one picture at a time."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, *_import_folders()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | ENVIRONMENT,
        )
        try:
            request = {"task": "start", "bytes": 0, "max_pixels": 1, "arguments": {}}
            self.ask(request, b"", SECONDS_TO_START, None)
        except UnreadableImage as error:
            self.stop()
            raise UnreadableImage(
                "the process that decodes pictures did not start", code="crashed"
            ) from error

    def ask(
        self, request: dict, data: bytes, seconds: float, held: Hold | None
    ) -> dict[str, Any] | Image.Image:
        """Send a request and the bytes of a file; returns the answer, or the picture if it is one."""
        assert self.process.stdin
        assert self.process.stdout
        clock = _Clock(seconds, self.process.kill)
        try:
            with clock.running():
                self.process.stdin.write(_encode(request))
                self.process.stdin.write(data)
                self.process.stdin.flush()
                answer = json.loads(self.process.stdout.readline())
            while "needs" in answer:
                if held is not None:
                    held.take(answer["needs"])
                with clock.running():
                    self.process.stdin.write(b"\n")
                    self.process.stdin.flush()
                    answer = json.loads(self.process.stdout.readline())
            with clock.running():
                return self._receive(*answer["size"]) if "size" in answer else answer
        except (OSError, ValueError, EOFError) as error:
            if clock.left <= 0:
                raise UnreadableImage(
                    f"decoding it took too long (more than {seconds:.3g} s)", code="too_slow"
                ) from error
            raise UnreadableImage("its decoder crashed or needed too much memory", code="crashed") from error

    def _receive(self, width: int, height: int) -> Image.Image:
        assert self.process.stdout
        image = Image.new("RGB", (width, height))
        for top in range(0, height, ROWS_OF_BAND):
            rows = min(ROWS_OF_BAND, height - top)
            pixels = self.process.stdout.read(width * rows * 3)
            if len(pixels) < width * rows * 3:
                raise EOFError
            image.paste(Image.frombytes("RGB", (width, rows), pixels), (0, top))
        return image

    def stop(self) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                if pipe:
                    pipe.close()
        self.process.wait()


class _Clock:
    """Seconds for several pieces of work; when they are over, it calls a function."""

    def __init__(self, seconds: float, at_end: Callable[[], None]) -> None:
        self.left, self._at_end = seconds, at_end

    @contextmanager
    def running(self) -> Iterator[None]:
        """In this `with` block, time passes."""
        begun = time.monotonic()
        timer = threading.Timer(self.left, self._at_end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self.left -= time.monotonic() - begun


def _import_folders() -> list[str]:
    """Where a worker finds modules: never the current folder, which may be a folder of photos."""
    here = os.path.realpath(os.getcwd())
    return [
        folder
        for folder in (*sys.path, *_PACKAGES)
        if os.path.isabs(folder) and (folder in _PACKAGES or os.path.realpath(folder) != here)
    ]


_idle: list[Worker] = []
_lock = threading.Lock()
_places = threading.BoundedSemaphore(MOST_WORKERS)


def _take() -> Worker:
    with _lock:
        worker = _idle.pop() if _idle else None
    if worker is not None and worker.process.poll() is not None:
        worker.stop()
        worker = None
    try:
        return worker or Worker()
    except OSError as error:
        raise UnreadableImage(
            f"the process that decodes pictures did not start ({error})", code="crashed"
        ) from error


def _give_back(worker: Worker) -> None:
    with _lock:
        _idle.append(worker)


@atexit.register
def stop_workers() -> None:
    """End all idle workers. The next picture that needs one starts a new one."""
    with _lock:
        workers = list(_idle)
        _idle[:] = []
    for worker in workers:
        worker.stop()


def _forget_workers() -> None:
    """A forked process must not speak to the workers of its parent."""
    global _lock, _places
    _lock = threading.Lock()
    _places = threading.BoundedSemaphore(MOST_WORKERS)
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)


# In the worker


def serve() -> None:
    """Do what standard input asks for until it ends."""
    from fishermix_photos.photos import decode, metadata, text, tiff, video

    tasks: dict[str, Callable[..., Any]] = {
        "start": lambda *_: None,
        "decode": lambda data, most, take, **options: decode.decode_bytes(data, most, take=take, **options),
        "count_pages": lambda data, *_: len(tiff.list_pages(data)),
        "read_exif": lambda data, _, take: metadata.read_exif_details(data, take),
        "frame": lambda _, most, take, **place: video.read_frame(max_pixels=most, take=take, **place),
        "list_frames": lambda _, most, take, file: video.list_frame_times(file, most, take),
        "read_video": lambda *_, file: video.read_video_metadata(file),
        "read_text": lambda pixels, *_, size: text.read_text(pixels, size),
    }
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "wb") as nowhere:  # no library may write between the answers
        os.dup2(nowhere.fileno(), 1)

    def answer(message: dict) -> None:
        answers.write(_encode(message))
        answers.flush()

    def take(size: int) -> None:
        answer({"needs": size})
        requests.readline()

    while line := requests.readline():
        request = json.loads(line)
        Image.MAX_IMAGE_PIXELS = request["max_pixels"]
        _limit_memory(request["max_pixels"], request["bytes"])
        data = requests.read(request["bytes"])
        try:
            found = tasks[request["task"]](data, request["max_pixels"], take, **request["arguments"])
        except Exception as error:
            failure = decode.explain_failure(error, request["max_pixels"])
            answer({"reason": failure.reason, "may_change": failure.may_change, "code": failure.code})
        else:
            data = None
            if isinstance(found, Image.Image):
                answer({"size": found.size})
                for top in range(0, found.height, ROWS_OF_BAND):
                    bottom = min(top + ROWS_OF_BAND, found.height)
                    answers.write(found.crop((0, top, found.width, bottom)).tobytes())
                answers.flush()
            else:
                answer({"result": found})
        found = data = None  # nothing of it is kept until the next request


def _encode(message: dict) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _limit_memory(max_pixels: int, size: int) -> None:
    """Limit the address space of this process, where the system can: not on Windows and macOS."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        most = used + max_pixels * BYTES_PER_PIXEL + 3 * size + BYTES_BESIDES_PIXELS
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
    except (ImportError, OSError, ValueError):
        return
