"""What all readers share: reading text and JSON, checking image names, collecting captions by image.

Caption files are not trusted: they name files to open.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
from fishermix.errors import FishermixError

from fishermix_photos.lab.datasets.dataset import Dataset, Protocol

log = logging.getLogger("fishermix")

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


def find(candidates: Iterable[Path], what: str, source: str) -> Path:
    """The first path that exists; if there is none, the error says what is missing and where to get it."""
    candidates = list(candidates)
    for path in candidates:
        if path.exists():
            return path
    searched = " or ".join(str(path) for path in candidates)
    raise FishermixError(f"Cannot find {what}. Searched {searched}. {source}")


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


def read_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise FishermixError(f"{where}: invalid JSON: {error}.") from None
    except RecursionError:
        raise FishermixError(f"{where}: the JSON is nested too deeply for a caption file.") from None


def parse_field(record: Any, key: str, kind: type, where: str) -> Any:
    """record[key], if it has the given type."""
    if not isinstance(record, dict):
        raise FishermixError(
            f"{where}: expected an object with the key '{key}', found {type(record).__name__}."
        )
    if not isinstance(record.get(key), kind):
        found = type(record[key]).__name__ if key in record else "nothing"
        raise FishermixError(f"{where}: '{key}' must have the type {kind.__name__}, found {found}.")
    return record[key]


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
    """Collects captions by image, in the order of appearance, and builds the data set."""

    def __init__(self, name: str, locate: Callable[[str], Iterable[Path]]):
        self.name = name
        self.locate = locate
        self.captions: dict[str, list[str]] = {}
        self.split: dict[str, str] = {}
        self.problems: list[str] = []
        self.empty_captions = 0

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
        for caption in captions:
            if not isinstance(caption, str):
                raise FishermixError(f"{where}: a caption must be text, found {type(caption).__name__}.")
            caption = " ".join(caption.split())
            if caption:
                self.captions[image].append(caption)
            else:
                self.empty_captions += 1

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
            problems=tuple(self.problems),
        )

    def _locate_photos(self, searched: str) -> dict[str, Path]:
        """The file of each image that has captions, by name; reports what is skipped."""
        if self.empty_captions:
            self.problems.append(f"Skipped {count(self.empty_captions, 'empty caption')}.")
        silent = [name for name, captions in self.captions.items() if not captions]
        if silent:
            self.problems.append(
                f"Skipped {count(len(silent), 'image')} without a caption: {_list_first(silent)}."
            )
        named = [name for name, captions in self.captions.items() if captions]
        if not named:
            raise FishermixError(f"{self.name} has no captions. Searched {searched}.")
        paths = {name: path for name in named if (path := self._find_photo(name))}
        missing = [name for name in named if name not in paths]
        if missing:
            self._report_missing(missing, len(named), searched)
        return paths

    def _find_photo(self, name: str) -> Path | None:
        return next((path for path in self.locate(name) if os.path.isfile(path)), None)

    def _report_missing(self, missing: list[str], n_named: int, searched: str) -> None:
        report = (
            f"{self.name}: {len(missing)} of the {n_named} photos with captions do not exist: "
            f"{_list_first(missing)}. Searched {searched}."
        )
        if len(missing) > FEW_MISSING * n_named:
            raise FishermixError(
                f"{report} Up to 1 % may be missing: add the photos, or remove their captions."
            )
        log.warning("%s They and their captions are skipped.", report)
        self.problems.append(f"Skipped {count(len(missing), 'missing photo')}: {_list_first(missing)}.")


def count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _list_first(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
