"""A library that stays up to date while it is served: the server starts at once, loads in the background,
says what it is doing, and follows the changes of the folders.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fishermix.errors import FishermixError

from fishermix_photos.library import PhotoLibrary
from fishermix_photos.query import Filter, Term
from fishermix_photos.results import Changes, Photo, Query, Sort
from fishermix_photos.server.messages import ProgressMessage
from fishermix_photos.server.thumbnails import Thumbnails
from fishermix_photos.server.watch import FolderWatcher

log = logging.getLogger(__name__)
SECONDS_UNTIL_RETRY = 10.0  # after a problem: a busy library, a full disk, a disk that is not mounted
SECONDS_TO_STOP = 15.0


class NotReady(Exception):
    """The server is still loading."""


class Stopped(BaseException):
    """Ends an update between two batches; what is complete is kept."""


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
    sentences : photos are annotated with these; None: with the model's
    exclude : globs of photos that are not added
    update : whether the folders are brought up to date, now and whenever they change
    """

    def __init__(
        self,
        open_library: Callable[[], PhotoLibrary],
        folders: Sequence[Path] = (),
        sentences: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        update: bool = True,
        events: Events | None = None,
    ):
        self.folders = tuple(Path(folder).expanduser().resolve() for folder in folders)
        self.sentences, self.exclude = sentences, exclude
        self.failure: FishermixError | None = None
        self._open_library, self._follows, self.events = open_library, update, events or Events()
        self._has_updated = False
        self._stop = threading.Event()
        self._watcher = FolderWatcher(self._list_folders, self._stop)
        self._thread = threading.Thread(target=self._run, name="fishermix-live", daemon=True)
        self._lock = threading.Lock()
        self._library: PhotoLibrary | None = None
        self._thumbnails: Thumbnails | None = None
        self._counted: tuple[int, int] | None = None  # the version, and its number of photos
        self._progress = ProgressMessage(
            state="starting", message="Starting.", version=0, photos=0, problem=None
        )
        self._problem: str | None = None

    @property
    def name(self) -> str:
        """What is served, for people."""
        return " and ".join(folder.name or str(folder) for folder in self.folders) or "your library"

    @property
    def library(self) -> PhotoLibrary:
        if self._library is None:
            raise NotReady(self._progress.message)
        return self._library

    @property
    def thumbnails(self) -> Thumbnails:
        if self._thumbnails is None:
            raise NotReady(self._progress.message)
        return self._thumbnails

    @property
    def is_ready(self) -> bool:
        return self._library is not None

    def make_query(self, terms: tuple[Term, ...], filter: Filter, sort: Sort, n: int, offset: int) -> Query:
        """A query for photos that are served."""
        return Query(terms, self.folders, filter, sort, n, offset, exclude=tuple(self.exclude))

    def serves(self, photo: Photo) -> bool:
        """Whether a photo of the library is in one of the folders."""
        return not self.folders or any(
            photo.path.startswith(f"{os.fspath(folder).rstrip('/')}/") for folder in self.folders
        )

    def progress(self) -> ProgressMessage:
        """What the thread is doing, and how many photos there are now."""
        version, photos = self._count()
        with self._lock:
            changes = {"version": version, "photos": photos, "problem": self._problem}
            return self._progress.model_copy(update=changes)

    def _count(self) -> tuple[int, int]:
        """The version of the library and its number of photos; counting a large library takes a while."""
        if self._library is None:
            return 0, 0
        version = self._library.version
        counted = self._counted
        if counted is None or counted[0] != version:
            counted = self._counted = version, self._library.count(self.folders)
        return counted

    def _set(self, state: str, message: str, done: int | None = None, total: int | None = None) -> None:
        with self._lock:
            changes = {"state": state, "message": message, "done": done, "total": total}
            self._progress = self._progress.model_copy(update=changes)

    def _say(self, state: str, message: str) -> None:
        self.events.say(message)
        self._set(state, message)

    # The thread

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current batch of photos, and close the library."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(SECONDS_TO_STOP)
        if self._thumbnails is not None:
            self._thumbnails.close()
        if self._library is not None and not self._thread.is_alive():
            self._library.close()

    def _run(self) -> None:
        try:
            self.open()
            if not self._follows:
                return
            self._watcher.look()
            while True:
                if self._update():
                    if not self._watcher.wait():
                        return
                elif self._stop.wait(SECONDS_UNTIL_RETRY):
                    return
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
        self._say("starting", "Loading the model.")
        library = self._open_library()
        library.model  # noqa: B018 (loads it: from now on, queries are answered)
        self._thumbnails = Thumbnails.of_library(library)
        self._library = library
        self._say("updating", "Loading the image encoder and the captioner.")
        library.load()
        self._set("ready", "")
        self.events.ready()

    def _list_folders(self) -> Sequence[Path]:
        """The folders to update: those that are served; of a whole library, those that exist now."""
        return self.folders or [status.folder for status in self.library.folders() if status.exists]

    def _update(self) -> bool:
        """Bring the folders up to date; whether that worked."""
        message = f"Looking for new, changed and deleted photos in {self.name}."
        if not self._has_updated:
            self.events.say(message)
        self._set("updating", message)
        problem, changes = None, Changes()
        try:
            folders = self._list_folders()
            for folder in folders:
                if folder.resolve() != folder:
                    raise FishermixError(f"{folder} was replaced by a link. Start the server again.")
            changes = self.library.update(folders, self.exclude, self._hear)
            problem = " ".join(str(error) for error in changes.problems.values()) or None
        except FishermixError as error:
            problem = str(error)
        except Exception as error:
            problem = f"The update failed ({type(error).__name__}: {error})."
            if problem != self._problem:
                log.error("The update failed.", exc_info=error)
        if problem is not None and problem != self._problem:
            self.events.say(problem)
        with self._lock:
            self._problem = problem
        if changes or not self._has_updated:
            self.thumbnails.remove_stale(self.library)
        if problem is None and not self._has_updated:
            self._has_updated = True
            self.events.updated(changes)
        self._set("ready", "")
        return problem is None

    def _hear(self, description: str, done: int, total: int | None) -> None:
        if self._stop.is_set():
            raise Stopped
        self._set("updating", f"{description[:1].upper()}{description[1:]}", done, total)
