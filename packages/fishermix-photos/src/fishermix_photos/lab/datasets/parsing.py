"""What all readers share: reading text and JSON, checking image names, collecting captions by image.

Caption files are not trusted: they name files to open.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TypeVar

import msgspec
import numpy as np
from fishermix.errors import FishermixError

from fishermix_photos.lab.datasets.dataset import Dataset, Protocol

log = logging.getLogger("fishermix")

T = TypeVar("T")
SPLIT_OF = {
    "": "",
    "train": "train",
    "restval": "train",
    "dev": "dev",
    "val": "dev",
    "validation": "dev",
    "test": "test",
}
FEW_MISSING = 0.01  # a few photos are missing in most copies; more means a wrong folder
LISTED = 3  # names in a message


def find(folder: Path, names: Iterable[str], what: str, source: str) -> Path:
    """The first of these that exists; if there is none, an error that says where to get it."""
    paths = [folder / name for name in names]
    for path in paths:
        if path.exists():
            return path
    raise FishermixError(f"Cannot find {what}. Searched {' or '.join(map(str, paths))}. {source}")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, without a byte order mark; the error about an invalid byte names its line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FishermixError(f"Cannot read {path}: {error.strerror}.") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FishermixError(
            f"{path}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8. Save the file as UTF-8."
        ) from None


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (where, line) for every line that is not blank; `where` is file and line for messages."""
    # Not str.splitlines: captions may hold characters such as U+2028 that it would split at.
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            yield f"{path}, line {number}", line.rstrip("\r")


def parse_json(text: str, schema: type[T], where: str | Path) -> T:
    """The value of this schema in a JSON text; an error names the place."""
    try:
        return msgspec.json.decode(text, type=schema)
    except (msgspec.DecodeError, ValueError) as error:
        raise FishermixError(f"{where}: {error}.") from None
    except RecursionError:
        raise FishermixError(f"{where}: the JSON is nested too deeply for a caption file.") from None


def parse_image_name(name: str, where: str) -> str:
    """The name, if it stays inside the image folder on every operating system."""
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    outside = posix.is_absolute() or windows.drive or windows.root or ".." in posix.parts + windows.parts
    if outside or "\0" in name or posix.name in ("", "."):
        raise FishermixError(
            f"{where}: invalid image name {name!r}. It must be a file inside the image folder."
        )
    return name


class Gatherer:
    """Collects captions by image, in the order of appearance, and builds the data set.

    locate : lists the files where the photo of an image may be
    """

    def __init__(self, name: str, locate: Callable[[str], Iterable[Path]]):
        self.name = name
        self.locate = locate
        self.captions: dict[str, list[str]] = {}
        self.split: dict[str, str] = {}

    def add(self, image: str, captions: Iterable[str], where: str, split: str | None = None) -> None:
        """Add captions to an image; an image may occur several times, but in one split only."""
        if image not in self.captions:
            self.captions[parse_image_name(image, where)] = []
        if split is not None:
            if split.strip().lower() not in SPLIT_OF:
                raise FishermixError(f"{where}: unknown split {split!r}. Use train, val or test.")
            split = SPLIT_OF[split.strip().lower()]
            if self.split.setdefault(image, split) != split:
                raise FishermixError(
                    f"{where}: the image {image!r} is in two splits, {self.split[image]} and {split}."
                )
        cleaned = (" ".join(caption.split()) for caption in captions)
        self.captions[image] += [caption for caption in cleaned if caption]

    def build_dataset(self, searched: str, protocol: Protocol | None = None) -> Dataset:
        """The data set of all images with captions and a file; `searched` is the folders, for messages."""
        paths = self._locate_photos(searched)
        kept = list(paths)
        splits = np.array([self.split.get(name, "") for name in kept], dtype="U5")
        if protocol and len(kept) > protocol.dev + protocol.test:
            splits = protocol.draw(len(kept), repeat=0)
        return Dataset(
            name=self.name,
            image_names=kept,
            image_paths=list(paths.values()),
            sentences=[caption for name in kept for caption in self.captions[name]],
            image_of=np.repeat(np.arange(len(kept)), [len(self.captions[name]) for name in kept]),
            splits=splits,
            protocol=protocol,
        )

    def _locate_photos(self, searched: str) -> dict[str, Path]:
        """The file of each image that has captions, by name; up to FEW_MISSING may be missing."""
        named = [name for name, captions in self.captions.items() if captions]
        if not named:
            raise FishermixError(f"{self.name} has no captions. Searched {searched}.")
        found = {name: next(filter(os.path.isfile, self.locate(name)), None) for name in named}
        paths = {name: path for name, path in found.items() if path}
        missing = [name for name in named if name not in paths]
        if missing:
            more = f" and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
            report = (
                f"{self.name}: {len(missing)} of the {len(named)} photos with captions do not exist: "
                f"{', '.join(missing[:LISTED])}{more}. Searched {searched}."
            )
            if len(missing) > FEW_MISSING * len(named):
                raise FishermixError(
                    f"{report} Up to 1 % may be missing: add the photos, or remove their captions."
                )
            log.warning("%s They and their captions are skipped.", report)
        return paths
