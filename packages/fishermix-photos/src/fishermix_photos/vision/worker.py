"""Decoding in another process, with a limit on time and memory.

Some pictures cost minutes or gigabytes, and a thread cannot be stopped. So pictures from the network, and
files whose structure does not bound their cost, are decoded by worker processes. A worker that exceeds a
limit is ended, its picture is reported as unreadable, and the next picture gets a new worker.

A request is a header, then the bytes of a file; a response is a line of JSON, then the pixels.
"""

from __future__ import annotations

import atexit
import json
import os
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import fishermix
from PIL import Image

import fishermix_photos
from fishermix_photos.vision.formats import UnreadableImage
from fishermix_photos.vision.limits import BYTES_PER_PIXEL

SECONDS = 30.0  # for a file of this machine
SECONDS_FROM_NETWORK = 10.0
SECONDS_TO_START = 60.0
BYTES_BESIDES_PIXELS = 256 << 20  # what a decoder may use besides its 16 bytes per pixel
MAX_IDLE = 4  # workers that are kept for the next pictures
READY = b"ready\n"
_HEADER = struct.Struct("<QQQQ")  # bytes of the file, most pixels, side, page
_START = "import sys; sys.path[:] = sys.argv[1:]; from fishermix_photos.vision.worker import serve; serve()"
_PACKAGES = [str(Path(str(module.__file__)).resolve().parents[1]) for module in (fishermix, fishermix_photos)]


class NetworkBytes(bytes):
    """The bytes of a picture that somebody sent. They are always decoded by a worker."""


def decode_in_worker(data: bytes, max_pixels: int, side: int, page: int = 1) -> Image.Image:
    """The upright RGB picture; raises `UnreadableImage`."""
    seconds = SECONDS_FROM_NETWORK if isinstance(data, NetworkBytes) else SECONDS
    worker = _take()
    try:
        most = min(max_pixels, Image.MAX_IMAGE_PIXELS or max_pixels)
        answer, pixels = worker.ask(data, _HEADER.pack(len(data), most, side, page), seconds)
    except BaseException:
        worker.stop()
        raise
    _give_back(worker)
    if "reason" in answer:
        raise UnreadableImage(answer["reason"], may_change=answer["may_change"])
    return Image.frombytes("RGB", tuple(answer["size"]), pixels)


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
        with self._limit(SECONDS_TO_START):
            if self._read(len(READY)) != READY:
                self.stop()
                raise UnreadableImage("the process that decodes pictures did not start")

    def ask(self, data: bytes, header: bytes, seconds: float) -> tuple[dict, bytes]:
        """Decode a picture; returns the answer and the pixels."""
        assert self.process.stdin
        with self._limit(seconds) as limit:
            try:
                self.process.stdin.write(header + data)
                self.process.stdin.flush()
                line = self.process.stdout.readline() if self.process.stdout else b""
                answer = json.loads(line)
                width, height = answer.get("size", (0, 0))
                return answer, self._read(width * height * 3)
            except (OSError, ValueError, EOFError) as error:
                if limit.exceeded:
                    raise UnreadableImage(f"decoding it took too long (more than {seconds:g} s)") from error
                raise UnreadableImage("its decoder crashed or needed too much memory") from error

    def _read(self, count: int) -> bytes:
        assert self.process.stdout
        data = self.process.stdout.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def _limit(self, seconds: float) -> _Limit:
        return _Limit(self.process, seconds)

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


class _Limit:
    """Kills a process that is still at work after `seconds`."""

    def __init__(self, process: subprocess.Popen, seconds: float):
        self.process, self.exceeded = process, False
        self.timer = threading.Timer(seconds, self._end)
        self.timer.daemon = True

    def _end(self) -> None:
        self.exceeded = True
        self.process.kill()

    def __enter__(self) -> _Limit:
        self.timer.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.timer.cancel()


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
    except (OSError, EOFError) as error:
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
    """Decode pictures from standard input until it ends."""
    from fishermix_photos.vision.decode import decode_bytes

    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "wb") as nowhere:  # no library may write between the answers
        os.dup2(nowhere.fileno(), 1)
    _answer(answers, READY)
    while header := requests.read(_HEADER.size):
        size, max_pixels, side, page = _HEADER.unpack(header)
        Image.MAX_IMAGE_PIXELS = max_pixels
        data = requests.read(size)
        _limit_memory(max_pixels, size)
        try:
            image = decode_bytes(data, max_pixels, side, page)
        except UnreadableImage as error:
            failure = {"reason": error.reason, "may_change": error.may_change}
            _answer(answers, json.dumps(failure).encode() + b"\n")
        else:
            _answer(answers, json.dumps({"size": image.size}).encode() + b"\n", image.tobytes())


def _answer(stream: BinaryIO, *parts: bytes) -> None:
    for part in parts:
        stream.write(part)
    stream.flush()


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
