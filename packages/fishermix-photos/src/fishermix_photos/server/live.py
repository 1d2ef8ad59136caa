"""A library that stays up to date while it is served: the server starts at once, loads in the background,
says what it is doing, and follows the changes of the folders by looking at them from time to time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fishermix.errors import FishermixError

from fishermix_photos.library import PhotoLibrary
from fishermix_photos.photo_files import Listing, scan_folder
from fishermix_photos.results import Changes, Photo, UnknownPhoto, replace_undecodable

State = Literal["starting", "updating", "ready"]
log = logging.getLogger(__name__)
SECONDS_UNTIL_RETRY = 10.0  # after a problem: a busy library, a full disk, a disk that is not mounted
SECONDS_TO_STOP = 15.0
SHORTEST_PAUSE = 2.0  # seconds between two looks at the folders
PAUSE_PER_SCAN = 20  # a look that takes a second is repeated after 20: at most 5 % of a core


class NotReady(Exception):
    """The server is still loading."""


class Stopped(BaseException):
    """Ends an update between two batches; what is complete is kept."""


@dataclass(frozen=True)
class Progress:
    """What the server is doing.

    folder : what is served, for people
    version : changes whenever photos have been added, changed or removed
    problem : why a folder could not be updated the last time
    """

    folder: str
    state: State = "starting"
    message: str = "Starting."
    done: int | None = None
    total: int | None = None
    version: int = 0
    photos: int = 0
    problem: str | None = None


@dataclass(frozen=True)
class Events:
    """What is called in the thread of a `LiveLibrary`.

    say : with each message
    ready : when queries are answered
    updated : after the first update, with what it did
    failed : if the library cannot be opened
    """

    say: Callable[[str], None] = lambda message: None
    ready: Callable[[], None] = lambda: None
    updated: Callable[[Changes], None] = lambda changes: None
    failed: Callable[[], None] = lambda: None


class LiveLibrary:
    """Opens a library in a thread, brings folders of it up to date and watches them.

    open_library : opens the model and the library; may take long
    folders : what is served; empty: the whole library
    update : whether the folders are brought up to date, now and whenever they change
    """

    def __init__(
        self,
        open_library: Callable[[], PhotoLibrary],
        folders: Sequence[Path] = (),
        update: bool = True,
        events: Events | None = None,
    ):
        self.folders = tuple(Path(folder).expanduser().resolve() for folder in folders)
        self.failure: FishermixError | None = None
        self._open_library, self._follows, self.events = open_library, update, events or Events()
        self._has_updated = False
        self._stop = threading.Event()
        self._seen: dict[Path, Listing | None] = {}  # None: the folder cannot be read
        self._scan_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="fishermix-live", daemon=True)
        self._library: PhotoLibrary | None = None
        self._counted = (-1, 0)  # the version, and its number of photos
        served = " and ".join(folder.name or str(folder) for folder in self.folders)
        self._progress = Progress(replace_undecodable(served) or "your library")

    @property
    def library(self) -> PhotoLibrary:
        if self._library is None:
            raise NotReady(self._progress.message)
        return self._library

    def photo(self, id: str) -> Photo:
        """A photo of the folders that are served; others are as unknown as those that do not exist."""
        photo = self.library.photo(id)
        if self.folders and not any(Path(photo.path).is_relative_to(folder) for folder in self.folders):
            raise UnknownPhoto(id)
        return photo

    def progress(self) -> Progress:
        """What the thread is doing, and how many photos there are now."""
        if self._library is None:
            return self._progress
        version = self._library.version
        if version != self._counted[0]:  # counting a large library takes a while
            self._counted = version, self._library.count(self.folders)
        return replace(self._progress, version=version, photos=self._counted[1])

    def _set(self, state: State, message: str, done: int | None = None, total: int | None = None) -> None:
        self._progress = replace(self._progress, state=state, message=message, done=done, total=total)

    # The thread

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current batch of photos, and close the library."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(SECONDS_TO_STOP)
        if self._library is not None and not self._thread.is_alive():
            self._library.close()

    def _run(self) -> None:
        try:
            self.open()
            if not self._follows:
                return
            self._look()
            while not self._stop.is_set():
                if self._update():
                    self._wait_for_change()
                else:
                    self._stop.wait(SECONDS_UNTIL_RETRY)
        except Stopped:
            return
        except FishermixError as error:
            self.failure = error
            self.events.failed()
        except BaseException as error:
            self.failure = FishermixError(f"The server stopped ({type(error).__name__}: {error}).")
            self.events.failed()
            raise

    def open(self) -> None:
        """Open the library and load everything before the first request for it."""
        self.events.say("Loading the model.")
        self._set("starting", "Loading the model.")
        library = self._open_library()
        library.model  # noqa: B018 (loads it: from now on, queries are answered)
        self._library = library
        self.events.say("Loading the image encoder and the captioner.")
        self._set("updating", "Loading the image encoder and the captioner.")
        library.load()
        self._set("ready", "")
        self.events.ready()

    def _list_folders(self) -> Sequence[Path]:
        """The folders to update: those that are served; of a whole library, those that exist now."""
        return self.folders or [status.folder for status in self.library.folders() if status.exists]

    def _wait_for_change(self) -> None:
        """Wait until photos were added, changed or deleted, or the server stops."""
        while not self._stop.wait(max(SHORTEST_PAUSE, PAUSE_PER_SCAN * self._scan_seconds)):
            if self._look():
                return

    def _look(self) -> bool:
        """Whether a folder differs from what the last look saw. A folder that cannot be read differs."""
        began, before = time.monotonic(), self._seen
        self._seen = {folder: _scan(folder) for folder in self._list_folders()}
        self._scan_seconds = time.monotonic() - began
        return None in self._seen.values() or self._seen != before

    def _update(self) -> bool:
        """Bring the folders up to date; whether that worked."""
        message = f"Looking for new, changed and deleted photos in {self._progress.folder}."
        if not self._has_updated:
            self.events.say(message)
        self._set("updating", message)
        problem, changes = None, Changes()
        try:
            folders = self._list_folders()
            for folder in folders:
                if folder.resolve() != folder:
                    raise FishermixError(f"{folder} was replaced by a link. Start the server again.")
            changes = self.library.update(folders, self._hear)
            problem = replace_undecodable(" ".join(map(str, changes.problems.values()))) or None
        except FishermixError as error:
            problem = replace_undecodable(str(error))
        except Exception as error:
            problem = f"The update failed ({type(error).__name__}: {error})."
            if problem != self._progress.problem:
                log.error("The update failed.", exc_info=error)
        if problem is not None and problem != self._progress.problem:
            self.events.say(problem)
        self._progress = replace(self._progress, problem=problem)
        if problem is None and not self._has_updated:
            self._has_updated = True
            self.events.updated(changes)
        self._set("ready", "")
        return problem is None

    def _hear(self, description: str, done: int, total: int | None) -> None:
        if self._stop.is_set():
            raise Stopped
        self._set("updating", f"{description[:1].upper()}{description[1:]}", done, total)


def _scan(folder: Path) -> Listing | None:
    try:
        return scan_folder(folder)
    except FishermixError:
        return None
