"""A library that stays up to date while it is served: the server starts at once, loads in the background,
says what it is doing, and follows the changes of the folders by looking at them from time to time.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fishermix.errors import FishermixError

from fishermix_photos.disk import explain_os_error
from fishermix_photos.index.photo import name_folders
from fishermix_photos.index.scan import Listing, scan_folder
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.photos.text import TextReader
from fishermix_photos.photos.worker import stop_workers
from fishermix_photos.search.results import Changes, Photo, UnknownPhoto, replace_undecodable

State = Literal["starting", "updating", "ready"]
log = logging.getLogger(__name__)
SECONDS_UNTIL_RETRY = 10.0  # after a problem: a busy library, a full disk, a disk that is not mounted
SECONDS_TO_STOP = 15.0
SECONDS_UNTIL_RELEASE = 180.0  # for which networks, captioner and sentences stay in memory unused
SHORTEST_PAUSE = 2.0  # seconds between two looks at the folders
SECONDS_OF_PACE, SECONDS_BEFORE_ESTIMATE = 60.0, 3.0
SECONDS_OF_READING = 20.0  # text in photos, between two looks
PAUSE_PER_SCAN = 20  # a look that takes a second is repeated after 20: at most 5 % of a core


class NotReady(Exception):
    """The server is still loading."""


class TimeToLook(Exception):
    """Ends the reading of text for a moment."""


class Stopped(BaseException):
    """Ends an update between two batches, because the server stops or a folder was added; what is complete is
    kept.
    """


@dataclass(frozen=True)
class Progress:
    """What the server is doing.

    folder : what is served, for people
    version : changes whenever photos have been added, changed or removed
    problem : why a folder could not be updated the last time
    seconds_left : until `done` is `total`, as far as that can be said
    has_folders : whether there is anything to serve
    """

    folder: str
    state: State = "starting"
    message: str = "Starting."
    done: int | None = None
    total: int | None = None
    version: int = 0
    photos: int = 0
    problem: str | None = None
    seconds_left: float | None = None
    has_folders: bool = True


class Pace:
    """How fast steps are done lately, and how long the others will take."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._description = ""

    def estimate(self, description: str, done: int, total: int | None, now: float) -> float | None:
        """The seconds until all steps are done; None until a few seconds have passed."""
        if description != self._description or (self._seen and done < self._seen[-1][1]):
            self._seen.clear()
        self._description = description
        self._seen.append((now, done))
        while now - self._seen[0][0] > SECONDS_OF_PACE:
            self._seen.popleft()
        began, before = self._seen[0]
        if total is None or done <= before or now - began < SECONDS_BEFORE_ESTIMATE:
            return None
        return (total - done) * (now - began) / (done - before)


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
    open_reader : makes what reads the text in photos after each update; None: no text is read

    Requests read what the thread replaces as a whole: `_progress`, `_seen`, `_library`, `failure`. What
    requests change, `folders` and `_added`, is changed with `_adding` held. `_woken` ends a wait, and an
    update between two batches; `_stop` says that the thread shall end then.
    """

    def __init__(
        self,
        open_library: Callable[[], PhotoLibrary],
        folders: Sequence[Path] = (),
        update: bool = True,
        events: Events | None = None,
        open_reader: Callable[[], TextReader] | None = None,
    ):
        self.folders = tuple(Path(folder).expanduser().resolve() for folder in folders)
        self.failure: FishermixError | None = None
        self._open_library, self._follows, self.events = open_library, update, events or Events()
        self._has_updated = False
        self._open_reader = open_reader
        self._reader: TextReader | None = None
        self._unreadable_texts: set[bytes] = set()  # hashes of photos whose text could not be read this time
        self._has_unread = False  # photos whose text has not been read
        self._n_read = 0  # photos, since the last update
        self._stop, self._woken = threading.Event(), threading.Event()
        self._added: list[Path] = []  # folders that the next update adds to the library
        self._adding = threading.Lock()
        self._pace = Pace()
        self._seen: dict[Path, Listing | None] = {}  # None: the folder cannot be read
        self._scan_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="fishermix-live", daemon=True)
        self._library: PhotoLibrary | None = None
        self._counted = (-1, 0, True)  # the version, its number of photos, and whether it has folders
        self._progress = Progress(self._name_served())

    def _name_served(self) -> str:
        served = " and ".join(label or "/" for label in name_folders(map(str, self.folders)).values())
        return replace_undecodable(served) or "your library"

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

    def places(self) -> list[str]:
        """The full paths that messages may name: of the library and of the folders."""
        library = [] if self._library is None else [self._library.place]
        return [*library, *map(str, {*self.folders, *self._seen})]

    def progress(self) -> Progress:
        """What the thread is doing, and how many photos there are now."""
        served = self._name_served()
        if self._library is None:
            return replace(self._progress, folder=served)
        version = self._library.version
        if version != self._counted[0]:  # counting a large library takes a while
            has_folders = bool(self.folders or self._library.folders())
            self._counted = version, self._library.count(self.folders), has_folders
        _, photos, has_folders = self._counted
        return replace(
            self._progress,
            folder=served,
            version=version,
            photos=photos,
            has_folders=has_folders or bool(self._added),
        )

    def _set(self, state: State, message: str, done: int | None = None, total: int | None = None) -> None:
        left = None if done is None else self._pace.estimate(message, done, total, time.monotonic())
        self._progress = replace(
            self._progress, state=state, message=message, done=done, total=total, seconds_left=left
        )

    def add(self, folder: Path) -> tuple[str, int]:
        """Add a folder, whose photos the thread encodes next; returns its name and its number of photos."""
        place, library = Path(os.path.realpath(folder)), self.library
        if not self._follows:
            raise FishermixError(
                "This server changes nothing: it was started with --no-update.", code="read_only"
            )
        if not os.path.isdir(place):  # False for those that may not be entered
            raise FishermixError(
                f"There is no folder {folder}. Name the folder that contains your photos.", code="not_found"
            )
        if not self.folders and library.covering(place) is not None:
            raise FishermixError(f"{place} is in your library already.", code="in_library")
        if any(place.is_relative_to(served) for served in self.folders):
            raise FishermixError(f"{place} is served already.", code="in_library")
        listing = scan_folder(place)
        if not listing.photos:
            raise FishermixError(
                " ".join([f"There are no photos in {place}.", *listing.explain_left_out()]), code="no_photos"
            )
        with self._adding:
            self._added.append(place)
            if self.folders:
                self.folders = (*self.folders, place)
        self._woken.set()
        return place.name or str(place), len(listing.photos)

    # The thread

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current batch of photos, and close the library."""
        self._stop.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(SECONDS_TO_STOP)
        if self._library is not None and not self._thread.is_alive():
            self._library.close()

    def _run(self) -> None:
        try:
            self.open()
            while not self._follows and not self._stop.is_set():
                self._rest(SECONDS_UNTIL_RETRY)
            self._look()
            while not self._stop.is_set():
                if self._update():
                    self._wait_for_change()
                else:
                    self._rest(SECONDS_UNTIL_RETRY)
        except Stopped:
            return
        except FishermixError as error:
            self.failure = error
            self.events.failed()
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            self.failure = FishermixError(
                f"The server stopped. {place}{explain_os_error(error)}", code="stopped"
            )
            self.events.failed()
        except BaseException as error:
            self.failure = FishermixError(
                f"The server stopped ({type(error).__name__}: {error}).", code="stopped"
            )
            self.events.failed()
            raise
        finally:
            self._close_reader()

    def open(self) -> None:
        """Open the library and load what searches need before the first of them."""
        self.events.say("Loading the model.")
        self._set("starting", "Loading the model.")
        library = self._open_library()
        library.model  # noqa: B018 (loads it: from now on, queries are answered)
        self._library = library
        library.load()
        if self._follows:  # it is ready when the folders have been looked at
            self._set("updating", self._describe_look())
        else:
            self._set("ready", "")
        self.events.ready()

    def _describe_look(self) -> str:
        return f"Looking for new, changed and deleted photos in {self._name_served()}."

    def _list_folders(self) -> Sequence[Path]:
        """The folders to update: those that are served; of a whole library, those that exist now."""
        with self._adding:
            self._added = [folder for folder in self._added if self.library.covering(folder) is None]
        known = [status.folder for status in self.library.folders() if status.exists]
        return self.folders or [*self._added, *known]

    def _rest(self, seconds: float) -> None:
        """Forget what nobody has needed lately, then wait, unless the server stops or a folder is added."""
        if self.library.release(SECONDS_UNTIL_RELEASE):
            return_memory()
        self._woken.wait(seconds)
        self._woken.clear()

    def _wait_for_change(self) -> None:
        """Wait until photos were added, changed or deleted, or the server stops."""
        while not self._stop.is_set():
            seconds = max(SHORTEST_PAUSE, PAUSE_PER_SCAN * self._scan_seconds)
            has_more = self._read_texts(max(seconds, SECONDS_OF_READING))
            self._rest(0.0 if has_more else seconds)
            if self._stop.is_set() or self._look():
                return

    def _look(self) -> bool:
        """Whether a folder differs from what the last look saw. A folder that cannot be read differs."""
        began, before = time.monotonic(), self._seen
        try:
            self._seen = {folder: _scan(folder) for folder in self._list_folders()}
        except (FishermixError, OSError):  # the update that follows reports it
            return True
        self._scan_seconds = time.monotonic() - began
        return None in self._seen.values() or self._seen != before

    def _update(self) -> bool:
        """Bring the folders up to date; whether that worked."""
        if not self._has_updated:
            self.events.say(self._describe_look())
        self._set("updating", self._describe_look())
        problem, changes = None, Changes()
        try:
            folders = self._list_folders()
            for folder in folders:
                if folder.resolve() != folder:
                    raise FishermixError(
                        f"{folder} was replaced by a link. Start the server again.", code="wrong_folder"
                    )
            changes = self.library.update(folders, self._hear)
            if changes.encoded:
                return_memory()
            problem = replace_undecodable(" ".join(map(str, changes.problems.values()))) or None
        except Stopped:
            if self._stop.is_set():
                raise
            self._woken.clear()
            return self._update()  # a folder was added: this time with it
        except FishermixError as error:
            problem = replace_undecodable(str(error))
        except OSError as error:  # of the system, with a remedy: too many open files, a full disk
            problem = replace_undecodable(f"The update failed. {explain_os_error(error)}")
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
        self._has_unread, self._n_read = self._open_reader is not None, 0
        self._set("ready", "")
        return problem is None

    def _read_texts(self, seconds: float) -> bool:
        """Read the text in photos until it is time to look at the folders; whether some may be left."""
        if not self._has_unread or self._open_reader is None:
            return False
        begun, before = time.monotonic(), self._n_read

        def hear(description: str, done: int, total: int | None) -> None:
            if self._woken.is_set():
                raise Stopped
            self._n_read = before + done
            self._set("ready", "Reading text in photos", self._n_read, before + (total or 0))
            if done and time.monotonic() - begun > seconds:
                raise TimeToLook

        problem = None
        try:
            self._reader = self._reader or self._open_reader()
            self.library.read_texts(self.folders, hear, self._reader, self._unreadable_texts)
        except TimeToLook:
            return True
        except Stopped:
            if self._stop.is_set():
                raise
            self._woken.clear()
            return True  # a folder was added
        except FishermixError as error:
            problem = replace_undecodable(str(error))
        except OSError as error:
            problem = f"Text in photos was not read. {explain_os_error(error)}"
        except Exception as error:
            problem = f"Text in photos was not read ({type(error).__name__}: {error})."
            log.error("Text in photos was not read.", exc_info=error)
        if problem is not None:
            self.events.say(problem)
            self._progress = replace(self._progress, problem=problem)
        self._has_unread = False
        self._close_reader()
        self._set("ready", "")
        return False

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _hear(self, description: str, done: int, total: int | None) -> None:
        if self._woken.is_set():
            raise Stopped
        self._set("updating", f"{description[:1].upper()}{description[1:]}", done, total)


def return_memory() -> None:
    """Give back to the system what is not in use: idle decoders, and memory that the C library keeps."""
    stop_workers()
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):  # only the C library of most Linux systems can
        ctypes.CDLL(None).malloc_trim(0)


def _scan(folder: Path) -> Listing | None:
    try:
        return scan_folder(folder)
    except (FishermixError, OSError):
        return None
