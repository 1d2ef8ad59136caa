"""Folders that stay up to date while they are served: the server starts at once, loads in the background,
says what it is doing, and follows the changes of the folders.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fishermix.errors import FishermixError
from fishermix.progress import listen_to_progress
from fishermix.retrieval.index import PhotoIndex
from fishermix.retrieval.store import StoreLocked
from fishermix.retrieval.update import Changes
from fishermix.server.messages import Progress
from fishermix.server.photos import PhotoService
from fishermix.server.watch import FolderWatcher

SECONDS_BETWEEN_VERSIONS = 1.0  # while many photos are indexed, pages are told to ask again so often
SECONDS_UNTIL_RETRY = 10.0  # after a problem: a locked index, a full disk, a disk that is not mounted
SECONDS_TO_STOP = 15.0


class NotReady(Exception):
    """The server is still loading."""


class Stopped(BaseException):
    """Ends an update between two batches; what is complete is kept."""


class LiveFolder:
    """Opens the index of one or more folders in a thread, brings it up to date and watches the folders.

    open_index : opens the model and the index; may take long
    update : whether to look for changes at all
    on_first_update : called after the first update, with what it did and the index
    on_failure : called if the index cannot be opened
    on_ready : called when queries are answered
    """

    def __init__(
        self,
        folders: Sequence[Path],
        open_index: Callable[[], PhotoIndex],
        sentences: list[str] | None,
        update: bool = True,
        polling: bool = False,
        on_first_update: Callable[[Changes, PhotoIndex], None] = lambda changes, index: None,
        on_failure: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda text: None,
        on_ready: Callable[[], None] = lambda: None,
    ):
        self.folders, self.failure = list(folders), None
        self._open_index, self._sentences, self._wants_update = open_index, sentences, update
        self._on_first_update, self._on_failure, self._tell = on_first_update, on_failure, say
        self._on_ready = on_ready
        self._has_updated = False
        self._stop = threading.Event()
        self._watcher = FolderWatcher(self.folders, self._stop, polling)
        self._thread = threading.Thread(target=self._run, name="fishermix-live", daemon=True)
        self._lock = threading.Lock()
        self._service: PhotoService | None = None
        self._state, self._message = "starting", "Starting."
        self._problem: str | None = None
        self._skipped: list[str] = []
        self._done: int | None = None
        self._total: int | None = None
        self._version, self._versioned = 0, 0.0

    failure: FishermixError | None

    @classmethod
    def of_index(cls, index: PhotoIndex, sentences: list[str] | None) -> LiveFolder:
        """An index that is open already, and stays as it is."""
        live = cls([part.folder for part in index.parts], lambda: index, sentences, update=False)
        live._service = PhotoService(index, sentences)
        live._service.load()
        live._set("ready", "")
        return live

    @property
    def name(self) -> str:
        """What the folders are called."""
        return " and ".join(folder.name or str(folder) for folder in self.folders)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current batch of photos."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(SECONDS_TO_STOP)

    @property
    def service(self) -> PhotoService:
        if self._service is None:
            raise NotReady(self._message)
        return self._service

    @property
    def is_ready(self) -> bool:
        return self._service is not None

    def skip(self, problem: str) -> None:
        """Report a folder that cannot be served, in the terminal and in the page."""
        self._tell(problem)
        self._skipped.append(problem)

    def count(self) -> int:
        return 0 if self._service is None else self._service.count()

    def progress(self) -> Progress:
        photos = self.count()
        with self._lock:
            return Progress(
                state=self._state,  # type: ignore[arg-type]
                message=self._message,
                done=self._done,
                total=self._total,
                version=self._version,
                photos=photos,
                problem=" ".join(filter(None, [*self._skipped, self._problem])) or None,
            )

    def _set(self, state: str, message: str, done: int | None = None, total: int | None = None) -> None:
        with self._lock:
            self._state, self._message, self._done, self._total = state, message, done, total

    def _announce(self) -> None:
        """Photos have changed: pages ask again."""
        if self._service is not None:
            self._service.forget()
        with self._lock:
            self._version, self._versioned = self._version + 1, time.monotonic()

    # The thread

    def _run(self) -> None:
        try:
            self._open()
            if not self._wants_update:
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
            self._on_failure()
        except BaseException as error:
            self.failure = FishermixError(f"The server stopped ({type(error).__name__}: {error}).")
            self._on_failure()
            raise

    def _open(self) -> None:
        self._step("Loading the model.")
        index = self._open_index()
        self.folders[:] = [part.folder for part in index.parts]  # without those that cannot be served
        if self._wants_update:
            self._adopt(index)
        self._service = PhotoService(index, self._sentences)
        self._announce()
        self._set("updating", "Loading the image encoder and the captioner.")
        self._tell("Loading the image encoder and the captioner.")
        self._service.load()
        self._set("ready", "")
        self._on_ready()

    def _adopt(self, index: PhotoIndex) -> None:
        """Make the index that of the model: before, it must not be searched.

        One folder after the other: two of them may be parts of the index of a third, which is locked once.
        """
        for part in index.parts:
            self._adopt_one(part)

    def _adopt_one(self, index: PhotoIndex) -> None:
        while index.store.model_key() != index.model.key:
            try:
                with index.store.writing():
                    if index.store.adopt(index.model.key, index.model.match_dimension):
                        self._tell("The index was made with another model. All photos are encoded again.")
            except StoreLocked as locked:
                self._step(str(locked))
                if self._stop.wait(1):
                    raise Stopped from None

    def _step(self, message: str) -> None:
        self._tell(message)
        self._set("starting", message)

    def _update(self) -> bool:
        """Bring the index up to date; whether that worked."""
        service = self.service
        if not self._has_updated:
            names = " and ".join(map(str, self.folders))
            self._tell(f"Looking for new, changed and deleted photos in {names}.")
        self._set("updating", f"Looking for new, changed and deleted photos in {self.name}.")
        try:
            with listen_to_progress(self._hear):
                changes = service.index.update()
        except FishermixError as error:
            if str(error) != self._problem:
                self._tell(str(error))
            self._problem = str(error)
            if service.has_changed():  # of several folders, others may be up to date
                self._announce()
            self._set("ready", "")
            return False
        self._problem = None
        if service.has_changed() or changes.encoded or changes.recognised or changes.removed:
            service.remove_stale_thumbnails()
            self._announce()
        if not self._has_updated:
            self._has_updated = True
            self._on_first_update(changes, service.index)
        self._set("ready", "")
        return True

    def _hear(self, description: str, done: int, total: int | None) -> None:
        if self._stop.is_set():
            raise Stopped
        self._set("updating", f"{description[:1].upper()}{description[1:]}", done, total)
        if done and time.monotonic() - self._versioned >= SECONDS_BETWEEN_VERSIONS:
            self._announce()
