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

from PIL import Image

SECONDS = 30.0  # for a file of this machine
SECONDS_FROM_NETWORK = 10.0
SECONDS_TO_START = 60.0
BYTES_BESIDES_PIXELS = 256 << 20  # what a decoder may use besides its 16 bytes per pixel
MAX_IDLE = 4  # workers that are kept for the next pictures
READY = b"ready\n"
_HEADER = struct.Struct("<QQQQ")  # bytes of the file, most pixels, side, page
_START = "import sys; sys.path[:] = sys.argv[1:]; from fishermix.vision.worker import serve; serve()"


class NetworkBytes(bytes):
    """The bytes of a picture that somebody sent. They are always decoded by a worker."""


class WorkerFailed(Exception):
    """The picture cannot be decoded; the text is the reason.

    `may_change` : whether the same bytes may be readable later, see `UnreadableImage`
    """

    def __init__(self, reason: str, may_change: bool = False):
        super().__init__(reason)
        self.may_change = may_change


def decode_in_worker(data: bytes, max_pixels: int, side: int, page: int = 1) -> tuple[Image.Image, list[str]]:
    """The upright RGB picture and the remarks of its decoder; raises `WorkerFailed`."""
    seconds = SECONDS_FROM_NETWORK if isinstance(data, NetworkBytes) else SECONDS
    worker = _take()
    try:
        most = min(max_pixels, Image.MAX_IMAGE_PIXELS or max_pixels)
        answer, pixels = worker.ask(data, (most, side, page), seconds)
    except BaseException:
        worker.stop()
        raise
    _give_back(worker)
    if "reason" in answer:
        raise WorkerFailed(answer["reason"], answer["may_change"])
    return Image.frombytes("RGB", tuple(answer["size"]), pixels), answer["remarks"]


def _import_folders() -> list[str]:
    """Where a worker imports from: never the current folder, which may hold anybody's files beside photos."""
    here = Path.cwd()
    package = str(Path(__file__).resolve().parents[2])
    return [package] + [entry for entry in sys.path if os.path.isabs(entry) and Path(entry).resolve() != here]


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
                raise WorkerFailed("the process that decodes pictures did not start")

    def ask(self, data: bytes, how: tuple[int, int, int], seconds: float) -> tuple[dict, bytes]:
        """Decode a picture within `how`: most pixels, side and page; returns the answer and the pixels."""
        assert self.process.stdin
        with self._limit(seconds) as limit:
            try:
                self.process.stdin.write(_HEADER.pack(len(data), *how) + data)
                self.process.stdin.flush()
                line = self.process.stdout.readline() if self.process.stdout else b""
                answer = json.loads(line)
                width, height = answer.get("size", (0, 0))
                return answer, self._read(width * height * 3)
            except (OSError, ValueError, EOFError) as error:
                if limit.exceeded:
                    raise WorkerFailed(f"decoding it took too long (more than {seconds:g} s)") from error
                raise WorkerFailed("its decoder crashed or needed too much memory") from error

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
        raise WorkerFailed(f"the process that decodes pictures did not start ({error})") from error


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
    from fishermix.vision.decoding import decode_bytes
    from fishermix.vision.unreadable import UnreadableImage

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
            image, remarks = decode_bytes(data, max_pixels, side, page)
        except UnreadableImage as error:
            _answer(
                answers, json.dumps({"reason": error.reason, "may_change": error.may_change}).encode() + b"\n"
            )
        else:
            head = {"size": image.size, "remarks": remarks}
            _answer(answers, json.dumps(head).encode() + b"\n", image.tobytes())


def _answer(stream: BinaryIO, *parts: bytes) -> None:
    for part in parts:
        stream.write(part)
    stream.flush()


def _limit_memory(max_pixels: int, size: int) -> None:
    """Limit the address space of this process, where the system can: not on Windows and macOS."""
    from fishermix.vision.pixel_limit import BYTES_PER_PIXEL

    try:
        import resource

        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        most = used + max_pixels * BYTES_PER_PIXEL + 2 * size + BYTES_BESIDES_PIXELS
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
    except (ImportError, OSError, ValueError):
        return
