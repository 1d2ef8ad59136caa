"""Waits until something in a few folders changes: the system says so (watchfiles), or they are looked at."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from fishermix.errors import FishermixError

from fishermix_photos.photo_files import Listing, scan_folder

log = logging.getLogger(__name__)
SHORTEST_PAUSE = 2.0  # seconds between two looks at a folder
PAUSE_PER_SCAN = 20  # a look that takes a second is repeated after 20: at most 5 % of a core
LONGEST_TRUST = 60.0  # seconds after which the folder is looked at although the system reported nothing
PAUSE_PER_EVENT = 2  # the same after a report of the system
EVENT_TIMEOUT_MS = 3000
QUIET_MS = 300  # changes are reported when none has followed for so long


class FolderWatcher:
    """`wait` returns when photos were added, changed or deleted. Network drives often report nothing, so the
    folders are also looked at from time to time.

    list_folders : gives the folders, which may change
    """

    def __init__(self, list_folders: Callable[[], Sequence[Path]], stop: threading.Event):
        self.list_folders, self.stop = list_folders, stop
        self.polling = find_spec("watchfiles") is None
        self._seen: dict[Path, Listing | None] = {}  # None: the folder cannot be read
        self._looked, self._cost = 0.0, 0.0  # when, and how many seconds it took
        self._events: Iterator[object] | None = None

    def look(self) -> bool:
        """Whether a folder differs from what the last look saw. A folder that cannot be read differs."""
        began = time.monotonic()
        now = {folder: self._scan(folder) for folder in self.list_folders()}
        if now.keys() != self._seen.keys():
            self._events = None
        changed, self._seen = None in now.values() or now != self._seen, now
        self._looked = time.monotonic()
        self._cost = self._looked - began
        return changed

    def _scan(self, folder: Path) -> Listing | None:
        try:
            return scan_folder(folder)
        except FishermixError:
            self._events = None  # what comes back, a disk that is mounted again, is another folder
            return None

    def wait(self) -> bool:
        """Wait for a change; False when `stop` was set."""
        while not self.stop.is_set():
            if self.polling or not self._seen or None in self._seen.values():
                self.stop.wait(max(SHORTEST_PAUSE, PAUSE_PER_SCAN * self._cost))
            elif not self._wait_for_event():
                continue
            if not self.stop.is_set() and self.look():
                return True
        return False

    def _wait_for_event(self) -> bool:
        """Whether the folders are to be looked at, after at most a few seconds."""
        is_new = self._events is None
        try:
            self._events = self._events or self._watch()
            happened = bool(next(self._events, None))
        except Exception as error:  # too many folders for the system's limit, a file system without events
            names = ", ".join(map(str, self._seen))
            log.info("The system cannot watch %s (%s): it is polled.", names, error)
            self.polling = True
            return True
        if happened:
            self.stop.wait(PAUSE_PER_EVENT * self._cost)  # a large folder in which much happens
        # What changed before the first event was asked for was not reported.
        is_late = time.monotonic() - self._looked > LONGEST_TRUST
        return happened or is_new or is_late or set(self.list_folders()) != self._seen.keys()

    def _watch(self) -> Iterator[object]:
        from watchfiles import watch

        return watch(
            *self._seen,
            watch_filter=None,
            debounce=4 * QUIET_MS,
            step=QUIET_MS,
            stop_event=self.stop,
            rust_timeout=EVENT_TIMEOUT_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
        )
