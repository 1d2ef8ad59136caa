"""Reading the text in photos: signs, receipts, screenshots and slides, by a process of its own.

The photo is decoded as all photos are. The process gets nothing but its pixels, at a low priority and in one
thread; a picture that exceeds a limit of time or memory ends it, and the next one gets a new process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Any

import numpy as np
from fishermix.errors import FishermixError, install_command
from PIL import Image, ImageOps

from fishermix_photos.photos.decode import BYTES_PER_PIXEL
from fishermix_photos.photos.formats import UnreadableImage
from fishermix_photos.photos.open import borrow_photo
from fishermix_photos.photos.worker import Worker

PACKAGE = "rapidocr-onnxruntime"
LONGEST_SIDE = 1600  # pixels of what is read; a page of a book is legible
SECONDS = 300.0  # for a picture: a busy machine gives little of its time to the process
MOST_BYTES = 2 << 30  # of the address space, beyond that of the process at its start
MOST_PROPORTION = 30  # of the sides of a picture
LEAST_CONFIDENCE = 0.85  # of a line
LEAST_SPACE = 0.05  # the probability of a space between two letters that is one
MOST_CHARACTERS = 20_000  # in a photo
NICENESS = 10  # of the process: a search goes first

ReadText = Callable[[Image.Image], str]


def find_reader() -> str | None:
    """Name and version of the package that reads text; None if it is not installed."""
    try:
        return f"{PACKAGE} {version(PACKAGE)}"
    except PackageNotFoundError:
        return None


def explain_missing_reader() -> str:
    """What to do to read text."""
    if sys.version_info >= (3, 13):
        return f"{PACKAGE} needs Python 3.11 or 3.12"
    return install_command("fishermix-photos[text]")


def expect_reader() -> None:
    """Raise if the package that reads text is not installed."""
    if find_reader() is None:
        raise FishermixError(
            f"Reading text in photos needs another package: {explain_missing_reader()}.",
            code="missing_package",
        )


def open_picture(path: str) -> Image.Image:
    """The upright RGB picture of a photo, small enough to be read."""
    with borrow_photo(path, side=LONGEST_SIDE) as image:
        image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
        # The reader enlarges the short side, so a strip would take gigabytes: it gets a margin.
        shortest = max(image.size) // MOST_PROPORTION
        if min(image.size) >= shortest:
            return image.convert("RGB")
        size = max(image.width, shortest), max(image.height, shortest)
        return ImageOps.pad(image.convert("RGB"), size, color="white")


class TextReader:
    """Reads the text in pictures; call it with a picture. It starts its process when it is first called."""

    def __init__(self) -> None:
        expect_reader()
        self._worker: Worker | None = None

    def __call__(self, image: Image.Image) -> str:
        data = image.tobytes()
        request = {
            "task": "read_text",
            "bytes": len(data),
            "max_pixels": MOST_BYTES // BYTES_PER_PIXEL,
            "arguments": {"size": image.size},
        }
        try:
            if self._worker is None:
                self._worker = Worker()
            answer: Any = self._worker.ask(request, data, SECONDS, None)
        except BaseException:
            self.close()
            raise
        if "reason" in answer:
            raise UnreadableImage(answer["reason"], code=answer["code"])
        return answer["result"]

    def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def __enter__(self) -> TextReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# In the worker


def read_text(pixels: bytes, size: tuple[int, int]) -> str:
    """The lines of text in a picture, from the top to the bottom."""
    width, height = size
    image = np.frombuffer(pixels, np.uint8).reshape(height, width, 3)
    found, _ = _load_networks()(np.ascontiguousarray(image[..., ::-1]))
    lines = [text for _, text, confidence in found or () if float(confidence) >= LEAST_CONFIDENCE]
    return "\n".join(lines)[:MOST_CHARACTERS]


@cache
def _load_networks() -> Any:
    os.nice(NICENESS)
    os.environ["OPENCV_FOR_THREADS_NUM"] = "1"
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # see `model.network`
    from rapidocr_onnxruntime import RapidOCR

    networks = RapidOCR(intra_op_num_threads=1, inter_op_num_threads=1)
    letters = networks.text_rec.postprocess_op.character
    networks.text_rec.postprocess_op = lambda lines, *_, **__: [decode_line(line, letters) for line in lines]
    return networks


def decode_line(line: np.ndarray, letters: Sequence[str]) -> tuple[str, float]:
    """The most probable text (CTC) of probabilities (steps, letters), and the mean of those of its letters.

    The first letter is the blank, the last one the space. The network was trained on Chinese, and hides most
    spaces between Latin words behind a blank: "FIN DEL MUNDO" would be one word.
    """
    best = line.argmax(axis=1)
    is_new = np.concatenate([[True], best[1:] != best[:-1]]) & (best != 0)
    steps = np.flatnonzero(is_new)
    text, last = "", 0
    for step in steps.tolist():
        if text and line[last + 1 : step, -1].max(initial=0) > LEAST_SPACE:
            text += " "
        text += letters[best[step]]
        last = step
    confidence = float(line[steps, best[steps]].mean()) if len(steps) else 0.0
    return " ".join(text.split()), confidence
