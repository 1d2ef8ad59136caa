"""What all readers share: careful text and JSON files, names that stay inside the folder, gathering.

A caption file comes from somewhere else and is not trusted: it names files to open.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from fishermix.datasets.dataset import Dataset, Protocol
from fishermix.errors import FishermixError

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
FEW_MISSING = 0.01


def find(candidates: Iterable[Path], what: str, source: str) -> Path:
    """The first path that exists; else a message says what was looked for, where, and where people get it."""
    candidates = list(candidates)
    for path in candidates:
        if path.exists():
            return path
    looked = " or ".join(str(path) for path in candidates)
    raise FishermixError(f"{what} is missing: looked for {looked}. {source}")


def read_text(path: Path) -> str:
    """A UTF-8 file as text, without byte order mark; a bad byte is reported with its line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FishermixError(f"cannot read {path}: {error.strerror}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FishermixError(
            f"{path}, line {line}: not UTF-8 (byte 0x{data[error.start]:02x}); save the file as UTF-8"
        ) from None


def lines_of(path: Path) -> Iterator[tuple[str, str]]:
    """(where, line) of every line that is not blank; `where` names file and line for messages."""
    # Not str.splitlines: captions may hold characters such as U+2028 that it would split at.
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            yield f"{path}, line {number}", line.rstrip("\r")


def parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise FishermixError(f"{where}: not JSON: {error}") from None
    except RecursionError:
        raise FishermixError(f"{where}: not a caption file: nested too deeply") from None


def member(record: Any, key: str, kind: type, where: str) -> Any:
    """record[key], checked to be of the given type."""
    if not isinstance(record, dict):
        raise FishermixError(
            f"{where}: expected an object with the key '{key}', found {type(record).__name__}"
        )
    if not isinstance(record.get(key), kind):
        found = type(record[key]).__name__ if key in record else "nothing"
        raise FishermixError(f"{where}: '{key}' should be of the type {kind.__name__}, found {found}")
    return record[key]


def safe_name(name: str, where: str) -> str:
    """The name as given, unless it could lead out of the image folder on any system."""
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    outside = posix.is_absolute() or windows.drive or windows.root or ".." in posix.parts + windows.parts
    if outside or "\0" in name or posix.name in ("", "."):
        raise FishermixError(
            f"{where}: refused the image name {name!r}: it must be a file inside the data set's image folder"
        )
    return name


class Gatherer:
    """Collects captions by image, in the order of appearance, and builds the data set at the end."""

    def __init__(self, name: str, locate: Callable[[str], Iterable[Path]]):
        self.name = name
        self.locate = locate
        self.captions: dict[str, list[str]] = {}
        self.split: dict[str, str] = {}
        self.problems: list[str] = []
        self.empty_captions = 0

    def add(self, image: str, captions: Iterable[str], where: str, split: str | None = None) -> None:
        """Add captions to an image; an image may come several times, but in one split only."""
        if image not in self.captions:
            self.captions[safe_name(image, where)] = []
        if split is not None:
            if split.strip().lower() not in SPLIT_OF:
                raise FishermixError(f"{where}: unknown split {split!r}; use train, val or test")
            split = SPLIT_OF[split.strip().lower()]
            if self.split.setdefault(image, split) != split:
                raise FishermixError(
                    f"{where}: the image {image!r} is in two splits, {self.split[image]} and {split}"
                )
        for caption in captions:
            if not isinstance(caption, str):
                raise FishermixError(f"{where}: a caption should be text, found {type(caption).__name__}")
            caption = " ".join(caption.split())
            if caption:
                self.captions[image].append(caption)
            else:
                self.empty_captions += 1

    def dataset(self, looked_in: str, protocol: Protocol | None = None) -> Dataset:
        """The data set of all images that have captions and a file."""
        if self.empty_captions:
            self.problems.append(f"{_count(self.empty_captions, 'empty caption')} left out")
        silent = [name for name, captions in self.captions.items() if not captions]
        if silent:
            self.problems.append(
                f"{_count(len(silent), 'image')} without a caption left out: {_first(silent)}"
            )
        named = [name for name, captions in self.captions.items() if captions]
        if not named:
            raise FishermixError(f"{self.name}: found no captions; looked in {looked_in}")
        paths = {name: path for name in named if (path := self._existing(name))}
        missing = [name for name in named if name not in paths]
        if missing:
            self._report_missing(missing, len(named), looked_in)
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

    def _existing(self, name: str) -> Path | None:
        return next((path for path in self.locate(name) if os.path.isfile(path)), None)

    def _report_missing(self, missing: list[str], n_named: int, looked_in: str) -> None:
        report = (
            f"{self.name}: {len(missing)} of the {n_named} photos that have captions are not on disk: "
            f"{_first(missing)}; looked in {looked_in}"
        )
        if len(missing) > FEW_MISSING * n_named:
            raise FishermixError(
                f"{report}. Up to 1 % may be missing; complete the photos or shorten the captions"
            )
        log.warning("%s; they and their captions are left out", report)
        self.problems.append(f"{_count(len(missing), 'photo')} not on disk left out: {_first(missing)}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _first(names: list[str], shown: int = 3) -> str:
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")
