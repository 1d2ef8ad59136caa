"""Finished stages of a training on disk: a training that is started again skips them."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fishermix.disk import make_private_folder
from fishermix.errors import FishermixError
from fishermix.locks import hold_folder
from fishermix.progress import is_shown
from fishermix.storage import read_kind

T = TypeVar("T")


class Stages:
    """A folder of finished stages, each named by the hash of its inputs, and the seconds spent on each."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        try:
            make_private_folder(self.folder)  # it holds points of photos
        except OSError as error:
            raise FishermixError(f"Cannot create the work folder {folder} ({error.strerror}).") from error
        self.seconds: dict[str, float] = {}
        self.held = False

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep other processes out of the folder; inside another `hold` of the same object, do nothing."""
        if self.held:
            yield
            return
        with hold_folder(self.folder, "--work"):
            self.held = True
            try:
                yield
            finally:
                self.held = False

    @contextmanager
    def clock(self, name: str) -> Iterator[None]:
        """Add the time of the block to `seconds`, and report it if progress is shown."""
        start = time.monotonic()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start
        if is_shown():
            print(f"{name}: {self.seconds[name]:.1f} s", file=sys.stderr)

    def load_or_make(
        self,
        name: str,
        inputs: Any,
        make: Callable[[], T],
        save: Callable[[T, Path], None],
        load: Callable[[Path], T],
    ) -> T:
        """The result of a stage: loaded if it was finished before, else made and saved.

        inputs : JSON values that determine the result
        """
        digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]
        folder = self.folder / f"{name.replace(' ', '-')}-{digest}"
        with self.clock(name):
            if read_kind(folder) is not None:
                return load(folder)
            result = make()
            save(result, folder)
            return result


@contextmanager
def open_stages(work: Stages | str | os.PathLike | None) -> Iterator[Stages]:
    """Stages in this folder, or in a temporary one."""
    if isinstance(work, Stages):
        yield work
    elif work is not None:
        yield Stages(work)
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Stages(folder)
