"""Looks for duplicates while the server answers other requests: comparing many photos takes minutes."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from fishermix.progress import listen_to_progress

from fishermix_photos.server.live import LiveLibrary, Stopped
from fishermix_photos.server.messages import DuplicatesMessage, show_group

if TYPE_CHECKING:
    from fishermix_photos.duplicates import DuplicateGroup

MOST_GROUPS = 500  # in one answer


class Comparison:
    """Compares the photos of a library in a thread, once for each version of the library."""

    def __init__(self, live: LiveLibrary):
        self._live, self._lock = live, threading.Lock()
        self._version: int | None = None
        self._groups: Future[list[DuplicateGroup]] = Future()
        self._done: tuple[int, int | None] = (0, None)

    def show(self) -> DuplicatesMessage:
        """The groups of duplicates, or how far the comparison is."""
        version = self._live.library.version
        with self._lock:
            is_idle = self._version is None or self._groups.done()
            if version != self._version and is_idle:
                self._version, self._groups = version, Future()
                threading.Thread(target=self._run, args=(self._groups,), daemon=True).start()
            groups = self._groups
        if not groups.done():
            done, total = self._done
            return DuplicatesMessage(ready=False, done=done, total=total, groups=[], more=False)
        found = groups.result()
        shown = [show_group(group) for group in found[:MOST_GROUPS]]
        return DuplicatesMessage(ready=True, groups=shown, more=len(found) > MOST_GROUPS)

    def _run(self, groups: Future[list[DuplicateGroup]]) -> None:
        try:
            with listen_to_progress(self._hear):
                groups.set_result(self._live.library.duplicates(self._live.folders))
        except Stopped:
            groups.cancel()
        except Exception as error:
            groups.set_exception(error)

    def _hear(self, description: str, done: int, total: int | None) -> None:
        if self._live.is_stopping:
            raise Stopped
        self._done = done, total
